"""Spans and events from OTLP requests in JSON: ids are hexadecimal, enumerations are numbers or
names, 64-bit numbers are strings or numbers.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from tidegauge._span_faults import span_faults
from tidegauge.instrumentation.spans.convention_reader import MARKER_ATTRIBUTES, looks_like_agent
from tidegauge.instrumentation.spans.conventions.genai import event_span
from tidegauge.instrumentation.spans.span import Attributes, SpanData
from tidegauge.receivers.otlp.decoding import (
    EVENT_NAME,
    MAX_DEPTH,
    MAX_EVENTS,
    READ_LIMITS,
    REMOTE,
    Decoded,
    DecodedSpans,
    MalformedRequestError,
    ReadLimits,
    event_details,
    event_name,
    may_be_sampled,
)

__all__ = ["decode_json", "decode_logs_json"]

_ERROR: Final = (2, "2", "STATUS_CODE_ERROR")
_NOTHING: Final[Attributes] = {}


def decode_json(body: bytes, limits: ReadLimits = READ_LIMITS) -> Decoded:
    """The spans of a trace request in OTLP's JSON.

    Raises:
        MalformedRequestError: the body is not such a request.

    >>> span = '{"traceId": "%032x", "spanId": "%016x", "name": "chat"}' % (1, 2)
    >>> body = '{"resourceSpans": [{"scopeSpans": [{"spans": [%s]}]}]}' % span
    >>> decode_json(body.encode()).spans[0].span_id
    2
    """
    request = _request(body)
    accepted = DecodedSpans(limits)
    for resource_spans in _objects(request, "resourceSpans"):
        resource = _Attributes(resource_spans.get("resource"), limits)
        for scope_spans in _objects(resource_spans, "scopeSpans"):
            scope = _scope(scope_spans)
            for span in _list(scope_spans, "spans"):
                try:
                    size = _size(span, len(body))
                    accepted.add(_span(span, scope, resource, limits, size))
                except (AttributeError, TypeError, ValueError, KeyError, OverflowError):
                    accepted.reject("invalid")
    return accepted.decoded


def decode_logs_json(body: bytes, limits: ReadLimits = READ_LIMITS) -> Decoded:
    """The events in a log request in OTLP's JSON; other log records are ignored.

    Raises:
        MalformedRequestError: the body is not such a request.

    >>> decode_logs_json(b"{}")
    Decoded(spans=[], rejected={}, signal='logs')
    """
    accepted = DecodedSpans(limits, "logs")
    for resource_logs in _objects(_request(body), "resourceLogs"):
        for scope_logs in _objects(resource_logs, "scopeLogs"):
            scope = _scope(scope_logs)
            for record in _objects(scope_logs, "logRecords"):
                try:
                    event = _event(record, scope, limits, len(body))
                except ValueError:
                    accepted.reject("invalid")
                else:
                    if event is not None:
                        accepted.add(event)
    return accepted.decoded


def _request(body: bytes) -> Mapping[str, Any]:
    try:
        request = orjson.loads(body)
    except ValueError as error:
        raise MalformedRequestError(f"not valid JSON: {error}") from error
    if not isinstance(request, dict):
        raise MalformedRequestError("a request in JSON must be an object")
    return request


def _scope(holder: Mapping[str, Any]) -> str:
    given = holder.get("scope")
    return str(given.get("name", "")) if isinstance(given, dict) else ""


def _event(record: dict[str, Any], scope: str, limits: ReadLimits, most: int) -> SpanData | None:
    """The event in a log record, if it is one of a span."""
    attributes = _Attributes(record, limits)
    name = event_name(record.get("eventName"), attributes.get(EVENT_NAME))
    if name is None or not record.get("traceId") or not record.get("spanId"):
        return None
    if not may_be_sampled(_unsigned(record.get("flags"))):
        return None
    return event_span(
        name,
        (_id(record["traceId"], 32), _id(record["spanId"], 16)),
        event_details(dict(attributes), _value(record.get("body"), limits)),
        scope=scope,
        time=_unsigned(record.get("timeUnixNano")) or _unsigned(record.get("observedTimeUnixNano")),
        size=_size(record, most),
    )


class _Attributes(Mapping[str, Any]):
    """Attributes in JSON, each read on access."""

    __slots__ = ("_limits", "_pairs")

    def __init__(self, holder: Any, limits: ReadLimits) -> None:
        pairs = holder.get("attributes") if isinstance(holder, dict) else None
        self._pairs: dict[str, Any] = {}
        self._limits = limits
        if isinstance(pairs, list) and len(pairs) > limits.attributes:
            span_faults.repair("cut")
        for pair in pairs[: limits.attributes] if isinstance(pairs, list) else ():
            if isinstance(pair, dict) and isinstance(pair.get("key"), str):
                self._pairs[pair["key"]] = pair.get("value")

    def __getitem__(self, key: str) -> Any:
        return _value(self._pairs[key], self._limits)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of an attribute."""
        if key not in self._pairs:
            return default
        return _value(self._pairs[key], self._limits)

    def __contains__(self, key: object) -> bool:
        return key in self._pairs

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __repr__(self) -> str:
        return repr(dict(self))


def _span(
    span: dict[str, Any], scope: str, resource: Attributes, limits: ReadLimits, size: int
) -> SpanData:
    parent, status = span.get("parentSpanId"), span.get("status") or _NOTHING
    name, message = span.get("name", ""), status.get("message")
    if not isinstance(name, str):
        raise TypeError("name must be a string")
    attributes = _Attributes(span, limits)
    if attributes.keys().isdisjoint(MARKER_ATTRIBUTES) and looks_like_agent(attributes):
        span_faults.unread(scope, "unknown_convention")
    return SpanData(
        _id(span["traceId"], 32),
        _id(span["spanId"], 16),
        (_id(parent, 16) or None) if parent else None,
        name,
        scope,
        attributes,
        _unsigned(span.get("startTimeUnixNano")),
        _unsigned(span.get("endTimeUnixNano")),
        status.get("code") in _ERROR,
        str(message) if message else None,
        tuple(
            [(str(event.get("name", "")), _Attributes(event, limits)) for event in _events(span)]
        ),
        resource,
        _unsigned(span.get("flags")) & REMOTE == REMOTE,
        size,
    )


def _events(span: dict[str, Any]) -> list[Any]:
    found = _objects(span, "events", MAX_EVENTS + 1)
    if len(found) > MAX_EVENTS:
        span_faults.repair("cut")
    return found[:MAX_EVENTS]


def _size(span: object, most: int) -> int:
    """Bytes of a span's JSON; if it is nested too deep to serialise, those of its request."""
    try:
        return len(orjson.dumps(span))
    except TypeError:
        return most


def _id(given: Any, digits: int) -> int:
    if not isinstance(given, str) or len(given) != digits:
        raise ValueError("an id has a wrong length")
    number = bytes.fromhex(given)
    if 2 * len(number) != digits:  # fromhex() ignores white space
        raise ValueError("an id has a wrong length")
    return int.from_bytes(number)


def _unsigned(given: Any) -> int:
    """A number, or a string with one; absent is 0."""
    if given is None or given == "":
        return 0
    if isinstance(given, str):
        if not (given.isascii() and given.isdecimal() and len(given) <= 20):
            raise ValueError("not an unsigned 64-bit integer")
        given = int(given)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 1 << 64:
        raise ValueError("not an unsigned 64-bit integer")
    return given


def _list(holder: Mapping[str, Any], key: str) -> list[Any]:
    given = holder.get(key)
    if given is None:
        return []
    if not isinstance(given, list):
        raise MalformedRequestError(f"{key} must be a list")
    return given


def _objects(holder: Mapping[str, Any], key: str, most: int | None = None) -> list[Any]:
    given = _list(holder, key)[:most]
    for item in given:
        if not isinstance(item, dict):
            raise MalformedRequestError(f"{key} must hold objects")
    return given


def _value(value: Any, limits: ReadLimits, depth: int = 0) -> Any:
    """A value; ``None`` if it is not of the type that its key says."""
    if not isinstance(value, dict):
        return None
    for kind, given in value.items():
        match kind:
            case "stringValue":
                return _text(given, limits)
            case "boolValue":
                return given if isinstance(given, bool) else None
            case "intValue":
                return _int(given)
            case "doubleValue":
                return _double(given)
            case "bytesValue":
                return _bytes(given)
            case "arrayValue" | "kvlistValue":
                return None if depth >= MAX_DEPTH else _nested(kind, given, limits, depth + 1)
    return None


def _nested(kind: str, given: Any, limits: ReadLimits, depth: int) -> Any:
    values = given.get("values") if isinstance(given, dict) else None
    items = values[: limits.attributes] if isinstance(values, list) else []
    if kind == "arrayValue":
        return tuple([_value(item, limits, depth) for item in items])
    return {
        item["key"]: _value(item.get("value"), limits, depth)
        for item in items
        if isinstance(item, dict) and isinstance(item.get("key"), str)
    }


def _text(given: Any, limits: ReadLimits) -> str | None:
    if not isinstance(given, str):
        return None
    if len(given) > limits.text:
        span_faults.repair("cut")
    return given[: limits.text]


def _int(given: Any) -> int | None:
    if isinstance(given, bool):
        return None
    try:
        number = int(given) if isinstance(given, int | str) and len(str(given)) <= 20 else None
    except ValueError:
        return None
    return number if number is not None and -(1 << 63) <= number < 1 << 63 else None


def _double(given: Any) -> float | None:
    try:  # also "NaN" and "Infinity"
        return float(given) if isinstance(given, int | float | str) else None
    except (ValueError, OverflowError):
        return None


def _bytes(given: Any) -> bytes | None:
    try:
        return base64.b64decode(given) if isinstance(given, str) else None
    except binascii.Error:
        return None

"""Spans and events from OTLP requests in JSON: ids are hexadecimal, enumerations are numbers or
names, 64-bit numbers are strings or numbers.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, Final

import orjson

from tidegauge._span_faults import span_faults
from tidegauge.foreign_spans.conventions.genai import event_span
from tidegauge.foreign_spans.span import Attributes, SpanData
from tidegauge.receivers.decoding import (
    EVENT_NAME,
    MAX_DEPTH,
    MAX_EVENTS,
    NOT_READ,
    READ_LIMITS,
    REMOTE,
    Decoded,
    DecodedSpans,
    MalformedRequestError,
    OverloadedRequestError,
    Reading,
    ReadLimits,
    event_details,
    event_name,
    kind_of,
    may_be_sampled,
)
from tidegauge.values.elements import TooManyElementsError
from tidegauge.values.exact_json import bounded_json

_ERROR: Final = (2, "2", "STATUS_CODE_ERROR")
_NOTHING: Final[Attributes] = {}


def decode_json(body: bytes, limits: ReadLimits = READ_LIMITS) -> Decoded:
    """The spans of a trace request in OTLP's JSON.

    Raises:
        OverloadedRequestError: it has too many elements for its size.
        MalformedRequestError: the body is not such a request.

    >>> span = '{"traceId": "%032x", "spanId": "%016x", "name": "chat"}' % (1, 2)
    >>> body = '{"resourceSpans": [{"scopeSpans": [{"spans": [%s]}]}]}' % span
    >>> decode_json(body.encode()).spans[0].span_id
    2
    """
    request = _request(body, limits)
    accepted, reading = DecodedSpans(limits), Reading(limits, len(body))
    for resource_spans in _objects(request, "resourceSpans"):
        resource: Attributes | None = None
        for scope_spans in _objects(resource_spans, "scopeSpans"):
            scope = _scope(scope_spans)
            for span in _list(scope_spans, "spans"):
                if resource is None:
                    resource = _attributes(resource_spans.get("resource"), reading)
                if accepted.full:
                    accepted.reject("too_many")
                    continue
                try:
                    accepted.add(_span(span, scope, resource, reading))
                except (AttributeError, TypeError, ValueError, KeyError, OverflowError):
                    accepted.reject("invalid")
    return accepted.decoded


def decode_logs_json(body: bytes, limits: ReadLimits = READ_LIMITS) -> Decoded:
    """The events in a log request in OTLP's JSON; other log records are ignored.

    Raises:
        OverloadedRequestError: it has too many elements for its size.
        MalformedRequestError: the body is not such a request.

    >>> decode_logs_json(b"{}")
    Decoded(spans=[], rejected={}, signal='logs')
    """
    accepted, reading = DecodedSpans(limits, "logs"), Reading(limits, len(body))
    for resource_logs in _objects(_request(body, limits), "resourceLogs"):
        for scope_logs in _objects(resource_logs, "scopeLogs"):
            scope = _scope(scope_logs)
            for record in _objects(scope_logs, "logRecords"):
                try:
                    event = _event(record, scope, reading)
                except ValueError:
                    accepted.reject("invalid")
                else:
                    if event is not None:
                        accepted.add(event)
    return accepted.decoded


def _request(body: bytes, limits: ReadLimits) -> Mapping[str, Any]:
    try:
        request = bounded_json(body, limits.elements)
    except TooManyElementsError as error:
        raise OverloadedRequestError(str(error)) from error
    except ValueError as error:
        raise MalformedRequestError(f"not valid JSON: {error}") from error
    if not isinstance(request, dict):
        raise MalformedRequestError("a request in JSON must be an object")
    return request


def _scope(holder: Mapping[str, Any]) -> str:
    given = holder.get("scope")
    return str(given.get("name", "")) if isinstance(given, dict) else ""


def _event(record: dict[str, Any], scope: str, reading: Reading) -> SpanData | None:
    """The event in a log record, if it is one of a span."""
    attributes = _attributes(record, reading)
    name = event_name(record.get("eventName"), attributes.get(EVENT_NAME))
    if name is None or not record.get("traceId") or not record.get("spanId"):
        return None
    if not may_be_sampled(_unsigned(record.get("flags"))):
        return None
    return event_span(
        name,
        (_id(record["traceId"], 32), _id(record["spanId"], 16)),
        event_details(attributes, _value(record.get("body"), reading)),
        scope=scope,
        time=_unsigned(record.get("timeUnixNano")) or _unsigned(record.get("observedTimeUnixNano")),
        size=reading.keep(_encoded(record)),
    )


def _pairs(holder: Any, limits: ReadLimits) -> dict[str, Any]:
    """The attributes by name, not read yet."""
    pairs = holder.get("attributes") if isinstance(holder, dict) else None
    if not isinstance(pairs, list):
        return {}
    if len(pairs) > limits.attributes:
        span_faults.repair("cut")
    return {
        pair["key"]: pair.get("value")
        for pair in pairs[: limits.attributes]
        if isinstance(pair, dict) and isinstance(pair.get("key"), str)
    }


def _attributes(holder: Any, reading: Reading) -> Attributes:
    return _read(_pairs(holder, reading.limits), reading)


def _read(pairs: Mapping[str, Any], reading: Reading) -> Attributes:
    reading.take(len(pairs))
    return {name: _value(value, reading) for name, value in pairs.items()}


def _span_attributes(span: dict[str, Any], scope: str, reading: Reading) -> Attributes:
    """The attributes of a span, if it has a marker attribute."""
    pairs = _pairs(span, reading.limits)
    kind = kind_of.__wrapped__(tuple(pairs))
    if kind == "alike":
        span_faults.unread(scope, "unknown_convention")
    if kind != "read" and not reading.limits.unread:
        return NOT_READ if pairs else _NOTHING
    return _read(pairs, reading)


def _span(span: dict[str, Any], scope: str, resource: Attributes, reading: Reading) -> SpanData:
    parent, status = span.get("parentSpanId"), span.get("status") or _NOTHING
    name, message = span.get("name", ""), status.get("message")
    if not isinstance(name, str):
        raise TypeError("name must be a string")
    attributes = _span_attributes(span, scope, reading)
    events = tuple(
        [(str(event.get("name", "")), _attributes(event, reading)) for event in _events(span)]
    )
    reading.take(len(events))
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
        events,
        resource,
        _unsigned(span.get("flags")) & REMOTE == REMOTE,
        reading.keep(_encoded(span)),
    )


def _events(span: dict[str, Any]) -> list[Any]:
    found = _objects(span, "events", MAX_EVENTS + 1)
    if len(found) > MAX_EVENTS:
        span_faults.repair("cut")
    return found[:MAX_EVENTS]


def _encoded(span: object) -> bytes:
    try:
        return orjson.dumps(span)
    except TypeError:  # nested too deep: its values are not read
        return b""


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


def _value(value: Any, reading: Reading, depth: int = 0) -> Any:
    """A value; ``None`` if it is not of the type that its key says."""
    if not isinstance(value, dict):
        return None
    for kind, given in value.items():
        match kind:
            case "stringValue":
                return _text(given, reading.limits)
            case "boolValue":
                return given if isinstance(given, bool) else None
            case "intValue":
                return _int(given)
            case "doubleValue":
                return _double(given)
            case "bytesValue":
                return _bytes(given)
            case "arrayValue" | "kvlistValue":
                return None if depth >= MAX_DEPTH else _nested(kind, given, reading, depth + 1)
    return None


def _nested(kind: str, given: Any, reading: Reading, depth: int) -> Any:
    values = given.get("values") if isinstance(given, dict) else None
    items = values[: reading.limits.attributes] if isinstance(values, list) else []
    reading.take(len(items))
    if kind == "arrayValue":
        return tuple([_value(item, reading, depth) for item in items])
    return {
        item["key"]: _value(item.get("value"), reading, depth)
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

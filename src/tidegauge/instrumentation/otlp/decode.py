"""Spans off the wire: OTLP's trace requests, protobuf or JSON, as :class:`SpanData`.

Pure functions. A span that is not valid is refused and told, the rest of its request is taken
(OTLP's partial success); a request that is none raises. Of a span that tells nothing of an agent,
which is most of what comes, only the names of its attributes are read from protobuf.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import orjson
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tidegauge.errors import TidegaugeError
from tidegauge.instrumentation.spans.reading import TELLTALES
from tidegauge.instrumentation.spans.span import Attributes, SpanData

__all__ = [
    "READ_LIMITS",
    "Decoded",
    "MalformedRequestError",
    "ReadLimits",
    "decode_json",
    "decode_protobuf",
]

_REMOTE: Final = 0x300  # Span.flags: it is known whether the parent is remote, and it is
_ERROR: Final = (2, "2", "STATUS_CODE_ERROR")
_MAX_DEPTH: Final = 32
_MAX_EVENTS: Final = 128
_NOTHING: Final[Attributes] = {}


class MalformedRequestError(TidegaugeError, ValueError):
    """What came is no trace request; the message says why."""


class ReadLimits(NamedTuple):
    """How much of a request is read.

    Args:
        spans: spans in one request; those after it are refused.
        attributes: attributes of one span, resource or event; those after it are left out.
        text: characters of a text in an attribute; what comes after is cut off.
    """

    spans: int = 100_000
    attributes: int = 2_000
    text: int = 1_048_576


READ_LIMITS: Final = ReadLimits()


class Decoded(NamedTuple):
    """What a request brought.

    Args:
        spans: those that are taken.
        refused: how many are not, by reason: ``invalid``, ``too_many``.
    """

    spans: list[SpanData]
    refused: Mapping[str, int] = {}

    @property
    def rejected(self) -> int:
        """How many spans are not taken."""
        return sum(self.refused.values())

    @property
    def reason(self) -> str | None:
        """Why, for whoever sent them; ``None``, all are taken.

        >>> Decoded([], {"invalid": 2}).reason
        '2 spans refused: their ids, names or times are not valid'
        """
        why = {
            "invalid": "their ids, names or times are not valid",
            "too_many": "too many in one request",
        }
        told = [f"{count} spans refused: {why[kind]}" for kind, count in self.refused.items()]
        return "; ".join(told) or None


def decode_protobuf(body: bytes, limits: ReadLimits = READ_LIMITS) -> Decoded:
    """The spans of a serialised ``ExportTraceServiceRequest``.

    Raises:
        MalformedRequestError: it is none.

    >>> decode_protobuf(ExportTraceServiceRequest().SerializeToString())
    Decoded(spans=[], refused={})
    """
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except DecodeError as error:
        raise MalformedRequestError(f"no trace request in protobuf: {error}") from error
    taking = _Taking(limits)
    for resource_spans in request.resource_spans:
        resource = _attributes(resource_spans.resource.attributes, limits)
        for scope_spans in resource_spans.scope_spans:
            scope = scope_spans.scope.name
            for span in scope_spans.spans:
                trace_id, span_id, parent_id = span.trace_id, span.span_id, span.parent_span_id
                if len(trace_id) != 16 or len(span_id) != 8 or len(parent_id) not in (0, 8):
                    taking.refuse("invalid")
                    continue
                status, flags = span.status, span.flags
                taking.take(
                    SpanData(
                        int.from_bytes(trace_id),
                        int.from_bytes(span_id),
                        int.from_bytes(parent_id) or None,
                        span.name,
                        scope,
                        _span_attributes(span.attributes, limits),
                        span.start_time_unix_nano,
                        span.end_time_unix_nano,
                        status.code == 2,
                        status.message or None,
                        _events(span.events, limits) if span.events else (),
                        resource,
                        flags & _REMOTE == _REMOTE,
                    )
                )
    return taking.decoded


def decode_json(body: bytes, limits: ReadLimits = READ_LIMITS) -> Decoded:
    """The spans of a trace request in OTLP's JSON: ids are hexadecimal, enumerations numbers (or
    their names), 64-bit numbers texts (or numbers).

    Raises:
        MalformedRequestError: it is none.

    >>> span = '{"traceId": "%032x", "spanId": "%016x", "name": "chat"}' % (1, 2)
    >>> body = '{"resourceSpans": [{"scopeSpans": [{"spans": [%s]}]}]}' % span
    >>> decode_json(body.encode()).spans[0].span_id
    2
    """
    try:
        request = orjson.loads(body)
    except ValueError as error:
        raise MalformedRequestError(f"no JSON: {error}") from error
    if not isinstance(request, dict):
        raise MalformedRequestError("a trace request in JSON is an object")
    taking = _Taking(limits)
    for resource_spans in _objects(request, "resourceSpans"):
        resource = _JsonAttributes(resource_spans.get("resource"), limits)
        for scope_spans in _objects(resource_spans, "scopeSpans"):
            told = scope_spans.get("scope")
            scope = told.get("name", "") if isinstance(told, dict) else ""
            for span in _list(scope_spans, "spans"):
                try:
                    taking.take(_json_span(span, str(scope), resource, limits))
                except (AttributeError, TypeError, ValueError, KeyError, OverflowError):
                    taking.refuse("invalid")
    return taking.decoded


class _Taking:
    """Counts what is taken and what is refused."""

    def __init__(self, limits: ReadLimits) -> None:
        self._room = limits.spans
        self._refused: dict[str, int] = {}
        self._spans: list[SpanData] = []

    @property
    def decoded(self) -> Decoded:
        return Decoded(self._spans, self._refused)

    def take(self, span: SpanData) -> None:
        if not span.trace_id or not span.span_id:
            self.refuse("invalid")
        elif len(self._spans) >= self._room:
            self.refuse("too_many")
        else:
            self._spans.append(span)

    def refuse(self, reason: str) -> None:
        self._refused[reason] = self._refused.get(reason, 0) + 1


class _JsonAttributes(Mapping[str, Any]):
    """Attributes in JSON, each read when it is asked for."""

    __slots__ = ("_limits", "_pairs")

    def __init__(self, holder: Any, limits: ReadLimits) -> None:
        pairs = holder.get("attributes") if isinstance(holder, dict) else None
        self._pairs: dict[str, Any] = {}
        self._limits = limits
        for pair in pairs[: limits.attributes] if isinstance(pairs, list) else ():
            if isinstance(pair, dict) and isinstance(pair.get("key"), str):
                self._pairs[pair["key"]] = pair.get("value")

    def __getitem__(self, key: str) -> Any:
        return _json_value(self._pairs[key], self._limits)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of an attribute."""
        if key not in self._pairs:
            return default
        return _json_value(self._pairs[key], self._limits)

    def __contains__(self, key: object) -> bool:
        return key in self._pairs

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __repr__(self) -> str:
        return repr(dict(self))


def _attributes(pairs: Any, limits: ReadLimits) -> Attributes:
    """Attributes in protobuf, all of them read at once.

    Whatever part of a message is kept keeps all of it: a span that waits for its parent must not
    hold on to the megabytes that came with it.
    """
    most = limits.text
    return {
        pair.key: pair.value.string_value[:most] or _value(pair.value, limits)
        for pair in pairs[: limits.attributes]
    }


def _span_attributes(pairs: Any, limits: ReadLimits) -> Attributes:
    """The same of a span; of one that is of no agent the names alone: nobody asks for more."""
    names = [pair.key for pair in pairs]
    if TELLTALES.isdisjoint(names):
        return dict.fromkeys(names[: limits.attributes])
    return _attributes(pairs, limits)


def _events(events: Any, limits: ReadLimits) -> tuple[tuple[str, Attributes], ...]:
    return tuple(
        [(event.name, _attributes(event.attributes, limits)) for event in events[:_MAX_EVENTS]]
    )


def _value(value: Any, limits: ReadLimits, depth: int = 0) -> Any:
    told = value.string_value
    if told:
        return told[: limits.text]
    kind = value.WhichOneof("value")
    if kind == "array_value":
        if depth >= _MAX_DEPTH:
            return None
        items = value.array_value.values[: limits.attributes]
        return tuple([_value(item, limits, depth + 1) for item in items])
    if kind == "kvlist_value":
        if depth >= _MAX_DEPTH:
            return None
        pairs = value.kvlist_value.values[: limits.attributes]
        return {pair.key: _value(pair.value, limits, depth + 1) for pair in pairs}
    return None if kind is None else getattr(value, kind)


def _json_span(
    span: dict[str, Any], scope: str, resource: Attributes, limits: ReadLimits
) -> SpanData:
    parent, status = span.get("parentSpanId"), span.get("status") or _NOTHING
    name, message = span.get("name", ""), status.get("message")
    if not isinstance(name, str):
        raise TypeError("a name is a text")
    return SpanData(
        _id(span["traceId"], 32),
        _id(span["spanId"], 16),
        (_id(parent, 16) or None) if parent else None,
        name,
        scope,
        _JsonAttributes(span, limits),
        _unsigned(span.get("startTimeUnixNano")),
        _unsigned(span.get("endTimeUnixNano")),
        status.get("code") in _ERROR,
        str(message) if message else None,
        tuple(
            [
                (str(event.get("name", "")), _JsonAttributes(event, limits))
                for event in _objects(span, "events", _MAX_EVENTS)
            ]
        ),
        resource,
        _unsigned(span.get("flags")) & _REMOTE == _REMOTE,
    )


def _id(told: Any, digits: int) -> int:
    if not isinstance(told, str) or len(told) != digits:
        raise ValueError("not the digits of an id")
    number = bytes.fromhex(told)
    if 2 * len(number) != digits:  # it lets white space through
        raise ValueError("not the digits of an id")
    return int.from_bytes(number)


def _unsigned(told: Any) -> int:
    """A number, or the text of one; nothing is 0."""
    if told is None or told == "":
        return 0
    if isinstance(told, str):
        if not (told.isascii() and told.isdecimal() and len(told) <= 20):
            raise ValueError("no whole number")
        told = int(told)
    if isinstance(told, bool) or not isinstance(told, int) or not 0 <= told < 1 << 64:
        raise ValueError("no whole number")
    return told


def _list(holder: Mapping[str, Any], key: str) -> list[Any]:
    told = holder.get(key)
    if told is None:
        return []
    if not isinstance(told, list):
        raise MalformedRequestError(f"{key} is to be a list")
    return told


def _objects(holder: Mapping[str, Any], key: str, most: int | None = None) -> list[Any]:
    told = _list(holder, key)[:most]
    for item in told:
        if not isinstance(item, dict):
            raise MalformedRequestError(f"{key} is to hold objects")
    return told


def _text(told: Any, limits: ReadLimits) -> Any:
    return told[: limits.text] if isinstance(told, str) else None


def _bool(told: Any, limits: ReadLimits) -> Any:
    return told if isinstance(told, bool) else None


def _int(told: Any, limits: ReadLimits) -> Any:
    if isinstance(told, bool):
        return None
    try:
        number = int(told) if isinstance(told, int | str) and len(str(told)) <= 20 else None
    except ValueError:
        return None
    return number if number is not None and -(1 << 63) <= number < 1 << 63 else None


def _double(told: Any, limits: ReadLimits) -> Any:
    try:  # also "NaN" and "Infinity"
        return float(told) if isinstance(told, int | float | str) else None
    except (ValueError, OverflowError):
        return None


def _bytes(told: Any, limits: ReadLimits) -> Any:
    try:
        return base64.b64decode(told) if isinstance(told, str) else None
    except binascii.Error:
        return None


_SCALARS: Final[Mapping[str, Callable[[Any, ReadLimits], Any]]] = {
    "stringValue": _text,
    "boolValue": _bool,
    "intValue": _int,
    "doubleValue": _double,
    "bytesValue": _bytes,
}


def _json_value(value: Any, limits: ReadLimits, depth: int = 0) -> Any:
    """A value; ``None`` where it is not of the form that it says."""
    if not isinstance(value, dict) or depth > _MAX_DEPTH:
        return None
    for kind, told in value.items():
        scalar = _SCALARS.get(kind)
        if scalar is not None:
            return scalar(told, limits)
        if kind not in ("arrayValue", "kvlistValue"):
            continue
        inside = told.get("values") if isinstance(told, dict) else None
        items = inside[: limits.attributes] if isinstance(inside, list) else []
        if depth >= _MAX_DEPTH:
            return None
        if kind == "arrayValue":
            return tuple([_json_value(item, limits, depth + 1) for item in items])
        return {
            item["key"]: _json_value(item.get("value"), limits, depth + 1)
            for item in items
            if isinstance(item, dict) and isinstance(item.get("key"), str)
        }
    return None

"""OTLP requests in JSON: their spans become the protobuf messages that they stand for, one by one.

Ids are hexadecimal, enumerations are numbers or names, 64-bit numbers are strings or numbers. A
span that is not valid becomes an empty message, which the decoder rejects.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tidegauge.receivers.decoding import (
    MAX_DEPTH,
    MAX_EVENTS,
    READ_LIMITS,
    Decoded,
    Group,
    MalformedRequestError,
    OverloadedRequestError,
    Reading,
    ReadLimits,
    decode_events,
    decode_spans,
)
from tidegauge.values.elements import TooManyElementsError
from tidegauge.values.exact_json import bounded_json

_ERROR: Final = (2, "2", "STATUS_CODE_ERROR")
_NO_ID: Final = b"?"
"""No id has this length."""

_INVALID: Final = (AttributeError, TypeError, ValueError, KeyError, OverflowError)
_FLAGS: Final = 0xFFFF_FFFF


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
    return _decoded(body, limits, decode_spans, _spans)


def decode_logs_json(body: bytes, limits: ReadLimits = READ_LIMITS) -> Decoded:
    """The events in a log request in OTLP's JSON; other log records are ignored.

    Raises:
        OverloadedRequestError: it has too many elements for its size.
        MalformedRequestError: the body is not such a request.

    >>> decode_logs_json(b"{}")
    Decoded(spans=[], rejected={}, signal='logs')
    """
    return _decoded(body, limits, decode_events, _records)


def _decoded(
    body: bytes,
    limits: ReadLimits,
    decode: Callable[[Iterable[Group], Reading], Decoded],
    groups: Callable[[Mapping[str, Any], ReadLimits], Iterable[Group]],
) -> Decoded:
    try:
        request = bounded_json(body, limits.elements)
        if not isinstance(request, dict):
            raise MalformedRequestError("a request in JSON must be an object")
        return decode(groups(request, limits), Reading(limits, len(body)))
    except TooManyElementsError as error:
        raise OverloadedRequestError(str(error)) from error
    except MalformedRequestError:
        raise
    except ValueError as error:
        raise MalformedRequestError(f"not valid JSON: {error}") from error


def _spans(request: Mapping[str, Any], limits: ReadLimits) -> Iterator[Group]:
    for of in _objects(request, "resourceSpans"):
        resource = Resource()
        _read(of.get("resource"), resource.attributes, limits)
        scopes = (
            (_scope(each), _messages(_list(each, "spans"), _span, limits))
            for each in _objects(of, "scopeSpans")
        )
        yield resource.attributes, scopes


def _records(request: Mapping[str, Any], limits: ReadLimits) -> Iterator[Group]:
    for of in _objects(request, "resourceLogs"):
        scopes = (
            (_scope(each), _messages(_objects(each, "logRecords"), _record, limits))
            for each in _objects(of, "scopeLogs")
        )
        yield None, scopes


def _messages(
    given: list[Any], message: Callable[[Any, ReadLimits], bytes], limits: ReadLimits
) -> Iterator[bytes]:
    """The message of each; what it was made of is freed, so that no two forms take memory."""
    given.reverse()
    while given:
        yield message(given.pop(), limits)


def _scope(holder: Mapping[str, Any]) -> str:
    given = holder.get("scope")
    return str(given.get("name", "")) if isinstance(given, dict) else ""


def _record(given: Mapping[str, Any], limits: ReadLimits) -> bytes:
    record = LogRecord()
    try:
        _read(given, record.attributes, limits)
        name = given.get("eventName")
        record.event_name = name if isinstance(name, str) else ""
        _value(given.get("body"), record.body)
        if given.get("traceId") and given.get("spanId"):
            record.trace_id, record.span_id = _id(given["traceId"], 16), _id(given["spanId"], 8)
        record.flags = _unsigned(given.get("flags")) & _FLAGS
        record.time_unix_nano = _unsigned(given.get("timeUnixNano"))
        record.observed_time_unix_nano = _unsigned(given.get("observedTimeUnixNano"))
    except _INVALID:
        record.trace_id = record.span_id = _NO_ID
        record.flags = 0
    return bytes(record.SerializeToString())


def _span(given: dict[str, Any], limits: ReadLimits) -> bytes:
    span = Span()
    try:
        parent, status = given.get("parentSpanId"), given.get("status") or {}
        message = status.get("message")
        span.trace_id, span.span_id = _id(given["traceId"], 16), _id(given["spanId"], 8)
        span.parent_span_id = _id(parent, 8) if parent else b""
        span.name = given.get("name", "")
        span.start_time_unix_nano = _unsigned(given.get("startTimeUnixNano"))
        span.end_time_unix_nano = _unsigned(given.get("endTimeUnixNano"))
        span.flags = _unsigned(given.get("flags")) & _FLAGS
        if status.get("code") in _ERROR:
            span.status.code = Status.STATUS_CODE_ERROR
        span.status.message = str(message) if message else ""
        _read(given, span.attributes, limits)
        for event in _objects(given, "events", MAX_EVENTS + 1):  # one more: it is seen to be cut
            one = span.events.add()
            one.name = str(event.get("name", ""))
            _read(event, one.attributes, limits)
    except _INVALID:
        return b""
    return bytes(span.SerializeToString())


def _read(holder: Any, into: Any, limits: ReadLimits) -> None:
    """Add the attributes of an object."""
    pairs = holder.get("attributes") if isinstance(holder, dict) else None
    for pair in pairs[: limits.attributes + 1] if isinstance(pairs, list) else ():
        key = pair.get("key") if isinstance(pair, dict) else None
        if isinstance(key, str):
            one, value = into.add(), pair.get("value")
            one.key = key
            _value(value, one.value)


def _id(given: Any, size: int) -> bytes:
    if not isinstance(given, str) or len(given) != 2 * size:
        raise ValueError("an id has a wrong length")
    found = bytes.fromhex(given)
    if len(found) != size:  # fromhex() ignores white space
        raise ValueError("an id has a wrong length")
    return found


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


def _value(value: Any, into: AnyValue, depth: int = 0) -> None:
    """Set a value; it stays empty if it is not of the type that its key says, or too deep."""
    for kind, given in value.items() if isinstance(value, dict) else ():
        match kind:
            case "stringValue":
                if isinstance(given, str):
                    into.string_value = given
            case "boolValue":
                if isinstance(given, bool):
                    into.bool_value = given
            case "intValue":
                _set_number(into, "int_value", given)
            case "doubleValue":
                _set_number(into, "double_value", given)
            case "bytesValue":
                _set_bytes(into, given)
            case "arrayValue" | "kvlistValue":
                if depth < MAX_DEPTH:
                    _nest(kind, given, into, depth + 1)
            case _:
                continue
        return


def _nest(kind: str, given: Any, into: AnyValue, depth: int) -> None:
    values = given.get("values") if isinstance(given, dict) else None
    items = values if isinstance(values, list) else []
    if kind == "arrayValue":
        into.array_value.SetInParent()
        for item in items:
            _value(item, into.array_value.values.add(), depth)
        return
    into.kvlist_value.SetInParent()
    for item in items:
        if isinstance(item, dict) and isinstance(item.get("key"), str):
            _value(item.get("value"), into.kvlist_value.values.add(key=item["key"]).value, depth)


def _set_number(into: AnyValue, field: str, given: Any) -> None:
    if field == "int_value" and (isinstance(given, bool | float) or len(str(given)) > 20):
        return
    try:  # a float also of "NaN" and "Infinity"
        if isinstance(given, int | float | str):
            setattr(into, field, int(given) if field == "int_value" else float(given))
    except (ValueError, OverflowError):
        return


def _set_bytes(into: AnyValue, given: Any) -> None:
    try:
        if isinstance(given, str):
            into.bytes_value = base64.b64decode(given)
    except ValueError:  # no base64, or not even ASCII
        return

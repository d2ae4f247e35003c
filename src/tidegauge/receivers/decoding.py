"""Spans from OTLP trace requests in protobuf, and what reading a request in any encoding shares.

Of log requests, only the events of the GenAI conventions are read, which have contents of spans.

An invalid span is rejected and counted, the rest of its request is accepted (OTLP's partial
success); a malformed request raises.

Most received spans have no attribute of an agent. The attributes of these are never read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from google.protobuf.descriptor_pb2 import (  # type: ignore[import-untyped]
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool  # type: ignore[import-untyped]
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from google.protobuf.message_factory import GetMessageClass  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.common.v1 import common_pb2
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.logs.v1 import logs_pb2
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData
from opentelemetry.proto.resource.v1 import resource_pb2
from opentelemetry.proto.trace.v1 import trace_pb2
from opentelemetry.proto.trace.v1.trace_pb2 import Span, TracesData

from tidegauge._span_counts import span_faults
from tidegauge.errors import TidegaugeError
from tidegauge.events import made
from tidegauge.foreign_spans.convention_reader import (
    MARKER_ATTRIBUTES,
    looks_like_agent,
)
from tidegauge.foreign_spans.conventions.genai import EVENTS, event_span
from tidegauge.foreign_spans.span import Attributes, SpanData
from tidegauge.values.elements import (
    FREE,
    MOST,
    BrokenMessageError,
    Shape,
    TooManyElementsError,
    allowed,
    count_messages,
    shape_of,
)

Encoding: TypeAlias = Literal["protobuf", "json"]
Signal: TypeAlias = Literal["traces", "logs"]

_REMOTE: Final = 0x300
"""Flags of a span with a remote parent: the sender knows whether it is, and it is."""

MAX_DEPTH: Final = 32
"""Limit of the depth of lists and mappings in an attribute."""

MAX_EVENTS: Final = 128
"""Limit of the events of a span."""

_EVENT_NAME: Final = "event.name"
"""Attribute with the name of an event, before log records had a field for it."""

_ELEMENT_BYTES: Final = 150
"""Memory of an attribute, an event or a nested value, without what its name and its text add."""

_SPAN_BYTES: Final = 500
"""Memory of a span without its attributes and texts."""

_IDS_AND_TIMES: Final = 64
"""Bytes at the beginning of a span that may look like texts."""

_SMALL: Final = 4_096
"""Bytes of a span of which it does not matter how wide its texts are."""

_WIDE: Final = tuple(bytes([lead]) for lead in range(0xF0, 0xF5))
"""First bytes of the characters of UTF-8 of which one makes each of its text take four bytes."""

_HARMLESS: Final = 2 * FREE
"""Bytes of a message that may contain whatever it likes: each message in it takes two bytes."""

_MAX_REMEMBERED: Final = 16_384
"""Bytes of a span whose names of attributes are remembered."""

_NOTHING: Final[Attributes] = {}
_NOT_READ: Final[Attributes] = {"": None}
"""Stands for the attributes of a span without marker attributes: all that counts is that it has
some."""


class ReadLimits(NamedTuple):
    """How much of a request is read.

    Args:
        spans: spans in one request; further ones are rejected.
        attributes: attributes of one span, resource or event; further ones are dropped.
        text: characters of a text in an attribute; longer texts are cut.
        elements: elements of a request, beside the limit by its size.
        unread: whether attributes are read of spans that have no marker attribute, too.
    """

    spans: int = 100_000
    attributes: int = 2_000
    text: int = 1_048_576
    elements: int = MOST
    unread: bool = False


READ_LIMITS: Final = ReadLimits()


class MalformedRequestError(TidegaugeError, ValueError):
    """A body that is not a trace or log request; the message says why."""


class OverloadedRequestError(MalformedRequestError):
    """A body with too many elements for its size."""


class Reading:
    """What is read of one request: how many elements may be, and how much memory they take.

    Args:
        size: bytes of the request.
    """

    __slots__ = ("_elements", "_kept", "_room", "limits")

    def __init__(self, limits: ReadLimits, size: int) -> None:
        self.limits = limits
        self._elements = self._kept = 0
        self._room = allowed(size, limits.elements)

    def take(self, elements: int) -> None:
        """Read so many more attributes, events or nested values.

        Raises:
            TooManyElementsError: these are too many for its size.
        """
        self._elements += elements
        if self._elements > self._room:
            raise TooManyElementsError(self._room)

    def check(self, message: bytes, shape: Shape, later: Shape | None = None) -> None:
        """Check a message that is parsed next; see :func:`count_messages`."""
        if len(message) > _HARMLESS:
            self.take(count_messages(message, shape, self._room - self._elements, later))

    def keep(self, encoded: bytes, start: int = 0) -> int:
        """The memory, about, of the span of these bytes and of what was read since the last one.

        Args:
            start: where its texts begin.
        """
        elements, self._kept = self._elements - self._kept, self._elements
        size = len(encoded)
        width = 2
        if size > _SMALL:
            width = 1 if encoded.isascii() else 2
            if any(encoded.find(lead, start) >= 0 for lead in _WIDE):
                width = 4
        return _SPAN_BYTES + _ELEMENT_BYTES * elements + width * size


class Decoded(NamedTuple):
    """The contents of a request.

    Args:
        spans: the accepted spans; of a log request, the accepted events.
        rejected: number of rejected spans by reason: ``invalid``, ``too_many``.
        signal: what was requested.
    """

    spans: list[SpanData]
    rejected: Mapping[str, int] = {}
    signal: Signal = "traces"

    @property
    def size(self) -> int:
        """The bytes of memory that the spans take, about."""
        return sum([span.size for span in self.spans])

    @property
    def rejected_spans(self) -> int:
        """The number of rejected spans."""
        return sum(self.rejected.values())

    @property
    def reason(self) -> str | None:
        """Why spans were rejected, for the sender; ``None``: none was.

        >>> Decoded([], {"invalid": 2}).reason
        '2 spans rejected: invalid ids, names or times'
        """
        why = {"invalid": "invalid ids, names or times", "too_many": "too many in one request"}
        what = "spans" if self.signal == "traces" else "log records"
        reasons = [f"{count} {what} rejected: {why[kind]}" for kind, count in self.rejected.items()]
        return "; ".join(reasons) or None

    def response(self) -> bytes:
        """The response to the request, in protobuf, where all signals have the same form."""
        response = ExportTraceServiceResponse()
        if self.rejected_spans:
            response.partial_success.rejected_spans = self.rejected_spans
            response.partial_success.error_message = self.reason or ""
        return bytes(response.SerializeToString())


def _reject(rejected: dict[str, int], reason: str) -> None:
    rejected[reason] = rejected.get(reason, 0) + 1


def _wire_messages() -> tuple[Any, Any, Any]:
    """OTLP's requests with their spans or log records as bytes, and a span with its attributes as a
    map.

    A reference to any part of a protobuf message keeps the whole message alive, and a request may
    have megabytes. So the spans are parsed one by one: a span keeps nothing else of its request
    alive. Names in a map are found without an object for each attribute.

    On the wire, messages and bytes are the same, and so are a map and a list of pairs. Everything
    is validated as in the official messages.
    """
    pool = DescriptorPool()  # a separate one: the official messages stay as they are
    for module in (common_pb2, resource_pb2, trace_pb2, logs_pb2):
        file = FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        fields = {(of.name, field.name): field for of in file.message_type for field in of.field}
        for name in (("ScopeSpans", "spans"), ("ScopeLogs", "log_records")):
            if name in fields:
                fields[name].type = FieldDescriptorProto.TYPE_BYTES
                fields[name].ClearField("type_name")
        if module is trace_pb2:
            span = next(of for of in file.message_type if of.name == "Span")
            entry = span.nested_type.add(name="AttributesEntry", options={"map_entry": True})
            value = {
                "type": FieldDescriptorProto.TYPE_MESSAGE,
                "type_name": f".{AnyValue.DESCRIPTOR.full_name}",
            }
            entry.field.add(name="key", number=1, type=FieldDescriptorProto.TYPE_STRING)
            entry.field.add(name="value", number=2, **value)
            fields["Span", "attributes"].type_name = f".{file.package}.Span.{entry.name}"
        pool.AddSerializedFile(file.SerializeToString())
    names = ("trace.v1.TracesData", "trace.v1.Span", "logs.v1.LogsData")
    traces, span, logs = [
        GetMessageClass(pool.FindMessageTypeByName(f"opentelemetry.proto.{name}")) for name in names
    ]
    return traces, span, logs


_WireTraces, _WireSpan, _WireLogs = _wire_messages()
"""``TracesData`` and ``LogsData``, which are the same on the wire as the requests; and ``Span``."""

_SHAPES: Final[dict[str, Shape]] = {}
_TRACES: Final = shape_of(TracesData.DESCRIPTOR, _SHAPES)
_LOGS: Final = shape_of(LogsData.DESCRIPTOR, _SHAPES)
_SPAN: Final = shape_of(Span.DESCRIPTOR, _SHAPES)
_RECORD: Final = shape_of(LogRecord.DESCRIPTOR, _SHAPES)


Group: TypeAlias = "tuple[Any, Iterable[tuple[str, Iterable[bytes]]]]"
"""The attributes of a process, and by the scope of the instrumentation its spans or log records,
each as a protobuf message."""


def decode_protobuf(body: bytes, limits: ReadLimits = READ_LIMITS) -> Decoded:
    """The spans of a serialised ``ExportTraceServiceRequest``.

    Raises:
        OverloadedRequestError: it has too many elements for its size.
        MalformedRequestError: the body is not such a request.

    >>> decode_protobuf(b"")
    Decoded(spans=[], rejected={}, signal='traces')
    """
    reading = Reading(limits, len(body))
    with _protobuf("trace"):
        reading.check(body, _TRACES, later=_SPAN)
        groups = [
            (of.resource.attributes, [(each.scope.name, each.spans) for each in of.scope_spans])
            for of in _WireTraces.FromString(body).resource_spans
        ]
        return decode_spans(groups, reading)


def decode_logs_protobuf(body: bytes, limits: ReadLimits = READ_LIMITS) -> Decoded:
    """The events in a serialised ``ExportLogsServiceRequest``; other log records are ignored.

    Raises:
        OverloadedRequestError: it has too many elements for its size.
        MalformedRequestError: the body is not such a request.

    >>> decode_logs_protobuf(b"")
    Decoded(spans=[], rejected={}, signal='logs')
    """
    reading = Reading(limits, len(body))
    with _protobuf("log"):
        reading.check(body, _LOGS, later=_RECORD)
        groups = [
            (None, [(each.scope.name, each.log_records) for each in of.scope_logs])
            for of in _WireLogs.FromString(body).resource_logs
        ]
        return decode_events(groups, reading)


def decode_spans(groups: Iterable[Group], reading: Reading) -> Decoded:
    """The spans of a request in any encoding.

    Raises:
        TooManyElementsError: it has too many elements for its size.
    """
    limits = reading.limits
    spans: list[SpanData] = []
    rejected: dict[str, int] = {}
    for pairs, scopes in groups:
        resource: Attributes | None = None
        for scope, of_scope in scopes:
            for raw in of_scope:
                if resource is None:
                    resource = _attributes(pairs, reading)
                if len(spans) >= limits.spans:
                    _reject(rejected, "too_many")
                    continue
                if len(raw) > _HARMLESS:
                    reading.check(raw, _SPAN)
                span = _span(raw, scope, resource, reading)
                if span is None:
                    _reject(rejected, "invalid")
                else:
                    spans.append(span)
    return Decoded(spans, rejected)


def decode_events(groups: Iterable[Group], reading: Reading) -> Decoded:
    """The events in a request with log records in any encoding.

    Raises:
        TooManyElementsError: it has too many elements for its size.
    """
    events: list[SpanData] = []
    rejected: dict[str, int] = {}
    for _, scopes in groups:
        for scope, records in scopes:
            for raw in records:
                reading.check(raw, _RECORD)
                record = LogRecord.FromString(raw)
                name = _event_name(record, reading)
                ids = record.trace_id and record.span_id
                if name is None or not (ids and _may_be_sampled(record.flags)):
                    continue
                event = _event(record, raw, name, scope, reading)
                if event is None or not event.trace_id or not event.span_id:
                    _reject(rejected, "invalid")
                elif len(events) >= reading.limits.spans:
                    _reject(rejected, "too_many")
                else:
                    events.append(event)
    return Decoded(events, rejected, "logs")


@contextmanager
def _protobuf(what: str) -> Iterator[None]:
    try:
        yield
    except TooManyElementsError as error:
        raise OverloadedRequestError(str(error)) from error
    except (DecodeError, BrokenMessageError) as error:
        raise MalformedRequestError(f"not a {what} request in protobuf: {error}") from error


def _event_name(record: Any, reading: Reading) -> str | None:
    """The name of a record, if it is that of an event with contents."""
    name = record.event_name
    if not name:
        attributes = record.attributes
        reading.take(len(attributes))
        named = (one.value.string_value for one in attributes if one.key == _EVENT_NAME)
        name = next(filter(None, named), "")
    return name if name in EVENTS else None


def _may_be_sampled(flags: int) -> bool:
    """Whether the span of a log record may be sampled; without any flags, it is not known.

    >>> _may_be_sampled(0), _may_be_sampled(2), _may_be_sampled(3)
    (True, False, True)
    """
    return not flags or bool(flags & 1)


def _details(attributes: Attributes, body: object) -> Attributes:
    """The attributes of an event, and the fields of its body, which some write instead."""
    if isinstance(body, Mapping):
        return {**attributes, **body}
    return attributes if body is None else {**attributes, "content": body}


def _event(record: Any, raw: bytes, name: str, scope: str, reading: Reading) -> SpanData | None:
    """One event; ``None``: its ids are invalid."""
    trace_id, span_id = record.trace_id, record.span_id
    if len(trace_id) != 16 or len(span_id) != 8:
        return None
    details = _details(_attributes(record.attributes, reading), _value(record.body, reading, 0))
    return event_span(
        name,
        (int.from_bytes(trace_id), int.from_bytes(span_id)),
        details,
        scope=scope,
        time=record.time_unix_nano or record.observed_time_unix_nano,
        size=reading.keep(raw),
    )


def _span(raw: bytes, scope: str, resource: Attributes, reading: Reading) -> SpanData | None:
    """One span; ``None``: its ids are invalid."""
    span = _WireSpan.FromString(raw)
    trace_id, span_id, parent_id = span.trace_id, span.span_id, span.parent_span_id
    if len(trace_id) != 16 or len(span_id) != 8 or len(parent_id) not in (0, 8):
        return None
    trace_number, span_number = int.from_bytes(trace_id), int.from_bytes(span_id)
    if not (trace_number and span_number):
        return None
    given, limits, status = span.attributes, reading.limits, span.status
    names = tuple(given)
    attributes = _NOT_READ if names else _NOTHING
    kind = (_kind_of if len(raw) <= _MAX_REMEMBERED else _kind_of.__wrapped__)(names)
    if kind == "alike":
        span_faults.unread(scope, "unknown_convention")
    if kind == "read" or limits.unread:
        count, most = len(names), limits.text
        if count > limits.attributes:  # in their order, which a map does not keep
            attributes = _attributes(Span.FromString(raw).attributes, reading)
        else:
            reading.take(count)
            attributes = {
                name: (value := given[name]).string_value[:most]
                or value.int_value
                or _value(value, reading, 0)
                for name in names
            }
        cut = count > limits.attributes or (len(raw) > most and _is_cut(given, limits))
        if kind == "read" and cut:
            span_faults.repair("cut")
    fields = (
        trace_number,
        span_number,
        int.from_bytes(parent_id) or None,
        span.name,
        scope,
        attributes,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        status.code == 2,
        status.message or None,
        _events(span.events, reading) if span.events else (),
        resource,
        span.flags & _REMOTE == _REMOTE,
        reading.keep(raw, _IDS_AND_TIMES),
        None,
        False,
    )
    return made(SpanData, fields)


@lru_cache(1_000)
def _kind_of(names: tuple[str, ...]) -> Literal["read", "alike", "other"]:
    """Whether a span with attributes of these names is read, or looks as if it should be."""
    if not MARKER_ATTRIBUTES.isdisjoint(names):
        return "read"
    return "alike" if looks_like_agent(names) else "other"


def _is_cut(given: Any, limits: ReadLimits) -> bool:
    """Whether a text is too long."""
    return any(len(given[name].string_value) > limits.text for name in given)


def _attributes(pairs: Any, reading: Reading) -> Attributes:
    limits = reading.limits
    pairs = pairs[: limits.attributes]
    reading.take(len(pairs))
    return {
        pair.key: pair.value.string_value[: limits.text] or _value(pair.value, reading, 0)
        for pair in pairs
    }


def _events(events: Any, reading: Reading) -> tuple[tuple[str, Attributes], ...]:
    if len(events) > MAX_EVENTS:
        span_faults.repair("cut")
    events = events[:MAX_EVENTS]
    reading.take(len(events))
    return tuple([(event.name, _attributes(event.attributes, reading)) for event in events])


def _value(value: Any, reading: Reading, depth: int) -> Any:
    text = value.string_value
    if text:
        return text[: reading.limits.text]
    kind = value.WhichOneof("value")
    if kind == "array_value":
        if depth >= MAX_DEPTH:
            return None
        items = value.array_value.values[: reading.limits.attributes]
        reading.take(len(items))
        return tuple([_value(item, reading, depth + 1) for item in items])
    if kind == "kvlist_value":
        if depth >= MAX_DEPTH:
            return None
        pairs = value.kvlist_value.values[: reading.limits.attributes]
        reading.take(len(pairs))
        return {pair.key: _value(pair.value, reading, depth + 1) for pair in pairs}
    return None if kind is None else getattr(value, kind)

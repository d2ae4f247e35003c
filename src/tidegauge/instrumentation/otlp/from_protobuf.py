"""Spans out of OTLP's trace requests in protobuf.

Of a span that tells nothing of an agent, which is most of what comes, no attribute is read: nobody
asks for one.
"""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tidegauge._span_faults import span_faults
from tidegauge.instrumentation.otlp.decoded import (
    MAX_DEPTH,
    MAX_EVENTS,
    REMOTE,
    Decoded,
    MalformedRequestError,
    Taking,
)
from tidegauge.instrumentation.otlp.limits import READ_LIMITS, ReadLimits
from tidegauge.instrumentation.otlp.wire import WireRequest
from tidegauge.instrumentation.spans.reading import TELLTALES
from tidegauge.instrumentation.spans.span import Attributes, SpanData

__all__ = ["decode_protobuf"]

_TELLTALES: Final = tuple(name.encode() for name in sorted(TELLTALES))
_NOTHING: Final[Attributes] = {}
_NOT_READ: Final[Attributes] = {"": None}
"""Stands for the attributes of a span of no agent: that it has some is all that is to be known."""


def decode_protobuf(body: bytes, limits: ReadLimits = READ_LIMITS) -> Decoded:
    """The spans of a serialised ``ExportTraceServiceRequest``.

    Raises:
        MalformedRequestError: it is none.

    >>> decode_protobuf(b"")
    Decoded(spans=[], refused={})
    """
    taking = Taking(limits)
    try:
        for resource_spans in WireRequest.FromString(body).resource_spans:
            resource = _attributes(resource_spans.resource.attributes, limits)
            for scope_spans in resource_spans.scope_spans:
                scope = scope_spans.scope.name
                for raw in scope_spans.spans:
                    taking.take(_span(raw, scope, resource, limits))
    except DecodeError as error:
        raise MalformedRequestError(f"no trace request in protobuf: {error}") from error
    return taking.decoded


def _span(raw: bytes, scope: str, resource: Attributes, limits: ReadLimits) -> SpanData | None:
    """One span; ``None``, its ids are not valid."""
    span = Span.FromString(raw)
    trace_id, span_id, parent_id = span.trace_id, span.span_id, span.parent_span_id
    if len(trace_id) != 16 or len(span_id) != 8 or len(parent_id) not in (0, 8):
        return None
    status = span.status
    return SpanData(
        int.from_bytes(trace_id),
        int.from_bytes(span_id),
        int.from_bytes(parent_id) or None,
        span.name,
        scope,
        _span_attributes(raw, span.attributes, limits),
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        status.code == 2,
        status.message or None,
        _events(span.events, limits) if span.events else (),
        resource,
        span.flags & REMOTE == REMOTE,
        len(raw),
    )


def _span_attributes(raw: bytes, pairs: Any, limits: ReadLimits) -> Attributes:
    """The attributes of a span, if it has one that says that it is of an agent."""
    for telltale in _TELLTALES:  # may be found where it is no name: then they are read in vain
        if telltale in raw:
            if len(pairs) > limits.attributes or any(
                len(pair.value.string_value) > limits.text for pair in pairs
            ):
                span_faults.repair("cut")
            return _attributes(pairs, limits)
    return _NOT_READ if pairs else _NOTHING


def _attributes(pairs: Any, limits: ReadLimits) -> Attributes:
    most = limits.text
    return {
        pair.key: pair.value.string_value[:most] or _value(pair.value, limits)
        for pair in pairs[: limits.attributes]
    }


def _events(events: Any, limits: ReadLimits) -> tuple[tuple[str, Attributes], ...]:
    if len(events) > MAX_EVENTS:
        span_faults.repair("cut")
    return tuple(
        [(event.name, _attributes(event.attributes, limits)) for event in events[:MAX_EVENTS]]
    )


def _value(value: Any, limits: ReadLimits, depth: int = 0) -> Any:
    told = value.string_value
    if told:
        return told[: limits.text]
    kind = value.WhichOneof("value")
    if kind == "array_value":
        if depth >= MAX_DEPTH:
            return None
        items = value.array_value.values[: limits.attributes]
        return tuple([_value(item, limits, depth + 1) for item in items])
    if kind == "kvlist_value":
        if depth >= MAX_DEPTH:
            return None
        pairs = value.kvlist_value.values[: limits.attributes]
        return {pair.key: _value(pair.value, limits, depth + 1) for pair in pairs}
    return None if kind is None else getattr(value, kind)

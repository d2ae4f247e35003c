"""Spans that cost a fraction of the SDK's, and are the SDK's to everybody else.

Nearly every span below a run's is started, gets attributes of ours, and ends. The SDK's span is
prepared for more: it has three locks, and cleans each attribute when it is set. An :class:`OwnSpan`
*is* one of the SDK's, whose fields are made when a user or a processor asks for them. Until then
our attributes, which are clean, are in a dictionary, and the span that processors get is made once,
at its end.

What is unusual is left to the SDK: limits shorter than ours, samplers that decide about each span,
its own metrics, another tracer. Private fields of its spans are used here, so a version with other
ones than 1.45 makes its own spans, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from time import time_ns
from typing import Any, Final

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import (
    ReadableSpan,
    Span,
    SpanProcessor,
    SynchronousMultiSpanProcessor,
    Tracer,
)
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.sampling import Decision, ParentBased, Sampler, StaticSampler
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, TraceFlags, TraceState

from tidegauge.tracer.model_calls import Attributes

_new_context: Final = partial(tuple.__new__, SpanContext)

_MAX_ATTRIBUTES: Final = 64
"""More than a span has of ours."""

_FIELDS: Final = frozenset(
    "_" + name
    for name in (
        *("name", "context", "parent", "kind", "start_time", "end_time", "status", "resource"),
        *("attributes", "events", "links", "lock", "limits", "sampler", "trace_config"),
        *("record_exception", "set_status_on_exception", "span_processor", "record_end_metrics"),
        *("instrumentation_info", "instrumentation_scope"),
    )
)
"""The fields of the SDK's spans that are known here."""

_START_SPAN: Final = Tracer.start_span
_SILENT: Final = (SpanProcessor, BatchSpanProcessor, SimpleSpanProcessor)
_SILENT_STARTS: Final = frozenset(one.on_start for one in _SILENT)
_SILENT_ENDINGS: Final = frozenset(one._on_ending for one in _SILENT)


class _WhenAsked:
    """A field of a span that is made when it is first asked for, by whatever thread."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self._make = make

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, span: Any, owner: type) -> Any:
        return self if span is None else span.__dict__.setdefault(self._name, self._make(span))


class OwnSpan(Span):
    """A span of the SDK's with clean attributes; made by :class:`OwnSpans`."""

    _own: Attributes
    _open: bool  # gone when the span has ended: who takes it ends the span
    _spans: OwnSpans

    _end_time: int | None = None
    _trace_config = None
    _record_exception = _set_status_on_exception = True
    _status = Status()
    _lock = _WhenAsked(lambda span: threading.Lock())
    _events = _WhenAsked(Span._new_events)
    _links = _WhenAsked(lambda span: span._new_links(()))
    _attributes = _WhenAsked(lambda span: span._cleaned())

    def get_span_context(self) -> SpanContext:
        """Where it is in its trace."""
        return self._context  # type: ignore[return-value]

    def _cleaned(self) -> BoundedAttributes:
        limits = self._limits
        return BoundedAttributes(
            limits.max_span_attributes,
            self._own,
            immutable=False,
            max_value_len=limits.max_span_attribute_length,
        )

    def end(self, end_time: int | None = None) -> None:
        """End it, as the SDK does."""
        if self._end_time is None:
            self.finish(None, end_time)
        else:
            Span.end(self)  # which warns

    def finish(self, attributes: Attributes | None, end_time: int | None = None) -> None:
        """Set attributes, which are clean, and end the span, unless it has ended."""
        fields = self.__dict__
        spans = self._spans
        seen_by = spans.seen_by
        if "_open" not in fields:
            return
        own = self._own
        if "_attributes" in fields or spans.processor._span_processors is not seen_by:
            try:
                if attributes:
                    self.set_attributes(attributes)
            finally:
                if fields.pop("_open", False):
                    Span.end(self, end_time)
            return
        if attributes:
            own.update(attributes)
        ended = time_ns() if end_time is None else end_time
        tracer = spans.tracer
        readable = ReadableSpan(
            self._name,
            self._context,
            self._parent,
            self._resource,
            own,
            fields.get("_events", ()),
            fields.get("_links", ()),
            self._kind,
            tracer.instrumentation_info,
            self._status,
            self._start_time,
            ended,
            tracer._instrumentation_scope,
        )
        if not fields.pop("_open", False):
            return  # another thread was faster
        self._end_time = ended
        for processor in seen_by:
            processor.on_end(readable)


class OwnSpans:
    """Starts spans as a tracer does, below one that it has started.

    Args:
        tracer: of the SDK.

    Attributes:
        kind: the class of its spans.
        processor: hands spans on to those of the provider.
        announces: whether one of those does something when a span starts.
        seen_by: those; ``None``, not known, or one of them does something before a span's end.
    """

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.processor: Any = tracer.span_processor
        self._sampler = tracer.sampler
        self.announces = False
        self.seen_by: tuple[SpanProcessor, ...] | None = None
        self._known: tuple[SpanProcessor, ...] | None = None
        self.kind: type[OwnSpan] = type(
            OwnSpan.__name__,
            (OwnSpan,),
            {
                "_spans": self,
                "_sampler": tracer.sampler,
                "_span_processor": tracer.span_processor,
                "_limits": tracer._span_limits,
                "_instrumentation_info": tracer.instrumentation_info,
                "_instrumentation_scope": tracer._instrumentation_scope,
                "_record_end_metrics": None,
            },
        )

    def start(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        parent: SpanContext,
        *,
        link: Link | None = None,
        started: int | None = None,
    ) -> OwnSpan | None:
        """Start a span; ``None``, the tracer must do it.

        The caller reports it to the processors, if :attr:`announces`.

        Args:
            attributes: they are clean.
            parent: what it is below.
        """
        trace_id, _, remote, flags, state, valid = parent
        tracer = self.tracer
        if (
            remote
            or not valid
            or not flags & flags.SAMPLED
            or tracer.sampler is not self._sampler
            or Tracer.start_span is not _START_SPAN  # another library has replaced it
            or not tracer._is_enabled()
        ):
            return None
        if self.processor._span_processors is not self._known:
            self._look(self.processor._span_processors)
        span = object.__new__(self.kind)
        span._name = name
        span_id = tracer.id_generator.generate_span_id()
        span._context = _new_context((trace_id, span_id, False, flags, state, True))
        span._parent = parent
        span._kind = kind
        span._own = attributes.copy()
        span._open = True
        span._resource = tracer.resource
        span._start_time = time_ns() if started is None else started
        if link is not None:
            span._links = span._new_links((link,))
        return span

    def _look(self, processors: tuple[SpanProcessor, ...]) -> None:
        """See what the processors do that the provider has now."""
        self.announces = not all(_has(one, "on_start", _SILENT_STARTS) for one in processors)
        silent = all(_has(one, "_on_ending", _SILENT_ENDINGS) for one in processors)
        self.seen_by = processors if silent else None
        self._known = processors


def _has(processor: SpanProcessor, name: str, methods: frozenset[Any]) -> bool:
    # A processor may be anything that answers to its methods.
    method = getattr(type(processor), name, None)
    return method in methods and name not in getattr(processor, "__dict__", {})


def own_spans(tracer: object) -> OwnSpans | None:
    """What starts spans instead of a tracer; ``None``, it must do it."""
    if type(tracer) is not Tracer:
        return None
    limits = tracer._span_limits
    most = limits.max_span_attributes
    usual = (
        type(tracer.span_processor) is SynchronousMultiSpanProcessor
        and type(tracer._tracer_metrics).__name__ == "NoOpTracerMetrics"
        and _follows_parent(tracer.sampler)
        and limits.max_span_attribute_length is None
        and (most is None or most >= _MAX_ATTRIBUTES)
        and vars(_Probe("", _PROBED, resource=tracer.resource)).keys() == _FIELDS
        and tuple(_PROBED) == (1, 2, False, TraceFlags(1), TraceState(), True)
    )
    return OwnSpans(tracer) if usual else None


def _follows_parent(sampler: Sampler) -> bool:
    """Whether what is below a span that is recorded and sampled is so too, without being asked."""
    if (
        isinstance(sampler, ParentBased)
        and type(sampler).should_sample is ParentBased.should_sample
    ):
        sampler = sampler._local_parent_sampled
    return (
        isinstance(sampler, StaticSampler)
        and type(sampler).should_sample is StaticSampler.should_sample
        and sampler._decision is Decision.RECORD_AND_SAMPLE
    )


class _Probe(Span):
    """Shows the fields of the SDK's spans."""


_PROBED: Final = SpanContext(1, 2, False, TraceFlags(1), TraceState())

"""Spans of runs, model calls and tool calls, always with an explicit parent.

Contexts are never attached here: callbacks run in other threads and tasks than the agent, and a
context attached there leaks. Adapters make the spans current, each in its way. The code that opens
a span closes it. A run that ends, or is evicted from the bounded store, ends what it left open.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections import OrderedDict
from collections.abc import Mapping
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeAlias

from opentelemetry import trace
from opentelemetry._logs import Logger, LogRecord
from opentelemetry.context import Context, get_current
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    Tracer,
)
from opentelemetry.util.types import AttributeValue

from tidegauge._canonical import canonical_start, plain_text, type_name
from tidegauge._critical import here, reset_after_fork
from tidegauge._guard import guarded
from tidegauge.events import ABSENT, Decision, RunStarted, RunSummary, Signals, StepSignals
from tidegauge.tracer import conventions as names
from tidegauge.tracer.call_metrics import CallMetrics, CallMetricsSource

__all__ = ["RequestLabels", "RunSpans", "SpanFactory"]

_MAX_CONTENT: Final = 8_192
_MAX_DATA: Final = 4 * _MAX_CONTENT
"""Bytes that have so many characters at least, if they are not the whole text."""

_MAX_NAME: Final = 128
_MAX_OPEN: Final = 1_000
_SUMMARY: Final = (
    names.STEPS,
    names.OUTCOME,
    names.LOOP_RATIO,
    names.STALE_SCORE_MAX,
    names.NOVELTY,
    names.RECURRENCE_MAX,
    names.REPETITION,
    names.STAGNATION,
    names.LOOP_ENTROPY,
    names.OTHER_ENTROPY,
    names.PROGRESS_AUV,
    names.LOST_STEPS,
    names.LOST_TOKENS,
    names.LOST_SECONDS,
    names.TROUBLES,
)
"""The attributes of a summary, in the order of its fields."""

Attributes: TypeAlias = dict[str, AttributeValue]
_Child: TypeAlias = tuple[Span, float, Attributes]  # begun when, with what attributes


class RequestLabels(NamedTuple):
    """Whose request a run serves, as the application says it: for spans only, never for metrics."""

    user: str | None = None
    session: str | None = None
    tags: tuple[str, ...] = ()

    def attributes(self) -> Attributes:
        """The attributes of a run's span."""
        found: Attributes = {}
        if self.user:
            found[names.USER_ID] = _text(self.user)
        if self.session:
            found[names.SESSION_ID] = _text(self.session)
        if self.tags:
            found[names.TAGS] = tuple([_text(tag) for tag in self.tags])
        return found


class SpanFactory:
    """Makes the spans of runs and holds the open ones, at most ``max_runs`` of them.

    Args:
        tracer: where spans are started.
        logger: where events are sent, as log records with their span's context.
        max_runs: runs whose spans are held open; one more ends those of the oldest.
        capture_content: whether arguments and results are put on tool spans.
        digest_key: key of the exported digests, so that short contents can't be guessed;
            ``None`` draws one for this process.
        meter_provider: collects durations and tokens; left out, the application's does, if and
            when it sets one up.
        owns_meter_provider: whether that one is ours: a forked child does not use it.
    """

    def __init__(
        self,
        tracer: Tracer,
        logger: Logger,
        *,
        max_runs: int = 10_000,
        capture_content: bool = False,
        digest_key: bytes | None = None,
        meter_provider: MeterProvider | None = None,
        owns_meter_provider: bool = False,
    ) -> None:
        self.tracer = tracer
        self.logger = logger
        self.capture_content = capture_content
        # Taken up by every digest: a copy costs less than starting again from the key.
        self._keyed = hashlib.blake2b(key=digest_key or os.urandom(16), digest_size=8)
        self._metrics = CallMetricsSource(meter_provider, owned=owns_meter_provider)
        self._max_runs = max_runs
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._open: OrderedDict[int, RunSpans] = OrderedDict()

    def start_run(
        self,
        event: RunStarted,
        context: Context | None = None,
        link: Link | None = None,
        request: RequestLabels | None = None,
    ) -> RunSpans:
        """Open a run's span.

        Args:
            event: what is known of the run.
            context: the parent; ``None`` takes the caller's current context.
            link: to the span that the run had before it was suspended.
            request: whose request the run serves.
        """
        attributes: Attributes = {
            names.OPERATION_NAME: names.INVOKE_AGENT,
            names.RUN_ID: _text(event.run),
        }
        texts = (
            (names.AGENT_NAME, event.agent),
            (names.TASK_GROUP, event.task_group),
            (names.REQUEST_MODEL, event.model),
            (names.MEMORY, event.memory),
            (names.RUN_PARENT, event.parent),
            (names.CONVERSATION_ID, event.conversation),
            (
                names.TASK,
                _content(event.task) if self.capture_content and event.task is not None else None,
            ),
        )
        attributes.update({name: _text(value) for name, value in texts if value})
        if event.t_max is not None:
            attributes[names.T_MAX] = event.t_max
        if request is not None:
            attributes.update(request.attributes())
        parent = get_current() if context is None else context
        with here.critical:  # the SDK's locks are not re-entrant
            span = self.tracer.start_span(
                _name(names.INVOKE_AGENT, event.agent),
                parent,
                SpanKind.INTERNAL,
                attributes,
                links=None if link is None else (link,),
            )
        metrics = self._metrics.current()
        within = trace.set_span_in_context(span, parent)
        known = span.get_span_context()
        outer = trace.get_current_span(parent).get_span_context()
        owns_span = known.is_valid and known.span_id != outer.span_id
        spans = RunSpans(self, span, within, attributes, metrics, owns_span=owns_span)
        with here.critical, self._lock:
            self._open[id(spans)] = spans
            evicted = (
                self._open.popitem(last=False)[1] if len(self._open) > self._max_runs else None
            )
        if evicted is not None:
            evicted.close()
        return spans

    def external(self, span: SpanContext) -> RunSpans:
        """For a run whose spans another instrumentation makes: events have its span's context."""
        theirs = NonRecordingSpan(span)
        return RunSpans(self, theirs, trace.set_span_in_context(theirs))

    def forget(self, spans: RunSpans) -> None:
        """Drop a run that has ended from the store."""
        with here.critical, self._lock:
            self._open.pop(id(spans), None)

    def exported_digest(self, digest: bytes) -> str:
        """The exported form of a digest: keyed, 16 hexadecimal digits."""
        hashed = self._keyed.copy()
        hashed.update(digest)
        return hashed.hexdigest()

    def exported_place(self, place: object) -> str:
        """The exported form of a place's name: a digest, unless contents are captured."""
        if self.capture_content:
            return _text(str(place))
        return self.exported_digest(repr(place).encode("utf-8", "surrogateescape"))

    @property
    def open_runs(self) -> int:
        """How many runs have open spans."""
        return len(self._open)


class RunSpans:
    """The spans of one run.

    Attributes:
        span: the run's own.
        context: the parent context of everything below it.
        owns_span: whether the span is ours, sampled or not; without a tracer, it is the parent's.
    """

    __slots__ = (
        "_attributes",
        "_began",
        "_children",
        "_factory",
        "_metrics",
        "context",
        "owns_span",
        "span",
    )

    def __init__(
        self,
        factory: SpanFactory,
        span: Span,
        context: Context,
        attributes: Attributes | None = None,
        metrics: CallMetrics | None = None,
        *,
        owns_span: bool = False,
    ) -> None:
        self._factory = factory
        self.span = span
        self.context = context
        self.owns_span = owns_span
        self._children: OrderedDict[int, _Child] = OrderedDict()
        self._metrics = metrics
        self._attributes = attributes or {}
        self._began = perf_counter()

    @property
    def trace_id(self) -> str | None:
        """Trace of the run, 32 hexadecimal digits; ``None`` when nothing is recorded."""
        context = self.span.get_span_context()
        return trace.format_trace_id(context.trace_id) if context.is_valid else None

    @property
    def span_id(self) -> str | None:
        """The run's span, 16 hexadecimal digits; ``None`` when nothing is recorded."""
        context = self.span.get_span_context()
        return trace.format_span_id(context.span_id) if context.is_valid else None

    @property
    def calls_wanted(self) -> bool:
        """Whether spans of calls lead anywhere: they are recorded, or their time is."""
        return self._metrics is not None or self.span.is_recording()

    def start_chat(
        self, *, model: str | None = None, provider: str | None = None, inside: Span | None = None
    ) -> Span:
        """Open the span of a model call.

        Args:
            model: its name.
            provider: whose it is, by the convention's names.
            inside: the tool call that makes it; ``None``, the agent itself.
        """
        attributes: Attributes = {names.OPERATION_NAME: names.CHAT}
        if model:
            attributes[names.REQUEST_MODEL] = _text(model)
        if provider:
            attributes[names.PROVIDER_NAME] = _text(provider)
        return self._start(_name(names.CHAT, model), SpanKind.CLIENT, attributes, inside)

    def end_chat(
        self,
        span: Span,
        *,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        finish_reasons: tuple[str, ...] = (),
        error: BaseException | str | None = None,
    ) -> None:
        """Close the span of a model call."""
        if span.is_recording():
            attributes: Attributes = {}
            if input_tokens is not None:
                attributes[names.USAGE_INPUT_TOKENS] = input_tokens
            if output_tokens is not None:
                attributes[names.USAGE_OUTPUT_TOKENS] = output_tokens
            if finish_reasons:
                attributes[names.RESPONSE_FINISH_REASONS] = finish_reasons
            with here.critical:
                span.set_attributes(attributes)
        took = self._end(span, error)
        if self._metrics is not None and took is not None:
            seconds, begun_with = took
            self._metrics.chat(
                seconds,
                begun_with,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                error=_error_type(error),
                context=self._inside(span),
            )

    def start_tool(
        self,
        name: str,
        call_id: str | None = None,
        signals: Signals | StepSignals | None = None,
        arguments: object = None,
    ) -> Span:
        """Open the span of a tool call.

        Args:
            name: the tool.
            call_id: the model's id of the call.
            signals: what the sink said when the action was issued.
            arguments: put on the span only if contents are captured.
        """
        attributes: Attributes = {
            names.OPERATION_NAME: names.EXECUTE_TOOL,
            names.TOOL_NAME: _text(name),
            names.TOOL_TYPE: "function",
        }
        if self.span.is_recording():
            if call_id:
                attributes[names.TOOL_CALL_ID] = _text(call_id)
            if signals is not None:
                self._add_step(attributes, signals)
            if self._factory.capture_content:
                attributes[names.TOOL_CALL_ARGUMENTS] = _content(arguments)
        return self._start(_name(names.EXECUTE_TOOL, name), SpanKind.INTERNAL, attributes)

    def end_tool(
        self,
        span: Span,
        result: object = ABSENT,
        error: BaseException | str | None = None,
        ended: int | None = None,
    ) -> None:
        """Close the span of a tool call; ``result`` is put on it only if contents are captured.

        Nothing is known of the result of a call that was abandoned: it has none.

        Args:
            span: the span.
            result: what the call returned.
            error: what it failed with.
            ended: when it ended, in nanoseconds since the epoch; ``None``, now.
        """
        is_known = result is not ABSENT and error is None
        if is_known and self._factory.capture_content and span.is_recording():
            span.set_attribute(names.TOOL_CALL_RESULT, _content(result))
        took = self._end(span, error, ended)
        if self._metrics is not None and took is not None:
            seconds, begun_with = took
            agent = self._attributes.get(names.AGENT_NAME)
            if agent is not None:
                begun_with[names.AGENT_NAME] = agent
            self._metrics.duration(
                "tool", seconds, begun_with, error=_error_type(error), context=self._inside(span)
            )

    def untimed(self, span: Span) -> None:
        """Don't count how long an open call takes."""
        self._children.pop(id(span), None)

    def event(
        self, name: str, attributes: Mapping[str, AttributeValue], span: Span | None = None
    ) -> None:
        """Send an event with the context of ``span``, or of the run's own."""
        context = self._inside(span) if span else self.context
        record = LogRecord(event_name=name, attributes=dict(attributes), context=context)
        with here.critical:
            self._factory.logger.emit(record)

    def loop_onset(self, signals: Signals | StepSignals) -> None:
        """Send the event that a cycle's first repetition is complete."""
        self.event(
            names.LOOP_ONSET_EVENT,
            {
                names.RUN_ID: signals.run,
                names.STEP_INDEX: signals.step,
                names.LOOP_PERIOD: signals.loop_period,
                names.LOOP_FIRST_STEP: signals.loop_first_step,
            },
        )

    def intervention(self, decision: Decision) -> None:
        """Send the event that a policy intervened."""
        attributes: Attributes = {names.INTERVENTION: decision.action}
        if decision.reason:
            attributes[names.INTERVENTION_REASON] = decision.reason
        if decision.signals is not None:
            attributes[names.RUN_ID] = decision.signals.run
            attributes[names.STEP_INDEX] = decision.signals.step
        self.event(names.INTERVENTION_EVENT, attributes)

    def end(
        self,
        summary: RunSummary | None,
        *,
        stopped_reason: str | None = None,
        error: BaseException | str | None = None,
        checkpoint: str | None = None,
    ) -> None:
        """Close the run's span and whatever it left open."""
        metrics, self._metrics = self._metrics, None  # one that was suspended may be ended again
        if metrics is not None:
            seconds = perf_counter() - self._began
            error_type = _error_type(error)
            metrics.duration(
                "agent", seconds, self._attributes, error=error_type, context=self.context
            )
        span = self.span
        if span.is_recording():
            attributes: Attributes = {}
            if summary is not None:
                for name, value in zip(_SUMMARY, summary, strict=True):
                    if value is not None and value != ():
                        attributes[name] = value
                if summary.troubles is not None:
                    attributes[names.TROUBLED] = bool(summary.troubles)
            if stopped_reason:
                attributes[names.STOPPED_REASON] = stopped_reason
            if checkpoint is not None:
                attributes[names.CHECKPOINT] = _text(checkpoint)
            with here.critical:
                span.set_attributes(attributes)
        self.close(error)

    def continues(self, checkpoint: str) -> None:
        """Note the checkpoint from which the run continues."""
        if self.span.is_recording():
            with here.critical:
                self.span.set_attribute(names.RESUMED_CHECKPOINT, _text(checkpoint))

    def close(self, error: BaseException | str | None = None) -> None:
        """Close the run's span and whatever it left open, of which nothing more is known."""
        self._factory.forget(self)
        for child, *_ in list(self._children.values()):
            self._end(child, None)
        _finish(self.span, error)

    def _add_step(self, attributes: Attributes, signals: Signals | StepSignals) -> None:
        digest = self._factory.exported_digest
        attributes[names.STEP_INDEX] = signals.step
        attributes[names.ACTION_DIGEST] = digest(signals.action_digest)
        attributes[names.STATE_DIGEST] = digest(signals.state_digest)
        if signals.loop_repeats:
            attributes[names.LOOP_REPEATS] = signals.loop_repeats
            attributes[names.LOOP_PERIOD] = signals.loop_period

    def _start(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        inside: Span | None = None,
    ) -> Span:
        parent = self.context if inside is None else self._inside(inside)
        with here.critical:  # the SDK's locks are not re-entrant
            span = self._factory.tracer.start_span(name, parent, kind, attributes)
        recording = span.is_recording()
        if self._metrics is not None and not recording:
            # One object may stand for all that are not recorded: each call needs its own.
            span = NonRecordingSpan(span.get_span_context())
        if recording or self._metrics is not None:
            children = self._children
            children[id(span)] = (span, perf_counter(), attributes)
            if len(children) > _MAX_OPEN:
                self._end(next(iter(children.values()))[0], None)
        return span

    def _end(
        self, span: Span, error: BaseException | str | None, ended: int | None = None
    ) -> tuple[float, Attributes] | None:
        """Close it; gives the seconds since it was opened, and the attributes of then."""
        child = self._children.pop(id(span), None)
        took = None if child is None else (perf_counter() - child[1], child[2])
        _finish(span, error, ended)
        return took

    def _inside(self, span: Span) -> Context:
        return trace.set_span_in_context(span, self.context)


@guarded("spans.end", default=None)
def _finish(span: Span, error: BaseException | str | None, ended: int | None = None) -> None:
    if not span.is_recording():
        return  # not sampled, or ended before its time to make room
    with here.critical:
        if error is not None:
            span.set_attribute(names.ERROR_TYPE, _error_type(error) or "")
            span.set_status(StatusCode.ERROR)
        span.end(ended)


def _error_type(error: BaseException | str | None) -> str | None:
    if error is None or type(error) is str:
        return error
    return type_name(type(error))  # nothing is asked of the error, which may be the user's


def _name(operation: str, what: str | None) -> str:
    return f"{operation} {_text(what[:_MAX_NAME])}" if what else operation


def _content(value: Any) -> str:
    """The beginning of a content, as JSON where it is plain; none of its code is run."""
    if issubclass(type(value), str):
        text: str = str.__getitem__(value, slice(_MAX_CONTENT + 1))
    else:
        data = plain_text(value)
        if data is not None and len(data) <= _MAX_DATA:
            text = json.dumps(value)
        else:  # a long one would be written as a whole, and then cut off
            shown = canonical_start(value, _MAX_DATA) if data is None else data[:_MAX_DATA]
            text = shown.decode("utf-8", "ignore")
    return _text(text if len(text) <= _MAX_CONTENT else text[:_MAX_CONTENT] + "…")


def _text(value: str) -> str:
    """``value`` without lone surrogates, of which one would lose a whole batch of spans."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode()

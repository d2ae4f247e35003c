"""The spans of one run, always with an explicit parent.

Contexts are never attached here: callbacks run in other threads and tasks than the agent, and a
context attached there leaks. Adapters make the spans current, each in its way. The code that opens
a span closes it. A run that ends, or is evicted from the bounded store, ends what it left open.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter, time_ns
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from opentelemetry import trace
from opentelemetry._logs import Logger, LogRecord
from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    Tracer,
)
from opentelemetry.util.types import AttributeValue

from tidegauge.events import ABSENT, CallResult, Decision, RunSummary, Signals, StepSignals
from tidegauge.safety.critical import here
from tidegauge.safety.guard import guarded, internal_errors, passes
from tidegauge.tracer import conventions as names
from tidegauge.tracer.call_metrics import CallMetrics
from tidegauge.tracer.failures import CallFailure, Failed, error_type
from tidegauge.tracer.message_history import Prompt, Reply
from tidegauge.tracer.model_calls import Attributes, ModelRequest, ModelResponse
from tidegauge.tracer.run_contents import RunContents
from tidegauge.tracer.span_texts import MAX_NAME, Contents, Item, plain_name, span_name
from tidegauge.values import built_in
from tidegauge.values.safe_reading import named

if TYPE_CHECKING:
    from tidegauge.tracer.own_spans import OwnSpans

_MAX_OPEN: Final = 1_000
_MAX_DESCRIPTION: Final = 1_024
_MAX_PERIOD: Final = 64
_MAX_CALLS: Final = 16
_SUMMARY: Final = (
    names.STEPS,
    names.OUTCOME,
    names.LOOP_RATIO,
    names.STALE_SCORE_MAX,
    names.NOVELTY,
    names.RECURRENCE_MAX,
    names.REPETITION,
    names.REPETITION_RECENT,
    names.STAGNATION,
    names.LOOP_ENTROPY,
    names.OTHER_ENTROPY,
    names.PROGRESS_AUV,
    names.LOOP_STEPS,
    names.LOST_TOKENS,
    names.LOST_SECONDS,
    names.TROUBLES,
)
"""The attributes of a summary, in the order of its fields."""

_CALLS: Final = (
    "recorder.start_chat",
    "recorder.end_chat",
    "recorder.start_tool",
    "recorder.end_tool",
)
"""What every step runs inside of a guarded function."""
internal_errors.overflows.update(dict.fromkeys(_CALLS, 0))

_NO_REQUEST: Final = ModelRequest()
_NO_RESPONSE: Final = ModelResponse()
_Child: TypeAlias = tuple[Span, float, Attributes]  # begun when, with what attributes


class SpanTools(NamedTuple):
    """What the spans of all runs are made with.

    Attributes:
        tracer: where spans are started.
        logger: where events are sent.
        contents: how contents are put on spans.
        keyed: a hash; a copy that takes up a digest gives the exported form of that.
        forget: drops a run that has ended from the store.
    """

    tracer: Tracer
    logger: Logger
    contents: Contents
    keyed: hashlib.blake2b
    forget: Callable[[Any], None]


class RunSpans:
    """The spans of one run.

    Attributes:
        span: the run's own.
        context: the parent context of everything below it.
        owns_span: whether the span is ours, sampled or not; without a tracer, it is the parent's.
        shows_contents: whether contents are put on its spans.
        calls_wanted: whether spans of calls lead anywhere: they are recorded, or their time is.
    """

    __slots__ = (
        "_attributes",
        "_began",
        "_children",
        "_contents",
        "_described",
        "_known",
        "_links",
        "_metrics",
        "_nodes",
        "_own",
        "_tools",
        "calls_wanted",
        "context",
        "owns_span",
        "shows_contents",
        "span",
    )

    def __init__(
        self,
        tools: SpanTools,
        span: Span,
        context: Context,
        attributes: Attributes | None = None,
        metrics: CallMetrics | None = None,
        *,
        owns_span: bool = False,
        own: OwnSpans | None = None,
    ) -> None:
        self._tools = tools
        self._own = own  # starts what is below the run's span; ``None``, the tracer must
        self.span = span
        self.context = context
        self.owns_span = owns_span
        self._known = span.get_span_context()
        self.shows_contents = tools.contents.captured and span.is_recording()
        self._contents = RunContents(tools.contents) if self.shows_contents else None
        self._children: OrderedDict[int, _Child] = OrderedDict()
        self._metrics = metrics
        self.calls_wanted = metrics is not None or span.is_recording()
        self._attributes = attributes or {}
        self._began = perf_counter()
        self._links = StepLinks()
        self._nodes: set[int] = set()  # ids of the open spans of nodes
        self._described: set[str] = set()  # tools whose description is on a span

    @property
    def trace_id(self) -> str | None:
        """Trace of the run, 32 hexadecimal digits; ``None`` when nothing is recorded."""
        return trace.format_trace_id(self._known.trace_id) if self._known.is_valid else None

    @property
    def span_id(self) -> str | None:
        """The run's span, 16 hexadecimal digits; ``None`` when nothing is recorded."""
        return trace.format_span_id(self._known.span_id) if self._known.is_valid else None

    def start_chat(
        self,
        request: ModelRequest = _NO_REQUEST,
        prompt: Prompt | None = None,
        *,
        inside: Span | None = None,
    ) -> Span:
        """Open the span of a model call."""
        try:
            attributes = request.attributes()
            conversation = self._attributes.get(names.CONVERSATION_ID)
            if conversation is not None:
                attributes[names.CONVERSATION_ID] = conversation
            if prompt is not None and self._contents is not None:
                own = inside is None or inside.get_span_context().span_id in self._nodes
                self._contents.asked(attributes, prompt, by_agent=own)
            operation, model = request.operation, request.model
            if model and model.isascii():
                name = f"{operation} {model[:MAX_NAME]}"
            else:
                name = span_name(operation, model)
            return self._start(name, SpanKind.CLIENT, attributes, inside)
        except RecursionError:
            internal_errors.overflows["recorder.start_chat"] += 1
            return INVALID_SPAN
        except Exception as fault:
            if passes("recorder.start_chat", fault):
                raise
            return INVALID_SPAN

    @guarded("recorder.first_chunk", default=None)
    def first_chunk(self, span: Span) -> None:
        """The first chunk of a model's answer is here: the answer is streamed."""
        child = self._children.get(id(span))
        if child is not None:
            attributes = child[2]
            attributes.setdefault(names.RESPONSE_TIME_TO_FIRST_CHUNK, perf_counter() - child[1])

    def end_chat(
        self,
        span: Span,
        response: ModelResponse = _NO_RESPONSE,
        *,
        answer: Reply | None = None,
        request: ModelRequest | None = None,
        prompt: Prompt | None = None,
        error: Failed = None,
    ) -> None:
        """Close the span of a model call.

        Args:
            answer: what the model said; put on the span only if contents are captured.
            prompt: what the model was shown, if that was not known at the start.
        """
        try:
            child = self._children.get(id(span))
            begun_with = {} if child is None else child[2]
            first_chunk = begun_with.get(names.RESPONSE_TIME_TO_FIRST_CHUNK)
            if request is not None:
                begun_with.update(request.attributes())
            attributes: Attributes = {}
            if span.is_recording():
                attributes = response.attributes()
                if request is not None:
                    attributes.update(request.attributes())
                if self._contents is not None and (prompt is not None or answer is not None):
                    own = self._is_own(span)
                    if prompt is not None:
                        self._contents.asked(attributes, prompt, by_agent=own)
                    if answer is not None:
                        self._contents.said(attributes, answer, to_agent=own)
                if first_chunk is not None:
                    attributes[names.REQUEST_STREAM] = True
                    attributes[names.RESPONSE_TIME_TO_FIRST_CHUNK] = first_chunk
                if request is not None and request.model:
                    with here.critical:
                        span.update_name(span_name(request.operation, request.model))
            took = self._end(span, error, None, attributes)
            if self._metrics is not None and took is not None:
                self._metrics.chat(
                    took[0],
                    begun_with,
                    first_chunk=first_chunk,
                    response=response,
                    error=error_type(error),
                    context=self._inside(span),
                )
        except RecursionError:
            internal_errors.overflows["recorder.end_chat"] += 1
        except Exception as fault:
            if passes("recorder.end_chat", fault):
                raise

    @guarded("recorder.answered", default=None)
    def answered(self, answer: object) -> None:
        """The run gave this answer: put on its span at its end, if contents are captured."""
        if self._contents is not None:
            self._contents.answered(answer)

    def _is_own(self, span: Span) -> bool:
        """Whether the agent itself makes a model call, and none of its tools."""
        parent = getattr(span, "parent", None)
        if parent is None:
            return False
        return parent.span_id == self._known.span_id or parent.span_id in self._nodes

    @guarded("recorder.start_retrieval", default=INVALID_SPAN)
    def start_retrieval(
        self,
        *,
        source: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        top_k: int | None = None,
        query: object = ABSENT,
        inside: Span | None = None,
    ) -> Span:
        """Open the span of a retrieval of documents.

        Args:
            source: where they are looked for.
            model: the model of the embeddings by which they are found.
            top_k: how many are wanted at most.
            query: put on the span only if contents are captured.
        """
        attributes: Attributes = {names.OPERATION_NAME: names.RETRIEVAL}
        texts = (
            (names.DATA_SOURCE_ID, source),
            (names.PROVIDER_NAME, provider),
            (names.REQUEST_MODEL, model),
        )
        attributes.update({name: plain_name(value) for name, value in texts if value})
        wanted = built_in(top_k)
        if type(wanted) is int:
            attributes[names.RETRIEVAL_TOP_K] = wanted
        if query is not ABSENT and self._contents is not None:
            self._contents.add(attributes, names.RETRIEVAL_QUERY, query)
        return self._start(span_name(names.RETRIEVAL, source), SpanKind.CLIENT, attributes, inside)

    @guarded("recorder.end_retrieval", default=None)
    def end_retrieval(
        self,
        span: Span,
        documents: Sequence[Item] | None = None,
        error: Failed = None,
    ) -> None:
        """Close the span of a retrieval."""
        attributes: Attributes = {}
        if documents is not None and self._contents is not None:
            self._contents.found(attributes, documents)
        self._end(span, error, None, attributes)

    def start_tool(
        self,
        name: str,
        call_id: str | None = None,
        signals: Signals | StepSignals | None = None,
        arguments: object = None,
        description: object = None,
        *,
        inside: Span | None = None,
        started: int | None = None,
    ) -> Span:
        """Open the span of a tool call.

        Args:
            signals: what the sink said when the action was issued.
            arguments: put on the span only if contents are captured.
            description: what the tool does; put on the span of its first call in the run.
            started: when it began, in nanoseconds since the epoch; ``None``, now.
        """
        try:
            if type(name) is not str:
                name = named(name) or ""
            if call_id is not None and type(call_id) is not str:
                call_id = named(call_id)
            text = name if name.isascii() else plain_name(name)
            attributes: Attributes = {
                names.OPERATION_NAME: names.EXECUTE_TOOL,
                names.TOOL_NAME: text,
                names.TOOL_TYPE: "function",
            }
            link: Link | None = None
            recording = self.span.is_recording()
            if recording:
                agent = self._attributes.get(names.AGENT_NAME)
                if agent is not None:
                    attributes[names.AGENT_NAME] = agent
                if call_id:
                    attributes[names.TOOL_CALL_ID] = (
                        call_id if call_id.isascii() else plain_name(call_id)
                    )
                if type(description) is str and name not in self._described:
                    if len(self._described) < _MAX_OPEN:
                        self._described.add(name)
                    attributes[names.TOOL_DESCRIPTION] = plain_name(description[:_MAX_DESCRIPTION])
                if signals is not None:
                    attributes[names.STEP_INDEX] = signals.step
                    for digest, value in (
                        (names.ACTION_DIGEST, signals.action_digest),
                        (names.STATE_DIGEST, signals.state_digest),
                    ):
                        hashed = self._tools.keyed.copy()
                        hashed.update(value)
                        attributes[digest] = hashed.hexdigest()
                    if signals.loop_repeats:
                        attributes[names.LOOP_REPEATS] = signals.loop_repeats
                        attributes[names.LOOP_PERIOD] = signals.loop_period
                        link = self._links.link(signals, name)
                if self._contents is not None:
                    self._contents.add(attributes, names.TOOL_CALL_ARGUMENTS, arguments)
            shown = f"{names.EXECUTE_TOOL} {text[:MAX_NAME]}" if text else names.EXECUTE_TOOL
            span = self._start(
                shown, SpanKind.INTERNAL, attributes, inside, link=link, started=started
            )
            if recording and signals is not None:
                self._links.started(signals, name, span.get_span_context())
            return span
        except RecursionError:
            internal_errors.overflows["recorder.start_tool"] += 1
            return INVALID_SPAN
        except Exception as fault:
            if passes("recorder.start_tool", fault):
                raise
            return INVALID_SPAN

    def end_tool(
        self,
        span: Span,
        result: object = ABSENT,
        error: Failed = None,
        ended: int | None = None,
        *,
        signals: Signals | StepSignals | None = None,
        hand_off: str | None = None,
    ) -> None:
        """Close the span of a tool call.

        Args:
            result: what the call returned; put on the span only if contents are captured, and it
                did not fail. Of a call that was abandoned, nothing is known.
            ended: when it ended, in nanoseconds since the epoch; ``None``, now.
            signals: what the sink said when the result of its step was observed.
            hand_off: the agent that it hands over to; ``None``, it hands over to none.
        """
        try:
            attributes: Attributes = {}
            if hand_off is not None:
                attributes[names.HAND_OFF_TO] = plain_name(hand_off)
            if signals is not None:
                if signals.stale_score:
                    attributes[names.STALE_SCORE] = signals.stale_score
                case = getattr(signals, "case", None)  # a decision to intervene may have it apart
                if case is not None:
                    attributes[names.CASE] = case
            if self._contents is not None and result is not ABSENT and error is None:
                self._contents.add(attributes, names.TOOL_CALL_RESULT, result)
            took = self._end(span, error, ended, attributes)
            if self._metrics is not None and took is not None:
                seconds, begun_with = took
                agent = self._attributes.get(names.AGENT_NAME)
                if agent is not None and names.AGENT_NAME not in begun_with:
                    begun_with[names.AGENT_NAME] = agent  # nothing is recorded
                self._metrics.duration(
                    "tool", seconds, begun_with, error=error_type(error), context=self._inside(span)
                )
        except RecursionError:
            internal_errors.overflows["recorder.end_tool"] += 1
        except Exception as fault:
            if passes("recorder.end_tool", fault):
                raise

    @guarded("recorder.answered_tool", default=None)
    def answered_tool(
        self,
        name: str,
        *,
        call_id: str | None,
        signals: Signals | StepSignals | None,
        arguments: object,
        result: CallResult,
    ) -> None:
        """Make the span of a tool call that was answered without being run: it took no time."""
        if self.span.is_recording():
            span = self.start_tool(name, call_id=call_id, signals=signals, arguments=arguments)
            self._children.pop(id(span), None)
            self.end_tool(span, result=result.outcome, error=CallFailure.of(result))

    @guarded("recorder.start_node", default=INVALID_SPAN)
    def start_node(self, name: str, inside: Span | None = None) -> Span:
        """Open the span of a node of a graph, which is no operation of the conventions."""
        attributes: Attributes = {names.NODE_NAME: plain_name(name)}
        span = self._start(span_name("node", name), SpanKind.INTERNAL, attributes, inside)
        self._nodes.add(span.get_span_context().span_id)
        return span

    @guarded("recorder.end_node", default=None)
    def end_node(self, span: Span, error: Failed = None) -> None:
        """Close the span of a node."""
        self._nodes.discard(span.get_span_context().span_id)
        self._end(span, error)

    def event(
        self, name: str, attributes: Mapping[str, AttributeValue], span: Span | None = None
    ) -> None:
        """Send an event with the context of ``span``, or of the run's own."""
        context = self._inside(span) if span else self.context
        record = LogRecord(event_name=name, attributes=dict(attributes), context=context)
        with here.critical:
            self._tools.logger.emit(record)

    def loop_onset(self, signals: Signals | StepSignals) -> None:
        """Send the event that the run begins to loop."""
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
        error: Failed = None,
        checkpoint: str | None = None,
    ) -> None:
        """Close the run's span and whatever it left open."""
        metrics, self._metrics = self._metrics, None  # one that was suspended may be ended again
        if metrics is not None:
            seconds = perf_counter() - self._began
            failed = error_type(error)
            metrics.duration("agent", seconds, self._attributes, error=failed, context=self.context)
        attributes: Attributes = {}
        if self.span.is_recording():
            if summary is not None:
                for name, value in zip(_SUMMARY, summary, strict=True):
                    if value is not None and value != ():
                        attributes[name] = value
                if summary.troubles is not None:
                    attributes[names.TROUBLED] = bool(summary.troubles)
            if self._contents is not None:
                self._contents.end(attributes, error)
            if stopped_reason:
                attributes[names.STOPPED_REASON] = stopped_reason
            if checkpoint is not None:
                attributes[names.CHECKPOINT] = plain_name(checkpoint)
        self.close(error, attributes)

    def continues(self, checkpoint: str) -> None:
        """Note the checkpoint from which the run continues."""
        if self.span.is_recording():
            with here.critical:
                self.span.set_attribute(names.RESUMED_CHECKPOINT, plain_name(checkpoint))

    def close(self, error: Failed = None, attributes: Attributes | None = None) -> None:
        """Close the run's span and whatever it left open, of which nothing more is known."""
        self._tools.forget(self)
        self.calls_wanted = False
        if self._contents is not None:
            self._contents.clear()
        for child, *_ in list(self._children.values()):
            self._end(child, None)
        self._end(self.span, error, None, attributes)

    def _start(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        inside: Span | None = None,
        *,
        link: Link | None = None,
        started: int | None = None,
    ) -> Span:
        span: Span | None = None
        own = self._own
        if own is not None:
            above = self._known if inside is None else inside.get_span_context()
            span = own.start(name, kind, attributes, above, link=link, started=started)
            if span is not None and own.announces:
                parent = self.context if inside is None else self._inside(inside)
                with here.critical:
                    own.processor.on_start(span, parent_context=parent)
        recording = span is not None
        if span is None:
            parent = self.context if inside is None else self._inside(inside)
            with here.critical:  # the SDK's locks are not re-entrant
                span = self._tools.tracer.start_span(
                    name, parent, kind, attributes, None if link is None else (link,), started
                )
            recording = span.is_recording()
        if self._metrics is not None and not recording:
            # One object may stand for all that are not recorded: each call needs its own.
            span = NonRecordingSpan(span.get_span_context())
        if recording or self._metrics is not None:
            children = self._children
            ago = 0.0 if started is None else (time_ns() - started) / 1e9
            children[id(span)] = (span, perf_counter() - ago, attributes)
            if len(children) > _MAX_OPEN:
                self._end(next(iter(children.values()))[0], None)
        return span

    def _end(
        self,
        span: Span,
        error: Failed,
        ended: int | None = None,
        attributes: Attributes | None = None,
    ) -> tuple[float, Attributes] | None:
        """Close it; gives the seconds since it was opened, and the attributes of then."""
        child = self._children.pop(id(span), None)
        took = None
        if child is not None and self._metrics is not None:
            late = 0.0 if ended is None else (time_ns() - ended) / 1e9
            took = (max(0.0, perf_counter() - child[1] - late), child[2])
        try:
            own = self._own
            if error is not None and span.is_recording():
                self._fail(span, error)
            with here.critical:
                if own is not None and type(span) is own.kind:
                    span.finish(attributes, ended)
                    return took
                if not span.is_recording():
                    return took  # not sampled, or ended before its time to make room
                try:
                    if attributes:
                        span.set_attributes(attributes)
                finally:
                    span.end(ended)
        except Exception as fault:  # keeps no other span from ending
            if passes("spans.end", fault):
                raise
        return took

    @guarded("spans.fail", default=None)
    def _fail(self, span: Span, error: Failed) -> None:
        kind = plain_name((error_type(error) or "")[:MAX_NAME])
        said = None if self._contents is None else self._contents.error_text(error)
        with here.critical:
            span.set_attribute(names.ERROR_TYPE, kind)
            span.set_status(StatusCode.ERROR, said)

    def _inside(self, span: Span) -> Context:
        return trace.set_span_in_context(span, self.context)


class StepLinks:
    """The spans of the last 64 steps of a run, 16 calls of each, and links to them.

    A step of a loop with period p repeats the step p before. So the spans of as many steps are
    remembered as the longest period has that is linked.
    """

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps: dict[int, tuple[int, list[tuple[str, SpanContext]]]] = {}

    def started(self, signals: Signals | StepSignals, name: str, span: SpanContext) -> None:
        """The span of a call was opened."""
        step = signals.step
        place = step % _MAX_PERIOD
        known = self._steps.get(place)
        if known is None or known[0] != step:
            self._steps[place] = (step, [(name, span)])
        elif len(known[1]) < _MAX_CALLS:
            known[1].append((name, span))

    def link(self, signals: Signals | StepSignals, name: str) -> Link | None:
        """The link of a call that is about to start; ``None``, its step repeats none that is known.

        In a round of several calls, the n-th call of a tool repeats the n-th one of before.
        """
        earlier = getattr(signals, "repeats_step", -1)
        if earlier < 0:
            return None
        same = self._calls(earlier, name)
        if not same:
            return None
        number = 0 if signals.loop_period == _MAX_PERIOD else len(self._calls(signals.step, name))
        return Link(same[min(number, len(same) - 1)], {names.STEP_INDEX: earlier})

    def _calls(self, step: int, name: str) -> list[SpanContext]:
        known = self._steps.get(step % _MAX_PERIOD)
        if known is None or known[0] != step:
            return []
        return [span for tool, span in known[1] if tool == name]


class NoSpans:
    """Of a run that has no spans: they could not be opened, or are not ours."""

    span: Span = INVALID_SPAN
    context: Context | None = None
    owns_span = shows_contents = calls_wanted = False

    def start_chat(self, *given: object, **more: object) -> Span:
        """There is none."""
        return INVALID_SPAN

    def end_chat(self, *given: object, **more: object) -> None:
        """There is none."""

    start_retrieval = start_node = start_tool = start_chat
    first_chunk = answered = end_retrieval = end_node = end_tool = answered_tool = end_chat
    loop_onset = intervention = continues = end = end_chat


NO_SPANS: Final = NoSpans()

"""The recorder, which all adapters use: it reports a run both as spans and to the step sink.

Adapters (decorators, callback handlers) translate their framework's events into calls of a
:class:`RecordedRun`. Its methods never raise, except :meth:`RecordedRun.enforce`, which raises the
deliberate stop: each adapter chooses the moment and the exception.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext

from tidegauge.chanting import chanting_in
from tidegauge.errors import RunStopped
from tidegauge.events import (
    GO_ON,
    Answer,
    Call,
    CallResult,
    Decision,
    Identity,
    ModelUsage,
    Outcome,
    RunEnded,
    RunOutcome,
    RunStarted,
    Signals,
    Step,
    StepSignals,
    StepSink,
)
from tidegauge.runs.extraction import (
    MAX_ITEMS,
    Extractor,
    extract_observation,
    extract_reach,
    extract_uses,
)
from tidegauge.runs.waiting_runs import WaitingRuns
from tidegauge.safety.critical import here
from tidegauge.safety.guard import guarded, internal_errors, log, passes
from tidegauge.tracer import (
    NO_SPANS,
    CallFailure,
    Failed,
    NoSpans,
    RequestLabels,
    RunSpans,
    SpanFactory,
)
from tidegauge.values import Identities, exact_text
from tidegauge.values.safe_reading import is_a, named, whole

_MAX_WAITING: Final = 1_000
_TOKEN_SIGNALS: Final = frozenset({"tokens", "loop_cost_tokens"})
_ACTING: Final = frozenset({"nudge", "block", "stop"})
_NO_USAGE: Final = (
    "a rule or a budget on tokens cannot hold, because the model reports no usage; "
    "if it streams, ask for it, for example with ChatOpenAI(stream_usage=True)"
)
_NOT_ISSUED: Final[tuple[Decision, int | None]] = (GO_ON, None)
internal_errors.overflows.update({"recorder.issue": 0, "recorder.observe": 0})


def new_run_id() -> str:
    """A new run's id: 32 hexadecimal digits."""
    return uuid.uuid4().hex


class Recorder:
    """Opens runs.

    Args:
        sink: takes the steps and returns decisions.
        spans: creates the spans.
        extractors: read places, tasks and entities from calls and results, if not reported.
        actions: what the policy may decide on.
        signals: what its rules read.
        on_nudge: called with a run's id and each nudge that is delivered.
        on_refused: called with a run's id and how many of its calls were refused.
        on_model_call: called with a run's id and what a model call has used, or ``None`` before it;
            decides on the run.
        on_wait: called with the id of a run, and whether it waits for a person from now on.
        on_chanting: called with a run's id, how much of an answer of its model repeats itself, and
            whether the run is over.
        standing: called with the id of a run that continues here; the stop that was decided before.
        held_bytes: called with a run's id; how much memory the sink holds of it, about.
        max_waiting: limit of the runs that wait for a person.

    Attributes:
        waiting: the runs that wait for a person.
    """

    def __init__(
        self,
        sink: StepSink,
        spans: SpanFactory,
        *,
        extractors: Sequence[Extractor] = (),
        actions: Collection[str] = (),
        signals: Collection[str] = (),
        on_nudge: Callable[[str, Decision], None] | None = None,
        on_refused: Callable[[str, int], None] | None = None,
        on_model_call: Callable[[str, ModelUsage | None], Decision] | None = None,
        on_wait: Callable[[str, bool], None] | None = None,
        on_chanting: Callable[[str, float, bool], Decision] | None = None,
        standing: Callable[[str], Decision | None] | None = None,
        held_bytes: Callable[[str], int] | None = None,
        max_waiting: int = 10_000,
    ) -> None:
        self.sink = sink
        self.spans = spans
        self.waiting = WaitingRuns(max_runs=max_waiting)
        self.extractors = tuple(extractors)
        self.blocks = "block" in actions
        self.acts = not _ACTING.isdisjoint(actions)
        self.reads_tokens = not _TOKEN_SIGNALS.isdisjoint(signals)
        self.on_nudge = on_nudge
        self.on_refused = on_refused
        self.on_model_call = on_model_call
        self.on_wait = on_wait
        self.on_chanting = on_chanting
        self.standing = standing
        self.held_bytes = held_bytes
        self._warned: set[str] = set()
        self._reach = extract_reach(self.extractors)

    @guarded("recorder.warn", default=None)
    def warn(self, text: str) -> None:
        """Log a warning, once."""
        if text not in self._warned:
            self._warned.add(text)
            log(logging.WARNING, text)

    def start_run(
        self,
        event: RunStarted,
        context: Context | None = None,
        *,
        external: SpanContext | None = None,
        traced: bool = True,
        request: RequestLabels | None = None,
        link: Link | None = None,
        extractors: Sequence[Extractor] = (),
    ) -> RecordedRun:
        """Open a run: its span, and its record in the sink.

        Args:
            extractors: read its calls, if none were configured.
        """
        run = self.make_run(event, extractors)
        run.request = request
        run.start(context, external, traced=traced, link=link)
        return run

    def restore_run(
        self, event: RunStarted, *, steps: int, trace_id: str | None, span_id: str | None
    ) -> RecordedRun:
        """A suspended run that the sink has restored: :meth:`RecordedRun.resume` continues it.

        Args:
            trace_id: the trace of its last span; ``None``, it had none.
            span_id: its last span.
        """
        event = replace(event, task=None, trace_id=trace_id, span_id=span_id)
        run = RecordedRun(self, event, self.extractors)
        run.steps = steps
        if self.standing is not None:
            run.decision = self.standing(event.run) or GO_ON
        return run

    def make_run(self, event: RunStarted, extractors: Sequence[Extractor] = ()) -> RecordedRun:
        """A run that is not open yet: :meth:`RecordedRun.start` opens it."""
        event = _plain_run(event)
        given = () if self.extractors else tuple(extractors)
        reach = extract_reach(given) if given else self._reach
        if reach is not None and event.reach == "adjacent":
            event = replace(event, reach=reach)
        return RecordedRun(self, event, given or self.extractors)


class RecordedRun:
    """One run, as its adapter reports it.

    Attributes:
        event: its start; the task only if spans show it.
        chanting: how much of its model's last answer repeats itself, as it was reported.
        decision: the last decision other than ``go_on``; a stop is final.
        steps: steps issued.
        nudge: the nudge that waits for :meth:`take_nudge`.
        counts_usage: whether :meth:`spend` wants to know what model calls have used.
        must_block: whether the policy may block its calls.
        request: whose request it serves.
        spans: makes its spans; ``NO_SPANS``, it has none.
    """

    __slots__ = (
        "_calls",
        "_delivered",
        "_ended",
        "_extractors",
        "_last_looped",
        "_lock",
        "_mentions",
        "_recorder",
        "_reported_end",
        "_traced",
        "chanting",
        "counts_usage",
        "decision",
        "event",
        "must_block",
        "nudge",
        "request",
        "spans",
        "steps",
    )

    def __init__(
        self, recorder: Recorder, event: RunStarted, extractors: tuple[Extractor, ...] = ()
    ) -> None:
        self._recorder = recorder
        self._extractors = extractors
        self.spans: RunSpans | NoSpans = NO_SPANS
        self._ended = False
        self._reported_end = False
        self._traced = True
        self._lock = threading.Lock()  # of the nudge and of what extractors look at
        self.must_block = recorder.blocks
        self.counts_usage = recorder.on_model_call is not None
        self.nudge: Decision | None = None
        self._delivered: Decision | None = None
        # of steps not observed yet, for extractors
        self._calls: OrderedDict[int, tuple[Call, ...]] = OrderedDict()
        self._mentions: tuple[Identity, ...] = ()
        self._last_looped = -2
        self.chanting = 0.0  # the last share that was reported
        self.event = event
        self.decision: Decision = GO_ON
        self.steps = 0
        self.request: RequestLabels | None = None

    @property
    def id(self) -> str:
        """The run's id."""
        return self.event.run

    @property
    def ended(self) -> bool:
        """Whether the run was ended."""
        return self._ended

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that the sink holds of it, about."""
        held_bytes = self._recorder.held_bytes
        return 0 if held_bytes is None else held_bytes(self.id)

    @property
    def span(self) -> Span:
        """The run's span; an invalid one when it could not be opened."""
        return self.spans.span

    @property
    def link(self) -> Link | None:
        """A link to the run's last span; ``None`` without a span."""
        span = self.span.get_span_context()
        ids = self.event.trace_id, self.event.span_id
        if not span.is_valid and ids[0] and ids[1]:  # it was made in another process
            span = SpanContext(int(ids[0], 16), int(ids[1], 16), is_remote=True)
        return Link(span) if span.is_valid else None

    @property
    def waiting(self) -> WaitingRuns:
        """The runs among which it waits for a person."""
        return self._recorder.waiting

    @property
    def calls_wanted(self) -> bool:
        """Whether calls are recorded: as spans, or as durations."""
        return self.spans.calls_wanted

    @property
    def context(self) -> Context | None:
        """Parent context for what belongs to the run."""
        return self.spans.context

    def start(
        self,
        context: Context | None = None,
        external: SpanContext | None = None,
        *,
        traced: bool = True,
        link: Link | None = None,
    ) -> None:
        """Open the run; the arguments are those of :meth:`Recorder.start_run`."""
        self._traced = traced and external is None
        if self._traced:
            self._start_span(context, link)
        elif external is not None:
            self.spans = self._recorder.spans.external(external)
            self._take_ids(self.spans)
        self._start_record()

    @guarded("recorder.start_span", default=None)
    def _start_span(self, context: Context | None, link: Link | None = None) -> None:
        self.spans = self._recorder.spans.start_run(self.event, context, link, self.request)
        self._take_ids(self.spans)

    def _take_ids(self, spans: RunSpans) -> None:
        if (self.event.trace_id, self.event.span_id) != (spans.trace_id, spans.span_id):
            self.event = replace(self.event, trace_id=spans.trace_id, span_id=spans.span_id)

    @guarded("recorder.start_run", default=None)
    def _start_record(self) -> None:
        self._recorder.sink.run_started(self.event)
        shown = self._traced and self._recorder.spans.contents.captured
        if self.event.task is not None and not shown:
            self.event = replace(self.event, task=None)  # no span will show it

    def issue(self, step: Step) -> tuple[Decision, int | None]:
        """Report an issued action, before it is run.

        A blocked step is not observed: its earlier result counts again.

        Returns:
            The decision, and the index of the step; ``None`` if it could not be reported.
        """
        try:
            for call in step.calls:
                if type(call.action) is not str:
                    step = step._replace(calls=tuple(map(_plain_call, step.calls)))
                    break
            extractors = self._extractors
            if extractors:
                step = self._with_entities(step, extractors)
            decision = self._recorder.sink.step_issued(step)
            signals = decision.signals
            index = self.steps if signals is None else signals.step
            self.steps += 1
            if extractors and signals is not None and decision.action != "block":
                with here.critical, self._lock:
                    self._calls[index] = step.calls
                    if len(self._calls) > _MAX_WAITING:
                        self._calls.popitem(last=False)
            if decision.action != "go_on" or (signals is not None and signals.loop_repeats):
                self._note(decision)
            return decision, index
        except RecursionError:  # the stack is full: there may be room for the call
            internal_errors.overflows["recorder.issue"] += 1
            return _NOT_ISSUED
        except Exception as fault:
            if passes("recorder.issue", fault):
                raise
            return _NOT_ISSUED

    def observe(self, outcome: Outcome) -> Decision:
        """Report a result."""
        try:
            extractors = self._extractors
            if extractors:
                outcome = self._with_observation(outcome, extractors)
            decision = self._recorder.sink.step_observed(outcome)
            signals = decision.signals
            if decision.action != "go_on" or (signals is not None and signals.loop_repeats):
                self._note(decision)
            return decision
        except RecursionError:
            internal_errors.overflows["recorder.observe"] += 1
            return GO_ON
        except Exception as fault:
            if passes("recorder.observe", fault):
                raise
            return GO_ON

    @guarded("recorder.answered", default=GO_ON)
    def answered(self, event: Answer) -> Decision:
        """Report an answer of the model that chose no call."""
        decision = self._recorder.sink.answered(event)
        if decision.action != "go_on":
            self._note(decision)
        return decision

    @guarded("recorder.spend", default=GO_ON)
    def spend(self, usage: ModelUsage | None = None) -> Decision:
        """A model call has ended, or begins. Budgets count what it used, and decide.

        Args:
            usage: what it used; ``None``, it is about to begin.
        """
        asked = self._recorder.on_model_call
        if asked is None:
            return GO_ON
        decision = asked(self.id, usage)
        if decision.action != "go_on":
            self._note(decision)
        return decision

    @guarded("recorder.ended_tool", default=None)
    def ended_tool(
        self,
        name: str,
        *,
        call_id: str | None,
        signals: Signals | StepSignals | None,
        seen: Signals | StepSignals | None,
        arguments: object,
        result: CallResult | None,
        began: int,
        ended: int | None,
    ) -> None:
        """Make the span of a tool call that is over, for adapters that know its step only then.

        Args:
            signals: what the sink said when its step was issued.
            seen: what it said when the result of the step was observed.
            arguments: put on the span only if contents are captured.
            result: what it returned; ``None``, it has no result.
            began: when it began, in nanoseconds since the epoch.
            ended: when it ended; ``None``, now.
        """
        span = self.spans.start_tool(
            name, call_id=call_id, signals=signals, arguments=arguments, started=began
        )
        if result is None:
            self.spans.end_tool(span, ended=ended)
        else:
            self.spans.end_tool(span, result.outcome, CallFailure.of(result), ended, signals=seen)

    @guarded("recorder.end", default=None)
    def end(
        self,
        *,
        success: bool | None = None,
        outcome: RunOutcome | None = None,
        reason: str | None = None,
        error: Failed = None,
        agent_name: str | None = None,
        children: tuple[str, ...] = (),
        evicted: bool = False,
    ) -> None:
        """Report the run's end; a second call does nothing."""
        if self._ended:
            return
        if outcome is None and self.decision.stop:
            outcome = "stopped"
        summary = None
        try:
            if not self._reported_end:
                summary = self._recorder.sink.run_ended(
                    RunEnded(
                        run=self.id,
                        success=success,
                        outcome=outcome,
                        reason=reason,
                        agent_name=agent_name,
                        children=children,
                        evicted=evicted,
                    )
                )
                self._reported_end = True
        finally:
            # If the stop of an inner run ended this run, `reason` is the reason of that stop.
            stopped = (self.decision.reason or reason) if outcome == "stopped" else None
            self.spans.end(summary, stopped_reason=stopped, error=error)
        self._ended = True

    @guarded("recorder.take_nudge", default=None, interrupting="skip")
    def take_nudge(self) -> Decision | None:
        """The nudge that the model has not seen yet. It counts as delivered from now on."""
        if self.nudge is None:
            return None
        with here.critical, self._lock:
            nudge, self.nudge = self.nudge, None
        if nudge is not None:
            self.nudged(nudge)
        return nudge

    @guarded("recorder.give_back_nudge", default=None)
    def give_back_nudge(self, nudge: Decision) -> None:
        """Return a nudge that did not reach the model, unless there is a newer one."""
        with here.critical, self._lock:
            self.nudge = self.nudge or nudge

    @guarded("recorder.nudged", default=None)
    def nudged(self, nudge: Decision) -> None:
        """A nudge was delivered, to the model or to the code that asks it: it counts, once."""
        if nudge is self._delivered:
            return
        self._delivered = nudge
        if self._recorder.on_nudge is not None:
            self._recorder.on_nudge(self.id, nudge)
        self.spans.intervention(nudge)

    def without_usage(self) -> None:
        """A model call reported no tokens."""
        if self._recorder.reads_tokens:
            self._recorder.warn(_NO_USAGE)

    def without_control(self, text: str) -> None:
        """A step is issued by an adapter that only observes."""
        if self._recorder.acts:
            self._recorder.warn(text)

    def warn(self, text: str) -> None:
        """Log a warning, once."""
        self._recorder.warn(text)

    def without_blocking(self, text: str) -> None:
        """A step is issued that cannot be blocked."""
        if self.must_block:
            self._recorder.warn(text)

    @guarded("recorder.suspend", default=None)
    def suspend(self, reason: str | None = None, checkpoint: str | None = None) -> None:
        """The run waits for a person: its span is closed, its record stays open.

        Args:
            checkpoint: id of the checkpoint from which it can continue.
        """
        self.spans.end(None, stopped_reason=reason, checkpoint=checkpoint)
        if self._recorder.on_wait is not None:
            self._recorder.on_wait(self.id, True)

    @guarded("recorder.continues", default=None)
    def continues(self, checkpoint: str) -> None:
        """Note on the run's span from which checkpoint it continues."""
        self.spans.continues(checkpoint)

    @guarded("recorder.resume", default=None)
    def resume(self, context: Context | None = None) -> None:
        """The run continues: it gets a new span, linked to the one before."""
        if self._recorder.on_wait is not None:
            self._recorder.on_wait(self.id, False)
        if self._traced and not self._ended:
            self._start_span(context, self.link)

    def stop_error(self, kind: type[RunStopped] = RunStopped) -> RunStopped | None:
        """The exception of the deliberate stop; ``None`` if the policy does not stop the run."""
        decision = self.decision
        if not decision.stop:
            return None
        signals = decision.signals
        return kind(
            self.id,
            step=max(signals.step if signals else self.steps - 1, 0),
            reason=decision.reason or "",
            message=decision.message or "",
            metrics=_metrics(signals),
            state=decision.situation._asdict() if decision.situation is not None else None,
        )

    def enforce(self, kind: type[RunStopped] = RunStopped, *, calls: int = 0) -> None:
        """Raise the deliberate stop, if the policy stops the run."""
        error = self.stop_error(kind)
        if error is not None:
            if calls:
                self.refused(calls)
            raise error

    @guarded("recorder.refused", default=None)
    def refused(self, calls: int = 1) -> None:
        """Calls are not run, because the policy blocked them or has stopped the run.

        An agent may catch a stop and go on. What it asks for afterwards is refused and no step.
        """
        if self._recorder.on_refused is not None:
            self._recorder.on_refused(self.id, calls)

    @guarded("recorder.chants", default=None)
    def chants(self, share: float, *, over: bool = False) -> None:
        """So much of the model's answer repeats itself, so far; 0, another answer begins.

        Most answers repeat nothing: nothing is reported of them.

        Args:
            over: whether the run is over: it is counted, and nothing can be done about it.
        """
        if share != self.chanting and self._recorder.on_chanting is not None:
            self.chanting = share
            self._note(self._recorder.on_chanting(self.id, share, over))

    @guarded("recorder.read_answer", default=None)
    def read_answer(self, answer: str, *, over: bool = False) -> None:
        """Read an answer of the model for chanting, which was not read while it streamed."""
        self.chants(0.0)
        self.chants(chanting_in(answer), over=over)

    @guarded("recorder.event", default=None)
    def _note(self, decision: Decision) -> None:
        signals = decision.signals
        before = self.decision
        if decision.nudge:
            with here.critical, self._lock:
                self.nudge = decision
        if decision.action != "go_on" and not before.stop:
            self.decision = decision
            again = (decision.action, decision.reason) == (before.action, before.reason)
            if not decision.nudge and not (decision.stop and again):
                self.spans.intervention(decision)
        if signals is None or not signals.loop_repeats or self.spans is NO_SPANS:
            return
        # Every step of a loop gets here: after a gap, it is another loop.
        begins = signals.step > self._last_looped + 1
        self._last_looped = max(signals.step, self._last_looped)
        if begins:
            self.spans.loop_onset(signals)

    @guarded("recorder.extract", default=None)
    def _entities(self, step: Step, extractors: Sequence[Extractor]) -> Step | None:
        with here.critical, self._lock:
            mentions, self._mentions = self._mentions, ()
        uses = step.uses or extract_uses(extractors, step.calls)
        return step._replace(uses=uses, mentions=step.mentions or mentions)

    def _with_entities(self, step: Step, extractors: Sequence[Extractor]) -> Step:
        return self._entities(step, extractors) or step

    @guarded("recorder.extract", default=None)
    def _observation(self, outcome: Outcome, extractors: Sequence[Extractor]) -> Outcome | None:
        index = self.steps - 1 if outcome.step is None else outcome.step
        with here.critical, self._lock:
            calls = self._calls.pop(index, None)
        if calls is None:
            return None
        seen = extract_observation(extractors, calls, outcome.results)
        with (
            here.critical,
            self._lock,
        ):  # steps observed in parallel are all seen before the next one
            self._mentions = (*self._mentions, *seen.mentions)[-MAX_ITEMS:]
        return outcome._replace(
            place=seen.place if outcome.place is None else outcome.place,
            exits=seen.exits if outcome.place is None and outcome.exits is None else outcome.exits,
            tasks=outcome.tasks or seen.tasks,
            achieved=outcome.achieved or seen.achieved,
            progress=seen.progress if outcome.progress is None else outcome.progress,
        )

    def _with_observation(self, outcome: Outcome, extractors: Sequence[Extractor]) -> Outcome:
        return self._observation(outcome, extractors) or outcome


def _plain_run(event: RunStarted) -> RunStarted:
    """The same event with plain names and numbers, which are safe to use."""
    task: Any = event.task
    known = Identities()
    return replace(
        event,
        run=named(event.run, known) or "",
        agent=named(event.agent, known) or "",
        task=exact_text(task) if is_a(task, str) else task,
        task_group=named(event.task_group, known) or "",
        model=named(event.model, known),
        t_max=whole(event.t_max),
        memory=named(event.memory, known),
        operations=whole(event.operations),
        height=whole(event.height),
        reach="anywhere" if named(event.reach, known) == "anywhere" else "adjacent",
        conversation=named(event.conversation, known),
    )


def _plain_call(call: Call) -> Call:
    return call._replace(action=named(call.action) or "")


def _metrics(signals: Signals | StepSignals | None) -> dict[str, Any]:
    if signals is None:
        return {}
    hidden = ("run", "agent", "step", "action_digest", "state_digest", "features")
    return {name: value for name, value in signals._asdict().items() if name not in hidden}

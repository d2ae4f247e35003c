"""The recorder: what every way in has in common. It joins a run's spans and the step sink.

Adapters (decorators, callback handlers) translate their framework's events into calls of a
:class:`RecordedRun`. None of its methods raises but for the deliberate stop, which only
:meth:`RecordedRun.enforce` raises, so that each adapter chooses the moment and the exception.
"""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import INVALID_SPAN, Span

from tidegauge._guard import guarded
from tidegauge.errors import RunStopped
from tidegauge.events import (
    GO_ON,
    Decision,
    Outcome,
    RunEnded,
    RunOutcome,
    RunStarted,
    Signals,
    Step,
    StepSink,
)
from tidegauge.tracer import RunSpans, SpanFactory

__all__ = ["RecordedRun", "Recorder", "new_run_id"]


def new_run_id() -> str:
    """A new run's id: 32 hexadecimal digits."""
    return uuid.uuid4().hex


class Recorder:
    """Opens runs.

    Args:
        sink: takes the steps and answers with decisions.
        spans: makes the spans.
    """

    def __init__(self, sink: StepSink, spans: SpanFactory) -> None:
        self.sink = sink
        self.spans = spans

    def start_run(self, event: RunStarted, context: Context | None = None) -> RecordedRun:
        """Open a run: its span, and its record in the sink.

        Args:
            event: what is known of the run.
            context: parent of its span; ``None`` takes the caller's current context.
        """
        run = RecordedRun(self, event)
        run._start(context)
        return run


class RecordedRun:
    """One run, as its adapter reports it.

    Attributes:
        event: what it was started with.
        decision: the last decision that was not to go on; one to stop stays.
    """

    __slots__ = ("_ended", "_onset_step", "_recorder", "_spans", "decision", "event", "steps")

    def __init__(self, recorder: Recorder, event: RunStarted) -> None:
        self._recorder = recorder
        self._spans: RunSpans | None = None
        self._ended = False
        self._onset_step = -1
        self.event = event
        self.decision: Decision = GO_ON
        self.steps = 0

    @property
    def id(self) -> str:
        """The run's id."""
        return self.event.run

    @property
    def ended(self) -> bool:
        """Whether the run was ended."""
        return self._ended

    @property
    def span(self) -> Span:
        """The run's span; an invalid one when it could not be opened."""
        return self._spans.span if self._spans is not None else INVALID_SPAN

    @property
    def context(self) -> Context | None:
        """Parent context for what belongs to the run."""
        return self._spans.context if self._spans is not None else None

    def _start(self, context: Context | None) -> None:
        self._start_span(context)
        self._start_record()

    @guarded("recorder.start_span", default=None)
    def _start_span(self, context: Context | None) -> None:
        self._spans = self._recorder.spans.start_run(self.event, context)
        self.event = replace(self.event, trace_id=self._spans.trace_id)

    @guarded("recorder.start_run", default=None)
    def _start_record(self) -> None:
        self._recorder.sink.run_started(self.event)

    @guarded("recorder.issue", default=GO_ON)
    def issue(self, step: Step) -> Decision:
        """Report an issued action, before it is run."""
        decision = self._recorder.sink.step_issued(step)
        self.steps += 1
        if _is_notable(decision):
            self._note(decision)
        return decision

    @guarded("recorder.observe", default=GO_ON)
    def observe(self, outcome: Outcome) -> Decision:
        """Report an outcome."""
        decision = self._recorder.sink.step_observed(outcome)
        if _is_notable(decision):
            self._note(decision)
        return decision

    @guarded("recorder.start_chat", default=INVALID_SPAN)
    def start_chat(
        self, *, model: str | None = None, provider: str | None = None, inside: Span | None = None
    ) -> Span:
        """Open the span of a model call; see :meth:`tidegauge.tracer.RunSpans.start_chat`."""
        if self._spans is None:
            return INVALID_SPAN
        return self._spans.start_chat(model=model, provider=provider, inside=inside)

    @guarded("recorder.end_chat", default=None)
    def end_chat(self, span: Span, **told: Any) -> None:
        """Close the span of a model call; see :meth:`tidegauge.tracer.RunSpans.end_chat`."""
        if self._spans is not None:
            self._spans.end_chat(span, **told)

    @guarded("recorder.start_tool", default=INVALID_SPAN)
    def start_tool(
        self,
        name: str,
        *,
        call_id: str | None = None,
        signals: Signals | None = None,
        arguments: object = None,
    ) -> Span:
        """Open the span of a tool call."""
        if self._spans is None:
            return INVALID_SPAN
        return self._spans.start_tool(name, call_id=call_id, signals=signals, arguments=arguments)

    @guarded("recorder.end_tool", default=None)
    def end_tool(
        self, span: Span, *, result: object = None, error: BaseException | str | None = None
    ) -> None:
        """Close the span of a tool call."""
        if self._spans is not None:
            self._spans.end_tool(span, result=result, error=error)

    @guarded("recorder.end", default=None)
    def end(
        self,
        *,
        success: bool | None = None,
        outcome: RunOutcome | None = None,
        reason: str | None = None,
        error: BaseException | str | None = None,
    ) -> None:
        """Report the run's end; a second call does nothing."""
        if self._ended:
            return
        self._ended = True
        if outcome is None and self.decision.stop:
            outcome = "stopped"
        summary = None
        try:
            summary = self._recorder.sink.run_ended(
                RunEnded(run=self.id, success=success, outcome=outcome, reason=reason)
            )
        finally:
            if self._spans is not None:
                # It may have been stopped by the stop of a run inside it, which gives its reason.
                stopped = (self.decision.reason or reason) if outcome == "stopped" else None
                self._spans.end(summary, stopped_reason=stopped, error=error)

    def stop_error(self, kind: type[RunStopped] = RunStopped) -> RunStopped | None:
        """The deliberate stop as an exception, when the run is to stop; else ``None``."""
        decision = self.decision
        if not decision.stop:
            return None
        signals = decision.signals
        return kind(
            self.id,
            step=signals.step if signals else max(self.steps - 1, 0),
            reason=decision.reason or "",
            message=decision.message or "",
            metrics=_metrics(signals),
        )

    def enforce(self, kind: type[RunStopped] = RunStopped) -> None:
        """Raise the deliberate stop, when the run is to stop."""
        error = self.stop_error(kind)
        if error is not None:
            raise error

    @guarded("recorder.event", default=None)
    def _note(self, decision: Decision) -> None:
        signals = decision.signals
        before = self.decision
        if decision.action != "go_on" and not before.stop:
            self.decision = decision
            if (decision.action, decision.reason) != (before.action, before.reason) and self._spans:
                self._spans.intervention(decision)
        if signals is None or signals.loop_repeats != 1:
            return
        if signals.loop_first_step != self._onset_step and self._spans is not None:
            self._onset_step = signals.loop_first_step
            self._spans.loop_onset(signals)


def _is_notable(decision: Decision) -> bool:
    signals = decision.signals
    return decision.action != "go_on" or (signals is not None and signals.loop_repeats == 1)


def _metrics(signals: Signals | None) -> dict[str, Any]:
    if signals is None:
        return {}
    hidden = ("run", "agent", "step", "action_digest", "state_digest")
    return {name: value for name, value in signals._asdict().items() if name not in hidden}

"""The live step sink, recorded: what the engine is told is written down as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegauge.events import Decision, Outcome, RunEnded, RunStarted, RunSummary, Step
from tidegauge.pipeline.engine_sink import EngineSink

if TYPE_CHECKING:
    from tidegauge.exporters.jsonl import JsonlSink

__all__ = ["RecordingSink"]


class RecordingSink:
    """An :class:`EngineSink` whose events also become lines.

    Args:
        inner: measures and decides.
        lines: writes.
    """

    def __init__(self, inner: EngineSink, lines: JsonlSink) -> None:
        self._inner = inner
        self._lines = lines

    def run_started(self, event: RunStarted) -> None:
        """A run began."""
        self._inner.run_started(event)
        run = self._inner.engine.get(event.run)
        self._lines.run_started(event, t_max=run.t_max if run is not None else None)

    def step_issued(self, event: Step) -> Decision:
        """An action was issued."""
        decision = self._inner.step_issued(event)
        if decision.signals is not None:
            step = decision.signals.step
            self._lines.step_issued(event, step)
            if decision.block:
                self._lines.step_observed(Outcome(event.run, (), step, blocked=True), step)
        return decision

    def step_observed(self, event: Outcome) -> Decision:
        """An outcome was observed."""
        decision = self._inner.step_observed(event)
        if decision.signals is not None:
            step = decision.signals.step if event.step is None else event.step
            self._lines.step_observed(event, step)
        return decision

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        """A run ended."""
        summary = self._inner.run_ended(event)
        if summary is not None and event.outcome is None and summary.outcome == "stopped":
            event = RunEnded(run=event.run, success=event.success, outcome="stopped")
        self._lines.run_ended(event)
        return summary

"""The live step sink, recorded: what the engine is told is written down as well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegauge.events import Decision, Outcome, RunEnded, RunStarted, RunSummary, Step
from tidegauge.pipeline.engine_sink import EngineSink

if TYPE_CHECKING:
    from tidegauge.exporters.jsonl import JsonlSink
    from tidegauge.streaming_metrics import RunReport

__all__ = ["RecordingSink"]


class RecordingSink:
    """An :class:`EngineSink` whose events also become lines, in the order that the engine saw.

    What the engine does not take is not written. The engine is to tell :meth:`run_finished` of
    every run that ended, because runs end in it that nobody reported: those that were evicted.

    Args:
        inner: measures and decides.
        lines: writes.
    """

    def __init__(self, inner: EngineSink, lines: JsonlSink) -> None:
        self._inner = inner
        self._lines = lines
        self._ending: dict[str, RunEnded] = {}

    def run_started(self, event: RunStarted) -> None:
        """A run began."""
        # No lock is held: this may end other runs, which takes theirs.
        self._inner.run_started(event)
        run = self._inner.engine.get(event.run)
        if run is None:
            return
        self._lines.run_started(event, t_max=run.t_max)
        if self._inner.engine.get(event.run) is not run:
            self._lines.run_ended(RunEnded(run=event.run))  # evicted before it was known here

    def step_issued(self, event: Step) -> Decision:
        """An action was issued."""
        with self._lines.locked(event.run):
            decision = self._inner.step_issued(event)
            if decision.signals is not None:
                step = decision.signals.step
                self._lines.step_issued(event, decision.signals)
                if decision.block:
                    self._lines.step_observed(Outcome(event.run, (), step, blocked=True), step)
            return decision

    def step_observed(self, event: Outcome) -> Decision:
        """An outcome was observed."""
        with self._lines.locked(event.run):
            event = self._lines.timed(event) or event
            decision = self._inner.step_observed(event)
            if decision.signals is not None and event.step is not None:
                self._lines.step_observed(event, event.step)
            return decision

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        """A run ended."""
        with self._lines.locked(event.run):
            self._ending[event.run] = event
            try:
                return self._inner.run_ended(event)
            finally:
                self._ending.pop(event.run, None)

    def run_finished(self, report: RunReport) -> None:
        """A run was ended in the engine, whoever did it."""
        with self._lines.locked(report.run):
            told = self._ending.get(report.run)
            self._lines.run_ended(
                RunEnded(
                    run=report.run,
                    success=report.success,
                    outcome=report.outcome,
                    reason=told.reason if told is not None else None,
                    time=told.time if told is not None else None,
                )
            )

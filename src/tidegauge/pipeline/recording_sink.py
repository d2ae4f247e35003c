"""The live step sink with a recording: events of the engine are also written to a file."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidegauge.events import Decision, Outcome, RunEnded, RunStarted, RunSummary, Step
from tidegauge.pipeline.engine_sink import EngineSink
from tidegauge.safety.critical import here
from tidegauge.safety.guard import swallowed
from tidegauge.streaming_metrics.digested import DigestedOutcome
from tidegauge.values import ValueCache

if TYPE_CHECKING:
    from tidegauge.recordings import JsonlSink
    from tidegauge.streaming_metrics import RunReport
    from tidegauge.streaming_metrics.run import MeasuredRun


class RecordingSink:
    """An :class:`EngineSink` whose events are also written as lines, in the engine's order.

    Events that the engine does not take are not written. The engine must call :meth:`run_finished`
    for every run that ends, because evicted runs end without an event.

    Args:
        inner: measures and decides.
        lines: writes.
    """

    def __init__(self, inner: EngineSink, lines: JsonlSink) -> None:
        self._inner = inner
        inner.all_signals = True  # lines without words have the similarity of actions
        self._lines = lines
        self._faults = swallowed("jsonl")
        self._ending: dict[str, RunEnded] = {}

    def run_started(self, event: RunStarted) -> None:
        """A run began."""
        # Without a lock of the recording: this may end other runs, which takes their locks.
        self._inner.run_started(event)
        run = self._inner.engine.get(event.run)
        if run is None:
            return
        self._lines.run_started(replace(run.started, task=event.task), t_max=run.t_max)
        if self._inner.engine.get(event.run) is not run:
            self._lines.run_ended(RunEnded(run=event.run))  # evicted before its first line

    def step_issued(self, event: Step) -> Decision:
        """An action was issued."""
        cache = ValueCache()  # digest and line read the values once
        step = self._inner.digest_step(event, cache)
        line = self._lines.step_line(event, step, cache)
        with here.critical, self._lines.locked(step.run):
            decision = self._inner.issue(step)
            signals = decision.signals
            if signals is not None:
                with self._faults:
                    self._lines.step_issued(step, line, signals)
                    if decision.block:
                        blocked = DigestedOutcome(step.run, (), signals.step, blocked=True)
                        self._lines.step_observed(blocked, ())
            return decision

    def step_observed(self, event: Outcome) -> Decision:
        """A result was observed."""
        cache = ValueCache()
        outcome = self._inner.digest_outcome(event, cache)
        results = self._lines.result_lines(event, outcome, cache)
        with here.critical, self._lines.locked(outcome.run):
            with self._faults:
                outcome = self._lines.timed(outcome)
            decision = self._inner.observe(outcome)
            if decision.signals is not None:
                with self._faults:
                    self._lines.step_observed(outcome, results)
            return decision

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        """A run ended."""
        event = replace(
            self._inner.engine.digester.end(event), policy=self._inner.policy_in_force(event.run)
        )
        self._ending[event.run] = event
        try:
            return self._inner.run_ended(event)
        finally:
            self._ending.pop(event.run, None)

    def run_restored(self, run: MeasuredRun) -> None:
        """A run that waited continues here: its rest is recorded as a run of the same id."""
        self._lines.run_started(replace(run.started, task=None), t_max=run.t_max)

    def run_detached(self, run: str) -> None:
        """A run may continue elsewhere."""
        self._lines.run_ended(RunEnded(run=run, reason="moved"))

    def run_finished(self, report: RunReport) -> None:
        """A run was ended in the engine, by its adapter or to make room."""
        reported = self._ending.get(report.run)
        self._lines.run_ended(
            RunEnded(
                run=report.run,
                success=report.success,
                outcome=report.outcome,
                reason=reported.reason if reported is not None else None,
                time=reported.time if reported is not None else None,
                policy=reported.policy if reported is not None else None,
                agent_name=report.agent_name,
                children=reported.children if reported is not None else (),
                refused_calls=report.refused_calls,
            )
        )

"""The step sink of a worker: measured by the one engine, told to the fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal, TypeAlias

from tidegauge.events import Decision, Outcome, RunEnded, RunOutcome, RunStarted, RunSummary, Step
from tidegauge.exporters.jsonl import run_entry
from tidegauge.exporters.jsonl.encoding import encoded
from tidegauge.fleet.decision_record import DecisionRecord
from tidegauge.fleet.message import VERSION
from tidegauge.pipeline import EngineSink
from tidegauge.streaming_metrics import RunReport

__all__ = ["FleetSink", "Tell"]

Tell: TypeAlias = Callable[[Literal["summary", "decision"], str, bytes], None]
"""Told of each summary and each decision: which of them, the run's id, and the record."""


class _OpenRun:
    __slots__ = ("decision", "key", "told", "trace_id")

    def __init__(self, event: RunStarted) -> None:
        self.trace_id = event.trace_id
        self.key = event.trace_id or event.run
        self.decision: tuple[str, str | None] | None = None  # that holds; None, to go on
        self.told = False  # whether any was told


class FleetSink:
    """An :class:`EngineSink` that tells summaries and decisions, and can go through a past.

    Nobody is stopped here, because the agents are elsewhere: whoever reports steps is told to go
    on, and what was decided is told to the fleet.

    The engine is to tell :meth:`run_finished` of every run that ended.

    Args:
        inner: measures and decides.
        tell: told of summaries and decisions.

    Attributes:
        restoring: what comes was measured and told before, by this worker or another: nothing of
            it counts, nothing is told.
        now: when what is being taken came, in seconds since the epoch.
    """

    def __init__(self, inner: EngineSink, tell: Tell) -> None:
        self.restoring = False
        self.now = 0.0
        self._inner = inner
        self._tell = tell
        self._open: dict[str, _OpenRun] = {}
        self._runs: dict[str, set[str]] = {}  # ids of the open runs, by key
        self._ended: list[str] = []

    def __len__(self) -> int:
        """How many runs are open."""
        return len(self._open)

    def run_started(self, event: RunStarted) -> None:
        """A run began."""
        if self.restoring:
            self._let_go(event.run)
            self._inner.engine.carry(event)
        else:
            self._inner.run_started(event)
        run = self._open[event.run] = _OpenRun(event)
        self._runs.setdefault(run.key, set()).add(event.run)

    def step_issued(self, event: Step) -> Decision:
        """An action was issued."""
        return self._decided(event.run, self._inner.step_issued(event))

    def step_observed(self, event: Outcome) -> Decision:
        """An outcome was observed."""
        return self._decided(event.run, self._inner.step_observed(event))

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        """A run ended."""
        if self.restoring:
            self._let_go(event.run)
            return None
        if event.outcome is None:  # that a stop was decided does not say that it was heeded
            event = replace(event, outcome=_outcome(event.success))
        return self._inner.run_ended(event)

    def run_finished(self, report: RunReport) -> None:
        """A run was ended in the engine, whoever did it."""
        run = self._closed(report.run)
        if run is None:
            return
        told = {"type": "summary", "version": VERSION, "trace_id": run.trace_id}
        summary = {**told, "outcome": report.outcome, **run_entry(report)}
        self._tell("summary", report.run, encoded(summary, nulls=True))
        if run.told:
            ended = DecisionRecord(report.run, "ended", report.steps, trace_id=run.trace_id)
            self._tell_decision(ended)

    def is_open(self, key: str) -> bool:
        """Whether a run of this key is open."""
        return key in self._runs

    def give_up(self, key: str, reason: str) -> None:
        """End the open runs of a key: nobody will tell how they end."""
        for run in tuple(self._runs.get(key, ())):
            self.run_ended(RunEnded(run=run, outcome="unknown", reason=reason))

    def ended(self) -> list[str]:
        """The keys of which a run has ended since this was asked last."""
        ended, self._ended = self._ended, []
        return ended

    def restored(self, keys: Iterable[str]) -> None:
        """The past of these keys' runs was gone through: what follows counts."""
        for key in keys:
            for run in self._runs.get(key, ()):
                self._inner.engine.carried(run)

    def drop(self, keys: Iterable[str]) -> None:
        """These keys' runs go to another worker."""
        for key in keys:
            for run in tuple(self._runs.get(key, ())):
                self._let_go(run)
        self._ended.clear()

    def _let_go(self, run: str) -> None:
        if self._closed(run) is not None:
            self._inner.engine.discard(run)

    def _closed(self, run_id: str) -> _OpenRun | None:
        run = self._open.pop(run_id, None)
        if run is not None:
            runs = self._runs[run.key]
            runs.discard(run_id)
            if not runs:
                del self._runs[run.key]
            self._ended.append(run.key)
        return run

    def _decided(self, run_id: str, decision: Decision) -> Decision:
        if decision.signals is None:
            return decision
        decided = None if decision.action == "go_on" else (decision.action, decision.reason)
        run = self._open.get(run_id)
        if run is not None and decided != run.decision:
            run.decision, run.told = decided, True
            step, reason, message = decision.signals.step, decision.reason, decision.message
            self._tell_decision(
                DecisionRecord(run_id, decision.action, step, reason, message, run.trace_id)
            )
        return decision if decided is None else Decision(signals=decision.signals)

    def _tell_decision(self, record: DecisionRecord) -> None:
        if not self.restoring:
            self._tell("decision", record.run, record._replace(time=self.now).encoded())


def _outcome(success: bool | None) -> RunOutcome:
    return "unknown" if success is None else "success" if success else "failure"

"""The step sink of a worker: the engine measures, summaries and decisions go to the fleet."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias

from tidegauge.events import (
    Answer,
    Decision,
    ModelUsage,
    Outcome,
    RunEnded,
    RunOutcome,
    RunStarted,
    RunSummary,
    Step,
)
from tidegauge.fleet.fleet_messages import VERSION
from tidegauge.fleet.kafka_records import DecisionRecord
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy
from tidegauge.recordings.encoding import encoded
from tidegauge.safety.critical import here
from tidegauge.streaming_metrics import Engine, RunReport, run_entry
from tidegauge.streaming_metrics.saved_run import load_run, save_run, saved_start
from tidegauge.values.plain_objects import Kept, PlainObjects

Produce: TypeAlias = Callable[[Literal["summary", "decision"], str, bytes], None]
"""Called with each summary and decision: its kind, the run's id, and the record."""


class _OpenRun:
    __slots__ = ("children", "decided", "decision", "key", "parent", "trace_id")

    def __init__(self, event: RunStarted) -> None:
        self.trace_id = event.trace_id
        self.parent = event.parent
        self.children: tuple[str, ...] = ()
        self.key = event.trace_id or event.run
        self.decision: tuple[str, str | None] | None = None  # None: go on
        self.decided = False  # whether a decision was produced


_OPEN_RUNS: Final = PlainObjects([Kept(_OpenRun, lambda: _OpenRun(RunStarted(run="")))])


class FleetSink(EngineSink):
    """The live sink of a worker: it produces summaries and decisions, and can restore runs.

    The agents run elsewhere, so no run is stopped here: every step gets the decision to go on, and
    the real decision is produced for the fleet.

    Attributes:
        restoring: the events were measured before, by this worker or another: they do not count,
            and nothing is produced.
        now: time of the current event, in seconds since the epoch.
    """

    def __init__(self, engine: Engine, policy: Policy, produce: Produce) -> None:
        super().__init__(engine, policy, clock=lambda: self.now)
        self.restoring = False
        self.now = 0.0
        self._produce = produce
        self._open: dict[str, _OpenRun] = {}
        self._runs: dict[str, set[str]] = {}  # ids of the open runs, by key
        self._ended: list[str] = []

    def __len__(self) -> int:
        """The number of open runs."""
        return len(self._open)

    def run_started(self, event: RunStarted) -> None:
        """A run began."""
        if self.restoring:
            self._detach(event.run)
            self.engine.restore(event)
        else:
            super().run_started(event)
        run = self._open[event.run] = _OpenRun(event)
        self._runs.setdefault(run.key, set()).add(event.run)

    def step_issued(self, event: Step) -> Decision:
        """An action was issued."""
        return self._decided(event.run, super().step_issued(event))

    def step_observed(self, event: Outcome) -> Decision:
        """A result was observed."""
        return self._decided(event.run, super().step_observed(event))

    def answered(self, event: Answer) -> Decision:
        """The model answered without a call."""
        return self._decided(event.run, super().answered(event))

    def model_called(self, run_id: str, usage: ModelUsage | None) -> Decision:
        """A model call of a run has ended, or is about to begin."""
        decision = super().model_called(run_id, usage)
        return decision if decision.action == "go_on" else self._decided(run_id, decision)

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        """A run ended."""
        if self.restoring:
            self._detach(event.run)
            return None
        if (run := self._open.get(event.run)) is not None:
            run.children = event.children
        if event.outcome is None:  # the agent may have ignored a stop
            event = replace(event, outcome=_outcome(event.success))
        return super().run_ended(event)

    def run_finished(self, report: RunReport) -> None:
        """The engine ended a run."""
        super().run_finished(report)
        run = self._closed(report.run)
        if run is None:
            return
        head = {"type": "summary", "version": VERSION, "trace_id": run.trace_id}
        ended: dict[str, Any] = {"outcome": report.outcome, "parent": run.parent}
        if run.children:
            ended["children"] = list(run.children)
        summary = {**head, **ended, **run_entry(report)}
        self._produce("summary", report.run, encoded(summary, nulls=True))
        if run.decided:
            self._produce_decision(
                DecisionRecord(report.run, "ended", report.steps, trace_id=run.trace_id)
            )

    def open_runs(self, key: str) -> list[str]:
        """The ids of the open runs of a key."""
        return sorted(self._runs.get(key, ()))

    def saved(self, key: str) -> list[dict[str, Any]]:
        """The open runs of a key as plain data, for :meth:`load`."""
        found = []
        for run_id in self.open_runs(key):
            run, measured = self._open[run_id], self.engine.get(run_id)
            if measured is not None:
                with here.critical, measured.lock:
                    state = save_run(measured)
                found.append({"run": _OPEN_RUNS.write(run), "state": state})
        return found

    def load(self, saved: Iterable[Mapping[str, Any]]) -> None:
        """Continue runs that another worker has measured; nothing counts before `restored`.

        Raises:
            ValueError: the data have another version or form.
        """
        engine = self.engine
        for one in saved:
            event = saved_start(one["state"])
            self._detach(event.run)
            engine.restore(event)
            measured = engine.get(event.run)
            if measured is None:
                continue
            with here.critical, measured.lock:
                load_run(measured, one["state"], goes_on=False)
            run = self._open[event.run] = _OPEN_RUNS.read(one["run"])
            self._runs.setdefault(run.key, set()).add(event.run)
            if self.limits is not None:
                self.limit(event.run)

    def is_open(self, key: str) -> bool:
        """Whether a run of this key is open."""
        return key in self._runs

    def abort(self, key: str, reason: str) -> None:
        """End the open runs of a key, with outcome unknown."""
        for run in tuple(self._runs.get(key, ())):
            ended = RunEnded(run=run, outcome="unknown", reason=reason, evicted=True)
            self.run_ended(ended)

    def ended(self) -> list[str]:
        """The keys of runs that ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def restored(self, keys: Iterable[str]) -> None:
        """The runs of these keys are restored: what follows counts."""
        for key in keys:
            for run in self._runs.get(key, ()):
                self.engine.restored(run)

    def drop(self, keys: Iterable[str]) -> None:
        """Detach the runs of these keys, which go to another worker."""
        for key in keys:
            for run in tuple(self._runs.get(key, ())):
                self._detach(run)
        self._ended.clear()

    def _detach(self, run: str) -> None:
        if self._closed(run) is not None:
            self.engine.detach(run)

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
            run.decision, run.decided = decided, True
            step, reason, message = decision.signals.step, decision.reason, decision.message
            self._produce_decision(
                DecisionRecord(run_id, decision.action, step, reason, message, run.trace_id)
            )
        return decision if decided is None else Decision(signals=decision.signals)

    def _produce_decision(self, record: DecisionRecord) -> None:
        if not self.restoring:
            self._produce("decision", record.run, record._replace(time=self.now).encoded())


def _outcome(success: bool | None) -> RunOutcome:
    return "unknown" if success is None else "success" if success else "failure"

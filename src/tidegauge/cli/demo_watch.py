"""What the demo keeps of its runs: their reports, what happened in them, and their step events."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from tidegauge.events import (
    ABSENT,
    CallResult,
    Decision,
    Outcome,
    RunEnded,
    RunStarted,
    RunSummary,
    Step,
    StepSink,
)
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.run_report import RunReport
from tidegauge.streaming_metrics.run_state import RunState

__all__ = ["Watch", "WatchedRun"]


@dataclass(slots=True)
class WatchedRun:
    """One run of the demo.

    Attributes:
        agent: its agent.
        task: its task.
        state: where the engine holds it; read with its lock.
        report: what was measured up to its last event.
        started: when it started, monotonic seconds.
        looped: when its last loop set in; ``None`` while it has not looped.
        ended: when it ended; ``None`` while it goes on.
        stop: why it was stopped, in a sentence.
    """

    agent: str
    task: str
    state: RunState
    report: RunReport
    started: float
    looped: float | None = None
    ended: float | None = None
    stop: str | None = None

    @property
    def seconds(self) -> float:
        """How long it took, or has taken up to now."""
        return (self.ended or time.monotonic()) - self.started

    @property
    def status(self) -> str:
        """``running``, ``looping``, ``stopped``, ``solved``, ``failed`` or ``left``."""
        if not self.report.finished:
            return "looping" if self.report.loop_repeats else "running"
        known = {"success": "solved", "failure": "failed", "unknown": "left"}
        return known.get(self.report.outcome, self.report.outcome)


class Watch:
    """A :class:`~tidegauge.events.StepSink` around the live one: passes everything on, looks on.

    Args:
        sink: the live one.
        engine: the one that it feeds.
    """

    def __init__(self, sink: StepSink, engine: Engine) -> None:
        self._sink = sink
        self._engine = engine
        self._lock = threading.Lock()
        self._runs: dict[str, WatchedRun] = {}
        self._lines: list[dict[str, Any]] = []
        self._waiting: dict[str, dict[int, tuple[Step, float]]] = {}
        self._news: deque[str] = deque()

    @property
    def runs(self) -> list[WatchedRun]:
        """Every run, in the order in which they started."""
        with self._lock:
            return list(self._runs.values())

    def news(self) -> Iterator[str]:
        """What happened since it was last asked, a line each."""
        while self._news:
            yield self._news.popleft()

    def onset(self, agent: str) -> float | None:
        """When the agent's last loop set in, monotonic seconds; ``None`` while none has."""
        times = [run.looped for run in self.runs if run.agent == agent and run.looped is not None]
        return max(times, default=None)

    def write(self, path: Path) -> None:
        """Write the step events of all runs, those that ``tidegauge replay`` reads."""
        with self._lock:
            lines = [orjson.dumps(line, default=str) for line in self._lines]
        path.write_bytes(b"".join(line + b"\n" for line in lines))

    def run_started(self, event: RunStarted) -> None:
        """A run began."""
        self._sink.run_started(event)
        state = self._engine.get(event.run)
        if state is None:
            return
        with state.lock:
            report = state.report()
        run = WatchedRun(event.agent, event.task or "", state, report, time.monotonic())
        with self._lock:
            self._runs[event.run] = run
            self._waiting[event.run] = {}
            self._lines.append(_known(type="start", **_started(event)))

    def step_issued(self, event: Step) -> Decision:
        """An action was issued."""
        decision = self._sink.step_issued(event)
        run = self._runs.get(event.run)
        if run is not None and decision.signals is not None:
            self._waiting[event.run][decision.signals.step] = (event, time.monotonic())
            self._look(run, decision)
        return decision

    def step_observed(self, event: Outcome) -> Decision:
        """An outcome was observed."""
        run = self._runs.get(event.run)
        waiting = self._waiting.get(event.run)
        if run is None or not waiting:
            return self._sink.step_observed(event)
        step, issued = waiting.pop(max(waiting) if event.step is None else event.step)
        if event.seconds is None:
            # Measured here, so that the live run and its record have one and the same number.
            event = event._replace(seconds=time.monotonic() - issued)
        decision = self._sink.step_observed(event)
        with self._lock:
            self._lines.append(_step(step, event))
        self._look(run, decision)
        return decision

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        """A run ended."""
        summary = self._sink.run_ended(event)
        run = self._runs.get(event.run)
        if run is None:
            return summary
        run.ended = time.monotonic()
        with run.state.lock:
            run.report = run.state.report()
        with self._lock:
            for step, _ in self._waiting.pop(event.run).values():
                self._lines.append(_step(step, None))
            success = run.report.success  # as it is counted: a stopped run did not succeed
            self._lines.append(
                _known(type="end", run=event.run, success=success, reason=event.reason)
            )
        if run.status != "stopped":
            self._tell(run, f"{run.status} after {run.report.steps} steps")
        return summary

    def _look(self, run: WatchedRun, decision: Decision) -> None:
        """Keep the run's new report, and tell what is new in it."""
        before = run.report
        with run.state.lock:
            now = run.report = run.state.report()
        if now.loop_repeats and not before.loop_repeats:
            run.looped = time.monotonic()
            first_step = now.loops[-1][0] if now.loops else 0
            self._tell(run, f"loops, {now.loop_period} steps since step {first_step}")
        if decision.stop and run.stop is None:
            run.stop = decision.message
            self._tell(run, f"stopped at step {now.intervention_step}: {decision.message}")
        elif now.intervention == "would_stop" and before.intervention is None:
            signal = (now.intervention_reason or "").replace("_", " ")
            self._tell(run, f"would be stopped at step {now.intervention_step} by {signal}")

    def _tell(self, run: WatchedRun, what: str) -> None:
        self._news.append(f"{run.agent} / {run.task}: {what}")


def _started(event: RunStarted) -> dict[str, Any]:
    names = ("run", "agent", "task", "task_group", "model", "t_max", "memory")
    return {name: getattr(event, name) for name in names}


def _step(step: Step, outcome: Outcome | None) -> dict[str, Any]:
    """A step's line; without an outcome when its action was never run."""
    results = outcome.results if outcome is not None else ()
    calls = []
    for number, call in enumerate(step.calls):
        result = results[number] if number < len(results) else CallResult()
        told = _known(action=call.action, args=call.arguments)
        if result.outcome is not ABSENT:
            told |= {"outcome": result.outcome, "error": result.error}
        calls.append(told)
    tokens = [spent for spent in (step.tokens, outcome and outcome.tokens) if spent is not None]
    line = _known(
        type="step",
        run=step.run,
        tokens=sum(tokens) if tokens else None,
        seconds=outcome.seconds if outcome is not None else None,
    )
    if step.state is not ABSENT:
        line["state"] = step.state
    return line | (calls[0] if len(calls) == 1 else {"calls": calls})


def _known(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None and value != ""}

"""The runs of the demo: their reports and news, and what the stop saved."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tidegauge.events import Decision, Outcome, RunEnded, RunStarted, RunSummary, Step, StepSink
from tidegauge.streaming_metrics import Engine, Snapshot, group_entry, run_entry
from tidegauge.streaming_metrics.run import MeasuredRun
from tidegauge.streaming_metrics.run_report import RunReport

__all__ = ["DemoRun", "DemoSink", "Saving", "demo_document", "total_steps"]


@dataclass(slots=True)
class DemoRun:
    """One run of the demo.

    Attributes:
        agent: its agent.
        task: its task.
        state: the engine's state of it; read it with its lock.
        report: measurements up to its last event.
        started: when it started, monotonic seconds.
        looped: when its last loop began; ``None``, it has not looped.
        ended: when it ended; ``None`` while it runs.
        stop: why it was stopped, in a sentence.
    """

    agent: str
    task: str
    state: MeasuredRun
    report: RunReport
    started: float
    looped: float | None = None
    ended: float | None = None
    stop: str | None = None

    @property
    def seconds(self) -> float:
        """Its duration, up to now while it runs."""
        return (self.ended or time.monotonic()) - self.started

    @property
    def status(self) -> str:
        """``running``, ``looping``, ``stopped``, ``solved``, ``failed`` or ``left``."""
        if not self.report.finished:
            return "looping" if self.report.loop_repeats else "running"
        known = {"success": "solved", "failure": "failed", "unknown": "left"}
        return known.get(self.report.outcome, self.report.outcome)


class DemoSink:
    """A :class:`~tidegauge.events.StepSink` around the live one that keeps runs and news.

    Args:
        sink: the live sink.
        engine: the engine that it feeds.
    """

    def __init__(self, sink: StepSink, engine: Engine) -> None:
        self._sink = sink
        self._engine = engine
        self._lock = threading.Lock()
        self._runs: dict[str, DemoRun] = {}
        self._news: deque[str] = deque()

    @property
    def runs(self) -> list[DemoRun]:
        """Every run, in the order in which they started."""
        with self._lock:
            return list(self._runs.values())

    def news(self) -> Iterator[str]:
        """The events since the last call, a line each."""
        while self._news:
            yield self._news.popleft()

    def onset(self, agent: str) -> float | None:
        """When the agent's last loop began, monotonic seconds; ``None``, it has not looped."""
        times = [run.looped for run in self.runs if run.agent == agent and run.looped is not None]
        return max(times, default=None)

    def run_started(self, event: RunStarted) -> None:
        self._sink.run_started(event)
        state = self._engine.get(event.run)
        if state is None:
            return
        with state.lock:
            report = state.report()
        run = DemoRun(event.agent, event.task or "", state, report, time.monotonic())
        with self._lock:
            self._runs[event.run] = run

    def step_issued(self, event: Step) -> Decision:
        decision = self._sink.step_issued(event)
        self._update(event.run, decision)
        return decision

    def step_observed(self, event: Outcome) -> Decision:
        decision = self._sink.step_observed(event)
        self._update(event.run, decision)
        return decision

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        summary = self._sink.run_ended(event)
        run = self._runs.get(event.run)
        if run is None:
            return summary
        run.ended = time.monotonic()
        with run.state.lock:
            run.report = run.state.report()
        if run.status != "stopped":
            self._add_news(run, f"{run.status} after {run.report.steps} steps")
        return summary

    def _update(self, run_id: str, decision: Decision) -> None:
        """Keep the run's new report, and add what is new in it to the news."""
        run = self._runs.get(run_id)
        if run is None or decision.signals is None:
            return
        before = run.report
        with run.state.lock:
            now = run.report = run.state.report()
        if now.loop_repeats and not before.loop_repeats:
            run.looped = time.monotonic()
            first_step = now.loops[-1][0] if now.loops else 0
            self._add_news(run, f"loops since step {first_step}, {now.loop_period} steps per round")
        if decision.stop and run.stop is None:
            run.stop = decision.message
            self._add_news(run, f"stopped at step {now.intervention_step}: {decision.message}")
        elif now.intervention == "would_stop" and before.intervention is None:
            signal = (now.intervention_reason or "").replace("_", " ")
            step = now.intervention_step
            self._add_news(run, f"would have been stopped at step {step} by {signal}")

    def _add_news(self, run: DemoRun, what: str) -> None:
        self._news.append(f"{run.agent} / {run.task}: {what}")


@dataclass(frozen=True, slots=True)
class Saving:
    """What stopping a run saved, compared with its twin that was only observed.

    Args:
        stopped: the run that was stopped when its loop began.
        observed: the same agent on the same task, not stopped.
    """

    stopped: DemoRun
    observed: DemoRun

    @property
    def steps(self) -> int:
        """Actions that only the observed run executed."""
        return self.observed.report.steps - (self.stopped.report.intervention_step or 0)

    @property
    def tokens(self) -> float:
        """Tokens that the observed run spent more on choosing actions."""
        return (self.observed.report.tokens or 0) - (self.stopped.report.tokens or 0)

    @property
    def seconds(self) -> float:
        """Seconds that the observed run took longer."""
        return self.observed.seconds - self.stopped.seconds


def demo_document(
    snapshot: Snapshot, runs: Sequence[DemoRun], saving: Saving | None, *, seed: int
) -> dict[str, Any]:
    """All numbers as plain data; runs and groups as in ``tidegauge replay --json``."""
    steps, loop_steps = total_steps(snapshot)
    return {
        "seed": seed,
        "runs": [
            {
                **run_entry(run.report),
                "task": run.task,
                "state": run.status,
                "tokens": run.report.tokens,
                "seconds": run.seconds,
                "loop_cost": {
                    "steps": run.report.loop_cost_steps,
                    "tokens": run.report.loop_cost_tokens,
                    "seconds": run.report.loop_cost_seconds,
                },
            }
            for run in runs
        ],
        "groups": [group_entry(group) for group in snapshot.groups],
        "totals": {
            "steps": steps,
            "loop_steps": loop_steps,
            "loop_ratio": loop_steps / steps if steps else None,
        },
        "saved": None
        if saving is None
        else {"steps": saving.steps, "tokens": saving.tokens, "seconds": saving.seconds},
    }


def total_steps(snapshot: Snapshot) -> tuple[int, int]:
    """Steps of all runs, and the number of loop steps among them."""
    totals = [group.totals for group in snapshot.groups]
    return (
        sum(total.steps for total in totals),
        sum(sum(total.loop_steps.values()) for total in totals),
    )

"""The runs that a command shows while they are at work: their reports, news and tables."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from tidegauge.cli.terminal import MAX_NAME, visible
from tidegauge.events import (
    Answer,
    Decision,
    Intervention,
    Outcome,
    RunEnded,
    RunObserver,
    RunStarted,
    Step,
)
from tidegauge.policies import Policy
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.answers import turns_in_words
from tidegauge.streaming_metrics.declaration import repeated_steps
from tidegauge.streaming_metrics.run import MeasuredRun
from tidegauge.streaming_metrics.snapshot import RunReport

STATUS_STYLES: Final = {
    "waiting": "dim",
    "running": "cyan",
    "looping": "bold red",
    "stopped": "bold yellow",
    "solved": "bold green",
    "failed": "red",
    "ended": "dim",
}
RUN_NUMBERS: Final = (
    "steps",
    "loop",
    "result\nstreak",
    "failed\nrounds",
    "novelty",
)
"""The names of :func:`run_numbers`."""

WORK_NUMBERS: Final = ("frontier", "pending\ntasks", "progress")
"""The names of :func:`work_numbers`."""


def section_table(title: str) -> Table:
    """A table with a title, without columns."""
    return Table(
        title=title,
        title_justify="left",
        title_style="bold",
        header_style="dim",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        show_edge=False,
    )


def run_numbers(report: RunReport) -> tuple[str | Text, ...]:
    """The measurements of a run, in the order of :data:`RUN_NUMBERS`."""
    return (
        str(report.steps),
        _loop(report),
        _count(report.result_streak, report.result_streak_max, report.finished),
        _count(report.failed_rounds, report.failed_rounds_max, report.finished),
        _novelty(report.novelty),
    )


def work_numbers(report: RunReport) -> tuple[str, ...]:
    """How much of a run is left and done, in the order of :data:`WORK_NUMBERS`."""
    progress = "" if report.progress is None else f"{report.progress:.0%}"
    counts = (report.frontier, report.pending)
    return (*("" if count is None else str(count) for count in counts), progress)


def lines_of(report: RunReport) -> int:
    """How many lines the row of a run has."""
    return max(1, len(_loop(report).split("\n")))


def _loop(report: RunReport) -> Text:
    """The current loop in words, a few on each line; of a finished run, its longest loop."""
    period, times = report.loop_period, report.loop_times
    if report.finished:
        period, times = report.longest_loop
    words = ""
    if times:
        words = repeated_steps(period, times)
    elif report.turn_loop_times:
        words = turns_in_words(report.turn_loop_period, report.turn_loop_times)
    return Text(words.replace(", repeated ", ",\nrepeated\n"), style="red" if words else "")


def _count(now: int | None, maximum: int | None, finished: bool) -> Text:
    """The current count; for a finished run, its maximum."""
    value = maximum if finished else now
    if value is None:
        return Text("")
    return Text(str(value), style="red" if value >= 3 else "")


def _novelty(value: float | None) -> Text:
    if value is None:
        return Text("")
    return Text(f"{value:.2f}", style="red" if value < 0.25 else "yellow" if value < 0.5 else "")


_MAX_NEWS: Final = 1_000
ACTIONS_DONE: Final[dict[Intervention, str]] = {
    "nudge": "nudged",
    "block": "refused",
    "stop": "stopped",
}
"""The actions of a policy, as they are shown."""


class LoopOnset(NamedTuple):
    """A run has begun to loop.

    Attributes:
        session: the session that it is part of; empty without one.
        step: the first step that is repeated; of a loop of turns without calls, the next one.
        period: steps, or turns, per round.
    """

    agent: str
    session: str
    run: str
    step: int
    period: int


@dataclass(slots=True)
class LiveRun:
    """A run that a command shows while it is at work.

    Attributes:
        task: its task, or another name, as it is shown.
        state: the engine's state of it; read it with its lock. ``None``, the run has ended.
        report: measurements up to its last event.
        started: when it started, monotonic seconds.
        looped: when its last loop began; ``None``, it has not looped.
        stop: why it was stopped, in a sentence.
        interventions: how often the policy nudged, blocked or stopped it, or would have.
        planned: the policy that would have acted; ``None``, it does act.
    """

    agent: str
    task: str
    state: MeasuredRun | None
    report: RunReport
    started: float
    looped: float | None = None
    ended: float | None = None
    stop: str | None = None
    interventions: Counter[Intervention] = field(default_factory=Counter)
    session: str = ""
    planned: Policy | None = None

    @property
    def seconds(self) -> float:
        """Its duration, up to now while it runs."""
        return (self.ended or time.monotonic()) - self.started

    @property
    def status(self) -> str:
        """``running``, ``looping``, ``stopped``, ``solved``, ``failed`` or ``ended``."""
        if not self.report.finished:
            return "looping" if self.report.looping else "running"
        known = {"success": "solved", "failure": "failed", "unknown": "ended"}
        return known.get(self.report.outcome, self.report.outcome)


class LiveRuns(RunObserver):
    """Keeps runs while they are at work, and news of them.

    Args:
        task: the name by which a run is shown beside its agent's.
        planned: the policy that does not act on a run: what it would do is in the news, too;
            ``None``, there is none, or it does act.
        on_loop: called at every onset of a loop, in the thread of the agent: it must not wait.
        most: runs that are kept; one more drops the one that ended first. News are as many at most.

    Attributes:
        totals: how many ``runs`` and ``steps`` there were, and how often the policy did each of
            its actions.
        planned_totals: how often it would have done each of them.
    """

    name = "live_runs"

    def __init__(
        self,
        engine: Engine,
        *,
        task: Callable[[RunStarted], str] = lambda event: event.task or "",
        planned: Callable[[RunStarted], Policy | None] = lambda event: None,
        on_loop: Callable[[LoopOnset], object] | None = None,
        most: int = 1_000,
    ) -> None:
        self._engine = engine
        self._task = task
        self._planned = planned
        self._on_loop = on_loop
        self._most = most
        self._lock = threading.Lock()
        self._runs: dict[str, LiveRun] = {}
        self._news: deque[str] = deque(maxlen=most)
        self.totals: Counter[str] = Counter()
        self.planned_totals: Counter[Intervention] = Counter()

    @property
    def runs(self) -> list[LiveRun]:
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
        state = self._engine.get(event.run)
        if state is None:
            return
        with state.lock:
            report = state.report()
        agent, task = visible(event.agent, MAX_NAME), visible(self._task(event), MAX_NAME)
        run = LiveRun(agent, task, state, report, time.monotonic())
        run.session, run.planned = event.conversation or "", self._planned(event)
        with self._lock:
            self.totals["runs"] += 1
            self._runs[event.run] = run
            if len(self._runs) > self._most:
                ended = (key for key, one in self._runs.items() if one.ended is not None)
                del self._runs[next(ended, next(iter(self._runs)))]

    def step_issued(self, event: Step, decision: Decision) -> None:
        with self._lock:
            self.totals["steps"] += 1
        self._update(event.run, decision)
        self._plan(event.run)

    def step_observed(self, event: Outcome, decision: Decision) -> None:
        self._update(event.run, decision)

    def answered(self, event: Answer, decision: Decision) -> None:
        self._update(event.run, decision)

    def run_ended(self, event: RunEnded) -> None:
        run = self._runs.get(event.run)
        state = None if run is None else run.state
        if run is None or state is None:
            return
        run.ended = time.monotonic()
        with state.lock:
            run.report = state.report()
        run.state = None
        if run.status != "stopped":
            self._add_news(run, f"{run.status} after {run.report.steps} steps")

    def _update(self, run_id: str, decision: Decision) -> None:
        """Keep the run's new report, and add what is new in it to the news."""
        run = self._runs.get(run_id)
        state = None if run is None else run.state
        if run is None or state is None or decision.signals is None:
            return
        before = run.report
        with state.lock:
            now = run.report = state.report()
        if now.looping and not before.looping:
            run.looped = time.monotonic()
            if now.loop_period:
                step, period = now.loop_first_step, now.loop_period
                loop = f"since step {step}: {repeated_steps(period, now.loop_times)}"
            else:
                step, period = now.steps, now.turn_loop_period
                loop = f"without a call: {turns_in_words(period, now.turn_loop_times)}"
            self._add_news(run, f"loops {loop}")
            if self._on_loop is not None:
                self._on_loop(LoopOnset(run.agent, run.session, run_id, step, period))
        if decision.action != "go_on" and not (decision.stop and run.stop):
            self._count(run, decision.action)
        if decision.nudge or decision.block:
            step = decision.signals.step
            self._add_news(
                run, f"{ACTIONS_DONE[decision.action]} at step {step}: {decision.message}"
            )
        if decision.stop and run.stop is None:
            run.stop = decision.message
            self._add_news(run, f"stopped at step {now.intervention_step}: {decision.message}")
        elif (
            run.planned is None and now.intervention == "would_stop" and before.intervention is None
        ):
            signal = (now.intervention_reason or "").replace("_", " ")
            step = now.intervention_step
            self._add_news(run, f"would have been stopped at step {step} by {signal}")

    def _plan(self, run_id: str) -> None:
        """Note what a policy that does not act would do about the step that was issued."""
        run = self._runs.get(run_id)
        state = None if run is None else run.state
        if run is None or state is None or run.planned is None:
            return
        if run.interventions["stop"]:
            return  # it would not have run any further
        with state.lock:
            signals = state.signals()
        decision = run.planned.decide(signals, blockable=True)
        if decision.action != "go_on":
            self._count(run, decision.action)
            if run.interventions[decision.action] == 1:
                done = ACTIONS_DONE[decision.action]
                what = f"would have been {done} at step {signals.step}: {decision.message}"
                self._add_news(run, what)

    def _count(self, run: LiveRun, action: Intervention) -> None:
        run.interventions[action] += 1
        with self._lock:
            if run.planned is None:
                self.totals[action] += 1
            else:
                self.planned_totals[action] += 1

    def _add_news(self, run: LiveRun, what: str) -> None:
        self._news.append(visible(f"{run.agent} / {run.task}: {what}", _MAX_NEWS))

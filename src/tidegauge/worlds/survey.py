"""The metrics of every scripted agent in its world, over some seeds."""

from __future__ import annotations

import random
from collections.abc import Iterable
from statistics import fmean as mean
from typing import NamedTuple, Unpack

from tidegauge.events import ABSENT, Call
from tidegauge.streaming_metrics.exploration import Exploration
from tidegauge.streaming_metrics.failed_rounds import FailedRounds
from tidegauge.streaming_metrics.fingerprint import call_digest, content_digest
from tidegauge.streaming_metrics.loops import Loops
from tidegauge.streaming_metrics.premature_halt import PrematureHalts
from tidegauge.streaming_metrics.records import FinishedRun, IssuedStep, ObservedStep
from tidegauge.worlds.grid import GRID_AGENTS, GridAgent, GridWorld
from tidegauge.worlds.lore import LORE_AGENTS, LoreAgent, LoreTask
from tidegauge.worlds.lore_tasks import code_task, document_task
from tidegauge.worlds.task_graph import Start, StepResult, TaskGraph


class MeasuredAttempt:
    """Feeds the steps of an attempt to the metric classes, without a pipeline.

    Attributes:
        t_max: its budget; ``None``, it has none.
        exploration: its exploration and exploitation errors, stale score and leads.

    >>> from tidegauge.worlds.grid import GridWorld
    >>> world = GridWorld(seed=3)
    >>> measured = MeasuredAttempt(world.start())
    >>> walk = world.walk(measured)
    >>> for direction in ("right", "left", "right", "left"):
    ...     _ = walk.move(direction)
    >>> measured.exploration.stale, measured.exploration.exploration_error_rate
    (1, 0.25)
    """

    def __init__(self, start: Start) -> None:
        self.steps = 0
        self.t_max = start.get("t_max")
        self.loops = Loops()
        self.failed_rounds = FailedRounds()
        self.exploration = Exploration(
            place=start.get("place"),
            exits=start.get("exits"),
            tasks=start.get("tasks", ()),
            goal=start.get("goal"),
            reach=start.get("reach", "adjacent"),
        )
        self._state = content_digest(start.get("task")) or b""
        self._action = b""

    def act(self, action: str, arguments: object = None) -> None:
        """The agent chose an action."""
        self._action = call_digest(Call(action, arguments)) or b""
        self.loops.update(IssuedStep(self.steps, self._state, self._action, action))

    def observe(self, outcome: object = ABSENT, **result: Unpack[StepResult]) -> None:
        """The outcome of the action."""
        self._state = content_digest(outcome) or b""
        exits = result.get("exits")
        step = ObservedStep(
            self.steps,
            action=self._action,
            outcome=self._state,
            failed=result.get("error", False),
            progress=result.get("progress"),
            place=result.get("place"),
            exits=None if exits is None else tuple(exits),
            tasks=tuple(result.get("tasks", ())),
            achieved=tuple(result.get("achieved", ())),
        )
        self.failed_rounds.update(step)
        self.exploration.update(step)
        self.steps += 1


class SurveyRow(NamedTuple):
    """The results of one agent's runs.

    Attributes:
        world: ``grid``, ``documents`` or ``code``.
        steps: steps, on average.
        success: share of the runs that succeeded.
        exploration_error: errors / steps that required exploring, over all runs.
        exploitation_error: errors / steps that required exploiting, over all runs.
        stale_max: highest stale score of any run.
        premature_halt: share of the runs that gave up: they ended before their budget, without
            success and with places or tasks left.
        out_of_budget: share of the runs that were out of budget, with places or tasks left.
        displaced_leads: mean number of displaced leads of such runs, over all runs.
        failed_rounds_max: most rounds that failed in a row in any run.
        loop_ratio: loop steps / steps, over all runs.
    """

    world: str
    agent: str
    steps: float
    success: float
    exploration_error: float
    exploitation_error: float
    stale_max: int
    premature_halt: float
    out_of_budget: float
    displaced_leads: float
    failed_rounds_max: int
    loop_ratio: float


class _Attempt(NamedTuple):
    solved: bool
    measured: MeasuredAttempt

    @property
    def finished(self) -> FinishedRun:
        exploration = self.measured.exploration
        return FinishedRun(
            self.solved,
            self.measured.steps,
            t_max=self.measured.t_max,
            frontier=exploration.frontier,
            pending=exploration.pending,
            displaced_leads=exploration.leads.displaced,
        )


def survey(seeds: Iterable[int] = range(20)) -> list[SurveyRow]:
    """Run every agent on the worlds of these seeds.

    Each agent meets the same worlds, and the same rows come out each time.

    >>> for row in survey(seeds=range(3)):
    ...     if row.world == "documents":
    ...         print(row.agent, row.success, row.premature_halt, row.failed_rounds_max)
    solver 1.0 0.0 0
    halter 0.0 1.0 0
    loser 0.0 1.0 0
    stumbler 1.0 0.0 3
    """
    chosen = list(seeds)
    if not chosen:
        return []
    rows = []
    for name, walker in GRID_AGENTS.items():
        rows.append(_row("grid", name, [_walk(walker, seed) for seed in chosen]))
    for world, sample in (("documents", document_task), ("code", code_task)):
        for name, reader in LORE_AGENTS.items():
            rows.append(_row(world, name, [_read(reader, sample(seed), seed) for seed in chosen]))
    return rows


def _walk(agent: GridAgent, seed: int) -> _Attempt:
    graph = TaskGraph.sample(seed, nodes=8, option_counts={1: 0.8, 2: 0.2})
    world = GridWorld(seed, graph=graph, corridor_widths=(1, 3))
    measured = MeasuredAttempt(world.start())
    walk = world.walk(measured)
    agent(walk, random.Random(seed))  # noqa: S311 -- to be reproducible, not to keep a secret
    return _Attempt(walk.solved, measured)


def _read(agent: LoreAgent, task: LoreTask, seed: int) -> _Attempt:
    measured = MeasuredAttempt(task.start())
    reading = task.reading(measured)
    agent(reading, random.Random(seed))  # noqa: S311 -- to be reproducible, not to keep a secret
    return _Attempt(reading.solved, measured)


def _row(world: str, agent: str, attempts: list[_Attempt]) -> SurveyRow:
    measured = [attempt.measured for attempt in attempts]
    explorations = [one.exploration for one in measured]
    halts = PrematureHalts()
    for attempt in attempts:
        halts.update(attempt.finished)
    return SurveyRow(
        world,
        agent,
        steps=mean([one.steps for one in measured]),
        success=mean([attempt.solved for attempt in attempts]),
        exploration_error=_ratio(
            [one.exploration_errors for one in explorations],
            [one.exploration_required for one in explorations],
        ),
        exploitation_error=_ratio(
            [one.exploitation_errors for one in explorations],
            [one.exploitation_required for one in explorations],
        ),
        stale_max=max([one.stale_max or 0 for one in explorations]),
        premature_halt=halts.value or 0.0,
        out_of_budget=halts.cut_short.get("budget", 0) / len(attempts),
        displaced_leads=mean(
            [0 if one.solved else one.finished.displaced_leads or 0 for one in attempts]
        ),
        failed_rounds_max=max([one.failed_rounds.maximum or 0 for one in measured]),
        loop_ratio=_ratio(
            [one.loops.loop_steps for one in measured], [one.steps for one in measured]
        ),
    )


def _ratio(part: list[int], whole: list[int]) -> float:
    return sum(part) / sum(whole) if any(whole) else 0.0

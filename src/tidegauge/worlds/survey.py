"""Survey: every scripted agent in its world, over some seeds, through the metrics."""

from __future__ import annotations

import random
from collections.abc import Iterable
from statistics import fmean as mean
from typing import NamedTuple

from tidegauge.streaming_metrics.premature_halt import PrematureHalts
from tidegauge.streaming_metrics.records import FinishedRun
from tidegauge.worlds.grid import GridWorld
from tidegauge.worlds.grid_agents import GRID_AGENTS, GridAgent
from tidegauge.worlds.lore import document_task
from tidegauge.worlds.lore_agents import LORE_AGENTS, LoreAgent
from tidegauge.worlds.lore_code import code_task
from tidegauge.worlds.lore_task import LoreTask
from tidegauge.worlds.measured import Measured
from tidegauge.worlds.task_graph import TaskGraph

__all__ = ["SurveyRow", "survey"]


class SurveyRow(NamedTuple):
    """What one agent's runs came to.

    Attributes:
        world: ``grid``, ``documents`` or ``code``.
        agent: name of the agent.
        steps: steps, on average.
        success: share of the runs that succeeded.
        exploration_error: errors / steps that required exploring, over all runs.
        exploitation_error: errors / steps that required exploiting, over all runs.
        stale_max: highest stale score of any run.
        premature_halt: share of the runs that ended without success and with places or tasks left.
        displaced_leads: displaced leads that such a run left; on average over all runs.
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
    displaced_leads: float
    failed_rounds_max: int
    loop_ratio: float


class _Attempt(NamedTuple):
    solved: bool
    measured: Measured

    @property
    def finished(self) -> FinishedRun:
        exploration = self.measured.exploration
        return FinishedRun(
            self.solved,
            self.measured.steps,
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
    measured = Measured(world.start())
    walk = world.walk(measured)
    agent(walk, random.Random(seed))  # noqa: S311 -- to be reproducible, not to keep a secret
    return _Attempt(walk.solved, measured)


def _read(agent: LoreAgent, task: LoreTask, seed: int) -> _Attempt:
    measured = Measured(task.start())
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
        displaced_leads=halts.displaced_leads / len(attempts),
        failed_rounds_max=max([one.failed_rounds.maximum or 0 for one in measured]),
        loop_ratio=_ratio(
            [one.loops.loop_steps for one in measured], [one.steps for one in measured]
        ),
    )


def _ratio(part: list[int], whole: list[int]) -> float:
    return sum(part) / sum(whole) if any(whole) else 0.0

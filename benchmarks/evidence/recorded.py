"""The recordings as arrays, each run replayed once: features, and every score at every moment."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tidegauge.events import Decision, Outcome, RunEnded, RunStarted, Step, StepSink
from tidegauge.policies import SCORES
from tidegauge.policies.learning import Example, FeatureTable
from tidegauge.recordings.line_replay import Replay, read_lines
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.features import RunFeatures

__all__ = ["SCORE_NAMES", "Family", "families"]

Floats: TypeAlias = NDArray[np.float64]

SCORE_NAMES: Final = (
    "steps_begun",
    "steps",
    "stagnation",
    "repetition",
    "similarity",
    "loop_repeats",
    "result_streak",
    "failed_rounds",
    "recurrence",
    "staleness",
    "stale_score",
)
"""The scores of which every moment is kept."""


class _Kept(NamedTuple):
    started: RunStarted
    features: list[RunFeatures]
    scores: list[list[float]]
    taken: list[int]


class _Sink(StepSink):
    def __init__(self) -> None:
        self.engine = Engine(
            clock=None, max_runs=sys.maxsize, max_groups=1, max_actions=1, features=True
        )
        self.open: dict[str, _Kept] = {}
        self.done: list[tuple[_Kept, bool]] = []

    def run_started(self, event: RunStarted) -> None:
        self.engine.run_started(event)
        self.open[event.run] = _Kept(event, [], [], [])

    def step_issued(self, event: Step) -> Decision:
        signals = self.engine.step_issued(event)
        if signals is not None:
            kept = self.open[event.run]
            if signals.features is not None:  # a run may begin with a thought
                kept.features.append(signals.features)
            self._keep(kept, signals, signals.steps - 1)
        return Decision(signals=signals)

    def step_observed(self, event: Outcome) -> Decision:
        signals = self.engine.step_observed(event)
        if signals is not None:
            self._keep(self.open[event.run], signals, signals.steps)
        return Decision(signals=signals)

    def run_ended(self, event: RunEnded) -> None:
        self.engine.run_ended(event)
        kept = self.open.pop(event.run, None)
        if kept is not None and kept.features and event.success is not None:
            self.done.append((kept, event.success))

    def _keep(self, kept: _Kept, signals: object, taken: int) -> None:
        values = [SCORES[name].read(signals) for name in SCORE_NAMES]  # type: ignore[arg-type]
        kept.scores.append([0.0 if value is None else value for value in values])
        kept.taken.append(taken)


class Family:
    """The runs of one task group whose success is known.

    Attributes:
        name: the task group.
        table: their features, at each action.
        agents: the agent of each run.
        tasks: a number for the task of each run.
        scores: each score at every moment of every run.
        run: index of each of these moments' run.
        taken: steps taken up to then.
        steps: how many steps each run has.
        failed: whether each run failed.
    """

    def __init__(self, name: str, runs: Sequence[tuple[_Kept, bool]]) -> None:
        self.name = name
        self.table = FeatureTable(
            [
                Example(
                    *(kept.started.run, kept.started.agent, name, kept.started.task),
                    success,
                    kept.features,
                )
                for kept, success in runs
            ]
        )
        self.agents = np.array([kept.started.agent for kept, _ in runs])
        known: dict[object, int] = {}
        self.tasks = np.array(
            [
                known.setdefault(kept.started.task or kept.started.run, len(known))
                for kept, _ in runs
            ]
        )
        every = np.array([scores for kept, _ in runs for scores in kept.scores])
        self.scores: dict[str, Floats] = dict(zip(SCORE_NAMES, every.T, strict=True))
        self.run = np.repeat(np.arange(len(runs)), [len(kept.taken) for kept, _ in runs])
        self.taken = np.array([taken for kept, _ in runs for taken in kept.taken])
        self.steps = self.table.steps
        self.failed = self.table.failed

    def has_attempts(self, agent: str, *, tasks: int) -> bool:
        """Whether an agent has so many solved tasks, with three successful runs for two of them."""
        good = self.tasks[(self.agents == agent) & ~self.failed]
        solved = len(np.unique(good))
        return solved >= tasks and 2 * len(good) >= 3 * solved

    def groups(self, *, good: int = 30, bad: int = 10) -> Iterable[str]:
        """The agents with so many successful and so many failed runs."""
        for agent in dict.fromkeys(self.agents):
            own = self.failed[self.agents == agent]
            if (~own).sum() >= good and own.sum() >= bad:
                yield str(agent)


def families(folders: Iterable[Path]) -> list[Family]:
    """Every task group of the recordings (``*.events.jsonl``) in the folders."""
    found: list[Family] = []
    for folder in folders:
        for path in sorted(folder.glob("*.events.jsonl")):
            sink = _Sink()
            recording = Replay(sink)
            with path.open("rb") as stream:
                for line in read_lines(stream):
                    recording.take(line, path.name)
            by_group: dict[str, list[tuple[_Kept, bool]]] = {}
            for kept, success in sink.done:
                by_group.setdefault(kept.started.task_group, []).append((kept, success))
            found += [Family(name, runs) for name, runs in by_group.items()]
    return found

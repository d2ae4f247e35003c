"""How the stagnation score was chosen: ``python -m benchmarks stop_scores FILE...``.

Every way to combine a run's signals into one number is judged by what it saves with a threshold at
alpha 0.05 from 20 successful runs, as the mean over groups with 30 successful and 10 other runs. A
combination with weights is judged twice: with weights chosen on all families of tasks (each file is
one), which flatters it, and with whole families left out in turn, on the family left out.

The threshold is the highest score of 20 successful runs (alpha 0.05), so nothing need be sampled:
the chance that the j-th successful run is the highest of 20 is known.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tidegauge.events import GO_ON, Decision, Outcome, RunEnded, RunStarted, Signals, Step, StepSink
from tidegauge.policies import SCORES, STAGNATION_WEIGHTS
from tidegauge.recordings.line_replay import Replay, read_lines
from tidegauge.streaming_metrics import Engine

_RUNS = 20
_LEAST_GOOD, _LEAST_BAD = 30, 10
_PARTS = (*STAGNATION_WEIGHTS, "recurrence", "stale_score", "staleness")
_ISSUED = "steps"
"""Steps begun: a limit on these refuses the next step, one on completed steps the one after it."""
_GRID = {
    "repetition": (0, 1, 2, 3, 4),
    "similarity": (0, 3),
    "loop_repeats": (0, 1),
    "result_streak": (0, 0.5, 1),
    "failed_rounds": (0, 0.5, 1),
}

Weights = Mapping[str, float]
Array = NDArray[np.float64]


class Group(NamedTuple):
    """The runs of one agent in one family: parts of the score at every moment of every run."""

    family: str
    agent: str
    parts: dict[str, Array]
    known: NDArray[np.bool_]
    steps: Array
    good: NDArray[np.bool_]


class _Moments(StepSink):
    """A step sink that keeps the parts of the score at both moments of every step."""

    def __init__(self) -> None:
        self.engine = Engine(clock=None, max_runs=sys.maxsize, repetition=True)
        self.started: dict[str, RunStarted] = {}
        self.moments: dict[str, list[list[float]]] = {}
        self.success: dict[str, bool] = {}

    def run_started(self, event: RunStarted) -> None:
        self.engine.run_started(event)
        self.started[event.run] = event
        self.moments[event.run] = []

    def step_issued(self, event: Step) -> Decision:
        return self._keep(self.engine.step_issued(event))

    def step_observed(self, event: Outcome) -> Decision:
        return self._keep(self.engine.step_observed(event))

    def run_ended(self, event: RunEnded) -> None:
        self.engine.run_ended(event)
        if event.success is not None:
            self.success[event.run] = event.success

    def _keep(self, signals: Signals | None) -> Decision:
        if signals is not None:
            self.moments[signals.run].append([_part(name, signals) for name in (*_PARTS, _ISSUED)])
        return GO_ON


def main(files: Sequence[str]) -> int:
    """Print what every score saves; returns 2 when there is nothing to read."""
    if not files:
        print("usage: python -m benchmarks stop_scores FILE...", file=sys.stderr)
        return 2
    groups = list(_groups(files))
    families = list(dict.fromkeys(group.family for group in groups))
    table = Table(title=f"{len(groups)} groups of {len(families)} families, alpha 0.05")
    for heading in ("score", "steps saved", "x steps", "worst group", "good stopped"):
        table.add_column(heading, justify="left" if heading == "score" else "right")
    base = [_judge(group, {"completed_steps": 1.0}) for group in groups]

    def show(name: str, judged: Sequence[tuple[float, float]]) -> None:
        saved = np.array(judged)[:, 0]
        least = (saved - np.array(base)[:, 0]).min()
        ratio = saved.mean() / np.array(base)[:, 0].mean()
        stopped = np.array(judged)[:, 1].mean()
        table.add_row(
            name, f"{saved.mean():.1%}", f"{ratio:.2f}", f"{least:+.1%}", f"{stopped:.1%}"
        )

    for part in (*_PARTS, _ISSUED):
        name = "steps begun" if part == _ISSUED else part
        show(name, [_judge(group, {part: 1.0}) for group in groups])
    show("sum of all parts", [_judge(group, dict.fromkeys(_PARTS, 1.0)) for group in groups])
    show("highest part", [_judge_scores(group, _highest(group)) for group in groups])
    show("logistic hazard, families left out", _left_out_hazard(groups, families))
    chosen = _chosen(groups)
    show("weights chosen on all families", [_judge(group, chosen) for group in groups])
    left_out: dict[str, Weights] = {
        family: _chosen([group for group in groups if group.family != family])
        for family in track(families, "families left out", console=Console(stderr=True))
    }
    show("weights chosen, families left out", [_judge(g, left_out[g.family]) for g in groups])
    show("stagnation", [_judge(group, STAGNATION_WEIGHTS) for group in groups])
    console = Console()
    console.print(table)
    for family, weights in left_out.items():
        shown = ", ".join(f"{name} {weight:g}" for name, weight in weights.items() if weight)
        console.print(f"without {family}: {shown}", highlight=False)
    return 0


def _part(name: str, signals: Signals) -> float:
    if name == "staleness":
        return SCORES["staleness"].read(signals) or 0.0
    value: float | None = getattr(signals, name)
    return value or 0.0


def _groups(files: Sequence[str]) -> Iterator[Group]:
    for file in files:
        sink = _Moments()
        recording = Replay(sink)
        with open(file, "rb") as stream:
            for line in read_lines(stream):
                recording.take(line, file)
        by_agent: dict[str, list[str]] = {}
        for run in sink.success:
            by_agent.setdefault(sink.started[run].agent, []).append(run)
        for agent, runs in by_agent.items():
            good = np.array([sink.success[run] for run in runs])
            if good.sum() < _LEAST_GOOD or (~good).sum() < _LEAST_BAD:
                continue
            moments = [np.array(sink.moments[run]) for run in runs]
            longest = max(len(one) for one in moments)
            names = (*_PARTS, _ISSUED)
            padded = np.zeros((len(names), len(runs), longest))
            known = np.zeros((len(runs), longest), dtype=bool)
            for index, one in enumerate(moments):
                padded[:, index, : len(one)] = one.T
                known[index, : len(one)] = True
            steps = known.sum(axis=1) / 2
            yield Group(
                Path(file).name, agent, dict(zip(names, padded, strict=True)), known, steps, good
            )


def _judge(group: Group, weights: Weights) -> tuple[float, float]:
    return _judge_scores(
        group, sum(group.parts[name] * one for name, one in weights.items() if one)
    )


def _judge_scores(group: Group, scores: Array | float) -> tuple[float, float]:
    """Share of the steps saved and of the successful runs stopped, expected over all draws."""
    score = np.where(group.known, scores, -np.inf)
    rising = np.maximum.accumulate(score, axis=1)
    highest, good = rising[:, -1], group.good
    count = int(good.sum())
    chances = np.array([math.comb(j, _RUNS - 1) / math.comb(count, _RUNS) for j in range(count)])
    rising = np.where(group.known, rising, np.inf)
    others = (count - _RUNS) / count
    whole = group.steps[~good].sum() + group.steps[good].sum() * others
    saved = stopped = 0.0
    for line, chance in zip(np.sort(highest[good]), chances, strict=True):
        if chance < 1e-9:
            continue
        crossed = highest > line
        taken = ((rising <= line).sum(axis=1) + 1) // 2  # at the moment of issue the step is saved
        saved += chance * np.where(crossed, group.steps - taken, 0).sum() / whole
        stopped += chance * crossed[good].sum() / (count - _RUNS)
    return float(saved), float(stopped)


def _highest(group: Group) -> Array:
    found: Array = np.max(
        [group.parts[name] for name in _PARTS if name != "completed_steps"], axis=0
    )
    return found


def _chosen(groups: Sequence[Group]) -> Weights:
    """The weights of the grid that save most, in the mean over the groups."""
    best: tuple[float, Weights] = (-1.0, {})
    for values in itertools.product(*_GRID.values()):
        weights = {"completed_steps": 1.0, **dict(zip(_GRID, values, strict=True))}
        saved = float(np.mean([_judge(group, weights)[0] for group in groups]))
        if saved > best[0]:
            best = saved, weights
    return best[1]


def _left_out_hazard(groups: Sequence[Group], families: Sequence[str]) -> list[tuple[float, float]]:
    """Log-odds that a run at this moment will fail, fitted on the other families."""
    weights = {
        family: _fitted([group for group in groups if group.family != family])
        for family in families
    }
    return [_judge(group, weights[group.family]) for group in groups]


def _fitted(groups: Sequence[Group]) -> Weights:
    """Logistic regression by Newton's method, every group weighing the same."""
    rows, fails, importance = [], [], []
    for group in groups:
        parts = np.stack([group.parts[name] for name in _PARTS], axis=-1)[group.known]
        rows.append(np.column_stack([parts, np.ones(len(parts))]))
        fails.append(np.repeat(~group.good, group.known.sum(axis=1)))
        importance.append(np.full(len(parts), 1 / len(parts)))
    x, y, w = np.concatenate(rows), np.concatenate(fails).astype(float), np.concatenate(importance)
    beta = np.zeros(x.shape[1])
    for _ in range(30):
        p = 1 / (1 + np.exp(-np.clip(x @ beta, -30, 30)))
        gradient = x.T @ (w * (y - p)) - 1e-3 * beta
        curvature = (x * (w * p * (1 - p))[:, None]).T @ x + 1e-3 * np.eye(len(beta))
        beta += np.linalg.solve(curvature, gradient)
    return dict(zip(_PARTS, beta[:-1], strict=True))

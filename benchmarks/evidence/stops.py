"""Stop rules: what a learned score, the other scores and counting steps save on unseen tasks.

The tasks of a task group are split: from one half (all agents) the score is learned, successful
runs of other tasks give the threshold, and the runs of the rest are judged by it. No task is on two
sides. All scores are judged on the same splits.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.evidence.recorded import Family
from tidegauge.policies import Guarantee
from tidegauge.policies.learning import OTHERS, FeatureTable, Fitted, fit

__all__ = [
    "ALPHA",
    "BY_RUN",
    "BY_TASK",
    "CALIBRATION_RUNS",
    "Calibration",
    "Judged",
    "Moments",
    "Split",
    "judge",
    "splits",
    "stop_rules",
]

Floats: TypeAlias = NDArray[np.float64]
Flags: TypeAlias = NDArray[np.bool_]

ALPHA: Final = 0.05
CALIBRATION_RUNS: Final = 20


class Calibration(NamedTuple):
    """How thresholds are calibrated.

    Attributes:
        alpha: the bound on successful runs that are stopped.
        size: how many successful runs give a threshold; by task, how many tasks that have some.
        spare: how many more of them stay out of the learning half.
        by_task: whether each task has the same weight, however many successful runs it has.
    """

    alpha: float = ALPHA
    size: int = CALIBRATION_RUNS
    spare: int = 4
    by_task: bool = False


BY_RUN: Final = Calibration()
BY_TASK: Final = Calibration(0.1, 9, 2, by_task=True)
"""As few tasks as alpha 0.1 needs: the recordings with several attempts have few tasks."""


class Split(NamedTuple):
    """Which runs of a family are for what; no task is on two sides.

    Attributes:
        learn: from which the score is learned, of all agents.
        calibrate: successful runs of the agent for the threshold.
        test: runs of the agent to judge.
    """

    learn: Flags
    calibrate: Flags
    test: Flags


class Moments(NamedTuple):
    """A score at the moments of runs: its values, the run, and the steps taken up to then."""

    values: Floats
    run: NDArray[np.int64]
    taken: NDArray[np.int64]


class Judged(NamedTuple):
    """What a threshold did to the test runs of a split: shares of steps and of successful runs."""

    saved: float
    good_stopped: float


def splits(
    family: Family,
    agent: str,
    *,
    halves: int,
    draws: int,
    how: Calibration = BY_RUN,
    seed: int = 0,
) -> Iterator[list[Split]]:
    """Halves of the tasks to learn from, and for each, draws of the calibration.

    A half is random; if too few successful runs (or tasks with some) of the agent are outside of
    it, random tasks with some go there.
    """
    rng = np.random.default_rng([seed, zlib.crc32(f"{family.name} {agent}".encode())])
    own = family.agents == agent
    good = np.bincount(family.tasks[own & ~family.failed], minlength=family.tasks.max() + 1)
    if how.by_task:
        good = np.minimum(good, 1)
    for _ in range(halves):
        tasks = rng.permutation(np.unique(family.tasks))
        learn, rest = list(tasks[: len(tasks) // 2]), list(tasks[len(tasks) // 2 :])
        for task in [task for task in learn if good[task]]:
            if good[rest].sum() >= how.size + how.spare:
                break
            learn.remove(task)
            rest.append(task)
        found = []
        for _ in range(draws):
            order = rng.permutation([task for task in rest if good[task]])
            reached = np.searchsorted(np.cumsum(good[order]), how.size) + 1
            for_threshold = order[:reached]
            found.append(
                Split(
                    np.isin(family.tasks, learn),
                    np.isin(family.tasks, for_threshold) & own & ~family.failed,
                    np.isin(family.tasks, rest) & ~np.isin(family.tasks, for_threshold) & own,
                )
            )
        yield found


def judge(family: Family, score: Moments, split: Split, how: Calibration) -> Judged:
    """Take the threshold from the calibration runs, and stop the test runs at it."""
    highest = np.full(len(family.steps), -np.inf)
    np.maximum.at(highest, score.run, score.values)
    runs = np.flatnonzero(split.calibrate)
    alike: dict[int, list[float]] = {}
    for run in runs:
        alike.setdefault(int(family.tasks[run] if how.by_task else run), []).append(highest[run])
    threshold = Guarantee(how.alpha).threshold(alike.values())
    taken = family.steps.copy()
    if threshold is not None:
        above = score.values > threshold
        np.minimum.at(taken, score.run[above], score.taken[above])
    stopped = highest > (np.inf if threshold is None else threshold)
    test, good = split.test, split.test & ~family.failed
    return Judged(
        float((family.steps - taken)[test].sum() / family.steps[test].sum()),
        float(stopped[good].mean()) if good.any() else np.nan,
    )


def oracle(family: Family, split: Split) -> Judged:
    """Stop every failing run at its first step, that is, after it, and no other."""
    test = split.test
    return Judged(
        float(((family.steps - 1) * family.failed)[test].sum() / family.steps[test].sum()), 0.0
    )


Fit: TypeAlias = Callable[[FeatureTable, Floats], Fitted]


def stop_rules(
    family: Family,
    agent: str,
    *,
    halves: int,
    draws: int,
    names: Sequence[str],
    how: Calibration = BY_RUN,
    fitter: Fit = fit,
    seen: bool = False,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, NDArray[np.float64]]:
    """What every score saves in one group, by name: (draws, saved and good stopped).

    ``seen``: the score is learned from the runs that it is judged on, which bounds what could be
    learned from others.
    """
    found: dict[str, list[Judged]] = {}
    own = np.where(family.agents == agent, 1.0, OTHERS)
    table = family.table
    for half in splits(family, agent, halves=halves, draws=draws, how=how):
        fitted = fitter(table, own * (half[0].learn != seen))
        scores: dict[str, Moments] = {
            "learned": Moments(fitted.scores(table), table.run, table.step - 1),
            **{name: Moments(family.scores[name], family.run, family.taken) for name in names},
        }
        for split in half:
            for name, score in scores.items():
                found.setdefault(name, []).append(judge(family, score, split, how))
            found.setdefault("oracle", []).append(oracle(family, split))
        advance()
    return {name: np.array(judged) for name, judged in found.items()}


def shares(judged: NDArray[np.float64]) -> dict[str, Any]:
    """Means over the draws, with the range that holds 95% of them."""
    saved, stopped = judged.T
    low, high = np.nanpercentile(saved, [2.5, 97.5])
    return {
        "saved": float(np.nanmean(saved)),
        "saved_interval": [float(low), float(high)],
        "good_stopped": float(np.nanmean(stopped)),
    }

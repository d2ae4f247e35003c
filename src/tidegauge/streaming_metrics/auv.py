"""AUV: how soon runs succeed, as one number with its standard error."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import ClassVar, Final, Self

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.streaming_metrics.declaration import GroupDeclaration, GroupView, Measured
from tidegauge.streaming_metrics.metric import GroupMetric
from tidegauge.streaming_metrics.records import FinishedRun

TIDE_T_MAX: Final[Mapping[str, int]] = MappingProxyType(
    {"blocksworld": 20, "frozen_lake": 30, "sudoku": 20, "alfworld": 60, "webshop": 15}
)
"""The ``t_max`` of TIDE's five environments with texts (appendix C.4), by task group."""


def auv_contribution(turn: int | None, t_max: int) -> float:
    """Area that one run adds: solved at ``turn``, ``(t_max - turn + 0.5) / t_max``, else 0.

    >>> auv_contribution(3, 5), auv_contribution(6, 5), auv_contribution(None, 5)
    (0.5, 0.0, 0.0)
    """
    if turn is None or turn > t_max:
        return 0.0
    return (t_max - max(turn, 1) + 0.5) / t_max


class AUV(GroupMetric):
    """Area under the share of runs solved within t turns, over ``t_max`` turns.

    A sum and a count of what each finished run contributes, so it adds up across processes; the
    standard error comes from Welford's second moment. Runs without ``t_max``, or whose success
    is unknown, are ignored. O(1) time and memory.

    Source: TIDE (arXiv 2602.02196), section 3.1, lemma 1 and proposition 2.

    Attributes:
        runs: runs that count.
        solved: those that were solved within their ``t_max`` turns.
        total: the sum of their areas.

    >>> auv = AUV()
    >>> for turn in (None, None, 3):
    ...     auv.update(FinishedRun(success=turn is not None, steps=turn or 5, t_max=5))
    >>> round(auv.value, 6), auv.runs, round(auv.success_at_t_max, 6)
    (0.166667, 3, 0.333333)
    """

    version: ClassVar[int] = 2
    __slots__ = ("_mean", "_second_moment", "runs", "solved", "total")

    def __init__(self) -> None:
        self.runs = 0
        self.solved = 0
        self.total = 0.0
        self._mean = 0.0
        self._second_moment = 0.0

    def update(self, step: FinishedRun) -> None:
        """Take a finished run."""
        if step.t_max is None or step.success is None:
            return
        area = auv_contribution(step.steps if step.success else None, step.t_max)
        self.runs += 1
        self.solved += area > 0
        self.total += area
        away = area - self._mean
        self._mean += away / self.runs
        self._second_moment += away * (area - self._mean)

    def merge(self, other: Self) -> None:
        """Add the runs of ``other``."""
        if not other.runs:
            return
        runs = self.runs + other.runs
        away = other._mean - self._mean
        self._second_moment += other._second_moment + away * away * self.runs * other.runs / runs
        self._mean += away * other.runs / runs
        self.total += other.total
        self.solved += other.solved
        self.runs = runs

    @property
    def value(self) -> float | None:
        """Mean area, 0 to 1; ``None`` without a run."""
        return self.total / self.runs if self.runs else None

    @property
    def success_at_t_max(self) -> float | None:
        """P_t at ``t_max``: share of the runs solved within it; ``None`` without a run.

        TIDE's success rate. One over all turns counts runs that were solved later, too.
        """
        return self.solved / self.runs if self.runs else None

    @property
    def variance(self) -> float | None:
        """Sample variance of the runs' areas; ``None`` with fewer than two runs."""
        return self._second_moment / (self.runs - 1) if self.runs > 1 else None

    @property
    def standard_error(self) -> float | None:
        """Standard error of :attr:`value`; ``None`` with fewer than two runs."""
        variance = self.variance
        return None if variance is None else math.sqrt(max(variance, 0.0) / self.runs)

    def bounds(self, active: Iterable[tuple[int, int]]) -> tuple[float, float] | None:
        """Where the AUV can still end with the runs that are going on.

        Args:
            active: (steps so far, t_max) of each run in flight.

        Returns:
            The mean area with every one of them never solved, and each solved at its next turn;
            ``None`` without any run.
        """
        runs, best = self.runs, self.total
        for steps, t_max in active:
            runs += 1
            best += auv_contribution(steps + 1, t_max)
        return (self.total / runs, best / runs) if runs else None


AUV_SUM: Final = MetricDefinition(
    "tidegauge_auv_sum_total",
    "counter",
    "areas",
    "Area under success over turns (AUV) of finished runs, added up: near 1 for a run "
    "solved at once, 0 for one not solved within t_max turns.",
    labels=(*GROUP_LABELS, "memory"),
)
AUV_RUNS: Final = MetricDefinition(
    "tidegauge_auv_runs_total",
    "counter",
    "runs",
    "Finished runs in tidegauge_auv_sum_total: those with a t_max whose success is known.",
    labels=(*GROUP_LABELS, "memory"),
)
AUV_OF_PROCESS: Final = MetricDefinition(
    "tidegauge_auv",
    "gauge",
    "ratio",
    "Area under success over turns of this process's finished runs, 0 to 1.",
    labels=(*GROUP_LABELS, "memory"),
)
AUV_LOWER: Final = MetricDefinition(
    "tidegauge_auv_lower",
    "gauge",
    "ratio",
    "AUV if no active run is ever solved.",
)
AUV_UPPER: Final = MetricDefinition(
    "tidegauge_auv_upper",
    "gauge",
    "ratio",
    "AUV if every active run is solved at its next turn.",
)


def _measurable(group: GroupView) -> bool:
    """Whether a run can add to the counters: AUV without a ``t_max`` is not measured."""
    runs = group.finished.of(AUV).runs
    return bool(runs) or any(run.t_max is not None for run in group.active)


def auv_bounds(group: GroupView) -> tuple[float, float] | None:
    """Where the AUV of a group can still end with the runs that are active."""
    active = [(run.steps, run.t_max) for run in group.active if run.t_max is not None]
    bounds: tuple[float, float] | None = group.finished.of(AUV).bounds(active)
    return bounds


def _bound(group: GroupView, which: int) -> float | None:
    bounds = auv_bounds(group)
    return None if bounds is None else bounds[which]


OF_GROUPS: Final = GroupDeclaration(
    name="auv",
    kind=AUV,
    of_group=(
        Measured(AUV_LOWER, lambda group: _bound(group, 0)),
        Measured(AUV_UPPER, lambda group: _bound(group, 1)),
    ),
    of_arm=(
        Measured(AUV_SUM, lambda arm: arm.finished.of(AUV).total if _measurable(arm) else None),
        Measured(AUV_RUNS, lambda arm: arm.finished.of(AUV).runs if _measurable(arm) else None),
        Measured(AUV_OF_PROCESS, lambda arm: arm.finished.of(AUV).value),
    ),
    document=lambda auv: {
        "auv": auv.value,
        "auv_stderr": auv.standard_error,
        "success_at_t_max": auv.success_at_t_max,
    },
)

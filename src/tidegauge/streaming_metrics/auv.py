"""AUV: how soon runs succeed, as one number with its standard error."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Self

from tidegauge.streaming_metrics.metric import GroupMetric
from tidegauge.streaming_metrics.records import FinishedRun

__all__ = ["AUV", "auv_contribution"]


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
    standard error comes from Welford's second moment. A run without ``t_max`` or of which nobody
    knows whether it succeeded is left out. O(1) time and memory.

    Source: TIDE (arXiv 2602.02196), section 3.1, lemma 1 and proposition 2.

    >>> auv = AUV()
    >>> for turn in (None, None, 3):
    ...     auv.update(FinishedRun(success=turn is not None, steps=turn or 5, t_max=5))
    >>> round(auv.value, 6), auv.runs
    (0.166667, 3)
    """

    __slots__ = ("_mean", "_second_moment", "runs", "total")

    def __init__(self) -> None:
        self.runs = 0
        self.total = 0.0
        self._mean = 0.0
        self._second_moment = 0.0

    def update(self, step: FinishedRun) -> None:
        """Take a finished run."""
        if step.t_max is None or step.success is None:
            return
        area = auv_contribution(step.steps if step.success else None, step.t_max)
        self.runs += 1
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
        self.runs = runs

    @property
    def value(self) -> float | None:
        """Mean area, 0 to 1; ``None`` without a run."""
        return self.total / self.runs if self.runs else None

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

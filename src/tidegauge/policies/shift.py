"""Shift: whether the runs of today have the scores of those that a threshold was learned from.

A false-stop bound holds for the mix of runs that it was calibrated on. If a model, a prompt or a
tool changes, the scores of successful runs change, and the bound is void.

Compared are the scores of successful runs at or below the threshold. What is above it cannot be
compared, because a policy that stops such runs hides whether they would have succeeded; below it,
the policy changes nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

LEAST_RUNS: Final = 50
"""Successful runs that one comparison takes."""

SHIFTED: Final = 0.01
"""A p-value below this shows a shift: one in a hundred comparisons is that low by chance."""

_MOST_SCORES: Final = 200
_LEAST_SCORES: Final = 10
_TERMS: Final = 100


def kolmogorov_smirnov(first: Sequence[float], second: Sequence[float]) -> float:
    """The p-value of the two-sample Kolmogorov-Smirnov test: the same distribution?

    Asymptotic, with the correction of Stephens (1970); where scores are equal, it is too large
    rather than too small, so that false alarms are rarer than they may be.

    Args:
        first: sorted values.
        second: sorted values.

    >>> kolmogorov_smirnov(range(50), range(50))
    1.0
    >>> kolmogorov_smirnov(range(50), range(25, 75)) < 1e-5
    True
    """
    n, m = len(first), len(second)
    if not n or not m:
        return 1.0
    distance = max(
        abs(bisect_right(first, value) / n - bisect_right(second, value) / m)
        for value in (*first, *second)
    )
    root = math.sqrt(n * m / (n + m))
    scaled = (root + 0.12 + 0.11 / root) * distance
    if scaled < 0.2:  # the series converges slowly there, to 1
        return 1.0
    tail = 2 * math.fsum(
        (1 if k % 2 else -1) * math.exp(-2 * (k * scaled) ** 2) for k in range(1, _TERMS)
    )
    return min(max(tail, 0.0), 1.0)


def spread(scores: Sequence[float], threshold: float) -> tuple[float, ...]:
    """The scores at or below the threshold, sorted; of many, as many quantiles as are kept.

    >>> spread([3.0, 1.0, 9.0], 5.0)
    (1.0, 3.0)
    """
    kept = sorted(score for score in scores if -math.inf < score <= threshold)
    if len(kept) <= _MOST_SCORES:
        return tuple(kept)
    step = len(kept) / _MOST_SCORES
    return tuple(kept[int((index + 0.5) * step)] for index in range(_MOST_SCORES))


class ShiftCheck:
    """Compares the scores of successful runs with those of the calibration, in blocks.

    Each block of :data:`LEAST_RUNS` runs is compared once, so that a limit on the p-value is the
    share of blocks that give a false alarm. Not thread-safe.

    Args:
        calibrated: sorted scores of the calibration at or below the threshold.
        threshold: the threshold.

    Attributes:
        p_value: of the last block; ``None`` before the first one, or if there is nothing to compare
            with.

    >>> check = ShiftCheck(tuple(map(float, range(100))), 100.0)
    >>> for score in range(LEAST_RUNS):
    ...     check.update(90 + score / 10)
    >>> check.p_value < 0.001
    True
    """

    __slots__ = ("_block", "_calibrated", "_threshold", "p_value")

    def __init__(self, calibrated: Sequence[float], threshold: float) -> None:
        self._calibrated = calibrated
        self._threshold = threshold
        self._block: list[float] = []
        self.p_value: float | None = None

    def update(self, score: float) -> None:
        """Take the highest score of a successful run."""
        if score > self._threshold or len(self._calibrated) < _LEAST_SCORES:
            return
        self._block.append(score)
        if len(self._block) == LEAST_RUNS:
            self.p_value = kolmogorov_smirnov(self._calibrated, sorted(self._block))
            self._block.clear()

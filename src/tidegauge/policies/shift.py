"""Shift: whether today's runs score like those that a threshold was learned from.

A false-stop bound holds for the mix of runs that it was calibrated on. If a model, a prompt or a
tool changes, the scores of successful runs change, and the bound is void.

Compared are the scores of successful runs at or below the threshold. What is above it cannot be
compared, because a policy that stops such runs hides whether they would have succeeded; below it,
the policy changes nothing.
"""

from __future__ import annotations

import math
import threading
from bisect import bisect_right
from collections.abc import Container, Mapping, Sequence
from typing import Final

from tidegauge.catalog import (
    POLICY_ALPHA,
    POLICY_CALIBRATED,
    POLICY_CROSSED_RUNS,
    POLICY_RUNS,
    POLICY_SHIFT,
    MetricDefinition,
)
from tidegauge.events import RunOutcome
from tidegauge.policies.thresholds import Threshold, Thresholds
from tidegauge.safety.critical import here, reset_after_fork

LEAST_RUNS: Final = 50
"""Successful runs that one comparison takes."""

SHIFTED: Final = 0.01
"""A p-value below this shows a shift: one in a hundred comparisons is that low by chance."""

_MOST_SCORES: Final = 200
_LEAST_SCORES: Final = 10
_TERMS: Final = 100


def kolmogorov_smirnov(first: Sequence[float], second: Sequence[float]) -> float:
    """The p-value of the two-sample Kolmogorov-Smirnov test of sorted values.

    Asymptotic, with the correction of Stephens (1970); where scores are equal, it is too large
    rather than too small, so that false alarms are rarer than they may be.

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
    share of blocks that give a false alarm. ``calibrated`` has the sorted scores of the
    calibration at or below the threshold. Not thread-safe.

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


class Crossings:
    """Counts the finished runs that a threshold applies to, and those that exceeded it.

    A threshold bounds the share of successful runs above it. The runs that it did not stop show
    whether the bound holds: all runs while it only observes, the holdout later.
    """

    def __init__(self, thresholds: Thresholds) -> None:
        self._thresholds = thresholds
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.RLock()  # re-entrant for readers
        self._runs: dict[tuple[str, ...], float] = {}
        self._crossed: dict[tuple[str, ...], float] = {}
        self._shifts = {
            _labels(threshold): ShiftCheck(threshold.scores, threshold.threshold)
            for threshold in self._thresholds
        }

    def run_ended(
        self,
        agent: str,
        task_group: str,
        outcome: RunOutcome,
        exceeded: Container[str],
        highest: Mapping[str, float],
    ) -> None:
        """Count a run that ended, by its outcome.

        Args:
            exceeded: names of the scores that exceeded their thresholds in it.
            highest: the highest value of each score.
        """
        thresholds = self._thresholds.of(agent, task_group)
        with here.critical, self._lock:
            for threshold in thresholds:
                labels = _labels(threshold)
                if outcome == "success" and threshold.score in highest:
                    self._shifts[labels].update(highest[threshold.score])
                key = (*labels, outcome)
                self._runs[key] = self._runs.get(key, 0.0) + 1
                self._crossed[key] = self._crossed.get(key, 0.0) + (threshold.score in exceeded)

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float]]:
        """The counts, and for each threshold its alpha and when it was learned."""
        if not self._thresholds:
            return {}
        with here.critical, self._lock:
            found = {POLICY_RUNS: dict(self._runs), POLICY_CROSSED_RUNS: dict(self._crossed)}
            shifts = {labels: check.p_value for labels, check in self._shifts.items()}
        found[POLICY_SHIFT] = {key: value for key, value in shifts.items() if value is not None}
        for metric, field in _READ.items():
            values = {
                _labels(threshold): getattr(threshold, field) for threshold in self._thresholds
            }
            found[metric] = {key: value for key, value in values.items() if value is not None}
        return found


_READ: Final = {POLICY_ALPHA: "alpha", POLICY_CALIBRATED: "calibrated"}


def _labels(threshold: Threshold) -> tuple[str, ...]:
    return threshold.agent or "", threshold.task_group or "", threshold.score

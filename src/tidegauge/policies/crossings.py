"""Crossings: how many finished runs exceeded each threshold, and whether their scores changed."""

from __future__ import annotations

import threading
from collections.abc import Container, Mapping
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
from tidegauge.policies.shift import ShiftCheck
from tidegauge.policies.thresholds import Threshold, Thresholds
from tidegauge.safety.critical import here, reset_after_fork


class Crossings:
    """Counts the finished runs that a threshold applies to, and those that exceeded it.

    A threshold bounds the share of successful runs above it. The runs that it did not stop show
    whether the bound holds: all runs while it only observes, the holdout later.

    Args:
        thresholds: the policy's thresholds.
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
            agent: its agent.
            task_group: its task group.
            outcome: how it ended.
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

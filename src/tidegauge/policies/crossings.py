"""Crossings: how many finished runs were beyond each line, so that a promise is seen to hold."""

from __future__ import annotations

import threading
from collections.abc import Container, Mapping
from typing import Final

from tidegauge._critical import here, reset_after_fork
from tidegauge.catalog import (
    POLICY_ALPHA,
    POLICY_CALIBRATED,
    POLICY_CROSSED_RUNS,
    POLICY_RUNS,
    MetricDefinition,
)
from tidegauge.events import RunOutcome
from tidegauge.policies.line import Line
from tidegauge.policies.lines import Lines

__all__ = ["Crossings"]


class Crossings:
    """Counts the finished runs that a line was drawn for, and those of them that crossed it.

    A line promises that at most so many *good* runs cross it. Whether it does can be seen in the
    runs that it did not stop: all of them while it only observes, later those held out.

    Args:
        lines: the policy's lines: bounded, as is what is counted.
    """

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.RLock()  # re-entrant for readers
        self._runs: dict[tuple[str, ...], float] = {}
        self._crossed: dict[tuple[str, ...], float] = {}

    def run_ended(
        self, agent: str, task_group: str, outcome: RunOutcome, crossed: Container[str]
    ) -> None:
        """Count a run that ended, by its outcome.

        Args:
            agent: its agent.
            task_group: its task group.
            outcome: how it ended.
            crossed: names of the scores that crossed their lines in it.
        """
        lines = self._lines.of(agent, task_group)
        with here.critical, self._lock:
            for line in lines:
                key = (*_labels(line), outcome)
                self._runs[key] = self._runs.get(key, 0.0) + 1
                self._crossed[key] = self._crossed.get(key, 0.0) + (line.score in crossed)

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float]]:
        """What is counted, and what is to be known of the lines to judge it."""
        if not self._lines:
            return {}
        with here.critical, self._lock:
            found = {POLICY_RUNS: dict(self._runs), POLICY_CROSSED_RUNS: dict(self._crossed)}
        for metric, told in _TOLD.items():
            values = {_labels(line): getattr(line, told) for line in self._lines}
            found[metric] = {key: value for key, value in values.items() if value is not None}
        return found


_TOLD: Final = {POLICY_ALPHA: "alpha", POLICY_CALIBRATED: "calibrated"}


def _labels(line: Line) -> tuple[str, ...]:
    return line.agent or "", line.task_group or "", line.score

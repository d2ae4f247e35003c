"""Success: its rate, and the share of runs solved within t turns."""

from __future__ import annotations

from typing import Final, Self

from tidegauge.catalog import MetricDefinition
from tidegauge.streaming_metrics.declaration import GroupDeclaration, GroupHistogram, Measured
from tidegauge.streaming_metrics.metric import GroupMetric
from tidegauge.streaming_metrics.records import FinishedRun


class SuccessRate(GroupMetric):
    """Share of finished runs that solved their task.

    Runs whose success is unknown are ignored. O(1) time and memory.

    >>> rate = SuccessRate()
    >>> for success in (True, False, None):
    ...     rate.update(FinishedRun(success, steps=4))
    >>> rate.value
    0.5
    """

    __slots__ = ("runs", "solved")

    def __init__(self) -> None:
        self.runs = 0
        self.solved = 0

    def update(self, step: FinishedRun) -> None:
        """Take a finished run."""
        if step.success is not None:
            self.runs += 1
            self.solved += step.success

    def merge(self, other: Self) -> None:
        """Add the runs of ``other``."""
        self.runs += other.runs
        self.solved += other.solved

    @property
    def value(self) -> float | None:
        """Solved runs / runs whose success is known; ``None`` without any."""
        return self.solved / self.runs if self.runs else None


class SuccessCurve(GroupMetric):
    """The curve P_t: share of runs solved within t turns, P_0 = 0.

    Source: TIDE (arXiv 2602.02196), section 3.1. O(1) a run; memory grows with the distinct
    turns, up to ``max_turns``; a run solved later counts as a run that no P_t holds.

    Args:
        max_turns: last turn that is counted separately.

    >>> curve = SuccessCurve()
    >>> for turn in (2, 2, None, 3):
    ...     curve.update(FinishedRun(success=turn is not None, steps=turn or 9))
    >>> [curve.at(t) for t in range(4)]
    [0.0, 0.0, 0.5, 0.75]
    """

    __slots__ = ("_solved_at", "late_runs", "max_turns", "runs")

    def __init__(self, *, max_turns: int = 1_000) -> None:
        self.max_turns = max_turns
        self.runs = 0
        self.late_runs = 0
        self._solved_at: dict[int, int] = {}

    def update(self, step: FinishedRun) -> None:
        """Take a finished run."""
        if step.success is None:
            return
        self.runs += 1
        if not step.success:
            return
        turn = max(step.steps, 1)
        if turn > self.max_turns:
            self.late_runs += 1
        else:
            self._solved_at[turn] = self._solved_at.get(turn, 0) + 1

    def merge(self, other: Self) -> None:
        """Add the runs of ``other``."""
        self.runs += other.runs
        self.late_runs += other.late_runs
        for turn, count in other._solved_at.items():
            if turn > self.max_turns:
                self.late_runs += count
            else:
                self._solved_at[turn] = self._solved_at.get(turn, 0) + count

    def at(self, turn: int) -> float | None:
        """P_t at ``turn``; ``None`` without a run, or past ``max_turns`` with late runs."""
        if not self.runs or (turn > self.max_turns and self.late_runs):
            return None
        return sum(count for t, count in self._solved_at.items() if t <= turn) / self.runs

    @property
    def solved_at(self) -> dict[int, int]:
        """How many runs were solved at each turn."""
        return dict(self._solved_at)

    @property
    def value(self) -> float | None:
        """P_t at the last turn: the share solved within ``max_turns``."""
        return sum(self._solved_at.values()) / self.runs if self.runs else None


SUCCESS_RATE: Final = MetricDefinition(
    "tidegauge_success_rate",
    "gauge",
    "ratio",
    "Share of solved runs among this process's finished runs whose success is known, 0 to 1.",
)
SUCCESS_TURN: Final = MetricDefinition(
    "tidegauge_success_turn",
    "histogram",
    "turns",
    "Turn at which solved runs were solved. Its buckets, divided by the runs with "
    "known success, are the curve of success over turns.",
)

RATE: Final = GroupDeclaration(
    name="success_rate",
    kind=SuccessRate,
    of_group=(Measured(SUCCESS_RATE, lambda group: group.finished.of(SuccessRate).value),),
    document=lambda rate: {"success_rate": rate.value},
    histograms=(
        GroupHistogram(
            "success_turn",
            SUCCESS_TURN,
            (1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 15.0, 20.0, 30.0, 50.0, 60.0, 100.0),
            lambda run: max(run.steps, 1) if run.success else None,
        ),
    ),
)

CURVE: Final = GroupDeclaration(name="success_curve", kind=SuccessCurve)

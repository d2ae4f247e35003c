"""The counters of a run or a group: plain sums, so that they add up over anything."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, TypeVar

K = TypeVar("K")

__all__ = [
    "RUN_STEP_BOUNDS",
    "STEP_SECOND_BOUNDS",
    "SUCCESS_TURN_BOUNDS",
    "Buckets",
    "Totals",
    "addable",
]

STEP_SECOND_BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
RUN_STEP_BOUNDS: Final = (1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
SUCCESS_TURN_BOUNDS: Final = (1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 15.0, 20.0, 30.0, 50.0, 60.0, 100.0)

_GRAINS: Final = 2.0**20  # in one


def addable(amount: float) -> float:
    """``amount`` to the nearest 2**-20: such numbers have the same sum in whatever order.

    A run that ends moves from the active ones to its group's sum, and so to another place in the
    order. A counter that lost its last digit by that would look like one that was restarted.

    >>> addable(0.1) + addable(0.2) + addable(0.3) == addable(0.3) + addable(0.2) + addable(0.1)
    True
    """
    return round(amount * _GRAINS) / _GRAINS


class Buckets:
    """Counts of observations by upper bound, with their sum: a histogram.

    >>> buckets = Buckets((1.0, 5.0))
    >>> for value in (0.5, 1.0, 3.0, 9.0):
    ...     buckets.observe(value)
    >>> buckets.counts, buckets.total
    ([2, 1, 1], 13.5)
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one is for what exceeds every bound
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += addable(value)

    def add(self, other: Buckets) -> None:
        """Add the observations of ``other``, which has the same bounds."""
        self.counts = [
            mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)
        ]
        self.total += other.total


class Totals:
    """Sums over steps. Kept by every run, and by every group for the runs that ended."""

    __slots__ = (
        "backtracks",
        "cycle_steps",
        "exploitation_errors",
        "exploitation_required",
        "exploration_errors",
        "exploration_required",
        "interventions",
        "loop_seconds",
        "loop_steps",
        "loop_tokens",
        "onsets",
        "saved_seconds",
        "saved_steps",
        "saved_tokens",
        "step_seconds",
        "steps",
    )

    def __init__(self) -> None:
        self.steps = 0
        self.cycle_steps = 0
        self.loop_steps: dict[str, int] = {}  # by action
        self.onsets: dict[str, int] = {}  # by kind of loop
        self.loop_tokens = 0.0
        self.loop_seconds = 0.0
        self.interventions: dict[tuple[str, str], int] = {}  # by (action, reason)
        # what came after the first stop that a policy would have made
        self.saved_steps = 0
        self.saved_tokens = 0.0
        self.saved_seconds = 0.0
        self.step_seconds = Buckets(STEP_SECOND_BOUNDS)
        self.exploration_required = 0
        self.exploration_errors = 0
        self.exploitation_required = 0
        self.exploitation_errors = 0
        self.backtracks = 0

    def add(self, other: Totals) -> None:
        """Add what ``other`` has counted."""
        self.steps += other.steps
        self.cycle_steps += other.cycle_steps
        self.loop_tokens += other.loop_tokens
        self.loop_seconds += other.loop_seconds
        self.saved_steps += other.saved_steps
        self.saved_tokens += other.saved_tokens
        self.saved_seconds += other.saved_seconds
        self.step_seconds.add(other.step_seconds)
        self.exploration_required += other.exploration_required
        self.exploration_errors += other.exploration_errors
        self.exploitation_required += other.exploitation_required
        self.exploitation_errors += other.exploitation_errors
        self.backtracks += other.backtracks
        _add_counts(self.loop_steps, other.loop_steps)
        _add_counts(self.onsets, other.onsets)
        _add_counts(self.interventions, other.interventions)


def _add_counts(into: dict[K, int], counts: dict[K, int]) -> None:
    for key, count in counts.items():
        into[key] = into.get(key, 0) + count

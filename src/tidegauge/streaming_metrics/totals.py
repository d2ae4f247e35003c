"""The counters of a run or a group: plain sums, so that they add up over anything."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

K = TypeVar("K")

__all__ = [
    "LEAD_AGE_BOUNDS",
    "RECALL_BOUNDS",
    "RUN_STEP_BOUNDS",
    "STALE_SCORE_BOUNDS",
    "STEP_SECOND_BOUNDS",
    "SUCCESS_TURN_BOUNDS",
    "Buckets",
    "Exemplar",
    "Totals",
    "addable",
]

STEP_SECOND_BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
RUN_STEP_BOUNDS: Final = (1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
SUCCESS_TURN_BOUNDS: Final = (1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 15.0, 20.0, 30.0, 50.0, 60.0, 100.0)

LEAD_AGE_BOUNDS: Final = (1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0, 200.0)
STALE_SCORE_BOUNDS: Final = (0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0)
RECALL_BOUNDS: Final = LEAD_AGE_BOUNDS

_GRAINS: Final = 2.0**20  # in one


def addable(amount: float) -> float:
    """``amount`` to the nearest 2**-20: such numbers have the same sum in whatever order.

    A run that ends moves from the active ones to its group's sum, and so to another place in the
    order. A counter that lost its last digit by that would look like one that was restarted.

    >>> addable(0.1) + addable(0.2) + addable(0.3) == addable(0.3) + addable(0.2) + addable(0.1)
    True
    """
    return round(amount * _GRAINS) / _GRAINS


class Exemplar(NamedTuple):
    """One observation that stands for many: where its trace is found.

    Attributes:
        trace_id: 32 hexadecimal digits.
        value: what was observed; of a counter, 1.
        time: when, in seconds since the epoch.
    """

    trace_id: str
    value: float
    time: float


class Buckets:
    """Counts of observations by upper bound, with their sum: a histogram.

    The last exemplar of each bucket is kept, where there is one.

    >>> buckets = Buckets((1.0, 5.0))
    >>> for value in (0.5, 1.0, 3.0, 9.0):
    ...     buckets.observe(value)
    >>> buckets.counts, buckets.total
    ([2, 1, 1], 13.5)
    """

    __slots__ = ("bounds", "counts", "exemplars", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one is for what exceeds every bound
        self.total = 0.0
        self.exemplars: dict[int, Exemplar] = {}  # by index of the bucket

    def observe(self, value: float, exemplar: Exemplar | None = None) -> None:
        """Count one observation."""
        bucket = bisect_left(self.bounds, value)
        self.counts[bucket] += 1
        self.total += addable(value)
        if exemplar is not None:
            self.exemplars[bucket] = exemplar

    def without(self, other: Buckets) -> Buckets:
        """Those observations that ``other``, an earlier moment of the same, did not have."""
        rest = Buckets(self.bounds)
        rest.counts = [
            mine - earlier for mine, earlier in zip(self.counts, other.counts, strict=True)
        ]
        rest.total = self.total - other.total
        rest.exemplars = dict(self.exemplars)
        return rest

    def add(self, other: Buckets) -> None:
        """Add the observations of ``other``, which has the same bounds."""
        self.counts = [
            mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True)
        ]
        self.total += other.total
        add_exemplars(self.exemplars, other.exemplars)


class Totals:
    """Sums over steps. Kept by every run, and by every group for the runs that ended."""

    __slots__ = (
        "backtracks",
        "cycle_steps",
        "displaced_leads",
        "exemplars",
        "exploitation_errors",
        "exploitation_required",
        "exploration_errors",
        "exploration_required",
        "interventions",
        "lead_ages",
        "loop_seconds",
        "loop_steps",
        "loop_tokens",
        "not_comparable",
        "onsets",
        "recall_lags",
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
        self.not_comparable: dict[tuple[str, str], int] = {}  # by (action, part)
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
        self.displaced_leads = 0  # of runs that ended
        # Made with the first lead followed up and the first entity recalled: most runs tell none.
        self.lead_ages: Buckets | None = None
        self.recall_lags: Buckets | None = None
        # The last one of each counted kind: ("loops", kind), ("interventions", action, reason).
        self.exemplars: dict[tuple[str, ...], Exemplar] = {}

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
        self.displaced_leads += other.displaced_leads
        self.lead_ages = _both(self.lead_ages, other.lead_ages)
        self.recall_lags = _both(self.recall_lags, other.recall_lags)
        add_exemplars(self.exemplars, other.exemplars)
        _add_counts(self.loop_steps, other.loop_steps)
        _add_counts(self.onsets, other.onsets)
        _add_counts(self.not_comparable, other.not_comparable)
        _add_counts(self.interventions, other.interventions)

    def without(self, earlier: Totals) -> Totals:
        """What was counted since ``earlier``, which is an earlier moment of the same counters."""
        rest = Totals()
        for name in Totals.__slots__:
            mine, known = getattr(self, name), getattr(earlier, name)
            if isinstance(mine, Buckets):
                value: object = mine if known is None else mine.without(known)
            elif name == "exemplars":
                value = dict(mine)
            elif isinstance(mine, dict):
                value = {key: count - known.get(key, 0) for key, count in mine.items()}
            else:
                value = None if mine is None else mine - known
            setattr(rest, name, value)
        return rest


def add_exemplars(into: dict[K, Exemplar], others: dict[K, Exemplar]) -> None:
    """Take those of ``others`` that are newer."""
    for key, exemplar in others.items():
        known = into.get(key)
        if known is None or exemplar.time >= known.time:
            into[key] = exemplar


def _both(left: Buckets | None, right: Buckets | None) -> Buckets | None:
    """A histogram of both, of its own."""
    if right is None:
        return left
    total = Buckets(right.bounds)
    if left is not None:
        total.add(left)
    total.add(right)
    return total


def _add_counts(into: dict[K, int], counts: dict[K, int]) -> None:
    for key, count in counts.items():
        into[key] = into.get(key, 0) + count

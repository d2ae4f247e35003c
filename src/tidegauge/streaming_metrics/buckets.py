"""Counts of observations by size, and single examples of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

K = TypeVar("K")

_GRAINS: Final = 2.0**20  # in one
_FAR: Final = 2.0**31
ROUNDING: Final = 1.5 * 2.0**32
"""Added to less than 2**31, its sum has 20 binary places, to which the processor rounds it."""


def addable(amount: float) -> float:
    """``amount`` to the nearest 2**-20: such numbers have the same sum in whatever order.

    A run that ends moves from the active ones to its group's sum, and so to another place in the
    order. A counter that lost its last digit by that would look like one that was restarted.

    >>> addable(0.1) + addable(0.2) + addable(0.3) == addable(0.3) + addable(0.2) + addable(0.1)
    True
    """
    if amount < _FAR:
        return amount + ROUNDING - ROUNDING
    return round(amount * _GRAINS) / _GRAINS


class Exemplar(NamedTuple):
    """An example of the observations, and its trace.

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
        # addable() of nearly all values, without the call
        self.total += value + ROUNDING - ROUNDING if value < _FAR else addable(value)
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


def add_exemplars(into: dict[K, Exemplar], others: dict[K, Exemplar]) -> None:
    """Take those of ``others`` that are newer."""
    for key, exemplar in others.items():
        known = into.get(key)
        if known is None or exemplar.time >= known.time:
            into[key] = exemplar

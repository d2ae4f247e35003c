"""The totals of a run or a group: plain sums, which can be added up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tidegauge.streaming_metrics.buckets import Buckets, Exemplar, add_exemplars
from tidegauge.streaming_metrics.registry import SUMS

_NAMES: Final = tuple(one.name for one in SUMS)


class Totals:
    """Sums over steps. Kept by every run, and by every group for the runs that ended.

    Its attributes are the sums that metrics declare, and ``exemplars``: the last exemplar of each
    counted kind, by ``("loops", kind)`` and ``("interventions", action, reason)``.

    >>> totals = Totals()
    >>> totals.steps, totals.loop_steps
    (0, {})
    """

    __slots__ = (*_NAMES, "exemplars")
    exemplars: dict[tuple[str, ...], Exemplar]

    def __init__(self) -> None:
        for one in SUMS:
            setattr(self, one.name, one.zero())
        self.exemplars = {}

    if TYPE_CHECKING:  # at run time, it would make every access slower

        def __getattr__(self, name: str) -> Any: ...

    def add(self, other: Totals) -> None:
        """Add what ``other`` has counted."""
        for name in _NAMES:
            theirs = getattr(other, name)
            if isinstance(theirs, dict):
                mine = getattr(self, name)
                for key, count in theirs.items():
                    mine[key] = mine.get(key, 0) + count
            elif isinstance(theirs, Buckets):
                setattr(self, name, _both(getattr(self, name), theirs))
            elif theirs:
                setattr(self, name, getattr(self, name) + theirs)
        add_exemplars(self.exemplars, other.exemplars)

    def without(self, earlier: Totals) -> Totals:
        """The difference to ``earlier``, an earlier copy of the same totals."""
        rest = Totals()
        for name in _NAMES:
            mine, known = getattr(self, name), getattr(earlier, name)
            if isinstance(mine, Buckets):
                value: object = mine if known is None else mine.without(known)
            elif isinstance(mine, dict):
                value = {key: count - known.get(key, 0) for key, count in mine.items()}
            else:
                value = None if mine is None else mine - known
            setattr(rest, name, value)
        rest.exemplars = dict(self.exemplars)
        return rest


def _both(left: Buckets | None, right: Buckets) -> Buckets:
    """A separate histogram of both."""
    total = Buckets(right.bounds)
    if left is not None:
        total.add(left)
    total.add(right)
    return total

"""Recurrence: this action with this outcome was seen before, near or far."""

from __future__ import annotations

from collections import OrderedDict
from typing import ClassVar

from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import ObservedStep

__all__ = ["Recurrence"]


class Recurrence(Metric[ObservedStep]):
    """How often the last (action, outcome) was seen before in the run.

    Sees what consecutive repeats cannot: the same failing write at steps 17, 19 and 22 with
    other turns between. O(1) a step; memory grows with the distinct pairs, up to
    ``max_pairs``, past which the one seen longest ago is forgotten.

    Args:
        max_pairs: how many distinct pairs are remembered.

    >>> recurrence = Recurrence()
    >>> for t, action in enumerate([b"write", b"ask", b"write", b"ask", b"write"]):
    ...     recurrence.update(ObservedStep(t, action=action, outcome=b"failed"))
    >>> recurrence.value
    2
    """

    takes: ClassVar[type] = ObservedStep
    __slots__ = ("_counts", "current", "dropped_pairs", "max_pairs", "maximum")

    def __init__(self, *, max_pairs: int = 10_000) -> None:
        self.max_pairs = max_pairs
        self.dropped_pairs = 0
        self.current: int | None = None
        self.maximum: int | None = None
        self._counts: OrderedDict[bytes, int] = OrderedDict()

    def update(self, step: ObservedStep) -> None:
        """Take the next observed step."""
        if step.outcome is None:
            self.current = None
            return
        counts = self._counts
        pair = step.action + step.outcome
        seen = counts.get(pair, 0)
        counts[pair] = seen + 1
        if seen:
            counts.move_to_end(pair)
        elif len(counts) > self.max_pairs:
            counts.popitem(last=False)
            self.dropped_pairs += 1
        self.current = seen
        if self.maximum is None or seen > self.maximum:
            self.maximum = seen

    @property
    def value(self) -> int | None:
        """Earlier occurrences of the last step's pair; ``None``, its outcome is unknown."""
        return self.current

"""Memory index: what an agent's memory is worth, in AUV."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Self

from tidegauge.catalog import MetricDefinition
from tidegauge.streaming_metrics.auv import AUV
from tidegauge.streaming_metrics.contrast import Contrast, Split, contrast
from tidegauge.streaming_metrics.limits import OTHER
from tidegauge.streaming_metrics.metric import GroupMetric
from tidegauge.streaming_metrics.records import FinishedRun


class MemoryIndex(GroupMetric):
    """AUV with memory minus AUV without, over the runs of one group.

    Every run is of an arm, ``FinishedRun.memory``; runs without an arm are ignored. There may be
    more arms than two, such as window sizes, and any two can be compared by :meth:`contrast`.
    Arms are to have the same ``t_max``. O(1) a run; memory grows with the arms, up to
    ``max_arms``, past which they share the arm ``other``.

    Source: TIDE (arXiv 2602.02196), section 3.3; the interval is Welch's.

    Args:
        on: the arm with memory.
        off: the arm without.
        max_arms: arms distinguished.

    >>> index = MemoryIndex()
    >>> for arm, turn in [("on", 2), ("on", 4), ("off", 7), ("off", 9)]:
    ...     index.update(FinishedRun(True, steps=turn, t_max=10, memory=arm))
    >>> round(index.value, 6), round(index.standard_error, 6)
    (0.5, 0.141421)
    """

    holds: ClassVar[tuple[type, ...]] = (AUV,)
    __slots__ = ("_arms", "off", "on")

    def __init__(self, *, on: str = "on", off: str = "off", max_arms: int = 10) -> None:
        self.on = on
        self.off = off
        self._arms: Split[str, AUV] = Split(AUV, other=OTHER, max_keys=max_arms)

    def update(self, step: FinishedRun) -> None:
        """Take a finished run."""
        if step.memory is not None:
            self._arms.update(step.memory, step)

    def add(self, arm: str, auv: AUV) -> None:
        """Take in the runs of one arm that were added up elsewhere."""
        self._arms.add(arm, auv)

    def merge(self, other: Self) -> None:
        """Add the runs of ``other``."""
        self._arms.merge(other._arms)

    @property
    def max_arms(self) -> int:
        """Arms distinguished."""
        return self._arms.max_keys

    @property
    def arms(self) -> Mapping[str, AUV]:
        """AUV of each arm that had a run."""
        return self._arms.parts

    def contrast(self, left: str, right: str, *, confidence: float = 0.95) -> Contrast | None:
        """AUV of the arm ``left`` minus that of ``right``; ``None`` while either has no run."""
        arms = self.arms
        if left not in arms or right not in arms:
            return None
        return contrast(arms[left], arms[right], confidence=confidence)

    @property
    def value(self) -> float | None:
        """AUV(on) - AUV(off), -1 to 1; ``None`` while either arm has no run."""
        index = self.contrast(self.on, self.off)
        return index.value if index else None

    @property
    def standard_error(self) -> float | None:
        """Standard error of :attr:`value`; ``None`` with fewer than two runs in either arm."""
        index = self.contrast(self.on, self.off)
        return index.standard_error if index else None


MEMORY_INDEX: Final = MetricDefinition(
    "tidegauge_memory_index",
    "gauge",
    "ratio",
    "AUV with memory minus AUV without, in this process, -1 to 1.",
)

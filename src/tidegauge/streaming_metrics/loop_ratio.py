"""Loop ratio of a group of runs."""

from __future__ import annotations

from typing import ClassVar, Final, Self

from tidegauge.streaming_metrics.declaration import GroupDeclaration
from tidegauge.streaming_metrics.metric import GroupMetric
from tidegauge.streaming_metrics.records import FinishedRun


class LoopRatio(GroupMetric):
    """Loop steps / steps over finished runs, as two counters that add up.

    The ratio of one run is :class:`~tidegauge.streaming_metrics.loops.Loops`; the paper's, TIDE
    (arXiv 2602.02196), equation 4, pooled over runs, is beside it. O(1) time and memory.

    >>> ratio = LoopRatio()
    >>> ratio.update(FinishedRun(success=None, steps=8, loop_steps=2))
    >>> ratio.update(FinishedRun(success=None, steps=12, loop_steps=3))
    >>> ratio.value
    0.25
    """

    version: ClassVar[int] = 2
    __slots__ = ("loop_steps", "steps", "tide_cycle_steps", "tide_loop_steps")

    def __init__(self) -> None:
        self.steps = 0
        self.loop_steps = 0
        self.tide_loop_steps = 0
        self.tide_cycle_steps = 0

    def update(self, step: FinishedRun) -> None:
        """Take a finished run."""
        self.steps += step.steps
        self.loop_steps += step.loop_steps
        self.tide_loop_steps += step.tide_loop_steps
        self.tide_cycle_steps += step.tide_cycle_steps

    def merge(self, other: Self) -> None:
        """Add the runs of ``other``."""
        self.steps += other.steps
        self.loop_steps += other.loop_steps
        self.tide_loop_steps += other.tide_loop_steps
        self.tide_cycle_steps += other.tide_cycle_steps

    @property
    def value(self) -> float | None:
        """Loop steps / steps; ``None`` without a step."""
        return self.loop_steps / self.steps if self.steps else None

    @property
    def tide(self) -> float | None:
        """TIDE's loop steps / steps; ``None`` without a step."""
        return self.tide_loop_steps / self.steps if self.steps else None

    @property
    def tide_cycle_ratio(self) -> float | None:
        """Steps inside TIDE's closed cycles / steps; ``None`` without a step."""
        return self.tide_cycle_steps / self.steps if self.steps else None


OF_GROUPS: Final = GroupDeclaration(name="loop_ratio", kind=LoopRatio, loops=True)

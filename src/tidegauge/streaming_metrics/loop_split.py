"""Loops over a group of runs: what they go with, and of which actions they are made.

Source: TIDE (arXiv 2602.02196), section 4.2 and table 3.
"""

from __future__ import annotations

from typing import ClassVar, Final, Self

from tidegauge.catalog import MetricDefinition
from tidegauge.streaming_metrics.auv import AUV
from tidegauge.streaming_metrics.contrast import Contrast, contrast
from tidegauge.streaming_metrics.declaration import GroupDeclaration, Measured
from tidegauge.streaming_metrics.limits import OTHER
from tidegauge.streaming_metrics.metric import GroupMetric
from tidegauge.streaming_metrics.records import FinishedRun


class LoopSplit(GroupMetric):
    """AUV of the runs with a loop step minus AUV of the runs without.

    Below 0 where looping runs do worse. It is not proof that loops are the cause: hard tasks make
    runs loop and fail. O(1) time and memory.

    Attributes:
        looping: AUV of the runs with at least one loop step.
        straight: AUV of the runs without.

    >>> split = LoopSplit()
    >>> split.update(FinishedRun(True, steps=2, t_max=10))
    >>> split.update(FinishedRun(True, steps=9, t_max=10, loop_steps=4))
    >>> round(split.straight.value, 6), round(split.looping.value, 6), round(split.value, 6)
    (0.85, 0.15, -0.7)
    """

    __slots__ = ("looping", "straight")

    def __init__(self) -> None:
        self.looping = AUV()
        self.straight = AUV()

    def update(self, step: FinishedRun) -> None:
        """Take a finished run."""
        (self.looping if step.loop_steps else self.straight).update(step)

    def merge(self, other: Self) -> None:
        """Add the runs of ``other``."""
        self.looping.merge(other.looping)
        self.straight.merge(other.straight)

    def contrast(self, *, confidence: float = 0.95) -> Contrast | None:
        """The difference with its interval; ``None`` while either kind has no run."""
        return contrast(self.looping, self.straight, confidence=confidence)

    @property
    def value(self) -> float | None:
        """AUV with loops - AUV without, -1 to 1; ``None`` while either kind has no run."""
        difference = self.contrast()
        return difference.value if difference else None


class LoopActionShare(GroupMetric):
    """Share of each action among the loop steps: what the agent does when it loops.

    TIDE defines its click ratio as the share of "click" among all loop actions. Its released code
    counts one round of each of its loops, however often it was repeated: ``cycle_share("click")``.
    O(1) a run; memory grows with the actions' names, up to ``max_names``, past which they share the
    name ``other``.

    Args:
        max_names: names distinguished.

    >>> shares = LoopActionShare()
    >>> shares.update(FinishedRun(False, 9, loop_steps=6, loop_actions=(("click", 4), ("go", 2))))
    >>> round(shares.share("click"), 2), shares.share("look")
    (0.67, 0.0)
    """

    version: ClassVar[int] = 2
    __slots__ = ("_counts", "_in_cycles", "loop_steps", "max_names")

    def __init__(self, *, max_names: int = 50) -> None:
        self.max_names = max_names
        self.loop_steps = 0
        self._counts: dict[str, int] = {}
        self._in_cycles: dict[str, int] = {}

    def update(self, step: FinishedRun) -> None:
        """Take a finished run."""
        for name, count in step.loop_actions:
            self._add(name, count)
        for name, count in step.tide_cycle_actions:
            self._add_to(self._in_cycles, name, count)

    def merge(self, other: Self) -> None:
        """Add the runs of ``other``."""
        for name, count in other._counts.items():
            self._add(name, count)
        for name, count in other._in_cycles.items():
            self._add_to(self._in_cycles, name, count)

    @property
    def counts(self) -> dict[str, int]:
        """Loop steps of each action, by name."""
        return dict(self._counts)

    @property
    def cycle_counts(self) -> dict[str, int]:
        """Actions of one round of each of TIDE's loops, by name."""
        return dict(self._in_cycles)

    def cycle_share(self, name: str) -> float | None:
        """Share of this action in one round of each of TIDE's loops; ``None`` without one."""
        total = sum(self._in_cycles.values())
        return self._in_cycles.get(name, 0) / total if total else None

    def share(self, name: str) -> float | None:
        """Share of the loop steps that are of this action; ``None`` without a loop step."""
        return self._counts.get(name, 0) / self.loop_steps if self.loop_steps else None

    @property
    def value(self) -> float | None:
        """Share of the action that loops most; ``None`` without a loop step."""
        return max(self._counts.values()) / self.loop_steps if self.loop_steps else None

    def _add(self, name: str, count: int) -> None:
        self._add_to(self._counts, name, count)
        self.loop_steps += count

    def _add_to(self, counts: dict[str, int], name: str, count: int) -> None:
        if name not in counts and len(counts) - (OTHER in counts) >= self.max_names:
            name = OTHER
        counts[name] = counts.get(name, 0) + count


LOOP_SPLIT: Final = MetricDefinition(
    "tidegauge_loop_split",
    "gauge",
    "ratio",
    "AUV of this process's finished runs with loop steps minus AUV of those without, "
    "-1 to 1. Below 0, runs that loop do worse.",
)

SPLIT: Final = GroupDeclaration(
    name="loop_split",
    kind=LoopSplit,
    loops=True,
    of_group=(Measured(LOOP_SPLIT, lambda group: group.finished.of(LoopSplit).value),),
    document=lambda split: {
        "loop_split": {
            "with_loops": split.looping.value,
            "without": split.straight.value,
            "difference": split.value,
        }
    },
)

SHARE: Final = GroupDeclaration(
    name="loop_action_share",
    kind=LoopActionShare,
    loops=True,
    document=lambda shares: {
        "loop_action_share": {name: shares.share(name) for name in shares.counts},
        "tide_cycle_action_share": {name: shares.cycle_share(name) for name in shares.cycle_counts},
    },
)

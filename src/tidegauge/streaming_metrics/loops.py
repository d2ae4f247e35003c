"""Exact loops: the cycle just closed is repeated, step for step.

Source: TIDE (arXiv 2602.02196), section 3.2, in the form of the authors' batch code; where the
paper's printed forms differ is told in ``docs/metrics/loops.md``.
"""

from __future__ import annotations

from collections import deque
from typing import ClassVar

from tidegauge.streaming_metrics.evicting_dict import EvictingDict
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import IssuedStep

__all__ = ["Loops"]

_Step = tuple[bytes, bytes, str]


class Loops(Metric[IssuedStep]):
    """Loop ratio of a run, with the period, repeats and first step of every loop.

    A *cycle* leaves a state and returns to it with no state repeated inside. The run is read
    greedily from the left: the cycle that closes first is taken, and the steps right after it are
    *loop steps* once as many of them as the cycle is long equal it one for one, state and action.
    That is known at the moment the last of those actions is issued, before it runs.

    O(1) amortised a step. Memory grows with the longest stretch without a closed cycle, up to
    ``max_period`` steps; a cycle longer than that is not seen.

    Args:
        max_period: longest cycle that can be seen, in steps.
        max_loops: how many loops are listed in :attr:`loops`; later ones are only counted.

    >>> loops = Loops()
    >>> for t, state in enumerate([b"A", b"B", b"C"] * 4):
    ...     loops.update(IssuedStep(t, state, action=b"go"))
    >>> loops.value, loops.period, loops.repeats, loops.first_step
    (0.75, 3, 3, 3)
    """

    takes: ClassVar[type] = IssuedStep
    version: ClassVar[int] = 2
    __slots__ = (
        "_cycle",
        "_listed",
        "_names",
        "_stretch",
        "cycle_steps",
        "cycles",
        "dropped_loops",
        "dropped_starts",
        "first_step",
        "loop_steps",
        "matched",
        "max_loops",
        "max_period",
        "onsets",
        "period",
        "repeats",
        "settled",
        "steps",
    )

    def __init__(self, *, max_period: int = 10_000, max_loops: int = 1_000) -> None:
        self.max_period = max_period
        self.max_loops = max_loops
        self.steps = 0
        self.loop_steps = 0
        self.cycles = 0
        self.cycle_steps = 0
        self.onsets = 0
        self.dropped_starts = 0
        self.dropped_loops = 0
        # the current loop; 0, 0 and -1 while there is none
        self.period = 0
        self.repeats = 0
        self.first_step = -1
        # how many steps since the cursor repeat the kept cycle (-1: they no longer do), and how
        # many steps became loop steps with the last one
        self.matched = -1
        self.settled = 0
        self._cycle: list[_Step] = []  # the kept cycle: it ended at the cursor
        # The steps since the cursor, in order: no state among them repeats, so that one mapping
        # from state to action holds them all.
        self._stretch: EvictingDict[bytes, bytes] = EvictingDict()
        self._names: deque[str] = deque()
        self._listed: list[tuple[int, int, int]] = []

    def update(self, step: IssuedStep) -> None:
        """Take the next issued step; steps are counted from 0 in the order they come."""
        # Nothing here raises: what is compared and looked up are digests, of the engine's making.
        _, state, action, name, _, _ = step
        stretch = self._stretch
        if state in stretch:
            self._close_cycle(state)
        elif len(stretch) >= self.max_period:
            stretch.evict()
            self._names.popleft()
            self.dropped_starts += 1
        stretch[state] = action
        self._names.append(name)
        self.steps += 1
        self.settled = 0
        matched = self.matched
        if matched < 0:
            return
        cycle = self._cycle
        if matched == len(cycle) or cycle[matched][0] != state or cycle[matched][1] != action:
            self.matched = -1
            self._leave_loop()
            return
        self.matched = matched + 1
        if matched + 1 == len(cycle):
            self._settle()

    @property
    def value(self) -> float | None:
        """Loop ratio: loop steps / steps."""
        return self.loop_steps / self.steps if self.steps else None

    @property
    def cycle_ratio(self) -> float | None:
        """Steps inside closed cycles / steps."""
        return self.cycle_steps / self.steps if self.steps else None

    @property
    def loops(self) -> list[tuple[int, int, int]]:
        """(first repeated step, period, repeats) of each loop so far, in order."""
        return self._listed.copy()

    @property
    def pending(self) -> int:
        """How many of the last steps may still become loop steps."""
        return self.matched if 0 < self.matched < len(self._cycle) else 0

    @property
    def cycle_names(self) -> list[str]:
        """Names of the actions of the kept cycle: those of the steps just settled."""
        return [name for _, _, name in self._cycle]

    @property
    def expected(self) -> tuple[bytes, bytes, str] | None:
        """State, action and name of the step that comes next if the kept cycle goes on."""
        if self.matched < 0 or not self._cycle:
            return None
        return self._cycle[self.matched % len(self._cycle)]

    def _close_cycle(self, state: bytes) -> None:
        """The steps from ``state`` on are a cycle; the cursor moves to its end."""
        cycle: list[_Step] = []
        for (earlier, action), name in zip(
            reversed(self._stretch.items()), reversed(self._names), strict=True
        ):
            cycle.append((earlier, action, name))
            if earlier == state:
                break
        # When all steps since the cursor repeat the kept cycle and come back to its first state,
        # it is the same cycle again, and the same loop if there is one.
        if self.matched != len(cycle) or len(cycle) != len(self._cycle):
            cycle.reverse()
            self._cycle = cycle
            self._leave_loop()
        self.cycles += 1
        self.cycle_steps += len(cycle)
        self.matched = 0
        self._stretch.clear()
        self._names.clear()

    def _settle(self) -> None:
        length = len(self._cycle)
        self.settled = length
        self.loop_steps += length
        self.repeats += 1
        if self.repeats > 1:
            if self._listed and self._listed[-1][0] == self.first_step:
                self._listed[-1] = (self.first_step, length, self.repeats)
            return
        self.onsets += 1
        self.period = length
        self.first_step = self.steps - length
        if len(self._listed) < self.max_loops:
            self._listed.append((self.first_step, length, 1))
        else:
            self.dropped_loops += 1

    def _leave_loop(self) -> None:
        self.period = 0
        self.repeats = 0
        self.first_step = -1

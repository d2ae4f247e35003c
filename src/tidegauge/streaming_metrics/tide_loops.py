"""TIDE's loop ratio: a cycle without a state twice in it, repeated immediately, step for step.

Source: TIDE (arXiv 2602.02196), section 3.2, as in the authors' batch code;
``docs/metrics/loops.md`` describes where the paper's formulas differ. What every surface calls a
loop is :mod:`~tidegauge.streaming_metrics.loops`; every loop step here is one there.
"""

from __future__ import annotations

from collections import deque
from typing import Any, ClassVar, Final

from tidegauge.catalog import MetricDefinition
from tidegauge.streaming_metrics.declaration import (
    Declaration,
    Measured,
    RunView,
    Sum,
    no_counts,
    zero,
)
from tidegauge.streaming_metrics.evicting_dict import EvictingDict
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import IssuedStep

_Step = tuple[bytes, bytes, str]


class TideLoops(Metric[IssuedStep]):
    """TIDE's loop ratio of a run, with the period, repeats and first step of every loop.

    A *cycle* leaves a state and returns to it, with no state repeated inside. The run is read
    greedily from the left: the cycle that closes first is kept. If the next steps repeat the whole
    cycle, state and action one by one, they are *loop steps*. This is known when the last of these
    actions is issued, before it runs.

    States and actions are compared exactly, noise included, and every step counts: also those that
    :class:`Loops` leaves out.

    O(1) amortised per step. Memory grows with the longest stretch without a closed cycle, up to
    ``max_period`` steps; longer cycles are not detected.

    Args:
        max_period: longest cycle that is detected, in steps.
        max_loops: how many loops are listed in :attr:`loops`; later ones are only counted.

    >>> loops = TideLoops()
    >>> for t, state in enumerate([b"A", b"B", b"C"] * 4):
    ...     loops.update(IssuedStep(t, state, action=b"go"))
    >>> loops.value, loops.period, loops.repeats, loops.first_step
    (0.75, 3, 3, 3)
    """

    takes: ClassVar[type] = IssuedStep
    version: ClassVar[int] = 1
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
        """Take the next issued step; steps are numbered from 0 in their order."""
        # Nothing here raises: only digests are compared and looked up.
        state, action = step.exact_state or step.state, step.exact_action or step.action
        name = step.name
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
        """Number of the last steps that may still become loop steps."""
        return self.matched if 0 < self.matched < len(self._cycle) else 0

    @property
    def cycle_names(self) -> list[str]:
        """Names of the actions of the kept cycle, which the last loop steps repeated."""
        return [name for _, _, name in self._cycle]

    def _close_cycle(self, state: bytes) -> None:
        """The steps from ``state`` on are a cycle; the cursor moves to its end."""
        # When all steps since the cursor repeat the kept cycle and come back to its first state,
        # it is the same cycle again, and the same loop if there is one.
        cycle = self._cycle
        if self.matched != len(cycle) or cycle[0][0] != state:
            cycle = self._cycle = self._steps_since(state)
            self._leave_loop()
        self.cycles += 1
        self.cycle_steps += len(cycle)
        self.matched = 0
        self._stretch.clear()
        self._names.clear()

    def _steps_since(self, state: bytes) -> list[_Step]:
        steps: list[_Step] = []
        for (earlier, action), name in zip(
            reversed(self._stretch.items()), reversed(self._names), strict=True
        ):
            steps.append((earlier, action, name))
            if earlier == state:
                break
        steps.reverse()
        return steps

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


class GuiLoops(TideLoops):
    """Loops as in TIDE's code for graphical interfaces, which skips the rounds that it has matched.

    After a repeated round, :class:`TideLoops` looks for the next cycle from the beginning of that
    round on, this one from its end. So a cycle that begins in a repeated round and ends after it is
    not found here. While a cycle goes on, both are the same.

    >>> gui, text = GuiLoops(), TideLoops()
    >>> for t, state in enumerate([b"A", b"A", b"B", b"A", b"B"]):
    ...     gui.update(IssuedStep(t, state, action=b"go"))
    ...     text.update(IssuedStep(t, state, action=b"go"))
    >>> gui.loop_steps, text.loop_steps
    (1, 3)
    """

    __slots__ = ()

    def update(self, step: IssuedStep) -> None:
        """Take the next issued step."""
        if self._cycle and self.matched == len(self._cycle):
            self._stretch.clear()
            self._names.clear()
            self.matched = 0
        super().update(step)

    def _settle(self) -> None:
        super()._settle()
        self.cycles += 1
        self.cycle_steps += len(self._cycle)


TIDE_LOOP_STEPS: Final = MetricDefinition(
    "tidegauge_tide_loop_steps_total",
    "counter",
    "steps",
    "Steps that TIDE's loop ratio counts: they repeated a cycle in which no state occurs twice. "
    "Divided by tidegauge_steps_total, TIDE's loop ratio.",
)
TIDE_CYCLE_STEPS: Final = MetricDefinition(
    "tidegauge_tide_cycle_steps_total",
    "counter",
    "steps",
    "Steps inside TIDE's closed cycles: the agent returned to an earlier state.",
)


def _made(run: RunView) -> TideLoops:
    kind = GuiLoops if run.settings.loop_code == "gui" else TideLoops
    return kind(max_period=run.settings.max_period)


def _issued(run: RunView, loops: TideLoops, step: IssuedStep) -> None:
    onsets = loops.onsets
    loops.update(step)
    if loops.onsets != onsets:
        cycles = run.totals.tide_cycle_actions
        for name in loops.cycle_names:
            label = run.actions.admit(name)
            cycles[label] = cycles.get(label, 0) + 1


def _document(report: Any) -> dict[str, object]:
    known = "tide_loops" not in report.lost
    return {
        "tide_loop_steps": report.tide_loop_steps if known else None,
        "tide_loop_ratio": report.tide_loop_ratio,
        "tide_cycles": report.tide_cycles if known else None,
        "tide_cycle_steps": report.tide_cycle_steps if known else None,
    }


DECLARATION: Final = Declaration(
    name="tide_loops",
    kind=TideLoops,
    make=_made,
    issued=_issued,
    takes_skipped=True,
    sums=(
        Sum("tide_cycle_steps", zero, "cycle_steps"),
        Sum("tide_loop_steps", zero, "loop_steps"),
        Sum("tide_cycle_actions", no_counts),
    ),
    absent={
        "tide_loop_steps": 0,
        "tide_loop_ratio": None,
        "tide_cycles": 0,
        "tide_cycle_steps": 0,
        "tide_cycle_ratio": None,
    },
    report=lambda run, loops: {
        "tide_loop_steps": loops.loop_steps,
        "tide_loop_ratio": loops.value,
        "tide_cycles": loops.cycles,
        "tide_cycle_steps": loops.cycle_steps,
        "tide_cycle_ratio": loops.cycle_ratio,
    },
    document=_document,
    ended=lambda run, loops: {
        "tide_loop_steps": loops.loop_steps,
        "tide_cycle_steps": loops.cycle_steps,
        "tide_cycle_actions": tuple(run.totals.tide_cycle_actions.items()),
    },
    of_group=(
        Measured(TIDE_LOOP_STEPS, lambda group: group.totals.tide_loop_steps),
        Measured(TIDE_CYCLE_STEPS, lambda group: group.totals.tide_cycle_steps),
    ),
)

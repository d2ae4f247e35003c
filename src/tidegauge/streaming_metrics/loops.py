"""Exact loops: a cycle that is repeated immediately, step for step.

Source: TIDE (arXiv 2602.02196), section 3.2, as in the authors' batch code;
``docs/metrics/loops.md`` describes where the paper's formulas differ.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, ClassVar, Final

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.streaming_metrics.declaration import (
    Declaration,
    Measured,
    RunView,
    Signal,
    Sum,
    counts,
    loop_in_words,
    no_counts,
    zero,
)
from tidegauge.streaming_metrics.evicting_dict import EvictingDict
from tidegauge.streaming_metrics.limits import OTHER
from tidegauge.streaming_metrics.loop_cost import LoopCost, count_cost
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.polling_allowance import exempt_steps
from tidegauge.streaming_metrics.records import IssuedStep

__all__ = [
    "CYCLE_STEPS",
    "DECLARATION",
    "LASTING_LOOPS",
    "LASTING_LOOPS_ACTIVE",
    "LOOPS",
    "LOOP_STEPS",
    "RUNS_LOOPING",
    "RUN_LOOP_REPEATS",
    "GuiLoops",
    "Loops",
    "is_looping",
    "loops_on",
]

_MAX_TOOLS: Final = 10

_Step = tuple[bytes, bytes, str]

_LASTING: Final = 2
"""Repeats from which a loop lasts. One repeat is often a retry that ends by itself."""


class Loops(Metric[IssuedStep]):
    """Loop ratio of a run, with the period, repeats and first step of every loop.

    A *cycle* leaves a state and returns to it, with no state repeated inside. The run is read
    greedily from the left: the cycle that closes first is kept. If the next steps repeat the whole
    cycle, state and action one by one, they are *loop steps*. This is known when the last of these
    actions is issued, before it runs.

    A loop lasts as long as the cycle continues, also in a round that is not complete. What it costs
    is counted by :class:`LoopCost`.

    O(1) amortised per step. Memory grows with the longest stretch without a closed cycle, up to
    ``max_period`` steps; longer cycles are not detected.

    Args:
        max_period: longest cycle that is detected, in steps.
        max_loops: how many loops are listed in :attr:`loops`; later ones are only counted.

    >>> loops = Loops()
    >>> for t, state in enumerate([b"A", b"B", b"C"] * 4):
    ...     loops.update(IssuedStep(t, state, action=b"go"))
    >>> loops.value, loops.period, loops.repeats, loops.first_step
    (0.75, 3, 3, 3)
    """

    takes: ClassVar[type] = IssuedStep
    version: ClassVar[int] = 4
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
        "lasting",
        "loop_steps",
        "matched",
        "max_loops",
        "max_period",
        "onsets",
        "period",
        "repeats",
        "reported",
        "settled",
        "since",
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
        self.reported = False  # whether the onset of the current loop was counted
        self.lasting = False  # whether it was counted as one that lasts
        # when its first repeated step was issued, or the first of a repetition that is not complete
        # yet: seconds since the epoch; None, not known
        self.since: float | None = None
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
        state, action, name = step[1:4]
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
        if not matched and not self.repeats:
            self.since = step.at
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

    @property
    def expected(self) -> tuple[bytes, bytes, str] | None:
        """State, action and name of the next step if the cycle continues; ``None``, it does not."""
        if self.matched < 0 or not self._cycle:
            return None
        return self._cycle[self.matched % len(self._cycle)]

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
        self.reported = False
        self.lasting = False


class GuiLoops(Loops):
    """Loops as in TIDE's code for graphical interfaces, which skips the rounds that it has matched.

    After a repeated round, :class:`Loops` looks for the next cycle from the beginning of that round
    on, this one from its end. So a cycle that begins in a repeated round and ends after it is not
    found here. While a cycle goes on, both are the same.

    >>> gui, text = GuiLoops(), Loops()
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


LOOP_STEPS: Final = MetricDefinition(
    "tidegauge_loop_steps_total",
    "counter",
    "steps",
    "Steps that repeated the cycle just before them, by action. Divided by "
    "tidegauge_steps_total, the loop ratio.",
    labels=(*GROUP_LABELS, "action"),
)
CYCLE_STEPS: Final = MetricDefinition(
    "tidegauge_cycle_steps_total",
    "counter",
    "steps",
    "Steps inside closed cycles: the agent returned to an earlier state.",
)
LOOPS: Final = MetricDefinition(
    "tidegauge_loops_total",
    "counter",
    "loops",
    "Loops that began: a cycle repeated for the first time, a streak of one result, "
    "or failed rounds. A declared poller within its allowance begins none.",
    labels=(*GROUP_LABELS, "kind"),
    values=("cycle", "result_streak", "failed_rounds"),
)
RUNS_LOOPING: Final = MetricDefinition(
    "tidegauge_runs_looping",
    "gauge",
    "runs",
    "Active runs in a loop: the last cycle was repeated, and not only by declared "
    "pollers within their allowance.",
)
LASTING_LOOPS: Final = MetricDefinition(
    "tidegauge_lasting_loops_total",
    "counter",
    "loops",
    "Loops whose cycle was repeated a second time, without pollers that may wait.",
)
LASTING_LOOPS_ACTIVE: Final = MetricDefinition(
    "tidegauge_lasting_loops_active",
    "gauge",
    "loops",
    "Active runs whose current cycle was repeated at least twice, without pollers that may wait.",
)
RUN_LOOP_REPEATS: Final = MetricDefinition(
    "tidegauge_run_loop_repeats",
    "gauge",
    "repeats",
    "Complete repetitions of the current loop; 0 without one, and while a declared "
    "poller waits within its allowance. Only for the most troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)


def is_looping(run: RunView) -> bool:
    """Whether the run is in a loop that does not consist of exempt steps only."""
    return run.of(Loops).period > exempt_steps(run)


def _made(run: RunView) -> Loops:
    kind = GuiLoops if run.settings.loop_code == "gui" else Loops
    return kind(max_period=run.settings.max_period)


def _issued(run: RunView, loops: Loops, step: IssuedStep) -> None:
    onsets = loops.onsets
    loops.update(step)
    totals = run.totals
    totals.cycle_steps = loops.cycle_steps
    matched = loops.matched
    if matched <= 0:
        return
    if matched == 1 and loops.since is None and loops.first_step in (-1, step.t):
        loops.since = None if step.time is None else time.time()
    began = loops.onsets != onsets
    cost = run.metrics.get(LoopCost) or run.bring(LoopCost)
    if cost is not None:
        first, lost, tokens = loops.first_step, 1, step.choice_tokens
        if exempt_steps(run):
            lost, tokens = 0, None
        since = first if first >= 0 else step.t + 1 - matched
        cost.take(since, first >= 0, lost, tokens, None)
        count_cost(totals, cost, tokens=began or tokens is not None, seconds=began)
    if is_looping(run):
        if not loops.reported:
            loops.reported = True
            run.count_onset("cycle", step.t)
        if loops.repeats >= _LASTING and not loops.lasting:
            loops.lasting = True
            totals.lasting_loops += 1
    if loops.settled:
        looping = totals.loop_steps
        cycles = totals.loop_cycle_actions
        for name in loops.cycle_names:
            label = run.actions.admit(name)
            looping[label] = looping.get(label, 0) + 1
            if began:
                cycles[label] = cycles.get(label, 0) + 1


def _report(run: RunView, loops: Loops) -> dict[str, object]:
    return {
        "loop_steps": loops.loop_steps,
        "loop_ratio": loops.value,
        "cycles": loops.cycles,
        "cycle_steps": loops.cycle_steps,
        "loops": loops.loops,
        "loop_period": loops.period,
        "loop_repeats": loops.repeats,
        "looping": is_looping(run),
        "loop_first_step": loops.first_step if loops.period else None,
        "loop_since": loops.since if loops.period else None,
        "loop_tools": tuple(loops.cycle_names[:_MAX_TOOLS]) if loops.period else (),
    }


def _document(report: Any) -> dict[str, object]:
    known = "loops" not in report.lost
    return {
        "loop_steps": report.loop_steps if known else None,
        "loop_ratio": report.loop_ratio,
        "cycles": report.cycles if known else None,
        "cycle_steps": report.cycle_steps if known else None,
        "loops": [
            {
                "first_step": first_step,
                "period": period,
                "repeats": repeats,
                "steps": period * repeats,
            }
            for first_step, period, repeats in report.loops
        ],
    }


def loops_on(report: Any) -> bool:
    """Whether the run, as reported, is in a loop that lasts."""
    return bool(report.looping and report.loop_repeats >= _LASTING)


DECLARATION: Final = Declaration(
    name="loops",
    kind=Loops,
    make=_made,
    issued=_issued,
    sums=(
        Sum("cycle_steps", zero),
        Sum("loop_steps", no_counts),
        Sum("loop_cycle_actions", no_counts),
        Sum("onsets", no_counts),
        Sum("lasting_loops", zero),
    ),
    absent={
        "loop_steps": 0,
        "loop_ratio": None,
        "cycles": 0,
        "cycle_steps": 0,
        "loops": (),
        "loop_period": 0,
        "loop_repeats": 0,
        "looping": False,
        "loop_first_step": None,
        "loop_since": None,
        "loop_tools": (),
    },
    report=_report,
    document=_document,
    ended=lambda run, loops: {
        "loop_steps": loops.loop_steps,
        "cycle_steps": loops.cycle_steps,
        "loop_actions": tuple(run.totals.loop_steps.items()),
        "loop_cycle_actions": tuple(run.totals.loop_cycle_actions.items()),
    },
    signals=(
        Signal(
            name="loop_repeats",
            read=lambda run: run.metrics[Loops].repeats,
            help="how often a cycle of any length was repeated after its first round",
            message=lambda now, at: loop_in_words(now),
            exempt="loop",
            blocks=True,
            moment="issued",
        ),
    ),
    details={
        "loop_period": lambda run: run.of(Loops).period,
        "loop_first_step": lambda run: run.of(Loops).first_step,
    },
    of_group=(
        # It is not known beforehand which actions will loop. "other" starts at 0, so that the loop
        # ratio of a group without loops is 0 and not absent.
        Measured(LOOP_STEPS, lambda group: counts(group.totals.loop_steps, known=(OTHER,))),
        Measured(CYCLE_STEPS, lambda group: group.totals.cycle_steps),
        Measured(LOOPS, lambda group: counts(group.totals.onsets, known=LOOPS.values)),
        Measured(RUNS_LOOPING, lambda group: sum(run.looping for run in group.active)),
        Measured(LASTING_LOOPS, lambda group: group.totals.lasting_loops),
        Measured(LASTING_LOOPS_ACTIVE, lambda group: sum(map(loops_on, group.active))),
    ),
    of_run=(Measured(RUN_LOOP_REPEATS, lambda run: run.loop_repeats if run.looping else 0),),
)

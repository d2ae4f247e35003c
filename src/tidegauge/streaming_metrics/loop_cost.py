"""What loops cost: steps, tokens and seconds."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.streaming_metrics.buckets import addable
from tidegauge.streaming_metrics.declaration import (
    Declaration,
    Measured,
    RunView,
    Signal,
    Sum,
    loop_in_words,
    zero,
    zero_amount,
)
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import LoopSpending, ObservedStep

__all__ = [
    "DECLARATION",
    "LOOP_SECONDS",
    "LOOP_TOKENS",
    "LOST_STEPS",
    "RUN_LOOP_TOKENS",
    "LoopCost",
    "count_cost",
]


class LoopCost(Metric[LoopSpending]):
    """Steps, tokens and seconds that loops cost: of all loops, and of the last one.

    Counted are the steps from a loop's first repeated one on, as long as the cycle continues, each
    with what it has reported so far: tokens spent on its choice when it is issued, the rest with
    its result. Until the first repetition is complete, its steps are kept apart: nothing may come
    of it. O(1) time and memory.

    Source: loops as in TIDE 3.2; the costs are ours.

    Attributes:
        steps: steps of all loops.
        tokens: tokens of all loops; ``None`` while no step of a loop has reported any.
        seconds: seconds of all loops; ``None`` likewise.
        since: first step of the last loop, or of a repetition that is not complete; -1, none.
        last_steps: its steps.
        last_tokens: tokens of its steps; ``None``, none has reported any.
        last_seconds: seconds of its steps; ``None`` likewise.

    >>> cost = LoopCost()
    >>> for looping in (False, True, True):  # a cycle of two steps, and the next round begins
    ...     cost.update(LoopSpending(since=2, looping=looping, steps=1, tokens=100))
    >>> cost.steps, cost.value, cost.last_tokens
    (3, 300, 300)
    """

    takes: ClassVar[type] = LoopSpending
    version: ClassVar[int] = 3
    __slots__ = (
        "_looping",
        "last_seconds",
        "last_steps",
        "last_tokens",
        "seconds",
        "since",
        "steps",
        "tokens",
    )

    def __init__(self) -> None:
        self.steps = 0
        self.tokens: float | None = None
        self.seconds: float | None = None
        self.since = -1
        self.last_steps = 0
        self.last_tokens: float | None = None
        self.last_seconds: float | None = None
        self._looping = False  # whether the last repetition was complete

    def update(self, step: LoopSpending) -> None:
        """Take a moment of a step; results may come late, and in another order than their steps."""
        self.take(*step)

    def take(
        self, since: int, looping: bool, steps: int, tokens: float | None, seconds: float | None
    ) -> None:
        """The same without a record, which takes longer to make than to take."""
        if since > self.since:
            self.since = since
            self.last_steps = 0
            self.last_tokens = self.last_seconds = None
            self._looping = False
        if since == self.since:
            self.last_steps += steps
            if tokens is not None:
                self.last_tokens = (self.last_tokens or 0) + tokens
            if seconds is not None:
                self.last_seconds = (self.last_seconds or 0) + seconds
            if looping and not self._looping:
                self._looping = True
                steps, tokens, seconds = self.last_steps, self.last_tokens, self.last_seconds
        if looping:
            self.steps += steps
            if tokens is not None:
                self.tokens = (self.tokens or 0) + tokens
            if seconds is not None:
                self.seconds = (self.seconds or 0) + seconds

    @property
    def value(self) -> float | None:
        """Tokens of all loops; ``None`` while no step of a loop has reported any."""
        return self.tokens


LOST_STEPS: Final = MetricDefinition(
    "tidegauge_lost_steps_total",
    "counter",
    "steps",
    "Steps that loops cost: from the first repeated step of each to its end, without "
    "declared pollers within their allowance.",
)
LOOP_TOKENS: Final = MetricDefinition(
    "tidegauge_loop_tokens_total",
    "counter",
    "tokens",
    "Tokens that loops cost, where steps report tokens.",
)
LOOP_SECONDS: Final = MetricDefinition(
    "tidegauge_loop_seconds_total",
    "counter",
    "seconds",
    "Seconds that loops cost; of each step, from the action to its result.",
)
RUN_LOOP_TOKENS: Final = MetricDefinition(
    "tidegauge_run_loop_tokens",
    "gauge",
    "tokens",
    "Tokens that the current loop has cost, where steps report tokens. Only for the "
    "most troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)


def count_cost(totals: Any, cost: LoopCost, *, tokens: bool, seconds: bool) -> None:
    """Put what all loops cost into a run's totals, where it may have changed."""
    totals.lost_steps = cost.steps
    if tokens and cost.tokens is not None:
        totals.loop_tokens = addable(cost.tokens)
    if seconds and cost.seconds is not None:
        totals.loop_seconds = addable(cost.seconds)


def _observed(run: RunView, cost: LoopCost, step: ObservedStep) -> None:
    matched = step.loop_matched
    if not matched or step.exempt:
        return
    first, lost, tokens, seconds = step.loop_first_step, 0, step.result_tokens, step.seconds
    if step.exempt is None:  # it was not counted when it was issued
        lost, tokens = 1, step.tokens
    since = first if first >= 0 else step.t + 1 - matched
    cost.take(since, first >= 0, lost, tokens, seconds)
    if first >= 0:
        count_cost(run.totals, cost, tokens=tokens is not None, seconds=seconds is not None)


def _current(run: RunView) -> LoopCost | None:
    """The cost, if its last loop is the one that the run is in."""
    cost = run.find(LoopCost)
    return cost if cost is not None and cost.since == run.latest.loop_first_step else None


def _steps(run: RunView) -> int:
    cost = _current(run)
    return 0 if cost is None else cost.last_steps


def _tokens(run: RunView) -> float | None:
    cost = _current(run)
    return None if cost is None else cost.last_tokens


def _seconds(run: RunView) -> float | None:
    cost = _current(run)
    return None if cost is None else cost.last_seconds


def _document(report: Any) -> dict[str, object]:
    known = not {"loops", "loop_cost"} & set(report.lost)
    return {
        "lost_in_loops": {
            "steps": report.lost_steps if known else None,
            "tokens": report.lost_tokens,
            "seconds": report.lost_seconds,
        }
    }


DECLARATION: Final = Declaration(
    name="loop_cost",
    kind=LoopCost,
    observed=_observed,
    brought_by=("loop_matched",),
    sums=(
        Sum("lost_steps", zero),
        Sum("loop_tokens", zero_amount),
        Sum("loop_seconds", zero_amount),
    ),
    absent={
        "loop_cost_steps": 0,
        "loop_cost_tokens": None,
        "loop_cost_seconds": None,
        "lost_steps": 0,
        "lost_tokens": None,
        "lost_seconds": None,
    },
    report=lambda run, cost: {
        "loop_cost_steps": _steps(run),
        "lost_steps": cost.steps,
        "loop_cost_tokens": _tokens(run),
        "loop_cost_seconds": _seconds(run),
        "lost_tokens": cost.tokens,
        "lost_seconds": cost.seconds,
    },
    document=_document,
    signals=(
        Signal(
            name="loop_cost_steps",
            read=_steps,
            help="steps of the loop, from its first repeated step on",
            message=lambda now, at: f"{loop_in_words(now)}: {now.loop_cost_steps} steps lost",
            exempt="loop",
            blocks=True,
        ),
        Signal(
            name="loop_cost_tokens",
            read=_tokens,
            help="tokens of the loop, from its first repeated step on",
            message=lambda now, at: (
                f"{loop_in_words(now)}: {now.loop_cost_tokens:,.0f} tokens lost"
            ),
            exempt="loop",
            blocks=True,
        ),
        Signal(
            name="loop_cost_seconds",
            read=_seconds,
            help="seconds of the loop, from its first repeated step on",
            message=lambda now, at: (
                f"{loop_in_words(now)}: {now.loop_cost_seconds:,.1f} seconds lost"
            ),
            exempt="loop",
            threshold="positive",
            blocks=True,
        ),
    ),
    of_group=(
        Measured(LOST_STEPS, lambda group: group.totals.lost_steps),
        Measured(LOOP_TOKENS, lambda group: group.totals.loop_tokens),
        Measured(LOOP_SECONDS, lambda group: group.totals.loop_seconds),
    ),
    of_run=(Measured(RUN_LOOP_TOKENS, lambda run: run.loop_cost_tokens),),
)

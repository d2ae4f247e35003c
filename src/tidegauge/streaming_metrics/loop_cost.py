"""What loops cost: steps, tokens and seconds."""

from __future__ import annotations

from typing import ClassVar, Final

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.streaming_metrics.buckets import addable
from tidegauge.streaming_metrics.declaration import (
    Declaration,
    Measured,
    RunView,
    Signal,
    Sum,
    zero_amount,
)
from tidegauge.streaming_metrics.loops import Loops, loop_in_words
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import ObservedStep

__all__ = ["DECLARATION", "LOOP_SECONDS", "LOOP_TOKENS", "RUN_LOOP_TOKENS", "LoopCost"]


class LoopCost(Metric[ObservedStep]):
    """Tokens and seconds of all loop steps, and of the current loop since its onset.

    The first two add up over loops: they are what the run would have cost less without its
    loop steps. The ``onset_`` numbers are what stopping at the onset would have saved so far:
    those of the step at which the first repetition was complete, whose action would not have
    been run, and of all steps since, as long as the loop lasts. O(1) time and memory.

    Source: loop steps as in TIDE 3.2; the costs are ours.

    >>> cost = LoopCost()
    >>> for t, (matched, settled) in enumerate([(0, 0), (1, 1), (1, 1)]):
    ...     first_step = 1 if settled else -1
    ...     cost.update(ObservedStep(t, tokens=100, loop_matched=matched, loop_settled=settled,
    ...                              loop_first_step=first_step))
    >>> cost.value, cost.onset_steps
    (200, 2)
    """

    takes: ClassVar[type] = ObservedStep
    __slots__ = (
        "_last",
        "_open_seconds",
        "_open_since",
        "_open_tokens",
        "first_step",
        "onset_seconds",
        "onset_steps",
        "onset_tokens",
        "seconds",
        "tokens",
    )

    def __init__(self) -> None:
        self.tokens: float | None = None
        self.seconds: float | None = None
        self.onset_steps = 0
        self.onset_tokens: float | None = None
        self.onset_seconds: float | None = None
        self.first_step = -1  # of the loop that the onset's numbers belong to; -1, none
        self._open_tokens: float | None = None  # of steps that may still become loop steps
        self._open_seconds: float | None = None
        self._open_since = -1  # the first step of that repetition
        self._last = -1  # the last of the steps that were observed

    def update(self, step: ObservedStep) -> None:
        """Take an observed step; results may come late, and in another order than their steps."""
        matched, first_step = step.loop_matched, step.loop_first_step
        tokens, seconds = step.tokens, step.seconds
        since = step.t + 1 - matched  # where the repetition that it belongs to begins
        if since > self._open_since:
            if 0 <= first_step <= self._open_since:  # it was completed by a step without a result
                self._settle()
            self._open_since = since
            self._open_tokens = self._open_seconds = None
        if step.loop_settled:
            if since == self._open_since:
                self._settle()
            if tokens is not None:
                self.tokens = (self.tokens or 0) + tokens
            if seconds is not None:
                self.seconds = (self.seconds or 0) + seconds
        elif matched and since == self._open_since:
            if tokens is not None:
                self._open_tokens = (self._open_tokens or 0) + tokens
            if seconds is not None:
                self._open_seconds = (self._open_seconds or 0) + seconds
        if step.t > self._last:
            self._last = step.t
            if first_step != self.first_step:
                self.first_step = first_step
                self.onset_steps = 0
                self.onset_tokens = self.onset_seconds = None
        if first_step >= 0 and first_step == self.first_step:
            self.onset_steps += 1
            if tokens is not None:
                self.onset_tokens = (self.onset_tokens or 0) + tokens
            if seconds is not None:
                self.onset_seconds = (self.onset_seconds or 0) + seconds

    def _settle(self) -> None:
        self.tokens = _plus(self.tokens, self._open_tokens)
        self.seconds = _plus(self.seconds, self._open_seconds)
        self._open_tokens = self._open_seconds = None

    @property
    def value(self) -> float | None:
        """Tokens of all loop steps; ``None`` while none of them reported its tokens."""
        return self.tokens


def _plus(total: float | None, amount: float | None) -> float | None:
    return total if amount is None else (total or 0) + amount


LOOP_TOKENS: Final = MetricDefinition(
    "tidegauge_loop_tokens_total",
    "counter",
    "tokens",
    "Tokens spent on loop steps, where steps report tokens.",
)
LOOP_SECONDS: Final = MetricDefinition(
    "tidegauge_loop_seconds_total",
    "counter",
    "seconds",
    "Seconds spent on loop steps, from the action to its result.",
)
RUN_LOOP_TOKENS: Final = MetricDefinition(
    "tidegauge_run_loop_tokens",
    "gauge",
    "tokens",
    "Tokens that the current loop of the run has cost. Only for the most troubled active runs, "
    "while they loop and where their steps report tokens.",
    labels=(*GROUP_LABELS, "run"),
)


def _observed(run: RunView, cost: LoopCost, step: ObservedStep) -> None:
    cost.update(step)
    if step.loop_matched:
        if cost.tokens is not None:
            run.totals.loop_tokens = addable(cost.tokens)
        if cost.seconds is not None:
            run.totals.loop_seconds = addable(cost.seconds)


def _current(run: RunView) -> LoopCost | None:
    """The cost of the loop that the run is in; ``None``, what is known is of an earlier loop."""
    cost = run.find(LoopCost)
    return cost if cost is not None and cost.first_step == run.of(Loops).first_step else None


def _tokens(run: RunView) -> float | None:
    cost = _current(run)
    return None if cost is None else cost.onset_tokens


def _seconds(run: RunView) -> float | None:
    cost = _current(run)
    return None if cost is None else cost.onset_seconds


DECLARATION: Final = Declaration(
    name="loop_cost",
    kind=LoopCost,
    observed=_observed,
    brought_by=("loop_matched",),
    sums=(Sum("loop_tokens", zero_amount), Sum("loop_seconds", zero_amount)),
    absent={"loop_cost_tokens": None, "loop_cost_seconds": None},
    report=lambda run, cost: {"loop_cost_tokens": _tokens(run), "loop_cost_seconds": _seconds(run)},
    signals=(
        Signal(
            name="loop_cost_tokens",
            read=_tokens,
            help="tokens that the loop has cost since its onset",
            message=lambda now, at: f"{loop_in_words(now)}: {now.loop_cost_tokens:,.0f} tokens",
            exempt="loop",
            blocks=True,
        ),
        Signal(
            name="loop_cost_seconds",
            read=_seconds,
            help="seconds that the loop has cost since its onset",
            message=lambda now, at: f"{loop_in_words(now)}: {now.loop_cost_seconds:,.1f} seconds",
            exempt="loop",
            threshold="positive",
            blocks=True,
        ),
    ),
    of_group=(
        Measured(LOOP_TOKENS, lambda group: group.totals.loop_tokens),
        Measured(LOOP_SECONDS, lambda group: group.totals.loop_seconds),
    ),
    of_run=(Measured(RUN_LOOP_TOKENS, lambda run: run.loop_cost_tokens),),
)

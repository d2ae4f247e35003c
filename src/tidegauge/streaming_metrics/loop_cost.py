"""What loops cost: tokens and seconds. Their steps are counted in ``loops.py``."""

from __future__ import annotations

from collections.abc import Iterable
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
    zero_amount,
)
from tidegauge.streaming_metrics.loops import Loops
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import IssuedStep, LoopSpending, ObservedStep, added


class LoopCost(Metric[LoopSpending]):
    """Tokens and seconds that loops cost: of all loops, and of the current one.

    Counted are the loop steps (:class:`~tidegauge.streaming_metrics.loops.Loops`), each with what
    it has reported so far: tokens spent on its choice when it is issued, the rest with its result.
    Steps that may still turn out to be loop steps are kept apart until that is known. O(1)
    amortised a step; memory grows with those, up to the longest period of a loop.

    Attributes:
        tokens: tokens of all loops; ``None`` while no step of a loop has reported any.
        seconds: seconds of all loops; ``None`` likewise.
        first_step: first step of the last loop; -1, there was none.
        last_tokens: tokens of its steps; ``None``, none has reported any.
        last_seconds: seconds of its steps; ``None`` likewise.

    >>> cost = LoopCost()
    >>> cost.update(LoopSpending(2, pending_since=2, tokens=100))
    >>> cost.update(LoopSpending(3, settled=(2, 3), pending_since=2, first_step=2, tokens=100))
    >>> cost.update(LoopSpending(3, issued=False, looped=True, first_step=2, tokens=50))
    >>> cost.value, cost.last_tokens
    (250, 250)
    """

    takes: ClassVar[type] = LoopSpending
    version: ClassVar[int] = 4
    __slots__ = (
        "_spent",
        "first_step",
        "last_seconds",
        "last_tokens",
        "seconds",
        "tokens",
    )

    def __init__(self) -> None:
        self.tokens: float | None = None
        self.seconds: float | None = None
        self.first_step = -1
        self.last_tokens: float | None = None
        self.last_seconds: float | None = None
        # By step, of the last ones that are loop steps or may still be: tokens and seconds.
        self._spent: dict[int, tuple[float | None, float | None]] = {}

    def update(self, step: LoopSpending) -> None:
        """Take a moment of a step; results may come late, and in another order than their steps."""
        t, issued, settled, since, first_step, tokens, seconds, _, looped = step
        spent = self._spent
        if issued:
            spent[t] = (tokens, None)
            self._settle(settled, first_step)
            # The result of a loop step is still to come.
            first = since if since is not None else t if settled else t + 1
            while spent and next(iter(spent)) < first:
                del spent[next(iter(spent))]
            return
        known = spent.get(t)
        if known is not None:
            spent[t] = (added(known[0], tokens), added(known[1], seconds))
        if looped:
            self.tokens = added(self.tokens, tokens)
            self.seconds = added(self.seconds, seconds)
            if t >= self.first_step:
                self.last_tokens = added(self.last_tokens, tokens)
                self.last_seconds = added(self.last_seconds, seconds)

    def _settle(self, settled: tuple[int, ...], first_step: int) -> None:
        spent = self._spent
        current: Iterable[int] = settled
        if first_step >= 0 and first_step != self.first_step:
            self.first_step = first_step
            self.last_tokens = self.last_seconds = None
            current = [earlier for earlier in spent if earlier >= first_step]
        for earlier in settled:
            tokens, seconds = spent[earlier]
            self.tokens = added(self.tokens, tokens)
            self.seconds = added(self.seconds, seconds)
        for earlier in current:
            tokens, seconds = spent[earlier]
            self.last_tokens = added(self.last_tokens, tokens)
            self.last_seconds = added(self.last_seconds, seconds)

    @property
    def value(self) -> float | None:
        """Tokens of all loops; ``None`` while no step of a loop has reported any."""
        return self.tokens


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


def count_cost(totals: Any, cost: LoopCost) -> None:
    """Put what all loops cost into a run's totals."""
    if cost.tokens is not None:
        totals.loop_tokens = addable(cost.tokens)
    if cost.seconds is not None:
        totals.loop_seconds = addable(cost.seconds)


def _issued(run: RunView, cost: LoopCost, step: IssuedStep) -> None:
    loops = run.metrics[Loops]
    settled = loops.settled
    if settled or loops.pending or cost._spent:
        since = loops.pending_since
        cost.update(
            LoopSpending(step.t, True, settled, since, loops.first_step, step.choice_tokens)
        )
        if settled:
            count_cost(run.totals, cost)


def _observed(run: RunView, cost: LoopCost, step: ObservedStep) -> None:
    if step.looped or step.t in cost._spent:
        tokens, seconds = step.result_tokens, step.seconds
        cost.update(LoopSpending(step.t, False, tokens=tokens, seconds=seconds, looped=step.looped))
        if step.looped:
            count_cost(run.totals, cost)


def _current(run: RunView) -> LoopCost | None:
    """The cost, if its last loop is the one that the run is in."""
    cost = run.find(LoopCost)
    return cost if cost is not None and cost.first_step == run.latest.loop_first_step else None


def _steps(run: RunView) -> int:
    return run.of(Loops).current_steps


def _tokens(run: RunView) -> float | None:
    cost = _current(run)
    return None if cost is None else cost.last_tokens


def _seconds(run: RunView) -> float | None:
    cost = _current(run)
    return None if cost is None else cost.last_seconds


def _document(report: Any) -> dict[str, object]:
    return {
        "lost_in_loops": {
            "steps": None if "loops" in report.lost else report.loop_steps,
            "tokens": report.lost_tokens,
            "seconds": report.lost_seconds,
        }
    }


DECLARATION: Final = Declaration(
    name="loop_cost",
    kind=LoopCost,
    issued=_issued,
    observed=_observed,
    sums=(
        Sum("loop_tokens", zero_amount),
        Sum("loop_seconds", zero_amount),
    ),
    absent={
        "loop_cost_steps": 0,
        "loop_cost_tokens": None,
        "loop_cost_seconds": None,
        "lost_tokens": None,
        "lost_seconds": None,
    },
    report=lambda run, cost: {
        "loop_cost_steps": _steps(run),
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
            blocks=True,
        ),
        Signal(
            name="loop_cost_tokens",
            read=_tokens,
            help="tokens of the loop, from its first repeated step on",
            message=lambda now, at: (
                f"{loop_in_words(now)}: {now.loop_cost_tokens:,.0f} tokens lost"
            ),
            blocks=True,
        ),
        Signal(
            name="loop_cost_seconds",
            read=_seconds,
            help="seconds of the loop, from its first repeated step on",
            message=lambda now, at: (
                f"{loop_in_words(now)}: {now.loop_cost_seconds:,.1f} seconds lost"
            ),
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

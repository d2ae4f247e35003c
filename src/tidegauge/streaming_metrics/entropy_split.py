"""Entropy split: how sure the agent is of its actions while it loops, and otherwise."""

from __future__ import annotations

import abc
from typing import ClassVar, Final, Self

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.streaming_metrics.declaration import (
    Declaration,
    GroupDeclaration,
    GroupView,
    Measured,
    MetricValue,
    RunView,
    Signal,
)
from tidegauge.streaming_metrics.loops import MAX_PERIOD, Loops
from tidegauge.streaming_metrics.metric import GroupMetric, Metric
from tidegauge.streaming_metrics.records import (
    EntropySums,
    FinishedRun,
    IssuedStep,
    LoopSpending,
    ObservedStep,
)

_MAX_ENTROPY: Final = 1e6
"""Nats. No vocabulary allows more than about 13; a number beyond any doubt is not added up."""


class _Split(abc.ABC):
    """Both means and their difference, from the sums."""

    __slots__ = ()

    @property
    @abc.abstractmethod
    def sums(self) -> EntropySums:
        """What adds up over runs."""

    @property
    def loop(self) -> float | None:
        """Mean over the loop steps, nats per token; ``None`` while none reported its entropy."""
        return self.sums.loop_mean

    @property
    def other(self) -> float | None:
        """Mean over the other steps; ``None`` while none reported its entropy."""
        return self.sums.other_mean

    @property
    def value(self) -> float | None:
        """:attr:`loop` - :attr:`other`; ``None`` while either is."""
        return self.sums.difference


class EntropySplit(_Split, Metric[LoopSpending]):
    """Mean action entropy over the loop steps of a run, and over its other steps.

    Entropy that falls while the agent loops is over-confidence: it is sure of what does not
    work. A step counts among the other steps until it turns out to be a loop step
    (:class:`~tidegauge.streaming_metrics.loops.Loops`). Steps that report no entropy are ignored.
    O(1) amortised a step; memory: the last ``max_recent`` entropies.

    Args:
        max_recent: other steps that may still turn out to be loop steps.

    Source: TIDE (arXiv 2602.02196), appendix B.4 and figure 8.

    >>> split = EntropySplit()
    >>> for t, entropy in enumerate([1.0, 0.2, 0.4]):
    ...     split.update(LoopSpending(t, settled=(t,) if t else ()))
    ...     split.update(LoopSpending(t, issued=False, entropy=entropy, looped=t > 0))
    >>> round(split.loop, 6), split.other, round(split.value, 6)
    (0.3, 1.0, -0.7)
    """

    takes: ClassVar[type] = LoopSpending
    __slots__ = (
        "_loop_steps",
        "_loop_sum",
        "_other_steps",
        "_other_sum",
        "_recent",
        "current",
        "max_recent",
    )
    version: ClassVar[int] = 3

    def __init__(self, *, max_recent: int = MAX_PERIOD) -> None:
        self.max_recent = max_recent
        self.current: float | None = None  # of the last action that reported its entropy
        self._loop_sum = 0.0
        self._loop_steps = 0
        self._other_sum = 0.0  # of steps that are too old to turn out to be loop steps
        self._other_steps = 0
        self._recent: dict[int, float] = {}  # of others, by step

    def update(self, step: LoopSpending) -> None:
        """Take a moment of a step; results may come late, and in another order than their steps."""
        recent, entropy = self._recent, step.entropy
        for earlier in step.settled:
            found = recent.pop(earlier, None)
            if found is not None:
                self._loop_sum += found
                self._loop_steps += 1
        if step.issued or entropy is None or not 0 <= entropy <= _MAX_ENTROPY:
            return
        self.current = entropy
        if step.looped:
            self._loop_sum += entropy
            self._loop_steps += 1
            return
        recent[step.t] = entropy
        if len(recent) > self.max_recent:
            self._other_sum += recent.pop(next(iter(recent)))
            self._other_steps += 1

    @property
    def sums(self) -> EntropySums:
        """What adds up over runs."""
        return EntropySums(
            self._loop_sum,
            self._loop_steps,
            self._other_sum + sum(self._recent.values()),
            self._other_steps + len(self._recent),
        )


class GroupEntropySplit(_Split, GroupMetric):
    """:class:`EntropySplit` over all steps of a group's finished runs. O(1) time and memory.

    Attributes:
        loop_sum: entropy added up over the loop steps that reported theirs, nats per token.
        loop_steps: how many those are.
        other_sum: the same over the other steps.
        other_steps: how many those are.

    >>> split = GroupEntropySplit()
    >>> split.update(FinishedRun(False, steps=9, entropy=EntropySums(0.5, 2, 4.0, 4)))
    >>> split.update(FinishedRun(True, steps=3, entropy=EntropySums(0.0, 0, 2.0, 2)))
    >>> split.loop, split.other, split.value
    (0.25, 1.0, -0.75)
    """

    __slots__ = ("loop_steps", "loop_sum", "other_steps", "other_sum")

    def __init__(self) -> None:
        self.loop_sum = 0.0
        self.loop_steps = 0
        self.other_sum = 0.0
        self.other_steps = 0

    def update(self, step: FinishedRun) -> None:
        """Take a finished run."""
        if step.entropy is not None:
            self._add(step.entropy)

    def merge(self, other: Self) -> None:
        """Add the runs of ``other``."""
        self._add(other.sums)

    @property
    def sums(self) -> EntropySums:
        """All four at once."""
        return EntropySums(self.loop_sum, self.loop_steps, self.other_sum, self.other_steps)

    def _add(self, sums: EntropySums) -> None:
        self.loop_sum += sums.loop_sum
        self.loop_steps += sums.loop_steps
        self.other_sum += sums.other_sum
        self.other_steps += sums.other_steps


ACTION_ENTROPY: Final = MetricDefinition(
    "tidegauge_action_entropy",
    "gauge",
    "nats per token",
    "Mean entropy of the actions of finished runs in nats per token, in loop steps "
    "and in others. Low in loops: the agent is certain of what does not work.",
    labels=(*GROUP_LABELS, "steps"),
    values=("loop", "other"),
)


ACTION_ENTROPY_SUM: Final = MetricDefinition(
    "tidegauge_action_entropy_sum_total",
    "counter",
    "nats per token",
    "Entropy of the actions of finished runs in nats per token, added up over loop "
    "steps and over others.",
    labels=(*GROUP_LABELS, "steps"),
    values=("loop", "other"),
)
ACTION_ENTROPY_STEPS: Final = MetricDefinition(
    "tidegauge_action_entropy_steps_total",
    "counter",
    "steps",
    "Steps in tidegauge_action_entropy_sum_total.",
    labels=(*GROUP_LABELS, "steps"),
    values=("loop", "other"),
)
RUN_ACTION_ENTROPY: Final = MetricDefinition(
    "tidegauge_run_action_entropy",
    "gauge",
    "nats per token",
    "Entropy of the run's last action that reported it, in nats per token. Only for "
    "the most troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)


def _sums(group: GroupView) -> EntropySums | None:
    """The sums of a group; ``None``, no step reported its entropy."""
    sums = group.finished.of(GroupEntropySplit).sums
    measured = sums.loop_steps or sums.other_steps
    measured = measured or any(run.action_entropy is not None for run in group.active)
    return sums if measured else None


def _entropy_sum(group: GroupView) -> MetricValue:
    sums = _sums(group)
    return None if sums is None else {("loop",): sums.loop_sum, ("other",): sums.other_sum}


def _entropy_steps(group: GroupView) -> MetricValue:
    sums = _sums(group)
    return None if sums is None else {("loop",): sums.loop_steps, ("other",): sums.other_steps}


def _issued(run: RunView, split: EntropySplit, step: IssuedStep) -> None:
    settled = run.of(Loops).settled
    if settled:
        split.update(LoopSpending(step.t, settled=settled))


def _observed(run: RunView, split: EntropySplit, step: ObservedStep) -> None:
    split.update(LoopSpending(step.t, False, entropy=step.entropy, looped=step.looped))


def _current(run: RunView) -> float | None:
    split = run.find(EntropySplit)
    return None if split is None else split.current


def _entropy(group: GroupView) -> MetricValue:
    split = group.finished.of(GroupEntropySplit)
    means = {("loop",): split.loop, ("other",): split.other}
    return {label: mean for label, mean in means.items() if mean is not None}


DECLARATION: Final = Declaration(
    name="entropy_split",
    kind=EntropySplit,
    issued=_issued,
    observed=_observed,
    brought_by=("entropy",),
    absent={"action_entropy": None, "loop_entropy": None, "other_entropy": None},
    report=lambda run, split: {
        "action_entropy": split.current,
        "loop_entropy": split.loop,
        "other_entropy": split.other,
    },
    ended=lambda run, split: {"entropy": split.sums},
    signals=(
        Signal(
            name="action_entropy",
            read=_current,
            help="entropy of the last action that reported it, nats per token; a rule holds at or "
            "below its threshold: the agent is certain",
            message=lambda now, at: (
                f"the last action has an entropy of {now.action_entropy:.3g} nats per token"
            ),
            threshold="positive",
            falls=True,
            score=False,
            moment="observed",
        ),
    ),
    of_run=(Measured(RUN_ACTION_ENTROPY, lambda run: run.action_entropy),),
)

OF_GROUPS: Final = GroupDeclaration(
    name="entropy_split",
    kind=GroupEntropySplit,
    of_group=(
        Measured(ACTION_ENTROPY, _entropy),
        Measured(ACTION_ENTROPY_SUM, _entropy_sum),
        Measured(ACTION_ENTROPY_STEPS, _entropy_steps),
    ),
    document=lambda split: {"loop_entropy": split.loop, "other_entropy": split.other},
)

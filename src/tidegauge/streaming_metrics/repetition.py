"""Repetition: how much of a run went into doing again what it had done, in the same or other words.

Streaks and cycles are exact: one word more and they see nothing. Over public recordings this is
what best distinguishes runs that fail from those that succeed, beside their length
(docs/stop-rules.md).
"""

from __future__ import annotations

import math
from collections import deque
from typing import ClassVar, Final

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.streaming_metrics.buckets import ROUNDING
from tidegauge.streaming_metrics.declaration import (
    Attribute,
    Declaration,
    GroupView,
    Measured,
    RunView,
    Signal,
    Sum,
    over_active_runs,
    zero_amount,
)
from tidegauge.streaming_metrics.metric import Metric, Stateful
from tidegauge.streaming_metrics.novelty import Novelty
from tidegauge.streaming_metrics.records import IssuedStep, ObservedStep

_WINDOW: Final = 16
"""How many actions back an action is compared, and how many of the last make the recent sum."""
_PAID_OFF: Final = 0.5
"""What an action counts, of its likeness, once its result is new to the run."""


class ActionSimilarity(Metric[IssuedStep]):
    """Likeness of the last action to the most similar of the ``window`` actions before it.

    Two actions are as alike as the share of words that they have in common (the Jaccard index of
    their words): 1, the same call; 0, nothing in common. It sees the creative retries that no
    digest sees, where a model words one attempt in many ways.

    O(1) a step: at most ``window`` comparisons of bounded sets. Memory: the words of ``window``
    actions.

    Args:
        window: how many actions back.

    >>> similarity = ActionSimilarity()
    >>> for t, words in enumerate([{1, 2, 3}, {7}, {1, 2, 4}]):
    ...     similarity.update(IssuedStep(t, b"", b"", words=frozenset(words)))
    >>> similarity.value
    0.5
    """

    takes: ClassVar[type] = IssuedStep
    __slots__ = ("_current", "_recent", "window")

    def __init__(self, *, window: int = _WINDOW) -> None:
        self.window = window
        self._recent: deque[frozenset[int]] = deque(maxlen=window)
        self._current: float | None = None

    def update(self, step: IssuedStep) -> None:
        """Take the next action."""
        words, highest, recent = step.words, step.similarity, self._recent
        if highest is None:
            highest = 0.0
            if words in recent:
                highest = 1.0 if words else 0.0
            else:
                size = len(words)
                least, most, as_large = 0.0, math.inf, -1
                for other in reversed(recent):
                    others = len(other)
                    # A set of another size shares the smaller one at most, and one as large, which
                    # is not equal, all but a word: it is compared if that can be the highest.
                    if others != as_large and least < others < most:
                        common = len(words & other)
                        alike = common / (size + others - common)
                        if alike > highest:
                            highest, least, most = alike, size * alike, size / alike
                            if alike * (size + 1) >= size - 1:
                                as_large = size
        recent.append(words)
        self._current = highest

    @property
    def value(self) -> float | None:
        """Likeness of the last action, 0 to 1; ``None`` before the first."""
        return self._current


class Repetition(Stateful):
    """Adds up the squared likeness of every action to one before it.

    An action counts when it is issued; once its result is new to the run, only half
    of that stays. A call that changes something counts nothing, unless it fails.

    The sum over the run grows with honest work, too, if the run is long; :attr:`recent` is that
    of the last 16 actions alone.

    O(1) a step. Memory: what each of the last 16 actions counts.

    Attributes:
        total: the sum, in steps: each adds from 0 to 1.
        similarity: likeness of the last action, whether it counts or not; ``None`` before it.
        current: likeness of the last action, from 0 to 1; halved once its result was new.

    >>> repetition = Repetition()
    >>> for t in range(3):
    ...     alike = repetition.issue(IssuedStep(t, b"", b"", words=frozenset({1, 2})))
    ...     repetition.observe(t, alike, new=t == 0, latest=True)
    >>> repetition.total, repetition.recent, repetition.current
    (2.0, 2.0, 1.0)
    """

    version: ClassVar[int] = 3
    __slots__ = ("_recent", "_similarity", "current", "similarity", "total")

    def __init__(self) -> None:
        self._similarity = ActionSimilarity()
        # What the last actions count, by step, in order; None, the state before did not keep it.
        self._recent: dict[int, float | None] = {}
        self.total = 0.0
        self.similarity: float | None = None
        self.current = 0.0

    def issue(self, step: IssuedStep) -> float:
        """Take an issued action and return its likeness, which :meth:`observe` wants back."""
        similarity = self._similarity
        similarity.update(step)  # compares before it keeps; what follows cannot raise
        alike = self.similarity = similarity._current or 0.0
        counted = 0.0 if step.mutates else alike
        squared = counted * counted
        self.total += squared
        self.current = counted
        recent = self._recent
        recent[step.t] = squared
        if len(recent) > _WINDOW:
            del recent[next(iter(recent))]
        return alike

    @property
    def recent(self) -> float | None:
        """The sum over the last 16 actions; ``None``, a state of 0.1 did not keep what they count.

        It is added up when it is read, because sums that go up and down collect rounding errors.
        """
        amounts = [one for one in self._recent.values() if one is not None]
        return math.fsum(amounts) if len(amounts) == len(self._recent) else None

    def observe(
        self, t: int, alike: float, *, new: bool, latest: bool, failed: bool = False
    ) -> None:
        """Take the result of an action.

        Args:
            t: the step.
            alike: what :meth:`issue` returned for it.
            new: whether this result is new to the run.
            latest: whether no action was issued since.
            failed: whether it was to change something, and failed: now it counts.
        """
        counted = _PAID_OFF if new else 1.0
        self.total += (counted - (0.0 if failed else 1.0)) * alike * alike
        if t in self._recent:
            self._recent[t] = counted * alike * alike
        if latest:
            self.current = counted * alike


def _observed(run: RunView, repetition: Repetition, step: ObservedStep) -> None:
    if step.changed:
        return
    alike = step.likeness
    new = step.outcome is not None and run.metrics[Novelty].latest
    if new or step.mutates:
        repetition.observe(step.t, alike, new=new, latest=step.latest, failed=step.mutates)
    if alike:
        # addable() of what is at most 1, without the call
        run.totals.repeated_steps += alike * alike * (_PAID_OFF if new else 1) + ROUNDING - ROUNDING


REPEATED_STEPS: Final = MetricDefinition(
    "tidegauge_repeated_steps_total",
    "counter",
    "steps",
    "Squared similarity of each step to earlier ones, halved if its result was new. "
    "Divided by tidegauge_steps_total, a share. Absent unless repetition is measured.",
)
ACTION_SIMILARITY: Final = MetricDefinition(
    "tidegauge_action_similarity",
    "gauge",
    "ratio",
    "Similarity of the last action of active runs to the most similar of the 16 "
    "before, halved if its result was new: mean and maximum. Absent unless repetition "
    "is measured.",
    labels=(*GROUP_LABELS, "stat"),
    values=("mean", "max"),
)
REPETITION: Final = MetricDefinition(
    "tidegauge_repetition",
    "gauge",
    "steps",
    "Squared similarities of all actions of an active run, added up: mean and "
    "maximum. Absent unless repetition is measured.",
    labels=(*GROUP_LABELS, "stat"),
    values=("mean", "max"),
)
REPETITION_RECENT: Final = MetricDefinition(
    "tidegauge_repetition_recent",
    "gauge",
    "steps",
    "Squared similarities of the last 16 actions of an active run, added up: mean and "
    "maximum. Absent unless repetition is measured.",
    labels=(*GROUP_LABELS, "stat"),
    values=("mean", "max"),
)
RUN_ACTION_SIMILARITY: Final = MetricDefinition(
    "tidegauge_run_action_similarity",
    "gauge",
    "ratio",
    "Similarity of the run's last action to the most similar of the 16 before, halved "
    "if its result was new. Only for the most troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)
RUN_REPETITION: Final = MetricDefinition(
    "tidegauge_run_repetition",
    "gauge",
    "steps",
    "Squared similarities of the run's actions, added up. Only for the most troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)
RUN_REPETITION_RECENT: Final = MetricDefinition(
    "tidegauge_run_repetition_recent",
    "gauge",
    "steps",
    "Squared similarities of the run's last 16 actions, added up. Only for the most troubled "
    "active runs.",
    labels=(*GROUP_LABELS, "run"),
)


def _repeated_steps(group: GroupView) -> float | None:
    found: float = group.totals.repeated_steps
    measured = found or any(run.repetition is not None for run in group.active)
    return found if measured else None


DECLARATION: Final = Declaration(
    name="repetition",
    kind=Repetition,
    issued="issue",
    observed=_observed,
    brought_by_start=lambda started, settings: settings.repetition,
    sums=(Sum("repeated_steps", zero_amount),),
    absent={"similarity": None, "repetition": None, "repetition_recent": None},
    report=lambda run, repetition: {
        "similarity": repetition.current,
        "repetition": repetition.total,
        "repetition_recent": repetition.recent,
    },
    signals=(
        Signal(
            name="similarity",
            read=Attribute(Repetition, "current"),
            help="similarity of the last action to the most similar one of the 16 before, from 0 "
            "to 1, halved if its result was new; measures repetition",
            message=lambda now, at: (
                f"{now.similarity:.0%} of the last action repeats an earlier one"
            ),
            threshold="positive",
            reads_words=True,
        ),
        Signal(
            name="repetition",
            read=Attribute(Repetition, "total"),
            help="squared similarities of all actions, added up: steps that went into doing the "
            "same again, in the same or other words; measures repetition",
            message=lambda now, at: f"{now.repetition:.3g} steps repeated earlier ones",
            threshold="positive",
            reads_words=True,
        ),
        Signal(
            name="repetition_recent",
            read=Attribute(Repetition, "recent"),
            help="squared similarities of the last 16 actions, added up: as repetition, but a long "
            "run does not add up; measures repetition",
            message=lambda now, at: (
                f"{now.repetition_recent:.3g} of the last 16 steps repeated earlier ones"
            ),
            threshold="positive",
            reads_words=True,
        ),
    ),
    of_group=(
        Measured(REPEATED_STEPS, _repeated_steps),
        Measured(ACTION_SIMILARITY, over_active_runs("similarity")),
        Measured(REPETITION, over_active_runs("repetition")),
        Measured(REPETITION_RECENT, over_active_runs("repetition_recent")),
    ),
    of_run=(
        Measured(RUN_ACTION_SIMILARITY, lambda run: run.similarity),
        Measured(RUN_REPETITION, lambda run: run.repetition),
        Measured(RUN_REPETITION_RECENT, lambda run: run.repetition_recent),
    ),
)

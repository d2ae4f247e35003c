"""Repetition: how much of a run went into doing again what it had done, in the same or other words.

Streaks and cycles are exact: one word more and they see nothing. Over public recordings this is
what best distinguishes runs that fail from those that succeed, beside their length
(docs/stop-rules.md).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Final

from tidegauge.streaming_metrics.declaration import Declaration, RunView
from tidegauge.streaming_metrics.metric import Metric, Stateful
from tidegauge.streaming_metrics.novelty import Novelty
from tidegauge.streaming_metrics.polling_allowance import exempt_steps
from tidegauge.streaming_metrics.records import ChosenAction, IssuedStep, ObservedStep

__all__ = ["DECLARATION", "ActionSimilarity", "Repetition"]

_PAID_OFF: Final = 0.5
"""What an action counts, of its likeness, once its result is new to the run."""


class ActionSimilarity(Metric[ChosenAction]):
    """Likeness of the last action to the most similar of the ``window`` actions before it.

    Two actions are as alike as the share of words that they have in common (the Jaccard index of
    their words): 1, the same call; 0, nothing in common. It sees the creative retries that no
    digest sees, where a model words one attempt in many ways.

    O(1) a step: ``window`` comparisons of bounded sets. Memory: the words of ``window`` actions.

    Args:
        window: how many actions back.

    >>> similarity = ActionSimilarity()
    >>> for t, words in enumerate([{1, 2, 3}, {7}, {1, 2, 4}]):
    ...     similarity.update(ChosenAction(t, frozenset(words)))
    >>> similarity.value
    0.5
    """

    takes: ClassVar[type] = ChosenAction
    __slots__ = ("_current", "_recent", "window")

    def __init__(self, *, window: int = 16) -> None:
        self.window = window
        self._recent: deque[frozenset[int]] = deque(maxlen=window)
        self._current: float | None = None

    def update(self, step: ChosenAction) -> None:
        """Take the next action."""
        words, reported = step.words, step.similarity
        current = reported if reported is not None else max(self._alike(words), default=0.0)
        self._recent.append(words)
        self._current = current

    def _alike(self, words: frozenset[int]) -> list[float]:
        size = len(words)
        alike = []
        for other in self._recent:
            common = len(words & other)
            alike.append(common / (size + len(other) - common) if common else 0.0)
        return alike

    @property
    def value(self) -> float | None:
        """Likeness of the last action, 0 to 1; ``None`` before the first."""
        return self._current


class Repetition(Stateful):
    """Adds up the squared likeness of every action to one before it.

    An action counts when it is issued; once its result is new to the run, only half
    of that stays. An exempt step (a declared poller that waits) counts nothing.

    O(1) a step.

    Attributes:
        total: the sum, in steps: each adds from 0 to 1.
        current: likeness of the last action, from 0 to 1; halved once its result was new.

    >>> repetition = Repetition()
    >>> for t in range(3):
    ...     alike = repetition.issue(ChosenAction(t, frozenset({1, 2})))
    ...     repetition.observe(alike, new=t == 0, latest=True)
    >>> repetition.total, repetition.current
    (2.0, 1.0)
    """

    __slots__ = ("_similarity", "current", "total")

    def __init__(self) -> None:
        self._similarity = ActionSimilarity()
        self.total = 0.0
        self.current = 0.0

    def issue(self, step: ChosenAction, *, exempt: bool = False) -> float:
        """Take an issued action and return its likeness, which :meth:`observe` wants back."""
        self._similarity.update(step)  # compares before it keeps; what follows cannot raise
        alike = 0.0 if exempt else self._similarity.value or 0.0
        self.total += alike * alike
        self.current = alike
        return alike

    @property
    def similarity(self) -> float | None:
        """Likeness of the last action, exempt or not."""
        return self._similarity.value

    def observe(self, alike: float, *, new: bool, latest: bool) -> None:
        """Take the result of an action.

        Args:
            alike: what :meth:`issue` returned for it.
            new: whether this result is new to the run.
            latest: whether no action was issued since.
        """
        if not new:
            return
        self.total -= (1 - _PAID_OFF) * alike * alike
        if latest:
            self.current = _PAID_OFF * alike


def _issued(run: RunView, repetition: Repetition, step: IssuedStep) -> None:
    chosen = ChosenAction(step.t, step.words, step.similarity)
    repetition.issue(chosen, exempt=exempt_steps(run) > 0)


def _observed(run: RunView, repetition: Repetition, step: ObservedStep) -> None:
    if step.outcome is not None:
        repetition.observe(step.likeness, new=run.of(Novelty).latest, latest=step.latest)


def _read(name: str) -> Callable[[RunView], Any]:
    def read(run: RunView) -> Any:
        repetition = run.find(Repetition)
        return None if repetition is None else getattr(repetition, name)

    return read


DECLARATION: Final = Declaration(
    name="repetition",
    kind=Repetition,
    issued=_issued,
    observed=_observed,
    brought_by_start=lambda started, settings: settings.repetition,
    details={"similarity": _read("current"), "repetition": _read("total")},
)

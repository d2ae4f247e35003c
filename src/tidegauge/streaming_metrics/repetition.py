"""Repetition: how much of a run went into doing again what it had done, in the same or other words.

Streaks and cycles are exact: one word more and they see nothing. Over public recordings this is
what tells runs that fail from those that succeed best, beside their length (docs/stop-rules.md).
"""

from __future__ import annotations

from typing import Final

from tidegauge.streaming_metrics.action_similarity import ActionSimilarity
from tidegauge.streaming_metrics.metric import Stateful
from tidegauge.streaming_metrics.records import ChosenAction

__all__ = ["Repetition"]

_PAID_OFF: Final = 0.5
"""What an action counts, of its likeness, once it has brought an outcome that is new to the run."""


class Repetition(Stateful):
    """Adds up the squared likeness of every action to one before it.

    An action counts when it is issued; once its outcome turns out to be new to the run, only half
    of that stays. An excused step (a declared poller that waits) counts nothing.

    O(1) a step.

    Attributes:
        total: the sum, in steps: each adds from 0 to 1.
        current: likeness of the last action, from 0 to 1; halved once its outcome was new.

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

    def issue(self, step: ChosenAction, *, excused: bool = False) -> float:
        """Take an issued action and return its likeness, which :meth:`observe` wants back."""
        self._similarity.update(step)  # compares before it keeps; what follows cannot raise
        alike = 0.0 if excused else self._similarity.value or 0.0
        self.total += alike * alike
        self.current = alike
        return alike

    @property
    def similarity(self) -> float | None:
        """Likeness of the last action, excused or not."""
        return self._similarity.value

    def observe(self, alike: float, *, new: bool, latest: bool) -> None:
        """Take the outcome of an action.

        Args:
            alike: what :meth:`issue` returned for it.
            new: whether the run has not seen this outcome before.
            latest: whether no action was issued since.
        """
        if not new:
            return
        self.total -= (1 - _PAID_OFF) * alike * alike
        if latest:
            self.current = _PAID_OFF * alike

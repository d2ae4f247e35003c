"""Empty streak: the same empty result in consecutive steps, whatever was asked."""

from __future__ import annotations

from typing import ClassVar, Final

from tidegauge.streaming_metrics.declaration import Attribute, Declaration, Signal
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import ObservedStep


class EmptyStreak(Metric[ObservedStep]):
    """Consecutive steps whose results are equal and empty: nothing, or a short text that says so.

    The agent asks in ever new words for what is not there. A step whose result is not known ends
    the streak, and so does one that succeeded in changing something. O(1) time and memory.

    >>> streak = EmptyStreak()
    >>> for t in range(3):
    ...     streak.update(ObservedStep(t, action=b"%d" % t, outcome=b"no results", empty=True))
    >>> streak.value
    3
    """

    takes: ClassVar[type] = ObservedStep
    __slots__ = ("_result", "current")

    def __init__(self) -> None:
        self._result: bytes | None = None
        self.current: int | None = None

    def update(self, step: ObservedStep) -> None:
        """Take the next observed step."""
        outcome = step.outcome
        if outcome is None or step.changed or not step.empty:
            self.current = None if outcome is None else 0
            self._result = None
            return
        self.current = (self.current or 0) + 1 if outcome == self._result else 1
        self._result = outcome

    @property
    def value(self) -> int | None:
        """Length of the streak; ``None``, the last result is unknown."""
        return self.current


DECLARATION: Final = Declaration(
    name="empty_streak",
    kind=EmptyStreak,
    observed=True,
    absent={"empty_streak": None},
    report=lambda run, streak: {"empty_streak": streak.value},
    document=lambda report: {"empty_streak": report.empty_streak},
    signals=(
        Signal(
            name="empty_streak",
            read=Attribute(EmptyStreak, "current"),
            help="consecutive steps whose results are equal and empty, or say only that nothing "
            "was found",
            message=lambda now, at: f"{now.empty_streak} steps in a row found nothing",
            moment="observed",
        ),
    ),
)

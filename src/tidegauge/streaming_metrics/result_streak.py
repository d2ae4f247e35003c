"""Result streak: one and the same outcome again and again, whatever the action."""

from __future__ import annotations

from typing import ClassVar

from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import ObservedStep

__all__ = ["ResultStreak"]


class ResultStreak(Metric[ObservedStep]):
    """Consecutive steps with the same outcome: creative retries of one failure.

    A step whose outcome was not given ends the streak: nobody knows what came back. O(1) time
    and memory.

    Source: what users of loop guards miss beside exact loops (``docs/metrics/streaks.md``).

    >>> streak = ResultStreak()
    >>> for t, outcome in enumerate([b"ok", b"no such file", b"no such file", b"no such file"]):
    ...     streak.update(ObservedStep(t, outcome=outcome))
    >>> streak.value, streak.maximum
    (3, 3)
    """

    takes: ClassVar[type] = ObservedStep
    __slots__ = ("_last", "current", "maximum")

    def __init__(self) -> None:
        self._last: bytes | None = None
        self.current: int | None = None
        self.maximum: int | None = None

    def update(self, step: ObservedStep) -> None:
        """Take the next observed step."""
        outcome = step.outcome
        if outcome is None:
            self.current = None
        elif outcome == self._last and self.current is not None:
            self.current += 1
        else:
            self.current = 1
        self._last = outcome
        if self.current is not None and (self.maximum is None or self.current > self.maximum):
            self.maximum = self.current

    @property
    def value(self) -> int | None:
        """Length of the streak that the last step belongs to; ``None``, its outcome is unknown."""
        return self.current

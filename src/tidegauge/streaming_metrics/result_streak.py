"""Result streak: the same result in consecutive steps, whatever the action."""

from __future__ import annotations

from typing import ClassVar, Final

from tidegauge.streaming_metrics.declaration import Declaration, RunView, Signal
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.polling_allowance import exempt_steps
from tidegauge.streaming_metrics.records import ObservedStep

__all__ = ["DECLARATION", "ResultStreak"]


class ResultStreak(Metric[ObservedStep]):
    """Consecutive steps with the same result: creative retries of one failure.

    A step without a known result ends the streak. O(1) time
    and memory.

    Source: what users of loop guards miss in addition to exact loops (``docs/metrics/streaks.md``).

    >>> streak = ResultStreak()
    >>> for t, outcome in enumerate([b"ok", b"no such file", b"no such file", b"no such file"]):
    ...     streak.update(ObservedStep(t, outcome=outcome))
    >>> streak.value, streak.maximum
    (3, 3)
    """

    takes: ClassVar[type] = ObservedStep
    version: ClassVar[int] = 2
    __slots__ = ("_last", "current", "maximum", "reported")

    def __init__(self) -> None:
        self._last: bytes | None = None
        self.current: int | None = None
        self.maximum: int | None = None
        self.reported = False  # whether the onset of the current streak was counted

    def update(self, step: ObservedStep) -> None:
        """Take the next observed step."""
        outcome = step.outcome
        if outcome is None:
            self.current = None
        elif outcome == self._last and self.current is not None:
            self.current += 1
        else:
            self.current = 1
            self.reported = False
        self._last = outcome
        if self.current is not None and (self.maximum is None or self.current > self.maximum):
            self.maximum = self.current

    @property
    def value(self) -> int | None:
        """Length of the streak that the last step belongs to; ``None``, its result is unknown."""
        return self.current


def _observed(run: RunView, streak: ResultStreak, step: ObservedStep) -> None:
    streak.update(step)
    current = streak.current
    if current is None or current < run.settings.onset_at or streak.reported:
        return
    if current > exempt_steps(run):
        streak.reported = True
        run.count_onset("result_streak", step.t)


DECLARATION: Final = Declaration(
    name="result_streak",
    kind=ResultStreak,
    observed=_observed,
    absent={"result_streak": None, "result_streak_max": None},
    report=lambda run, streak: {
        "result_streak": streak.value,
        "result_streak_max": streak.maximum,
    },
    document=lambda report: {"result_streak_max": report.result_streak_max},
    signals=(
        Signal(
            name="result_streak",
            read=lambda run: run.metrics[ResultStreak].current,
            help="consecutive steps with the same result, whatever their arguments",
            message=lambda now, at: f"{now.result_streak} steps in a row with the same result",
            exempt="streak",
            moment="observed",
        ),
    ),
)

"""Result streak: the same result in consecutive steps, in one call or in creative retries."""

from __future__ import annotations

from typing import ClassVar, Final

from tidegauge.streaming_metrics.declaration import Attribute, Declaration, Signal
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import ObservedStep


class ResultStreak(Metric[ObservedStep]):
    """Consecutive steps with the same result: one call again and again, or retries of a failure.

    Different calls with the same acknowledgement ("OK") are progress: a step continues the streak
    only if it failed, says that it failed or found nothing, or repeats the action before it. A step
    without a known result ends the streak, and so does one that succeeded in changing something.
    O(1) time and memory.

    Args:
        onset_at: length at which trouble begins.

    Source: what users of loop guards miss in addition to loops (``docs/metrics/streaks.md``).

    >>> streak = ResultStreak()
    >>> for t, outcome in enumerate([b"ok", b"no such file", b"no such file", b"no such file"]):
    ...     _ = streak.update(ObservedStep(t, action=b"%d" % t, outcome=outcome, negative=t > 0))
    >>> streak.value, streak.maximum
    (3, 3)
    """

    takes: ClassVar[type] = ObservedStep
    version: ClassVar[int] = 3
    unsaved: ClassVar[frozenset[str]] = frozenset({"onset_at"})
    __slots__ = ("_action", "_result", "current", "maximum", "onset_at")

    def __init__(self, *, onset_at: int = 3) -> None:
        self.onset_at = onset_at
        self._action = b""
        self._result: bytes | None = None
        self.current: int | None = None
        self.maximum: int | None = None

    def update(self, step: ObservedStep) -> bool:
        """Take the next observed step. Returns whether the streak has come to ``onset_at``."""
        action, outcome = step.action, step.outcome
        if outcome is None:
            self.current = None
        elif step.changed:
            self.current, outcome = 0, None
        elif outcome == self._result and (step.failed or step.negative or action == self._action):
            self.current = (self.current or 0) + 1
        else:
            self.current = 1
        self._action, self._result = action, outcome
        if self.current is not None and (self.maximum is None or self.current > self.maximum):
            self.maximum = self.current
        return self.current == self.onset_at

    @property
    def value(self) -> int | None:
        """Length of the streak that the last step belongs to; ``None``, its result is unknown."""
        return self.current


DECLARATION: Final = Declaration(
    name="result_streak",
    kind=ResultStreak,
    make=lambda run: ResultStreak(onset_at=run.settings.onset_at),
    observed=True,
    absent={"result_streak": None, "result_streak_max": None},
    report=lambda run, streak: {
        "result_streak": streak.value,
        "result_streak_max": streak.maximum,
    },
    document=lambda report: {"result_streak_max": report.result_streak_max},
    signals=(
        Signal(
            name="result_streak",
            read=Attribute(ResultStreak, "current"),
            help="consecutive steps with the same result that failed, found nothing, or repeat "
            "the call before",
            message=lambda now, at: f"{now.result_streak} steps in a row with the same result",
            moment="observed",
        ),
    ),
)

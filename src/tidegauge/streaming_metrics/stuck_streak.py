"""Stuck streak: one result again and again, by failures or by one action."""

from __future__ import annotations

from typing import ClassVar, Final

from tidegauge.streaming_metrics.declaration import Attribute, Declaration, Signal
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import ObservedStep


class StuckStreak(Metric[ObservedStep]):
    """Consecutive steps with one result, each of which failed or has the action of the step before.

    A step fails here if each of its calls is known to have failed. Anything else begins at 1: what
    is counted is certain enough to end a run (``docs/stop-rules-measured.md``). A step whose
    result is not known ends the streak, and so does one that succeeded in changing something. O(1)
    time and memory.

    >>> streak = StuckStreak()
    >>> for t, failed in enumerate([True, True, False, True]):
    ...     streak.update(ObservedStep(t, action=b"%d" % t, outcome=b"denied", failed=failed))
    ...     print(streak.value)
    1
    2
    1
    2
    """

    takes: ClassVar[type] = ObservedStep
    __slots__ = ("_action", "_result", "current", "maximum")

    def __init__(self) -> None:
        self._action = b""
        self._result: bytes | None = None
        self.current: int | None = None
        self.maximum: int | None = None

    def update(self, step: ObservedStep) -> None:
        """Take the next observed step."""
        action, outcome = step.action, step.outcome
        if outcome is None:
            self.current = None
        elif step.changed:
            self.current, outcome = 0, None
        elif outcome == self._result and (step.failed or action == self._action):
            self.current = (self.current or 0) + 1
        else:
            self.current = 1
        self._action, self._result = action, outcome
        if self.current is not None and (self.maximum is None or self.current > self.maximum):
            self.maximum = self.current

    @property
    def value(self) -> int | None:
        """Length of the streak that the last step belongs to; ``None``, its result is unknown."""
        return self.current


DECLARATION: Final = Declaration(
    name="stuck_streak",
    kind=StuckStreak,
    observed=True,
    absent={"stuck_streak": None, "stuck_streak_max": None},
    report=lambda run, streak: {
        "stuck_streak": streak.value,
        "stuck_streak_max": streak.maximum,
    },
    document=lambda report: {"stuck_streak_max": report.stuck_streak_max},
    signals=(
        Signal(
            name="stuck_streak",
            read=Attribute(StuckStreak, "current"),
            help="consecutive steps with one result, each of which failed or repeats the call "
            "before",
            message=lambda now, at: (
                f"{now.stuck_streak} steps in a row with the same result and no way on"
            ),
            moment="observed",
        ),
    ),
)

"""Noise: what known noise was left out of a run, and results that differ in nothing else.

What means nothing by its form is left out before texts are compared
(:mod:`~tidegauge.streaming_metrics.known_noise`). What shows only in a run that it means nothing,
because it changes every time and nothing else does, is not left out: it warns.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.streaming_metrics.declaration import (
    Declaration,
    Measured,
    RunView,
    Signal,
    over_active_runs,
)
from tidegauge.streaming_metrics.evicting_dict import EvictingDict
from tidegauge.streaming_metrics.known_noise import Numbers
from tidegauge.streaming_metrics.metric import Metric, Stateful
from tidegauge.streaming_metrics.records import IssuedStep, ObservedStep

__all__ = ["LEFT_OUT", "NEAR", "NEAR_STREAK", "RUN_NEAR_STREAK", "LeftOut", "NearStreak"]

_ACTIONS: Final = 16
_REMEMBERED: Final = 8
_ENOUGH: Final = 3


class LeftOut(Stateful):
    """How often each kind of known noise was left out before texts were compared.

    Arguments count, reported states and results do: those of a round once.

    >>> left_out = LeftOut()
    >>> left_out.take(["durations"]), left_out.take(["durations", "uuids"])
    (None, None)
    >>> left_out.kinds
    {'durations': 2, 'uuids': 1}
    """

    __slots__ = ("kinds",)

    def __init__(self) -> None:
        self.kinds: dict[str, int] = {}

    def take(self, kinds: Any) -> None:
        """Take the kinds of noise of a step's arguments or results."""
        for kind in kinds:
            self.kinds[kind] = self.kinds.get(kind, 0) + 1


class _Results:
    """The last results of one action that are equal but for numbers."""

    __slots__ = ("count", "kept", "places", "shape", "trends", "values")

    def __init__(self, shape: bytes, values: tuple[float | bytes, ...]) -> None:
        self.shape = shape
        self.values = values
        self.count = 1
        self.places: list[int] = []
        self.trends: list[int] = []  # 1, it rises; -1, it falls; 0, neither
        self.kept: list[list[float | bytes]] = []  # a deque of none takes 600 bytes

    def take(self, values: tuple[float | bytes, ...]) -> None:
        """Take the next result of this shape."""
        before, self.values = self.values, values
        places = [i for i, one in enumerate(values) if one != before[i]]
        found = [values[i] for i in places]
        if places and self.count == 1:
            self.places = places
            self.trends = [_trend(before[i], values[i]) for i in places]
            self.kept.append([before[i] for i in places])
        elif places and places == self.places and not self._comes_back(found):
            self.trends = [
                trend if trend and trend == _trend(before[i], values[i]) else 0
                for i, trend in zip(places, self.trends, strict=True)
            ]
        else:
            self.__init__(self.shape, values)  # type: ignore[misc]
            return
        self.kept = [*self.kept[1 - _REMEMBERED :], found]
        self.count += 1

    def _comes_back(self, values: list[float | bytes]) -> bool:
        for earlier in self.kept:
            for one, other in zip(values, earlier, strict=True):
                if one == other:
                    return True
        return False

    @property
    def streak(self) -> int:
        """How many results in a row are equal but for noise; 0, this is not known."""
        return 0 if self.count < _ENOUGH or any(self.trends) else self.count


def _trend(before: float | bytes, now: float | bytes) -> int:
    if type(before) is not float or type(now) is not float:
        return 0
    return 1 if now > before else -1


class NearStreak(Metric[ObservedStep]):
    """How often in a row an action had the same result, but for numbers that mean nothing.

    A number, or a word with digits in it, means nothing here if it is another one in each of these
    results, and not one of the eight before; everything else is the same. A number that rises or
    falls all the time counts something: then the streak is 0, and so it is for fewer than three
    results. Other actions may stand between. Known noise is left out before. A call that succeeded
    in changing something has none.

    Read where texts are at hand, of results of at most 4,096 bytes and 64 numbers. A run that is
    restored from a store begins anew, because no number of a result leaves the process.

    O(1) a step. Memory: of the last 16 actions, the numbers of 8 results.

    >>> from tidegauge.streaming_metrics.known_noise import numbers_in
    >>> streak = NearStreak()
    >>> for t, port in enumerate([b"72, 0 rows", b"19, 0 rows", b"45, 0 rows", b"31, 0 rows"]):
    ...     numbers = numbers_in(port)
    ...     streak.update(ObservedStep(t, action=b"query", outcome=port, numbers=numbers))
    ...     print(streak.value)
    0
    0
    3
    4
    """

    takes: ClassVar[type] = ObservedStep
    unsaved: ClassVar[frozenset[str]] = frozenset({"_actions"})
    __slots__ = ("_actions", "current", "maximum")

    def __init__(self) -> None:
        self._actions: EvictingDict[bytes, _Results] = EvictingDict()
        self.current = 0
        self.maximum = 0

    def update(self, step: ObservedStep) -> None:
        """Take the next observed step."""
        self.current = 0
        numbers: Numbers | None = step.numbers
        results = self._actions.pop(step.action, None)
        if numbers is None or step.changed:
            return
        shape, values = numbers
        if results is None or results.shape != shape:
            results = _Results(shape, values)
        else:
            results.take(values)
        self._actions[step.action] = results
        if len(self._actions) > _ACTIONS:
            self._actions.evict()
        self.current = results.streak
        self.maximum = max(self.maximum, self.current)

    @property
    def value(self) -> int:
        """The streak that the last step belongs to."""
        return self.current


NEAR_STREAK: Final = MetricDefinition(
    "tidegauge_near_streak",
    "gauge",
    "results",
    "How often in a row the last action of active runs had the same result but for numbers that "
    "change every time: mean and maximum. Absent until a result with a number is read.",
    labels=(*GROUP_LABELS, "stat"),
    values=("mean", "max"),
)
RUN_NEAR_STREAK: Final = MetricDefinition(
    "tidegauge_run_near_streak",
    "gauge",
    "results",
    "How often in a row the run's last action had the same result but for numbers that change "
    "every time. Only for the most troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)


def _issued(run: RunView, left_out: LeftOut, step: IssuedStep) -> None:
    if step.noise:
        left_out.take(step.noise)


def _observed(run: RunView, left_out: LeftOut, step: ObservedStep) -> None:
    if step.noise:
        left_out.take(step.noise)


def _near(run: RunView) -> int | None:
    streak = run.find(NearStreak)
    return None if streak is None else streak.current


LEFT_OUT: Final = Declaration(
    name="left_out",
    kind=LeftOut,
    issued=_issued,
    observed=_observed,
    takes_skipped=True,
    brought_by=("noise",),
    absent={"left_out": None},
    report=lambda run, left_out: {"left_out": dict(left_out.kinds)},
    document=lambda report: {} if report.left_out is None else {"left_out": report.left_out},
)

NEAR: Final = Declaration(
    name="near_streak",
    kind=NearStreak,
    observed=True,
    brought_by=("numbers",),
    absent={"near_streak": None, "near_streak_max": None},
    report=lambda run, streak: {
        "near_streak": streak.current,
        "near_streak_max": streak.maximum,
    },
    signals=(
        Signal(
            name="near_streak",
            read=_near,
            help="how often in a row the last action had the same result but for numbers that "
            "change every time and count nothing; it warns",
            message=lambda now, at: f"{now.near_streak} results of one call differ only in numbers",
            moment="observed",
        ),
    ),
    of_group=(Measured(NEAR_STREAK, over_active_runs("near_streak")),),
    of_run=(Measured(RUN_NEAR_STREAK, lambda run: run.near_streak),),
)

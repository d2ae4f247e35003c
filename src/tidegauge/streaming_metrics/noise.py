"""Noise: what known noise was left out of a run, and results that differ in nothing else.

What means nothing by its form is left out before texts are compared
(:mod:`~tidegauge.streaming_metrics.known_noise`). What shows only in a run that it means nothing,
because it changes every time and nothing else does, is not left out: it warns.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final, NamedTuple

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.streaming_metrics.declaration import (
    Attribute,
    Declaration,
    Measured,
    RunView,
    Signal,
    over_active_runs,
)
from tidegauge.streaming_metrics.known_noise import Numbers
from tidegauge.streaming_metrics.metric import Metric, Stateful
from tidegauge.streaming_metrics.records import IssuedStep, ObservedStep

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


class _Results(NamedTuple):
    """The last results of one action that are equal but for numbers; kept as a plain tuple."""

    shape: bytes
    values: tuple[float | bytes, ...]
    length: int = 1
    places: tuple[int, ...] = ()
    trends: tuple[int, ...] = ()  # for so many results it has risen; below 0, fallen
    kept: tuple[tuple[float | bytes, ...], ...] = ()

    def with_next(self, values: tuple[float | bytes, ...]) -> _Results:
        """With the next result of this shape."""
        before = self.values
        places = tuple([i for i, one in enumerate(values) if one != before[i]])
        found = tuple([values[i] for i in places])
        trends = tuple([_trend(before[i], values[i]) for i in places])
        if places and self.length == 1:
            kept: tuple[tuple[float | bytes, ...], ...] = (
                tuple([before[i] for i in places]),
                found,
            )
        elif places and places == self.places and not self._goes_back(found, trends):
            trends = tuple(
                [
                    trend + now if trend * now > 0 else now
                    for trend, now in zip(self.trends, trends, strict=True)
                ]
            )
            kept = (*self.kept[1 - _REMEMBERED :], found)
        else:
            return _Results(self.shape, values)
        return _Results(self.shape, values, self.length + 1, places, trends, kept)

    def _goes_back(self, values: tuple[float | bytes, ...], trends: tuple[int, ...]) -> bool:
        """Whether a value is known, or what counted until now begins to count again."""
        for trend, now in zip(self.trends, trends, strict=True):
            if abs(trend) >= _REMEMBERED - 1 and trend * now <= 0:
                return True
        for earlier in self.kept:
            for one, other in zip(values, earlier, strict=True):
                if one == other:
                    return True
        return False

    @property
    def streak(self) -> int:
        """How many results in a row are equal but for noise; 0, this is not known."""
        steady = min(self.length, _REMEMBERED) - 1
        counts = any(abs(trend) >= steady for trend in self.trends)
        return 0 if self.length < _ENOUGH or counts else self.length


_FIRST: Final = tuple(_Results(b"", ()))[2:]
"""What is kept of a first result, beside its shape and values."""


def _trend(before: float | bytes, now: float | bytes) -> int:
    if type(before) is not float or type(now) is not float:
        return 0
    return 1 if now > before else -1


class NearStreak(Metric[ObservedStep]):
    """How often in a row an action had the same result, but for numbers that mean nothing.

    A number, or a word with digits in it, means nothing here if it is another one in each of these
    results, and not one of the eight before; everything else is the same. A number that rises or
    falls in all of these results, or in the last eight, counts something: then the streak is 0, and
    begins again when the number turns. It is 0 for fewer than three results, too. Other actions may
    stand between. Known noise is left out before. A call that succeeded in changing something has
    none.

    Read where texts are at hand, of results of at most 4,096 bytes and 64 numbers. A saved state
    has the numbers of up to 9 digits; of anything else it has digests.

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
    __slots__ = ("_actions", "current", "maximum")

    def __init__(self) -> None:
        self._actions: dict[bytes, tuple[Any, ...]] = {}  # the one called last at the end
        self.current = 0
        self.maximum = 0

    def update(self, step: ObservedStep) -> None:
        """Take the next observed step."""
        self.current = 0
        actions, action = self._actions, step.action
        numbers: Numbers | None = step.numbers
        known = actions.pop(action, None)
        if numbers is None or step.changed:
            return
        if known is None or known[0] != numbers[0]:
            actions[action] = numbers + _FIRST
        else:
            results = _Results(*known).with_next(numbers[1])
            actions[action] = tuple(results)
            self.current = results.streak
            self.maximum = max(self.maximum, self.current)
        if len(actions) > _ACTIONS:
            del actions[next(iter(actions))]

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
            read=Attribute(NearStreak, "current"),
            help="how often in a row the last action had the same result but for numbers that "
            "change every time and count nothing; it warns",
            message=lambda now, at: f"{now.near_streak} results of one call differ only in numbers",
            moment="observed",
        ),
    ),
    of_group=(Measured(NEAR_STREAK, over_active_runs("near_streak")),),
    of_run=(Measured(RUN_NEAR_STREAK, lambda run: run.near_streak),),
)

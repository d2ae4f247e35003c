"""Stacked instrumentations show one call several times: recognizes that it is one.

What two instrumentations make of one call overlaps in time and comes from different scopes.
Beyond that the ids of tool calls decide; where one of the two does not show them, name and
arguments do. Of two hosts the clocks may differ: then equal ids, names and arguments decide
whatever the times are, and without ids times a second apart still are those of one call.

That holds within a trace. Ids of calls are unique there at most: many models count them from zero.
So calls in different traces are one only where more proves it, and else each trace stands alone:

- They overlap in time by one clock, and choose the same, by the same ids where both have ids.
- What was chosen has no result yet.
- Both ended in one thread or task of this process, where calls of a model do not overlap. Or both
  show what they chose, and are of one process, by its resource, and of one conversation; in this
  process, ids will do in its place where both ended in threads that an event loop hands work to:
  there, callback handlers end them.
- No other run has such a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getsizeof
from typing import Any, Final, NamedTuple

from tidegauge.events import ABSENT, made
from tidegauge.foreign_spans.json_values import text
from tidegauge.foreign_spans.span import (
    NO_INFO,
    UNKNOWN_ARGUMENTS,
    ModelSpan,
    SpanData,
    clock_of,
)
from tidegauge.runs.turn_calls import ChosenCall

MAX_SKEW: Final = 1_000_000_000
"""Nanoseconds that the clocks of two hosts may be apart, where only times show what is one call."""


_MAX_PARTS: Final = 1_000_000


class Interval(NamedTuple):
    """When, in nanoseconds."""

    start: int
    end: int

    def overlaps(self, other: Interval) -> bool:
        """Whether there is a moment that both have.

        >>> Interval(1, 3).overlaps(Interval(2, 9)), Interval(1, 2).overlaps(Interval(2, 3))
        (True, False)
        """
        return self.start < other.end and other.start < self.end

    def apart(self, other: Interval) -> int:
        """How far their starts and their ends are apart, in nanoseconds.

        >>> Interval(1, 3).apart(Interval(2, 9))
        7
        """
        return abs(self.start - other.start) + abs(self.end - other.end)

    def near(self, other: Interval) -> bool:
        """Whether they are no further apart than clocks may be.

        >>> Interval(0, 1).near(Interval(MAX_SKEW, MAX_SKEW)), Interval(0, 1).near(Interval(1, 2))
        (True, True)
        >>> Interval(0, 1).near(Interval(MAX_SKEW + 2, MAX_SKEW + 3))
        False
        """
        return self.start - other.end <= MAX_SKEW and other.start - self.end <= MAX_SKEW


class SeenModel(NamedTuple):
    """A model call as one instrumentation shows it: what another span is compared with later.

    Attributes:
        model: the calls that it chose, and its tokens.
        place: the thread or task of this process in which its span ended; 0, that is not known.
        size: bytes of memory that these calls take, about.
    """

    scope: str
    when: Interval
    model: ModelSpan
    clock: str = ""
    span: int = 0
    parent: int | None = None
    place: int = 0
    size: int = 0

    @classmethod
    def of(cls, span: SpanData, model: ModelSpan, place: int = 0) -> SeenModel:
        """What ``span`` shows."""
        when, clock = made(Interval, (span.start, span.end)), clock_of(span.resource)
        calls = model.calls
        size = 0
        for call in calls or ():
            size += memory_of(call.arguments)
        kept = made(ModelSpan, (NO_INFO, calls, model.tokens, (), None, False, ()))
        fields = (span.scope, when, kept, clock, span.span_id, span.parent_id, place, size)
        return made(cls, fields)

    def beside(self, other: SeenModel) -> bool:
        """Whether it is not known that both ended in one thread or task.

        >>> one = SeenModel("a", Interval(1, 2), ModelSpan(), place=7)
        >>> one.beside(one), one.beside(one._replace(place=8))
        (False, True)
        """
        return self.place == 0 or self.place != other.place


def memory_of(contents: object) -> int:
    """Bytes of memory that the arguments of a call take, about: of a million parts at most.

    >>> memory_of("k" * 1_000) > 1_000, memory_of({"q": ["k" * 1_000] * 2}) > 2_000
    (True, True)
    """
    size = 0
    parts: list[Any] = [contents]
    for part in parts:  # which grows meanwhile
        size += getsizeof(part)
        kind = type(part)
        if kind is dict:
            parts += part
            parts += part.values()
        elif (kind is list or kind is tuple) and part is not UNKNOWN_ARGUMENTS:
            parts += part
        if len(parts) > _MAX_PARTS:
            break
    return size


def same_model_call(one: SeenModel, other: SeenModel) -> bool:
    """Whether two spans show one model call."""
    if one.scope == other.scope and one.parent != other.span:
        return False
    chosen, again = one.model.calls, other.model.calls
    if not one.when.overlaps(other.when):
        if one.clock == other.clock or not chosen or not again:
            return False
        ids = [call.id for call in chosen]
        if None in ids or ids != [call.id for call in again]:
            return False
        return _same_choices(chosen, again)
    if chosen is None or again is None:
        return _agree(one.model.tokens, other.model.tokens)
    if len(chosen) != len(again):
        return False
    if not chosen:
        return _agree(one.model.tokens, other.model.tokens)
    return _same_choices(chosen, again)


def same_call_elsewhere(one: SeenModel, other: SeenModel) -> bool:
    """Whether calls that may be one show that also if they are in different traces.

    It is necessary; the rest of the proof is not in the calls.
    """
    if one.clock != other.clock or not one.when.overlaps(other.when):
        return False
    chosen, again = one.model.calls or (), other.model.calls or ()
    ids = [(a.id, b.id) for a, b in zip(chosen, again, strict=False)]
    return all(a == b or a is None or b is None for a, b in ids)


def _same_choices(chosen: Sequence[ChosenCall], again: Sequence[ChosenCall]) -> bool:
    return all(
        a.name == b.name and same_arguments(a.arguments, b.arguments)
        for a, b in zip(chosen, again, strict=True)
    )


def same_arguments(one: object, other: object) -> bool:
    """Whether these may be the arguments of one call.

    What is not known may be anything; OpenInference gives the value alone where there is but one.

    >>> same_arguments({"q": "key"}, "key"), same_arguments({"q": "key"}, {"q": "door"})
    (True, False)
    """
    if _unknown(one) or _unknown(other):
        return True
    try:
        return one == other or _holds_only(one, other) or _holds_only(other, one)
    except RecursionError:  # too many levels to compare
        return False


def _unknown(arguments: object) -> bool:
    return arguments is ABSENT or arguments is UNKNOWN_ARGUMENTS


def _holds_only(arguments: object, value: object) -> bool:
    """Whether these arguments are this value alone, or its text."""
    if type(arguments) is not dict or len(arguments) != 1:
        return False
    [only] = arguments.values()
    return only == value or (isinstance(value, str) and text(only) == value)


def _agree(one: object, other: object) -> bool:
    return one is None or other is None or one == other

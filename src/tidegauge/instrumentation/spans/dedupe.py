"""Stacked instrumentations show one call several times: telling that it is one.

What two instrumentations make of one call overlaps in time and comes from different scopes.
Beyond that the ids of tool calls decide; where one of the two does not tell them, name and
arguments do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tidegauge.events import ABSENT
from tidegauge.instrumentation.spans.span import UNKNOWN_ARGUMENTS, ModelSpan, SpanData

__all__ = ["Interval", "SeenModel", "same_arguments", "same_model_call"]


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


class SeenModel(NamedTuple):
    """A model call as one instrumentation shows it."""

    scope: str
    when: Interval
    told: ModelSpan

    @classmethod
    def of(cls, span: SpanData, told: ModelSpan) -> SeenModel:
        """What ``span`` shows."""
        return cls(span.scope, Interval(span.start, span.end), told)


def same_model_call(one: SeenModel, other: SeenModel) -> bool:
    """Whether two spans show one model call."""
    if one.scope == other.scope or not one.when.overlaps(other.when):
        return False
    chosen, again = one.told.calls, other.told.calls
    if chosen is None or again is None:
        return _agree(one.told.tokens, other.told.tokens)
    if len(chosen) != len(again):
        return False
    if not chosen:
        return _agree(one.told.tokens, other.told.tokens)
    return all(
        a.name == b.name and _agree(a.id, b.id) and same_arguments(a.arguments, b.arguments)
        for a, b in zip(chosen, again, strict=True)
    )


def same_arguments(one: object, other: object) -> bool:
    """Whether these may be the arguments of one call.

    What is not known may be anything; OpenInference gives the value alone where there is but one.

    >>> same_arguments({"q": "key"}, "key"), same_arguments({"q": "key"}, {"q": "door"})
    (True, False)
    """
    if _unknown(one) or _unknown(other) or one == other:
        return True
    return _only_value(one) == str(other) or _only_value(other) == str(one)


def _unknown(arguments: object) -> bool:
    return arguments is ABSENT or arguments is UNKNOWN_ARGUMENTS


def _only_value(arguments: object) -> str | None:
    if isinstance(arguments, Mapping) and len(arguments) == 1:
        return str(next(iter(arguments.values())))
    return None


def _agree(one: object, other: object) -> bool:
    return one is None or other is None or one == other

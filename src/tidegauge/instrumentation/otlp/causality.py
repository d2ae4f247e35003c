"""Tool calls of hosts whose clocks are behind: they come after the model call that chose them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from tidegauge.instrumentation.spans.dedupe import MAX_SKEW, same_arguments
from tidegauge.instrumentation.spans.span import (
    ModelSpan,
    Reading,
    SpanData,
    ToolSpan,
    clock_of,
)
from tidegauge.instrumentation.told import ChosenCall

__all__ = ["ReadSpans", "in_causal_order"]

ReadSpans: TypeAlias = Sequence[tuple[SpanData, Reading | None]]
"""Spans, each with its reading."""

_MAX_COMPARED: Final = 64
"""How many calls of one name a tool's span is compared with, on either side of it."""


class _Choice(NamedTuple):
    at: int  # place of the model's span
    call: ChosenCall
    span: SpanData
    clock: str
    shown_by: set[str]  # the instrumentations that a span of it was found of


def in_causal_order(spans: ReadSpans) -> ReadSpans:
    """The same spans; those of tool calls behind those of the model calls that chose them.

    Only spans of hosts with different clocks are moved. What a tool's span belongs to is known
    by the model's id of the call; without it by name, arguments, and an end up to a second before
    the choice.

    Args:
        spans: of one trace, in the order of their ends.

    >>> from tidegauge.instrumentation.spans.span import NOT_TOLD
    >>> there, here = {"host.name": "b"}, {"host.name": "a"}
    >>> tool = SpanData(1, 2, 9, "look", "any", {}, 3, 4, resource=there)
    >>> model = SpanData(1, 3, 9, "chat", "any", {}, 1, 6, resource=here)
    >>> chosen = ModelSpan(calls=(ChosenCall("look", {}, "call-1"),))
    >>> given = [(tool, ToolSpan(NOT_TOLD, "look", id="call-1")), (model, chosen)]
    >>> [span.name for span, _ in in_causal_order(given)]
    ['chat', 'look']
    """
    clocks = {
        "remote" if span.remote else clock_of(span.resource)
        for span, reading in spans
        if isinstance(reading, ModelSpan | ToolSpan)
    }
    if len(clocks) < 2:
        return spans
    chosen = _choices(spans)
    if not chosen:
        return spans
    behind = [
        _behind(at, span, reading, chosen[reading.name])
        if isinstance(reading, ToolSpan) and reading.name in chosen
        else at
        for at, (span, reading) in enumerate(spans)
    ]
    order = sorted(range(len(spans)), key=lambda at: (behind[at], behind[at] != at))
    return [spans[at] for at in order]


def _choices(spans: ReadSpans) -> dict[str, list[_Choice]]:
    """What the models chose, by name, in their order."""
    found: dict[str, list[_Choice]] = {}
    for at, (span, reading) in enumerate(spans):
        if isinstance(reading, ModelSpan):
            clock = clock_of(span.resource)
            for call in reading.calls or ():
                found.setdefault(call.name, []).append(_Choice(at, call, span, clock, set()))
    return found


def _behind(at: int, span: SpanData, tool: ToolSpan, chosen: list[_Choice]) -> int:
    """The place of the model call that chose a tool call; its own, when that comes before it."""
    middle = bisect_right(chosen, at, key=lambda choice: choice.at)
    clock = clock_of(span.resource)
    before = chosen[max(0, middle - _MAX_COMPARED) : middle]
    after = [
        choice
        for choice in chosen[middle : middle + _MAX_COMPARED]
        if span.remote or choice.clock != clock
    ]
    if tool.id is not None:
        known = [choice for choice in (*before, *after) if choice.call.id == tool.id]
        if known:
            return max(at, known[0].at)
    for choice in (*before, *after):
        near = choice.at < at or choice.span.end - span.end <= MAX_SKEW
        if (
            near
            and span.scope not in choice.shown_by
            and (tool.id is None or choice.call.id is None)
            and same_arguments(choice.call.arguments, tool.arguments)
        ):
            choice.shown_by.add(span.scope)
            return max(at, choice.at)
    return at

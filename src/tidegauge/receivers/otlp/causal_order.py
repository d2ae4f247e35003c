"""Orders tool calls after the model calls that chose them, where the clocks of hosts differ."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from tidegauge.instrumentation.spans.dedupe import MAX_SKEW, same_arguments
from tidegauge.instrumentation.spans.span import (
    KnownSpan,
    ModelSpan,
    SpanData,
    ToolSpan,
    clock_of,
)
from tidegauge.instrumentation.turns import ChosenCall

__all__ = ["ReadSpans", "in_causal_order"]

ReadSpans: TypeAlias = Sequence[tuple[SpanData, KnownSpan | None]]
"""Spans, each with its reading."""

_MAX_COMPARED: Final = 64
"""Limit of the calls of one name that a tool's span is compared with, on either side of it."""


class _Choice(NamedTuple):
    at: int  # index of the model's span
    call: ChosenCall
    span: SpanData
    clock: str
    scopes: set[str]  # the instrumentations that have a span of this call


def in_causal_order(spans: ReadSpans) -> ReadSpans:
    """The same spans, with those of tool calls after those of the model calls that chose them.

    Only spans of hosts with different clocks are moved. A tool's span is matched to its model call
    by the id of the call; without an id, by name, arguments, and an end at most a second before
    that of the model call.

    Args:
        spans: of one trace, in the order of their ends.

    >>> from tidegauge.instrumentation.spans.span import NO_INFO
    >>> there, here = {"host.name": "b"}, {"host.name": "a"}
    >>> tool = SpanData(1, 2, 9, "look", "any", {}, 3, 4, resource=there)
    >>> model = SpanData(1, 3, 9, "chat", "any", {}, 1, 6, resource=here)
    >>> chosen = ModelSpan(calls=(ChosenCall("look", {}, "call-1"),))
    >>> spans = [(tool, ToolSpan(NO_INFO, "look", id="call-1")), (model, chosen)]
    >>> [span.name for span, _ in in_causal_order(spans)]
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
    """The calls that the models chose, in order, by name."""
    found: dict[str, list[_Choice]] = {}
    for at, (span, reading) in enumerate(spans):
        if isinstance(reading, ModelSpan):
            clock = clock_of(span.resource)
            for call in reading.calls or ():
                found.setdefault(call.name, []).append(_Choice(at, call, span, clock, set()))
    return found


def _behind(at: int, span: SpanData, tool: ToolSpan, chosen: list[_Choice]) -> int:
    """The index of the model call that chose a tool call; the tool's own index if that is later."""
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
            and span.scope not in choice.scopes
            and (tool.id is None or choice.call.id is None)
            and same_arguments(choice.call.arguments, tool.arguments)
        ):
            choice.scopes.add(span.scope)
            return max(at, choice.at)
    return at

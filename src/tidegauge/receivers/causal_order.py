"""Orders calls of several hosts by what caused what, where their clocks contradict it.

A tool's span comes after that of the model call that chose it, and before that of the model call
that was shown its result; spans come before those around them. Spans of one clock keep their order.
Calls are recognized by the model's ids of them, else by name, arguments, and ends at most a second
apart.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Sized
from typing import Final, NamedTuple, Protocol

from tidegauge._span_counts import span_faults
from tidegauge.foreign_spans.convention_reader import read_span
from tidegauge.foreign_spans.dedupe import MAX_SKEW, same_arguments
from tidegauge.foreign_spans.span import ModelSpan, SpanData, ToolSpan, clock_of
from tidegauge.receivers.trace_state import order
from tidegauge.runs.turn_calls import ChosenCall

_MAX_SPANS: Final = 20_000
"""Limit of the spans of a trace that are compared at once."""

_SMALL_SKEW: Final = 200_000_000
"""Nanoseconds by which clocks may differ where only times show what came first."""

_MAX_COMPARED: Final = 64
"""Limit of the calls of one name that a tool's span without an id is compared with."""


class _Choice(NamedTuple):
    span: SpanData  # the model's
    call: ChosenCall
    scopes: set[str]  # the instrumentations that have a span of this call


class _Ids(Container[str], Sized, Protocol):
    """Ids of calls."""


def in_causal_order(
    ended: Iterable[SpanData],
    held: Mapping[int, SpanData],
    chosen: _Ids = frozenset(),
) -> list[SpanData]:
    """The spans of a trace in their order, with those that come before any of them.

    Args:
        ended: spans of one trace, in the order of their ends.
        held: its spans that ended later, by their ids, of which some may have to come before.
        chosen: the model's ids of the calls that spans before these have chosen.

    >>> from tidegauge.runs.turn_calls import ChosenCall
    >>> from tidegauge.foreign_spans.span import NO_INFO, ReadSpan
    >>> chosen = ModelSpan(calls=(ChosenCall("look", {}, "call-1"),))
    >>> tool = SpanData(1, 2, 9, "look", "any", {}, 3, 4, resource={"host.name": "b"})
    >>> tool = tool._replace(read=ReadSpan(ToolSpan(NO_INFO, "look", id="call-1")))
    >>> model = SpanData(1, 3, 9, "chat", "any", {}, 1, 6, resource={"host.name": "a"})
    >>> model = model._replace(read=ReadSpan(chosen))
    >>> [span.name for span in in_causal_order([tool], {3: model})]
    ['chat', 'look']
    """
    ended = list(ended)
    spans = sorted([*ended, *held.values()], key=order)
    if len(spans) > _MAX_SPANS:
        return ended
    causes = _Causes(spans, chosen)
    found: dict[int, SpanData] = {}
    for span in ended:
        path = [(span, causes.before(span))]
        seen = {span.span_id}
        while path:
            current, before = path[-1]
            for each in before:
                if each.span_id not in found and each.span_id not in seen:
                    seen.add(each.span_id)
                    if each.end > current.end:
                        span_faults.skew(str(each.resource.get("service.name") or ""))
                    path.append((each, causes.before(each)))
                    break
            else:
                found.setdefault(current.span_id, current)
                path.pop()
    return list(found.values())


class _Causes:
    """Which spans come before which, whatever their times are.

    Args:
        spans: of one trace, in the order of their ends.
        chosen: ids of the calls that were chosen before.
    """

    def __init__(self, spans: Sequence[SpanData], chosen: _Ids) -> None:
        self._before = chosen
        self._tools: dict[str, list[SpanData]] = {}  # by the model's id of the call
        self._chosen: dict[int, SpanData] = {}  # the model's span by the id of the tool's
        self._inside: dict[int, list[SpanData]] = {}  # by the id of the parent
        self._previous: dict[int, SpanData] = {}  # of the same clock, by id
        self._spans = {span.span_id: span for span in spans}
        self._next_end: dict[int, int] = {}  # of the next model call of the same clock, by id
        self._parents = {span.span_id: span.parent_id for span in spans}
        choices: dict[str, list[_Choice]] = {}  # by the tool's name
        by_id: dict[str, SpanData] = {}
        last: dict[str, SpanData] = {}
        last_model: dict[str, SpanData] = {}
        readings = [(span, read_span(span)) for span in spans]
        for span, reading in readings:
            clock = _clock(span)
            if clock in last:
                self._previous[span.span_id] = last[clock]
            last[clock] = span
            if span.parent_id is not None:
                self._inside.setdefault(span.parent_id, []).append(span)
            if isinstance(reading, ModelSpan):
                if clock in last_model:
                    self._next_end[last_model[clock].span_id] = span.end
                last_model[clock] = span
            for call in (reading.calls or ()) if isinstance(reading, ModelSpan) else ():
                choices.setdefault(call.name, []).append(_Choice(span, call, set()))
                if call.id is not None:
                    by_id.setdefault(call.id, span)
        for span, reading in readings:
            if not isinstance(reading, ToolSpan):
                continue
            if reading.id is not None:
                self._tools.setdefault(reading.id, []).append(span)
            if reading.id in by_id:
                self._chosen[span.span_id] = by_id[reading.id]
            else:
                self._choose(span, reading, choices.get(reading.name, []))
        self._shows_ids = bool(by_id) or len(chosen) > 0

    def before(self, span: SpanData) -> Iterator[SpanData]:
        """The spans that come right before this one."""
        if span.span_id in self._previous:
            yield self._previous[span.span_id]
        reading, clock = read_span(span), _clock(span)
        found: list[SpanData] = []
        if isinstance(reading, ToolSpan) and span.span_id in self._chosen:
            model = self._chosen[span.span_id]
            found = [model, *self._ended_with(model, span)]
        elif isinstance(reading, ModelSpan) and reading.answers:
            found = [one for call_id, _ in reading.answers for one in self._tools.get(call_id, ())]
        elif isinstance(reading, ModelSpan):
            found = self._chosen_before(span)
        for each in self._inside.get(span.span_id, ()):
            if span.parent_id is None or each.end - span.end <= _SMALL_SKEW:
                found.append(each)
        yield from (each for each in found if _clock(each) != clock)

    def _chosen_before(self, span: SpanData) -> list[SpanData]:
        """The tool calls, by their ids, that were chosen before this model call began.

        For models whose spans do not show the answers that they were given, as OpenInference shows
        smolagents (0.1.43) and AutoGen (0.1.22), and OpenLIT (1.45) LangGraph. A tool around the
        call is none of them, though its clock may say so: with an agent of another service in a
        tool, the outer call would be counted twice.
        """
        found = []
        around = {span.span_id, *self._around(span)}
        for tools in self._tools.values():
            for tool in tools:
                if tool.span_id in around or self._is_missing(tool):
                    continue
                model = self._chosen.get(tool.span_id)
                if tool.end - span.end <= _SMALL_SKEW and (
                    model is None or model.end <= span.start
                ):
                    found.append(tool)
        return found

    def _is_missing(self, span: SpanData) -> bool:
        """Whether the span that chose this tool call has not arrived."""
        reading = read_span(span)
        return (
            self._shows_ids
            and isinstance(reading, ToolSpan)
            and reading.id is not None
            and reading.id not in self._before
            and span.span_id not in self._chosen
        )

    def _ended_with(self, model: SpanData, tool: SpanData) -> list[SpanData]:
        """The spans around a model call alone, that ended before the tool call that it chose.

        As the node ``model`` of LangChain's agents (1.4 and 1.5, of OpenInference 0.1.80 and of
        LangSmith 0.15).
        """
        around_tool = {tool.span_id, *self._around(tool)}
        limit = min(
            tool.end + _SMALL_SKEW, self._next_end.get(model.span_id, tool.end + _SMALL_SKEW)
        )
        return [
            self._spans[span_id]
            for span_id in self._around(model)
            if span_id not in around_tool
            and span_id in self._spans
            and self._spans[span_id].end <= limit
        ]

    def _around(self, span: SpanData) -> list[int]:
        """Ids of the spans around a span, as far as they are known."""
        found: dict[int, None] = {}
        parent_id = span.parent_id
        while parent_id is not None and parent_id not in found:
            found[parent_id] = None
            parent_id = self._parents.get(parent_id)
        return list(found)

    def _choose(self, span: SpanData, tool: ToolSpan, choices: list[_Choice]) -> None:
        """Find the model call that chose a tool call, without an id."""
        clock = _clock(span)
        for choice in [one for one in choices if span.scope not in one.scopes][:_MAX_COMPARED]:
            later = choice.span.end - span.end
            if (
                (later <= 0 or (later <= MAX_SKEW and _clock(choice.span) != clock))
                and (tool.id is None or choice.call.id is None)
                and same_arguments(choice.call.arguments, tool.arguments)
            ):
                choice.scopes.add(span.scope)
                self._chosen[span.span_id] = choice.span
                return


def _clock(span: SpanData) -> str:
    return "remote" if span.remote else clock_of(span.resource)

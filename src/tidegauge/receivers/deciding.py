"""Decides whether a call is inside a run, by spans around it that are still open.

Nothing is known of an open span, except which calls inside it have ended. See `arrived_spans`.
"""

from __future__ import annotations

from typing import Final

from tidegauge.foreign_spans.external_run import ExternalRun, Node
from tidegauge.foreign_spans.span import (
    AgentSpan,
    ModelSpan,
    RunInfo,
    SpanData,
    ToolSpan,
    clock_of,
)

_ENOUGH: Final = 4
"""How many open spans, one after the other, show that spans inside a run are not sent."""


def decide(
    run: ExternalRun,
    others: list[ExternalRun | Node],
    inner: list[Node],
    span: SpanData,
    call: ModelSpan | ToolSpan,
) -> tuple[Node | None, bool]:
    """The pending span between a call and its run that may be a tool, or an agent in one.

    Args:
        run: the run that the call is in, or that a span around it is assumed to be in.
        others: what is at work in the trace, and may be around the call.
        inner: the spans between the call and the run, innermost first.
        span: the call's.
        call: what it shows.

    Returns:
        That span, if there is one, and whether the call must wait for it. If not, it is decided
        what the span is.
    """
    unknown = next((node for node in inner if not node.known), None)
    if unknown is None or unknown.announced is not None:
        return None, False
    if isinstance(call, ModelSpan) and (unknown.since is None or span.start < unknown.since):
        unknown.since = span.start
    beside = not unknown.joined and _is_beside(others, unknown, span)
    idle = not run.turns.goes_on()
    if idle and isinstance(call, ToolSpan) and run.turns.is_new(call):
        unknown.ahead = True
    if _is_named(run, inner, call):
        return _other_agent(run, unknown, span, call, beside=beside)
    if beside:
        if not unknown.turns or not _chooses(call):
            return _wait(unknown, span, call)
        unknown.parent = None  # a second turn: it goes around the turns of another agent
        return unknown, False
    if unknown.turns and not (idle and _chooses(call)):
        return _wait(unknown, span, call)
    if unknown.turns and (run.direct or run.accompanied or unknown.ahead):
        return _wait(unknown, span, call)
    if unknown.turns:  # a second turn, and the run has done nothing meanwhile
        unknown.joined = True
        return unknown, False
    if idle and not unknown.joined:
        if run.accompanied or (run.direct and _may_be_beside(run, unknown, span, call)):
            return _wait(unknown, span, call)
        if run.unsure:
            unsure = run.unsure.pop(0)
            unsure.joined = True
            return unsure, False
    known = [node.reading() for node in inner[: inner.index(unknown)]]
    if (idle and not unknown.ahead) or _is_decided(run, [call, *known]):
        unknown.joined = True
        return None, False
    unknown.in_tool = any(isinstance(each, AgentSpan) and each.sure for each in known)
    return _wait(unknown, span, call)


def _is_named(run: ExternalRun, inner: list[Node], call: ModelSpan | ToolSpan) -> bool:
    """Whether a call names another agent than that of its run, and no known span shows that one."""
    name = call.info.agent
    if name is None or name == run.agent:
        return False
    readings = [node.reading() for node in inner if node.known]
    return not any(isinstance(each, AgentSpan) and each.info.agent == name for each in readings)


def _other_agent(
    run: ExternalRun,
    unknown: Node,
    span: SpanData,
    call: ModelSpan | ToolSpan,
    *,
    beside: bool,
) -> tuple[Node | None, bool]:
    """Decide about a call that names an agent: the span that is not known is taken to be it."""
    name = call.info.agent or ""
    if beside:
        unknown.parent = None
        unknown.announced = AgentSpan(RunInfo(name))
        return unknown, False
    inside = run.inside.get(name)
    if inside is not None and not inside.recorded.ended:
        return _wait(unknown, span, call)  # it belongs to that run, if its parent is in it
    around = _waiting(run, span.start if unknown.since is None else unknown.since)
    unsure = (run.direct or unknown.ahead) and not around and not run.turns.goes_on()
    if run.accompanied or len(around) > 1 or unsure:
        return _wait(unknown, span, call)
    if around:
        unknown.parent = around[0].root
    unknown.announced = AgentSpan(RunInfo(name))
    return unknown, False


def _waiting(run: ExternalRun, since: int) -> list[ExternalRun]:
    """Two, of a run and the runs inside it, that may be around an agent at work since a time.

    They wait for more tools than there are runs in these. ``since`` is in nanoseconds.
    """
    found: list[ExternalRun] = []
    runs = [run]
    while runs and len(found) < 2:
        each = runs.pop()
        if each.chose_until <= since and len(each.turns.waiting()) > len(each.children):
            found.append(each)
        runs += each.children
    return found


def _is_decided(run: ExternalRun, readings: list[object]) -> bool:
    """Whether a call is known to be inside a run that waits for a tool: it is in that tool."""
    if run.accompanied or _unsure(run):
        return False
    waiting = run.turns.waiting()
    return any(isinstance(each, ToolSpan) and each.name in waiting for each in readings)


def _chooses(call: ModelSpan | ToolSpan) -> bool:
    return isinstance(call, ModelSpan) and bool(call.calls)


def _wait(unknown: Node, span: SpanData, call: ModelSpan | ToolSpan) -> tuple[Node, bool]:
    if _chooses(call):
        unknown.turns += 1
        unknown.chose_until, unknown.chose_by = span.end, (clock_of(span.resource), span.scope)
    unknown.until = max(unknown.until, span.end)
    return unknown, True


def _is_beside(others: list[ExternalRun | Node], unknown: Node, span: SpanData) -> bool:
    """Whether a span is inside no other: all others have chosen tools while it was at work.

    A run waits for what it is around, and ends after it. So it chooses no tools while a span
    inside it is at work.
    """
    since = unknown.since
    if since is not None and others and not unknown.beside:
        by = (clock_of(span.resource), span.scope)
        overlap = [each.chose_by == by and since < each.chose_until for each in others]
        unknown.beside = all(overlap)
        for each in others if any(overlap) else ():
            if isinstance(each, ExternalRun):
                each.accompanied = True
    return unknown.beside


def _may_be_beside(
    run: ExternalRun, unknown: Node, span: SpanData, call: ModelSpan | ToolSpan
) -> bool:
    """Whether it has to be seen whether a span is inside a run or beside it.

    Not if spans inside the run are not sent: several began, one after the other, and none ended. A
    span that is at work beside the run is open for long, and others are not, where they are sent.
    """
    if run.incomplete:
        return False
    unsure = _unsure(run)
    if not _chooses(call):
        return bool(unsure)
    if any(node.until > span.start for node in unsure):
        run.accompanied = True
    run.incomplete = len(unsure) >= _ENOUGH and not run.accompanied
    if not run.incomplete and unknown not in unsure:
        unsure.append(unknown)
    return not run.incomplete


def _unsure(run: ExternalRun) -> list[Node]:
    run.unsure[:] = [node for node in run.unsure if not (node.known or node.joined or node.beside)]
    return run.unsure

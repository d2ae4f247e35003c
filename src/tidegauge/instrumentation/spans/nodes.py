"""Spans as a tree, while they are open: what encloses what, and where a run begins."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from tidegauge._span_faults import span_faults
from tidegauge.instrumentation.spans.reading import OUR_SCOPE, may_enclose_run, read_span
from tidegauge.instrumentation.spans.span import NOT_TOLD, About, AgentSpan, Attributes, SpanData

if TYPE_CHECKING:
    from tidegauge.instrumentation.spans.watched import WatchedRun

__all__ = ["MAX_DEPTH", "Node", "OpenSpan", "child_root", "root_of", "tool_around"]

MAX_DEPTH: Final = 1_000
"""How many spans around another are looked at."""

_TOOL: Final = "execute_tool "


class OpenSpan(Protocol):
    """A span that is still open: its attributes so far, which may change."""

    @property
    def attributes(self) -> Attributes | None:
        """Its attributes so far."""


class Node:
    """A span's place among the others.

    Attributes:
        live: tells its attributes; the ended span itself, where that is at hand.
        run: the run that it is the root of.
        known: whether anything is known of it but that others are inside it.
    """

    __slots__ = (
        "_ended",
        "_reading",
        "known",
        "live",
        "name",
        "parent",
        "run",
        "scope",
        "span_id",
        "trace_id",
    )

    def __init__(
        self,
        trace_id: int,
        span_id: int,
        parent: Node | None,
        *,
        name: str,
        scope: str,
        live: OpenSpan | None,
        known: bool = True,
    ) -> None:
        self.trace_id = trace_id
        self.span_id = span_id
        self.parent = parent
        self.name = name
        self.scope = scope
        self.live = live
        self.run: WatchedRun | None = None
        self.known = known
        self._ended: SpanData | None = None
        self._reading: object = None

    @property
    def attributes(self) -> Attributes:
        """What is known of it so far."""
        return (self.live.attributes if self.live is not None else None) or {}

    def reading(self) -> object:
        """What it is, by what is known of it so far; an ended span is read once."""
        live = self.live
        if isinstance(live, SpanData):
            if self._ended is not live:
                self._ended, self._reading = live, read_span(live)
            return self._reading
        ids = (self.trace_id, self.span_id, None)
        return read_span(SpanData(*ids, self.name, self.scope, self.attributes, 0, 0))

    def about(self) -> About:
        """What it tells of its run so far."""
        told = self.reading()
        return told.about if isinstance(told, AgentSpan) else NOT_TOLD

    def lineage(self) -> Iterator[Node]:
        """The spans around it, innermost first, without our own."""
        node = self.parent
        for _ in range(MAX_DEPTH):
            if node is None:
                return
            if node.scope != OUR_SCOPE:
                yield node
            node = node.parent
        if node is not None:
            span_faults.repair("depth")

    def enclosing_run(self) -> WatchedRun | None:
        """The innermost run that it is in."""
        if self.run is not None:
            return self.run
        return next((node.run for node in self.lineage() if node.run is not None), None)


def root_of(around: Sequence[Node], scope: str) -> Node | None:
    """The root of the run of a call in none so far.

    Of a span that nothing is known of, it is taken to be one; an agent inside it goes before.

    Args:
        around: the spans around the call, innermost first.
        scope: the instrumentation that shows the call.
    """
    if around and not around[-1].known:
        return next((node for node in reversed(around) if _surely_agent(node)), around[-1])
    enclosing = [(node, may_enclose_run(node.name, node.attributes)) for node in around]
    known = [node for node, told in enclosing if told]
    if known:
        return known[-1]
    perhaps = [node for node, told in enclosing if told is None and node.scope == scope]
    return perhaps[-1] if perhaps else None


def tool_around(
    around: Sequence[Node], waiting: Collection[str], *, unknown: bool = False
) -> Node | None:
    """The outermost tool call around another call, inside their run.

    Args:
        around: the spans between the call and its run, innermost first.
        waiting: names of the tools that the run waits for: a span that tells nothing before it
            ends is one of them, if it is called so.
        unknown: whether a span that nothing is known of is to be taken for a tool call.
    """
    for node in reversed(around):
        if not node.known:
            if unknown:
                return node
            continue
        attributes = node.attributes
        if node.name.startswith(_TOOL) or (not attributes and node.name in waiting):
            return node
        if attributes and not isinstance(node.reading(), AgentSpan | None):
            return node
    return None


def child_root(
    around: Sequence[Node], tool: Node | None, about: About, agent: str | None
) -> Node | None:
    """The root of a run inside the run around it; ``None``, the call belongs to that one.

    Args:
        around: the spans between the call and the run around it, innermost first.
        tool: the outermost tool call among them.
        about: what the call tells of its run.
        agent: the agent of the run around it.
    """
    inside = around
    if tool is not None:  # one that nothing is known of may be the agent in the tool
        inside = around[: around.index(tool) + (not tool.known)]
    for node in reversed(inside):
        told = node.reading()
        if isinstance(told, AgentSpan) and told.sure:
            name = told.about.agent
            if tool is not None or (name is not None and name != agent):
                return node
    if about.agent is None or about.agent == agent:
        return None
    if tool is not None:
        return inside[-1] if inside else None
    names = (about.agent, f"invoke_agent {about.agent}", f"execute_task {about.agent}")
    named = (node for node in reversed(inside) if node.name in names or not node.known)
    return next(named, None)


def _surely_agent(node: Node) -> bool:
    told = node.reading() if node.known else None
    return isinstance(told, AgentSpan) and told.sure

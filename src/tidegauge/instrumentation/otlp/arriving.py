"""Ended spans of others, put into their runs while what is around them has not arrived.

In the process of an agent a span is known from its start on. Over the wire it comes when it has
ended: after all that is inside it. Until then it is a node of which nothing is known but that
others are inside it, and a model or tool call inside it is placed by these rules:

- Nothing else is open in its trace: it is taken for the root of a run, once a call tells a step,
  or the name of its agent. When it arrives and is no agent for sure, and is inside something
  else, that is the root.
- A run is open in its trace: it is taken to be inside that. When that waits for no tool, the call
  is the run's own, or that of an agent inside it, if it tells another name.
- When the run does wait for a tool, the unknown span may be it, or an agent inside it: unless the
  call tells the name of another agent, or is one that is waited for, it is kept until the unknown
  span has arrived.

A span whose parent is in another process is the root of its run, if it can be one.

Runs are called after their spans, so that they are called the same wherever these arrive, and the
agent knows how: the outermost run that opens first in a trace has the trace's id, any other that id
and its root's, ``<32 digits>-<16 digits>``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Mapping
from itertools import count
from typing import Any, Final

from tidegauge._span_faults import span_faults
from tidegauge.instrumentation.spans.grouping import MAX_OPEN_SPANS, Grouping
from tidegauge.instrumentation.spans.nodes import MAX_DEPTH, Node, root_of
from tidegauge.instrumentation.spans.reading import may_enclose_run
from tidegauge.instrumentation.spans.span import (
    AgentSpan,
    ModelSpan,
    SpanData,
    ToolSpan,
    clock_of,
)
from tidegauge.instrumentation.spans.watched import RunDefaults, WatchedRun, ending

__all__ = ["ArrivedSpans"]

_MAX_NAMED: Final = 100_000
"""How many traces are remembered that a run was called by."""


class ArrivedSpans(Grouping):
    """A grouping that is told of spans when they have ended.

    Args:
        defaults: what runs are known by where their spans don't say.
        max_runs: open runs held; one more ends the one idle for longest.
        idle_seconds: a run without a span for so long is ended.
        orphan_seconds: a run without a span for so long is ended, when the last that is known to
            enclose it has ended: what is around that seems to be sent to somebody else.
        across_traces: see :class:`Grouping`.
        clock: seconds.

    Attributes:
        late_calls: calls that arrived after their run was ended.
    """

    def __init__(
        self,
        defaults: RunDefaults | None = None,
        *,
        max_runs: int,
        idle_seconds: float,
        orphan_seconds: float,
        across_traces: bool = True,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(
            defaults,
            max_runs=max_runs,
            idle_seconds=idle_seconds,
            across_traces=across_traces,
            clock=clock,
        )
        self._orphan_seconds = orphan_seconds
        self.late_calls = 0
        # By run: how it ends with the outermost span that has ended, if the root never arrives.
        self._enclosed: dict[str, Mapping[str, Any]] = {}
        self._named: OrderedDict[int, None] = OrderedDict()  # traces that a run was called by

    @property
    def open_runs(self) -> int:
        """How many runs are open."""
        return len(self._runs)

    def node(self, trace_id: int, span_id: int) -> Node | None:
        """A span's place, if it has one yet."""
        return self._nodes.get((trace_id, span_id))

    def forget(self, trace_id: int, span_id: int) -> None:
        """A span that has not arrived is not waited for any more."""
        self._nodes.pop((trace_id, span_id), None)

    def unname(self, trace_id: int) -> None:
        """The next run that opens in a trace is called by it, if none is open."""
        if trace_id not in self._traces:
            self._named.pop(trace_id, None)

    def learn(
        self, span: SpanData, arrived: Mapping[int, SpanData], gone: Container[int]
    ) -> list[int]:
        """A span has arrived: give it its place, and those around it theirs.

        Args:
            span: it.
            arrived: the spans of its trace that have arrived and have not been told, by id.
            gone: ids of the spans of its trace that have been told.

        Returns:
            Ids of spans around it that have not arrived, and were not known of before.
        """
        chain: list[Node] = []
        awaited: list[int] = []
        current: SpanData | None = span
        while current is not None:
            node = self._become_known(current)
            if chain:
                chain[-1].parent = node
            chain.append(node)
            parent_id, current = _parent_id(current), None
            if parent_id is None:
                break
            parent = self._nodes.get((node.trace_id, parent_id))
            outer = arrived.get(parent_id)
            if len(chain) == 1 and outer is not None and _before(span, outer):
                span_faults.skew(str(span.resource.get("service.name") or ""))
            if outer is not None and (parent is None or not parent.known):
                if len(chain) < MAX_DEPTH:
                    current = outer
                else:
                    span_faults.repair("depth")
            elif parent is not None:
                if node is not parent and node not in parent.lineage():
                    node.parent = parent
            else:
                outermost = self._traces.get(node.trace_id)
                root = None if outermost is None else outermost.root
                if root is not None and (root in chain or node in root.lineage()):
                    root = None
                if parent_id in gone:
                    node.parent = root
                else:
                    node.parent = self._unknown(node, parent_id, root)
                    awaited.append(parent_id)
        for node in reversed(chain):
            if node.run is not None:
                self._climb(node, node.run)
        return awaited

    def unknown_around(
        self, span: SpanData, told: ModelSpan | ToolSpan
    ) -> tuple[Node | None, bool]:
        """The span that has not arrived and decides where a call belongs, or whether to a run.

        Args:
            span: the call's span, which has its place.
            told: what it tells.

        Returns:
            That span, if there is one; and whether the call has to wait for it. If not, it makes a
            run of it, and other calls need not wait for it either.
        """
        node = self._nodes.get((span.trace_id, span.span_id))
        inner: list[Node] = []
        for each in node.lineage() if node is not None else ():
            if each.run is not None:
                unknown = _deciding(each.run, inner, told)
                return unknown, unknown is not None
            inner.append(each)
        root = root_of(inner, span.scope)
        if root is None or root.known:
            return None, False
        tells_step = isinstance(told, ToolSpan) or bool(told.calls)
        return root, not tells_step and told.about.agent is None

    def expire(self, now: float) -> None:
        """End the runs that nothing was heard of for too long."""
        orphans: list[tuple[WatchedRun, Mapping[str, Any]]] = []
        with self._lock:
            gone = self._displaced()
            for run_id, end_arguments in tuple(self._enclosed.items()):
                run = self._runs.get(run_id)
                if run is None:
                    del self._enclosed[run_id]
                elif now - run.last_seen > self._orphan_seconds:
                    orphans.append((run, end_arguments))
                    self._take_out(run)
        for run, reason in gone:
            run.end(outcome="unknown", reason=reason)
        for run, end_arguments in orphans:
            run.end(**end_arguments)

    def _run_id(self, root: Node, around: WatchedRun | None) -> str:
        run_id = f"{root.trace_id:032x}"
        if around is None and root.trace_id not in self._named:
            self._named[root.trace_id] = None
            if len(self._named) > _MAX_NAMED:
                self._named.popitem(last=False)
            return run_id
        run_id = f"{run_id}-{root.span_id:016x}"
        if run_id not in self._runs:
            return run_id
        # Its root was the root of another run, which goes on with what is around it.
        return next(name for n in count(2) if (name := f"{run_id}-{n}") not in self._runs)

    def _become_known(self, span: SpanData) -> Node:
        """The place of a span that has arrived."""
        key = (span.trace_id, span.span_id)
        node = self._nodes.get(key)
        if node is None:
            node = self._add(Node(*key, None, name=span.name, scope=span.scope, live=span))
        elif not node.known:
            node.name, node.scope, node.live, node.known = span.name, span.scope, span, True
            node.parent = None
        return node

    def _unknown(self, inside: Node, span_id: int, parent: Node | None) -> Node:
        scope = inside.scope
        return self._add(
            Node(inside.trace_id, span_id, parent, name="", scope=scope, live=None, known=False)
        )

    def _add(self, node: Node) -> Node:
        self._nodes[node.trace_id, node.span_id] = node
        if len(self._nodes) > MAX_OPEN_SPANS:
            self._nodes.popitem(last=False)
        return node

    def _late(self) -> None:
        self.late_calls += 1

    def _climb(self, node: Node, run: WatchedRun) -> None:
        """The root of a run is known now: it may have been the wrong one."""
        around = list(node.lineage())
        if run.around is not None or not around or any(each.run is not None for each in around):
            return
        reading = node.reading()
        if node.name == run.agent or (isinstance(reading, AgentSpan) and reading.sure):
            return
        root = root_of(around, node.scope)
        if root is None:
            return
        node.run, root.run, run.root = None, run, root
        if isinstance(node.live, SpanData):
            self._enclosed[run.recorded.id] = ending(node.live)


def _parent_id(span: SpanData) -> int | None:
    """Id of the span that it is inside, as far as runs go."""
    if span.remote and may_enclose_run(span.name, span.attributes):
        return None
    return span.parent_id


def _before(inner: SpanData, outer: SpanData) -> bool:
    """Whether a span starts before the one around it, by the clock of another host."""
    if not 0 < inner.start < outer.start:
        return False
    clocks = {clock_of(inner.resource), clock_of(outer.resource)}
    return len(clocks) == 2 and "" not in clocks


def _deciding(run: WatchedRun, inner: list[Node], call: ModelSpan | ToolSpan) -> Node | None:
    """The span between a call and the run around it that may be a tool, or an agent in one."""
    unknown = next((node for node in inner if not node.known), None)
    if unknown is None:
        return None
    waiting = run.rounds.waiting()
    if not waiting or (isinstance(call, ToolSpan) and call.name in waiting):
        return None
    if call.about.agent is not None and call.about.agent != run.agent:
        return None
    for node in inner[: inner.index(unknown)]:
        reading = node.reading()
        if isinstance(reading, AgentSpan) and reading.sure:
            return None
    return unknown

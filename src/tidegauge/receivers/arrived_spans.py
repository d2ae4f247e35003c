"""Assigns received spans to runs before the spans around them have arrived.

In the agent's process a span is known from its start. Over the wire it arrives after it has ended,
and so after the spans inside it. Until then it is a node without data, and these rules assign a
model or tool call inside it to a run:

- Nothing else is open in its trace: the node becomes the root of a run, as soon as a call inside
  it reports a step or the name of its agent. If it arrives, is not clearly an agent, and has a
  parent, that parent becomes the root.
- A run is open in its trace: the node is assumed to be inside that run. If the run waits for no
  tool, the call belongs to the run, or to an agent inside it if the call names another agent.
- If the run waits for a tool, the node may be that tool, or an agent inside it. Unless the call
  names another agent, or is the tool that the run waits for, it waits until the node arrives, or
  is announced as an agent; then for the next unknown node around that, up to the tool.
- If a tool ends in the node, and by its id the run has not chosen that call, the call waits, too.
  Tools may run while the model that chose them still answers: then the node is an agent in such a
  tool, or it is at work beside the run.
- A run waits for what it is around, so it chooses no tools while a node inside it is at work. If
  all that is at work in the trace has chosen tools meanwhile, the node is beside them: with its
  second turn, it becomes the root of a run. While several are at work, calls wait until it is
  known inside which of them they are.

A span with a parent in another process is the root of its run, if it can be one.

Run ids follow from the spans, so they are the same on every receiver, and the agent can compute
them: the outermost run that opens first in a trace has the trace's id, any other run has that id
and its root's, ``<32 digits>-<16 digits>``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Mapping
from itertools import count
from typing import Any, Final

from tidegauge._span_counts import span_faults
from tidegauge.foreign_spans.convention_reader import OUR_SCOPE, may_enclose_run
from tidegauge.foreign_spans.dedupe import SeenModel
from tidegauge.foreign_spans.external_run import (
    Earliest,
    ExternalRun,
    Node,
    RunDefaults,
    ending,
    root_of,
    service_of,
)
from tidegauge.foreign_spans.grouping import MAX_OPEN_SPANS, Grouping
from tidegauge.foreign_spans.span import (
    AgentSpan,
    Announcement,
    KnownSpan,
    ModelSpan,
    RunInfo,
    SpanData,
    ToolSpan,
    clock_of,
)
from tidegauge.runs.recorder import Recorder
from tidegauge.safety.critical import here

_NOTHING: Final[Mapping[str, Any]] = {}
_MAX_NAMED: Final = 100_000
"""Limit of the remembered traces that a run has its id from."""

_NAMED_BYTES: Final = 150
_NODE_BYTES: Final = 700
"""What one of these takes, about, and a span that has not arrived, with what it has inside."""


class ArrivedSpans(Grouping):
    """A grouping that gets spans after they have ended; see :class:`Grouping`.

    Args:
        orphan_seconds: a run without a span for so long is ended, if its outermost known span has
            ended: the spans around it are probably sent elsewhere.

    Attributes:
        late_calls: calls that arrived after their run was ended.
    """

    def __init__(
        self,
        recorder: Callable[[], Recorder],
        defaults: RunDefaults | None = None,
        *,
        max_runs: int,
        idle_seconds: float,
        orphan_seconds: float,
        across_traces: bool = True,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(
            recorder,
            defaults,
            max_runs=max_runs,
            idle_seconds=idle_seconds,
            across_traces=across_traces,
            clock=clock,
        )
        self._orphan_seconds = orphan_seconds
        self.late_calls = 0
        # By run: the end to report if its root never arrives, from its outermost known span.
        self._enclosed: dict[str, Mapping[str, Any]] = {}
        self._at_work: dict[int, list[Node]] = {}  # spans that model calls wait for, by trace
        self._named: OrderedDict[int, None] = OrderedDict()  # traces that a run has its id from
        self._run_bytes = 0
        self._changed: dict[str, ExternalRun] = {}  # since their memory was counted, by their ids

    @property
    def held_bytes(self) -> int:
        """Bytes of memory that the open runs and the spans around them take, about."""
        while self._changed:
            run = self._changed.popitem()[1]
            before, run.size = run.size, run.held_bytes
            self._run_bytes += run.size - before
        return self._run_bytes + _NODE_BYTES * len(self._nodes) + _NAMED_BYTES * len(self._named)

    @property
    def idle_since(self) -> float | None:
        """When the run that is idle for longest had its last span; ``None``: no run is open."""
        return next((run.last_seen for run in self._runs.values()), None)

    def end_idlest(self) -> None:
        """End the run that is idle for longest."""
        with self._lock:
            run = next(iter(self._runs.values()))
            self._evict(run)
        run.end(outcome="unknown", reason="too many runs", evicted=True)

    @property
    def open_runs(self) -> int:
        """The number of open runs."""
        return len(self._runs)

    def node(self, trace_id: int, span_id: int) -> Node | None:
        """The node of a span, if it has one yet."""
        return self._nodes.get((trace_id, span_id))

    def forget(self, trace_id: int, span_id: int) -> None:
        """Stop waiting for a span that has not arrived."""
        node = self._nodes.pop((trace_id, span_id), None)
        self._at_work.pop(trace_id, None)
        if node is not None and node.run is not None:
            self._part(node.run)

    def saved(
        self, trace_id: int, span_ids: Iterable[int], run_ids: Iterable[str]
    ) -> dict[str, Any]:
        """What is known of a trace, for :meth:`load`. Not across traces.

        Args:
            span_ids: the ids of its spans that have arrived or are awaited.
            run_ids: the ids of its open runs.
        """
        runs = [self._runs[run_id] for run_id in run_ids if run_id in self._runs]
        nodes = [
            node
            for span_id in span_ids
            if (node := self._nodes.get((trace_id, span_id))) is not None
        ]
        ends = {
            name: dict(self._enclosed[name])
            for run in runs
            if (name := run.recorded.event.run) in self._enclosed
        }
        return {
            "nodes": nodes,
            "runs": runs,
            "first": self._traces.get(trace_id),
            "beside": self._beside.get(trace_id) or None,
            "models": self._models.of(trace_id),
            "enclosed": ends,
            "at_work": self._at_work.get(trace_id) or None,
            "named": trace_id in self._named,
        }

    def load(self, trace_id: int, saved: Mapping[str, Any]) -> None:
        """Continue a trace that another process has known."""
        for node in saved["nodes"]:
            self._nodes[trace_id, node.span_id] = node
        for run in saved["runs"]:
            self._runs[run.recorded.event.run] = run
            self._calling |= run.scopes
            self._changed[run.recorded.event.run] = run
        if saved["first"] is not None:
            self._traces[trace_id] = saved["first"]
        if saved["beside"]:
            self._beside[trace_id] = saved["beside"]
        self._models.load(trace_id, saved["models"])
        self._enclosed.update(saved["enclosed"])
        if saved["at_work"]:
            self._at_work[trace_id] = saved["at_work"]
        if saved["named"]:
            self._named[trace_id] = None

    def in_order(self) -> None:
        """After loads: the runs that were idle for longest come first."""
        runs = sorted(self._runs.values(), key=lambda run: run.last_seen)
        self._runs = OrderedDict((run.recorded.event.run, run) for run in runs)

    def forget_trace(self, trace_id: int) -> None:
        """No more spans of a trace are expected."""
        self._models.forget(trace_id)

    def unname(self, trace_id: int) -> None:
        """Let the next run of a trace have the trace's id again, if no run is open."""
        if trace_id not in self._traces:
            self._named.pop(trace_id, None)

    def resolve(
        self,
        span: SpanData,
        parents: Mapping[int, int | None],
        waiting: Container[int],
    ) -> tuple[Node, ExternalRun | None, int | None]:
        """Fill in the node of a span that has ended, and join it to the span around it.

        Args:
            parents: ids of the parents of the spans of its trace that have arrived, by id.
            waiting: ids of those that were not emitted yet: nothing else is known of them.

        Returns:
            The node; the run that it was the root of until now; and the id of its parent, if that
            is awaited and was unknown before.
        """
        nodes, key = self._nodes, (span.trace_id, span.span_id)
        node = known = nodes.get(key)
        run = None if node is None else node.run
        if node is None:
            node = Node(*key, None, name=span.name, scope=span.scope, live=span)
            nodes[key] = node
            if len(nodes) > MAX_OPEN_SPANS:
                nodes.popitem(last=False)
        elif not node.known:
            node.name, node.scope, node.live, node.known = span.name, span.scope, span, True
            node.parent = None
            if node.earliest is not None and _before(node.earliest, span):
                span_faults.skew(node.earliest.service)
            node.earliest = None
        awaited = None
        parent_id = _parent_id(span) if span.remote else span.parent_id
        outermost = self._traces.get(node.trace_id)
        root = None if outermost is None else outermost.root
        while parent_id is not None:
            parent = nodes.get((node.trace_id, parent_id))
            if parent is not None:
                earliest = parent.earliest
                if not parent.known and (earliest is None or span.start < earliest.start):
                    parent.earliest = Earliest.of(span)
                if node.beside and not parent.known and parent.announced is None:
                    parent.beside, parent.parent = True, None
                if parent.parent is not None and known is not None and node in parent.lineage():
                    if parent.known:
                        break
                    parent.parent = None  # it was only assumed to be inside
                if node is not parent:
                    node.parent = parent
                break
            if parent_id in waiting or parent_id not in parents:
                if root is not None and (root is node or node in root.lineage()):
                    root = None
                if node.beside:
                    root = None
                node.parent = self._unknown(span, parent_id, root)
                node.parent.beside, node.parent.joined = node.beside, node.joined
                awaited = parent_id
                break
            # It has ended before its child, by a moment: steps and tools of the Vercel AI SDK 7,
            # and requests of LiteLLM's proxy.
            parent_id = parents[parent_id]
        if node.run is not None:
            self._climb(node, node.run)
        return node, run, awaited

    def take(self, span: SpanData, reading: ModelSpan | ToolSpan) -> bool:
        """Take a call right inside the root of a run, as most are; ``False``: it is none.

        Nothing is known to be inside it, so it needs no node. Of any other, :meth:`resolve` and
        :meth:`end` say the rest.
        """
        nodes, trace_id = self._nodes, span.trace_id
        parent = nodes.get((trace_id, span.parent_id or 0))
        run = None if parent is None or parent.scope == OUR_SCOPE else parent.run
        if parent is None or run is None or span.remote or (trace_id, span.span_id) in nodes:
            return False
        earliest = parent.earliest
        if not parent.known and (earliest is None or span.start < earliest.start):
            parent.earliest = Earliest.of(span)
        seen = SeenModel.of(span, reading) if isinstance(reading, ModelSpan) else None
        expired: list[tuple[ExternalRun, str]] = []
        with here.critical, self._lock:
            taken = self._take_call(run, span, reading, seen)
            if run.last_seen != self._expired_at or len(self._runs) > self._max_runs:
                expired = self._take_expired(run.last_seen)
        if not taken:
            span_faults.unread(span.scope, "late")
        for idle, reason in expired:
            idle.end(outcome="unknown", reason=reason, evicted=True)
        if taken:
            if seen is not None and isinstance(reading, ModelSpan):
                run.turns.model(span, seen, reading)
            elif isinstance(reading, ToolSpan):
                run.turns.tool(span, reading)
            run_id = run.recorded.event.run
            if self._runs.get(run_id) is run:
                self._changed[run_id] = run
        return True

    def end(
        self,
        span: SpanData,
        resource: Mapping[str, Any] = _NOTHING,
        success: Callable[[], bool | None] | None = None,
        reading: KnownSpan | None = None,
        place: int = 0,
    ) -> ExternalRun | None:
        """A span has ended; see :meth:`Grouping.end`."""
        node = self._nodes.get((span.trace_id, span.span_id))
        caller = super().end(span, resource, success, reading, place)
        if caller is not None:
            run_id = caller.recorded.event.run
            if self._runs.get(run_id) is caller:
                self._changed[run_id] = caller
        if node is not None and node.parent is not None:
            run = node.run
            ended = run is not None and run.root is None and run.around is None
            name = run.agent if ended and run is not None else node.agent_inside
            node.parent.agent_inside = name or node.parent.agent_inside
        return caller

    def end_alone(self, span: SpanData, reading: AgentSpan) -> None:
        """An agent has ended, and no call is inside it, nor in its trace so far."""
        if self._has_no_calls(span, reading):
            span_faults.unread(span.scope, "no_calls")

    def announce(self, span: SpanData, announced: Announcement) -> None:
        """A span that is still open is an agent: from now on it is known, and what it is inside."""
        key = (span.trace_id, announced.span_id)
        node = self._nodes.get(key)
        if node is None:
            node = self._unknown(span, announced.span_id, None)
        elif node.known:
            return
        node.earliest, node.name = None, announced.name
        node.announced = AgentSpan(RunInfo(announced.agent))
        if announced.parent_id is not None:
            parent = self._nodes.get((span.trace_id, announced.parent_id))
            if parent is None:
                outermost = self._traces.get(span.trace_id)
                root = None if outermost is None else outermost.root
                root = None if root is None or root is node else root
                parent = self._unknown(span, announced.parent_id, root)
                parent.earliest = None
            if node is not parent and node not in parent.lineage():
                node.parent = parent

    def pending_parent(
        self, span: SpanData, call: ModelSpan | ToolSpan
    ) -> tuple[Node | None, bool]:
        """The span around a call that has not arrived and decides to which run the call belongs.

        Returns:
            The pending span, if there is one; and whether the call must wait for it. If not, no
            other call needs to wait for it, either.
        """
        node = self._nodes.get((span.trace_id, span.span_id))
        run, inner = (None, []) if node is None else node.way_out()
        if run is not None:
            others = self._others(span.trace_id, inner) if inner else []
            unknown, waits = _decide(run, others, inner, span, call)
            if unknown is not None and waits and unknown.turns:
                at_work = self._at_work.setdefault(span.trace_id, [])
                if unknown not in at_work:
                    at_work.append(unknown)
            return unknown, waits
        root = root_of(inner, span.scope)
        if root is None or root.known:
            return None, False
        has_step = isinstance(call, ToolSpan) or bool(call.calls)
        return root, not has_step and call.info.agent is None

    def heir(self, run: ExternalRun, trace_id: int) -> Node | None:
        """The span that becomes the root of a run, because the last run around it ends.

        What is inside a run ends before it. So what is still at work beside it is a run, too.
        """
        if not run.accompanied or len(self._outermost(trace_id)) > 1:
            return None
        at_work = self._still_at_work(trace_id)
        heir = min(at_work, key=lambda node: node.since or 0, default=None)
        if heir is not None:
            heir.parent, heir.beside = None, True
        return heir

    def is_over(self, model: SpanData, span_id: int) -> bool:
        """Whether a span must have ended in a tool, and so is not sent: its run goes on.

        Args:
            model: a model call that shows what it chose, if anything.
        """
        node = self._nodes.get((model.trace_id, span_id))
        call = self._nodes.get((model.trace_id, model.span_id))
        if node is None or call is None or not node.in_tool or node.beside:
            return False
        run = call.enclosing_run()
        if run is None or node.enclosing_run() is not run:
            return False
        if run.accompanied and self._others(model.trace_id, [node]) != [run]:
            return False
        return node.until <= model.start

    def outlives(self, trace_id: int, span_id: int, run: ExternalRun) -> bool:
        """Whether a span that is still open is not inside a run that ends."""
        node = self._nodes.get((trace_id, span_id))
        if node is None or node.joined:
            return False
        outside = node.beside or (node.ahead and (run.direct or run.turns.shows_calls))
        if not (run.accompanied or outside):
            return False
        others = [each.root for each in self._outermost(trace_id) if each is not run]
        if not others:
            if outside:
                node.parent = None
            return outside
        if node.announced is None and node is not others[0]:
            node.parent = others[0]
        return True

    def _others(self, trace_id: int, inner: list[Node]) -> list[ExternalRun | Node]:
        """What is at work in a trace, and may be around a call."""
        runs = self._outermost(trace_id)
        return [*runs, *(node for node in self._still_at_work(trace_id) if node not in inner)]

    def _outermost(self, trace_id: int) -> list[ExternalRun]:
        """The open runs of a trace, without those inside others."""
        first = self._traces.get(trace_id)
        return [] if first is None else [first, *self._beside.get(trace_id, ())]

    def _still_at_work(self, trace_id: int) -> list[Node]:
        """The spans that nothing is known of but that model calls wait for them."""
        found = self._at_work.get(trace_id)
        if not found:
            return []
        found[:] = [node for node in found if not (node.known or node.joined or node.run)]
        return found

    def expire(self, now: float) -> None:
        """End the runs that were idle for too long."""
        orphans: list[tuple[ExternalRun, Mapping[str, Any]]] = []
        with self._lock:
            gone = self._take_expired(now)
            for run_id, end_arguments in tuple(self._enclosed.items()):
                run = self._runs.get(run_id)
                if run is None:
                    del self._enclosed[run_id]
                elif now - run.last_seen > self._orphan_seconds:
                    orphans.append((run, end_arguments))
                    self._evict(run)
        for run, reason in gone:
            run.end(outcome="unknown", reason=reason, evicted=True)
        for run, end_arguments in orphans:
            run.end(**end_arguments)

    def _run_id(self, root: Node, around: ExternalRun | None) -> str:
        run_id = f"{root.trace_id:032x}"
        if around is None and root.trace_id not in self._named:
            self._named[root.trace_id] = None
            if len(self._named) > _MAX_NAMED:
                self._named.popitem(last=False)
            return run_id
        run_id = f"{run_id}-{root.span_id:016x}"
        if run_id not in self._runs:
            return run_id
        # Its root was the root of another run, which now has a root further out.
        return next(name for n in count(2) if (name := f"{run_id}-{n}") not in self._runs)

    def _unknown(self, inside: SpanData, span_id: int, parent: Node | None) -> Node:
        scope = inside.scope
        node = Node(inside.trace_id, span_id, parent, name="", scope=scope, live=None, known=False)
        node.earliest = Earliest.of(inside)
        self._nodes[inside.trace_id, span_id] = node
        if len(self._nodes) > MAX_OPEN_SPANS:
            self._nodes.popitem(last=False)
        return node

    def _evict(self, run: ExternalRun) -> None:
        super()._evict(run)
        self._changed.pop(run.recorded.event.run, None)
        self._run_bytes -= run.size
        run.size = 0
        self._part(run)

    def _part(self, run: ExternalRun) -> None:
        """A run that is over does not hold its root, if that is not awaited: neither then holds the
        other, and both are freed at once, by no collector."""
        root = run.root
        if root is None or self._runs.get(run.recorded.event.run) is run:
            return
        if self._nodes.get((root.trace_id, root.span_id)) is not root:
            run.root = None

    def _goes_on(self, run: ExternalRun, root: SpanData) -> None:
        self._enclosed[run.recorded.event.run] = ending(root)

    def _late(self) -> None:
        self.late_calls += 1

    def _proves(
        self,
        before: SeenModel,
        run: ExternalRun,
        seen: SeenModel,
        resource: Mapping[str, Any],
        conversation: str | None,
    ) -> bool:
        service = service_of(resource)
        if not service or service != run.service or before.clock != seen.clock:
            return False
        return bool(conversation) and conversation == run.recorded.event.conversation

    def _climb(self, node: Node, run: ExternalRun) -> None:
        """The assumed root of a run has arrived: it may have been the wrong one."""
        reading = node.reading()
        if isinstance(reading, ToolSpan) or _is_agent_of(run, node, reading):
            return
        around = list(node.lineage())
        if not around or around[0].run is not None:
            return
        if run.around is not None:
            root = None if around[0].known else around[0]
        elif any(each.run is not None for each in around):
            root = None
        else:
            root = root_of(around, node.scope)
        if root is None:
            return
        node.run, root.run, run.root = None, run, root
        run.direct = run.turns.goes_on()
        if isinstance(node.live, SpanData):
            self._enclosed[run.recorded.event.run] = ending(node.live)


def _is_agent_of(run: ExternalRun, node: Node, reading: object) -> bool:
    """Whether a span that has arrived is the agent of a run that it was assumed to be the root of.

    An agent whose run goes on after it, and which its calls do not name, is inside another one.
    """
    if run.called and node.name == run.called:
        return True
    if not isinstance(reading, AgentSpan) or not reading.sure:
        return False
    return bool(run.called and reading.info.agent == run.called) or not run.turns.goes_on()


def _parent_id(span: SpanData) -> int | None:
    """Id of its parent; ``None`` also if it is the root of a run in this process."""
    if span.remote and may_enclose_run(span.name, span.attributes, span.scope):
        return None
    return span.parent_id


def _before(inner: Earliest, outer: SpanData) -> bool:
    """Whether a span starts before its parent, by the clock of another host."""
    if not 0 < inner.start < outer.start:
        return False
    clocks = {inner.clock, clock_of(outer.resource)}
    return len(clocks) == 2 and "" not in clocks


_ENOUGH: Final = 4
"""How many open spans, one after the other, show that spans inside a run are not sent."""


def _decide(
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
    """Whether a call names another agent than that of its run, and no known span shows that one.

    OpenInference (0.1.80) and OpenLLMetry (0.62) have the name of LangChain's agent on each call.
    """
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
    inside it is at work. Agents are at work beside each other in a graph of Strands (1.62), and in
    tools that the OpenAI Agents SDK (0.20) runs in parallel.
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

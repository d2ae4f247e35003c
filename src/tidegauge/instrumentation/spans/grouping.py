"""Which spans belong to which run.

- The outermost agent, chain or workflow around a model or tool call is the root of its run; where
  none says what it is, the outermost of the same instrumentation that may yet turn out to be one
  (some tell what a span is when it ends). The run is opened when the first model
  or tool call in it has ended, and ended with its root. A model that is called outside of all of
  these is no run.
- An agent inside a tool, or one that is known by another name, is a run of its own, child of the
  run around it; without a tool in between (a hand-off, a node of a graph) it is a step of that run
  too, named like the agent.
- Any other model or tool call inside a tool is part of that tool: its tokens count, its tool calls
  are no steps.
- Stacked instrumentations may start a trace each. A root whose first model call is already known
  from another instrumentation is the same run's.

Spans are told twice: when they start (who is whose child, nothing more need be known) and when
they have ended. Whatever is told of a trace in any other order can be brought into this one.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

from tidegauge._critical import here, reset_after_fork
from tidegauge._span_faults import span_faults
from tidegauge.instrumentation.current import get_recorder
from tidegauge.instrumentation.recorder import new_run_id
from tidegauge.instrumentation.spans.dedupe import RecentModels, SeenModel
from tidegauge.instrumentation.spans.nodes import (
    Node,
    OpenSpan,
    child_root,
    root_of,
    tool_around,
)
from tidegauge.instrumentation.spans.reading import read_span
from tidegauge.instrumentation.spans.span import ModelSpan, Reading, SpanData, ToolSpan
from tidegauge.instrumentation.spans.watched import RunDefaults, WatchedRun, ending, open_run

__all__ = ["MAX_OPEN_SPANS", "Grouping"]

MAX_OPEN_SPANS: Final = 100_000
_NOTHING: Final[Mapping[str, Any]] = {}


class Grouping:
    """The open spans and the open runs.

    Args:
        defaults: what runs are known by where their spans don't say.
        max_runs: open runs held; one more ends the one idle for longest.
        idle_seconds: a run without a span for so long is ended when the next one opens.
        across_traces: whether a call that two traces show makes one run of them; without, no trace
            depends on what another tells.
        clock: seconds.
    """

    def __init__(
        self,
        defaults: RunDefaults | None = None,
        *,
        max_runs: int = 10_000,
        idle_seconds: float = 3_600.0,
        across_traces: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        span_faults.reading()
        self._across_traces = across_traces
        self._defaults = defaults or RunDefaults()
        self._max_runs = max_runs
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._closed = False
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._nodes: OrderedDict[tuple[int, int], Node] = OrderedDict()
        self._runs: OrderedDict[str, WatchedRun] = OrderedDict()  # least recently seen first
        self._traces: dict[int, WatchedRun] = {}  # the outermost open run of a trace
        self._models = RecentModels()
        self._opened: list[WatchedRun] = []  # and not reported yet

    def __len__(self) -> int:
        """How many spans and runs are open."""
        return len(self._nodes) + len(self._runs)

    @property
    def runs(self) -> list[WatchedRun]:
        """The open runs, the one seen last at the end."""
        with here.critical, self._lock:
            return list(self._runs.values())

    def start(
        self,
        trace_id: int,
        span_id: int,
        parent_id: int | None,
        *,
        name: str,
        scope: str,
        live: OpenSpan,
    ) -> None:
        """A span has started.

        Args:
            trace_id: its trace.
            span_id: its id.
            parent_id: its parent's id; ``None``, it has none.
            name: its name.
            scope: name of the instrumentation that makes it.
            live: tells its attributes while it is open.
        """
        with here.critical, self._lock:
            if self._closed:
                return
            parent = None
            if parent_id == span_id:
                span_faults.repair("cycle")
            elif parent_id is not None:
                parent = self._nodes.get((trace_id, parent_id))
                if parent is None and trace_id in self._traces:  # it has ended before its child
                    parent = self._traces[trace_id].root
            self._nodes[trace_id, span_id] = Node(
                trace_id, span_id, parent, name=name, scope=scope, live=live
            )
            if len(self._nodes) > MAX_OPEN_SPANS:
                self._nodes.popitem(last=False)

    def end(
        self,
        span: SpanData,
        resource: Mapping[str, Any] = _NOTHING,
        success: Callable[[], bool | None] | None = None,
        reading: Reading | None = None,
    ) -> None:
        """A span has ended.

        Args:
            span: it.
            resource: attributes of the process that made it.
            success: tells whether the task was solved; asked only where the span ends a run.
            reading: what the span tells, where it was read before.
        """
        told = read_span(span) if reading is None else reading
        seen = SeenModel.of(span, told) if isinstance(told, ModelSpan) else None
        gone: list[tuple[WatchedRun, str]] = []
        watched, in_tool = None, False
        get_recorder()  # made now, where no lock is held, if nothing was configured
        with here.critical, self._lock:
            node = self._nodes.pop((span.trace_id, span.span_id), None)
            if node is None:
                if isinstance(told, ModelSpan | ToolSpan):
                    span_faults.drop("shutdown" if self._closed else "no_start")
                return
            if isinstance(told, ModelSpan | ToolSpan):
                watched, in_tool = self._place(node, span, told, seen, resource)
                gone = self._displaced()
            ended = node.run if node.run is not None and node.run.root is node else None
            if ended is not None:
                self._take_out(ended)
            opened, self._opened = self._opened, []
        for run in opened:  # outermost first
            run.rounds.send()
        for idle, reason in gone:
            idle.end(outcome="unknown", reason=reason)
        if watched is not None and seen is not None:
            watched.rounds.model(span, seen, in_tool=in_tool)
        elif watched is not None and isinstance(told, ToolSpan) and not in_tool:
            watched.rounds.tool(span, told)
        if ended is not None:
            solved = success() if success is not None and not span.failed else None
            ended.end(success=solved, **ending(span))
            ended.answer(span, told)
            ended.root = None  # neither holds the other: both are freed at once, by no collector
        node.live = None  # what it held is not needed by children that outlive it

    def find(self, trace_id: int, span_id: int | None = None) -> WatchedRun | None:
        """The innermost open run around a span, else the outermost one in its trace."""
        with here.critical, self._lock:
            node = None if span_id is None else self._nodes.get((trace_id, span_id))
            found = None if node is None else node.enclosing_run()
            if found is None or found.recorded.ended:
                found = self._traces.get(trace_id)
            return found

    def find_conversation(self, conversation: str) -> WatchedRun | None:
        """The open run of a conversation; of several, the outermost of those seen last."""
        with here.critical, self._lock:
            runs = [
                run
                for run in reversed(self._runs.values())
                if run.recorded.event.conversation == conversation
            ]
            return next((run for run in runs if run.recorded.event.parent is None), None) or (
                runs[0] if runs else None
            )

    def close(self) -> None:
        """End all runs: nobody will tell how they ended. What is told afterwards is ignored."""
        with here.critical, self._lock:
            self._closed = True
            runs = list(self._runs.values())
            for held in (self._runs, self._nodes, self._models, self._traces):
                held.clear()
        for run in runs:
            run.end(outcome="unknown", reason="shutdown")

    def _place(
        self,
        node: Node,
        span: SpanData,
        told: ModelSpan | ToolSpan,
        seen: SeenModel | None,
        resource: Mapping[str, Any],
    ) -> tuple[WatchedRun | None, bool]:
        """The run of a model or tool call, opened if need be, and whether it is inside a tool."""
        inner: list[Node] = []  # between the call and the run around it, innermost first
        watched: WatchedRun | None = None
        for each in node.lineage():
            watched = each.run
            if watched is not None:
                break
            inner.append(each)
        if watched is None:
            root = root_of(inner, span.scope)
            if root is None:
                span_faults.drop("no_agent")
                return None, False
            inner = inner[: inner.index(root)]
            watched = self._known(node, seen) or self._open(root, inner, told, resource)
            root.run = watched
            watched.traces.add(root.trace_id)
            self._traces.setdefault(root.trace_id, watched)
        tool: Node | None = None
        if inner:
            waiting = watched.rounds.waiting()
            waited_for = isinstance(told, ToolSpan) and told.name in waiting
            tool = tool_around(inner, waiting, unknown=bool(waiting) and not waited_for)
        while child := child_root(inner, tool, told.about, watched.agent):
            inner = inner[: inner.index(child)]
            child.run = self._known(node, seen)
            if child.run is None:
                child.run = self._open(child, inner, told, resource, watched)
                child.run.handed_over = tool is None
            watched = child.run
            tool = tool_around(inner, ())
        self._seen(watched, span.scope, seen)
        if watched.recorded.ended:
            self._late()
            return None, False
        return watched, tool is not None

    def _late(self) -> None:
        """A call came after its run had ended."""
        span_faults.drop("run_ended")

    def _known(self, node: Node, seen: SeenModel | None) -> WatchedRun | None:
        """The run that another instrumentation shows in a trace of its own."""
        run = None if seen is None else self._models.run_of(seen)
        if run is None or self._across_traces or node.trace_id in run.traces:
            return run
        return None

    def _open(
        self,
        root: Node,
        inner: list[Node],
        told: ModelSpan | ToolSpan,
        resource: Mapping[str, Any],
        around: WatchedRun | None = None,
    ) -> WatchedRun:
        watched = open_run(
            self._run_id(root, around),
            root,
            told.about,
            told.model if isinstance(told, ModelSpan) else None,
            defaults=self._defaults,
            resource=resource,
            inner=inner,
            around=around,
        )
        self._runs[watched.recorded.id] = watched
        self._opened.append(watched)
        return watched

    def _run_id(self, root: Node, around: WatchedRun | None) -> str:
        """What a run is to be called by."""
        return new_run_id()

    def _seen(self, watched: WatchedRun, scope: str, seen: SeenModel | None) -> None:
        watched.scopes.add(scope)
        now = self._clock()
        alive: WatchedRun | None = watched
        while alive is not None:
            alive.last_seen = now
            if alive.recorded.id in self._runs:
                self._runs.move_to_end(alive.recorded.id)
            alive = alive.around
        if seen is not None:
            self._models.add(seen, watched)

    def _displaced(self) -> list[tuple[WatchedRun, str]]:
        """Take out the runs that are to go: idle for too long, or one too many."""
        now = self._clock()
        gone: list[tuple[WatchedRun, str]] = []
        while self._runs:
            run = next(iter(self._runs.values()))  # the one that was seen longest ago
            idle = now - run.last_seen > self._idle_seconds
            if not idle and len(self._runs) <= self._max_runs:
                break
            gone.append((run, "idle" if idle else "too many runs"))
            self._take_out(run)
        return gone

    def _take_out(self, run: WatchedRun) -> None:
        self._runs.pop(run.recorded.id, None)
        for trace_id in run.traces:
            if self._traces.get(trace_id) is run:
                del self._traces[trace_id]

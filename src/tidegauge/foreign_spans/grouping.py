"""Which spans belong to which run.

- The outermost agent, chain or workflow around a model or tool call is the root of its run; where
  none says what it is, the outermost of the same instrumentation that may yet turn out to be one:
  OpenInference for LangChain (0.1.80) sets a span's attributes when it ends. The run is opened when
  the first model or tool call in it has ended, and ended with its root. A model that is called
  outside of all of these is not a run.
- An agent that is next in the trace of one that ended with a hand-off is a child of that one: its
  span stands beside the first agent's (Strands 1.62, the OpenAI Agents SDK, Google's ADK 2).
- An agent inside a tool, or one that is known by another name, is a separate run, child of the
  run around it; without a tool in between (a hand-off, a node of a graph) it is a step of that run
  too, named like the agent.
- Any other model or tool call inside a tool is part of that tool: its tokens count, its tool calls
  are not steps.
- Stacked instrumentations may start a trace each. A root whose first model call is already known
  from another instrumentation is the same run's. Equal calls are no proof of that, nor are equal
  ids of them, which many models count from zero: see `dedupe`.

Spans are reported twice: when they start (which needs nothing but their parent) and when they have
ended. A receiver that gets the spans of a trace in any other order brings them into this one.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, Final

from tidegauge._span_counts import UnreadReason, span_faults
from tidegauge.foreign_spans.agent_names import AgentNames, agent_in_name
from tidegauge.foreign_spans.convention_reader import OUR_SCOPE, convention_of, read_span
from tidegauge.foreign_spans.dedupe import (
    SeenModel,
    same_call_elsewhere,
    same_model_call,
)
from tidegauge.foreign_spans.external_run import (
    ExternalRun,
    Node,
    OpenSpan,
    RunDefaults,
    child_root,
    ending,
    open_run,
    root_of,
    service_of,
    tool_around,
)
from tidegauge.foreign_spans.matching import MAX_SHOWN_BYTES
from tidegauge.foreign_spans.span import (
    CALLS,
    AgentSpan,
    KnownSpan,
    ModelSpan,
    SpanData,
    ToolSpan,
)
from tidegauge.runs.recorder import Recorder, new_run_id
from tidegauge.safety.critical import here, reset_after_fork

MAX_OPEN_SPANS: Final = 100_000
_MAX_RECENT: Final = 1_000
_MAX_RECENT_OF_TRACE: Final = 64
_MAX_RECENT_BYTES: Final = 16 * 1024 * 1024
_MAX_SCOPES: Final = 1_000
_NOTHING: Final[Mapping[str, Any]] = {}


class _Recent:
    """Model calls, the instrumentations that have shown them, and the memory of what they chose."""

    __slots__ = ("calls", "scopes", "size")

    def __init__(self) -> None:
        self.calls: deque[tuple[SeenModel, ExternalRun]] = deque()
        self.scopes: Counter[str] = Counter()
        self.size = 0


class RecentModels:
    """The last model calls, and the runs that they were made in.

    Args:
        across_traces: whether 1,000 of all traces are kept; else 64 of each trace. Together they
            take at most 16 MB, or 1 MB of each trace.
    """

    def __init__(self, *, across_traces: bool = True) -> None:
        self._across_traces = across_traces
        self._limit = _MAX_RECENT if across_traces else _MAX_RECENT_OF_TRACE
        self._max_bytes = _MAX_RECENT_BYTES if across_traces else MAX_SHOWN_BYTES
        self._recent: dict[int, _Recent] = {}  # by trace; 0: of all

    def add(self, seen: SeenModel, run: ExternalRun, trace_id: int) -> None:
        """A model was called in a run."""
        key = 0 if self._across_traces else trace_id
        recent = self._recent.get(key)
        if recent is None:
            recent = self._recent[key] = _Recent()
        recent.calls.append((seen, run))
        recent.scopes[seen.scope] += 1
        recent.size += seen.size
        while len(recent.calls) > self._limit or recent.size > self._max_bytes:
            oldest, _ = recent.calls.popleft()
            recent.size -= oldest.size
            recent.scopes[oldest.scope] -= 1
            if not recent.scopes[oldest.scope]:
                del recent.scopes[oldest.scope]

    def run_of(
        self,
        seen: SeenModel,
        trace_id: int,
        proves: Callable[[SeenModel, ExternalRun], bool] | None = None,
    ) -> ExternalRun | None:
        """The run in which another instrumentation shows this call.

        Of several in its trace, that of the same thread or task; else the one nearest in time. A
        run that is not in its trace is one only where that is proven, and there is but one.

        Args:
            proves: whether a call in a run of another trace is proven to be this one, though it did
                not end in the same thread or task; ``None``, none is.
        """
        recent = self._recent.get(0 if self._across_traces else trace_id)
        if recent is None or recent.scopes.keys() <= {seen.scope}:
            return None  # mostly there is but one, and nothing to be searched
        found: list[tuple[bool, int, int, ExternalRun]] = []
        elsewhere: list[tuple[SeenModel, ExternalRun]] = []
        for number, (before, run) in enumerate(reversed(recent.calls)):
            if seen.scope in run.scopes or not same_model_call(before, seen):
                continue
            if trace_id in run.traces:
                apart = before.when.apart(seen.when)
                found.append((seen.beside(before), apart, number, run))
            elif (
                self._across_traces and not run.recorded.ended and same_call_elsewhere(before, seen)
            ):
                elsewhere.append((before, run))
        if found:
            return min(found)[-1]
        waiting = [one for one in elsewhere if not one[1].turns.has_results(one[0].when.end)]
        runs = {run.recorded.event.run: run for before, run in waiting if not seen.beside(before)}
        if not runs and proves is not None:
            runs = {run.recorded.event.run: run for before, run in waiting if proves(before, run)}
        return next(iter(runs.values())) if len(runs) == 1 else None

    def of(self, trace_id: int) -> list[tuple[SeenModel, ExternalRun]]:
        """Those of a trace, for :meth:`load`."""
        recent = self._recent.get(trace_id)
        return [] if recent is None else list(recent.calls)

    def load(self, trace_id: int, calls: Iterable[tuple[SeenModel, ExternalRun]]) -> None:
        """Take those of a trace that another process has known."""
        for seen, run in calls:
            self.add(seen, run, trace_id)

    def forget(self, trace_id: int) -> None:
        """Forget those of a trace."""
        self._recent.pop(trace_id, None)

    def clear(self) -> None:
        """Forget all."""
        self._recent.clear()


class Grouping:
    """The open spans and the open runs.

    Args:
        recorder: gives the recorder that new runs are reported to.
        defaults: labels of runs whose spans have none.
        max_runs: open runs held; one more ends the one idle for longest.
        idle_seconds: a run without a span for so long is ended when the next one opens.
        across_traces: whether a call that two traces are proven to show makes one run of them;
            without, no trace depends on another.

    Attributes:
        names: the agents that were seen.
    """

    def __init__(
        self,
        recorder: Callable[[], Recorder],
        defaults: RunDefaults | None = None,
        *,
        max_runs: int = 10_000,
        idle_seconds: float = 3_600.0,
        across_traces: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        span_faults.reading()
        self._recorder = recorder
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
        self._runs: OrderedDict[str, ExternalRun] = OrderedDict()  # least recently seen first
        self._traces: dict[int, ExternalRun] = {}  # the outermost open run of a trace
        self._beside: dict[int, list[ExternalRun]] = {}  # others that are open at the same time
        self._handed_over: OrderedDict[int, ExternalRun] = OrderedDict()  # the last run, by trace
        self._models = RecentModels(across_traces=self._across_traces)
        self.names = AgentNames()
        self._calling: set[str] = set()  # the instrumentations that have shown calls, of the first
        self._opened: list[ExternalRun] = []  # and not reported yet
        self._expired_at: float | None = None  # when idle runs were last looked for

    def __len__(self) -> int:
        """How many spans and runs are open."""
        return len(self._nodes) + len(self._runs)

    @property
    def runs(self) -> list[ExternalRun]:
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
            live: gives its attributes while it is open.
        """
        with here.critical, self._lock:
            if self._closed:
                return
            parent = None
            if parent_id == span_id:
                span_faults.repair("cycle")
            elif parent_id is not None:
                parent = self._nodes.get((trace_id, parent_id))
                if parent is None and trace_id in self._traces:
                    # It has ended before its child: OpenLLMetry (0.62) ends the span of a workflow
                    # of LlamaIndex (0.14) when the workflow has started, and its tasks go on.
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
        reading: KnownSpan | None = None,
        place: int = 0,
    ) -> ExternalRun | None:
        """A span has ended.

        Args:
            success: says whether the task was solved; called only where the span ends a run.
            reading: what the span is, where it was read before.
            place: the thread or task of this process that ended it; 0, that is not known.

        Returns:
            The open run that it is a call of.
        """
        if reading is None:
            reading = read_span(span)
        seen = SeenModel.of(span, reading, place) if isinstance(reading, ModelSpan) else None
        expired: list[tuple[ExternalRun, str]] = []
        run, in_tool = None, False
        unread: UnreadReason | None = None
        recorder = self._recorder()  # made now, where no lock is held, if nothing was configured
        with here.critical, self._lock:
            node = self._nodes.pop((span.trace_id, span.span_id), None)
            if node is None:
                if isinstance(reading, CALLS):
                    span_faults.drop("shutdown" if self._closed else "no_start")
                return None
            if isinstance(reading, CALLS):
                run, in_tool = self._assign(
                    node, span, reading, seen, resource=resource, recorder=recorder
                )
                if run is None:
                    over = node.run is None and node.enclosing_run() is not None
                    unread = "late" if over else "no_run"
                now = self._clock() if run is None else run.last_seen
                if now != self._expired_at or len(self._runs) > self._max_runs:
                    expired = self._take_expired(now)
            ended = node.run if node.run is not None and node.run.root is node else None
            if ended is not None and isinstance(reading, AgentSpan) and reading.early:
                self._nodes[span.trace_id, span.span_id] = node
                self._goes_on(ended, span)
                return None  # its run ends when no more spans come (LlamaIndex, see `start`)
            if isinstance(reading, AgentSpan):
                self._name(node, span, reading.info.agent, ended)
                known = node.enclosing_run() or self._traces.get(span.trace_id)
                if known is None and self._has_no_calls(span, reading):
                    unread = "no_calls"
            if ended is not None:
                self._evict(ended)
                # The next agent's span may come after this one, beside it in a workflow (Google's
                # ADK 2) or a swarm (Strands 1.62): nothing else ties it to this.
                if span.parent_id is not None and ended.turns.hands_over():
                    self._handed_over[span.trace_id] = ended
                    if len(self._handed_over) > _MAX_RECENT:
                        self._handed_over.popitem(last=False)
            opened, self._opened = self._opened, []
        if unread is not None:
            span_faults.unread(span.scope, unread)
        for new in opened:  # outermost first
            new.turns.send()
        for idle, reason in expired:
            idle.end(outcome="unknown", reason=reason, evicted=True)
        if run is not None and isinstance(reading, ModelSpan) and seen is not None:
            run.turns.model(span, seen, reading, in_tool=in_tool)
        elif run is not None and isinstance(reading, ToolSpan) and not in_tool:
            run.turns.tool(span, reading)
        if ended is not None:
            solved = success() if success is not None and not span.failed else None
            ended.end(success=solved, **ending(span))
            ended.report_result(span, reading)
            ended.unsure.clear()
            ended.root = None  # neither holds the other: both are freed at once, by no collector
        node.let_go()
        return run

    def _has_no_calls(self, span: SpanData, reading: AgentSpan) -> bool:
        """Whether an agent's calls are missing, in a trace without runs.

        An instrumentation that has shown calls shows them all.
        """
        return reading.sure and span.scope not in self._calling

    def find(self, trace_id: int, span_id: int | None = None) -> ExternalRun | None:
        """The innermost open run around a span, else the outermost one in its trace."""
        with here.critical, self._lock:
            node = None if span_id is None else self._nodes.get((trace_id, span_id))
            found = None if node is None else node.enclosing_run()
            if found is None or found.recorded.ended:
                found = self._traces.get(trace_id)
            return found

    def find_conversation(self, conversation: str) -> ExternalRun | None:
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

    def close(self, until: float = inf) -> int:
        """End all runs, as unknown. What is reported afterwards is ignored.

        Args:
            until: end no more of them after this moment of the monotonic clock.

        Returns:
            How many were not ended.
        """
        with here.critical, self._lock:
            self._closed = True
            runs = list(self._runs.values())
            for held in (
                *(self._runs, self._nodes, self._models),
                *(self._traces, self._beside, self._handed_over),
            ):
                held.clear()
        for ended, run in enumerate(runs):
            if time.monotonic() > until:
                return len(runs) - ended
            run.end(outcome="unknown", reason="shutdown")
        return 0

    def _assign(
        self,
        node: Node,
        span: SpanData,
        reading: ModelSpan | ToolSpan,
        seen: SeenModel | None,
        *,
        resource: Mapping[str, Any],
        recorder: Recorder,
    ) -> tuple[ExternalRun | None, bool]:
        """The run of a model or tool call, opened if need be, and whether it is inside a tool."""
        parent = node.parent
        run = None if parent is None or parent.scope == OUR_SCOPE else parent.run
        inner: list[Node] = []  # between the call and the run around it, innermost first
        if run is None:
            run, inner = node.way_out()
        if run is None:
            root = root_of(inner, span.scope)
            if root is None:
                span_faults.drop("no_agent")
                return None, False
            inner = inner[: inner.index(root)]
            run = self._known(node, reading, seen, resource) or self._open(
                *(root, inner, span, reading, self._handing_over(root)),
                node=node,
                resource=resource,
                recorder=recorder,
            )
            root.run = run
            run.traces.add(root.trace_id)
            first = self._traces.setdefault(root.trace_id, run)
            if first is not run:
                self._beside.setdefault(root.trace_id, []).append(run)
                first.accompanied = run.accompanied = True
        tool: Node | None = None
        if inner:
            waiting = run.turns.waiting()
            waited_for = isinstance(reading, ToolSpan) and reading.name in waiting
            tool = tool_around(inner, waiting, unknown=bool(waiting) and not waited_for)
        while inner and (child := child_root(inner, tool, reading.info, run.agent)):
            inner = inner[: inner.index(child)]
            child.run = self._known(node, reading, seen, resource)
            if child.run is None:
                around = run.handed_on()
                child.run = self._open(
                    *(child, inner, span, reading, around),
                    node=node,
                    resource=resource,
                    recorder=recorder,
                )
                # The Vercel AI SDK 5 and 6 streams: a tool may end before the answer that chose it,
                # when nothing waits for it yet.
                convention = convention_of(span.attributes, span.scope)
                in_tool = convention is not None and convention.in_tools
                # An agent that begins while tools are waited for is in one of them, also where its
                # span is beside that of `delegate_task_to_member` (teams of Agno 3.1), or has ended
                # a moment after the tool's (the Vercel AI SDK 7).
                in_tool = in_tool or tool is not None or bool(run.turns.waiting())
                child.run.handed_over = not in_tool and not run.hands_over()
            run = child.run
            tool = tool_around(inner, ())
        inside = bool(inner)
        taken = self._take_call(run, span, reading, seen, inside=inside, in_tool=tool is not None)
        return (run if taken else None), tool is not None

    def _take_call(
        self,
        run: ExternalRun,
        span: SpanData,
        reading: ModelSpan | ToolSpan,
        seen: SeenModel | None,
        *,
        inside: bool = False,
        in_tool: bool = False,
    ) -> bool:
        """Note a call of a run; ``False``: the run has ended.

        Args:
            seen: what other spans are compared with, if it is a model call.
            inside: whether there are spans between it and the root of the run.
            in_tool: whether one of these is a tool call.
        """
        if not (in_tool or run.agent) and reading.info.agent is not None:
            # Its first calls did not show the name: tools of Mastra end before the model that
            # chose them does, and only the model's span names the agent.
            run.agent = run.called = reading.info.agent
        run.scopes.add(span.scope)
        if len(self._calling) < _MAX_SCOPES:
            self._calling.add(span.scope)
        now = self._clock()
        alive: ExternalRun | None = run
        while alive is not None:
            alive.last_seen = now
            run_id = alive.recorded.event.run
            if run_id in self._runs:
                self._runs.move_to_end(run_id)
            alive = alive.around
        if seen is not None:
            self._models.add(seen, run, span.trace_id)
        if run.recorded.ended:
            self._late()
            return False
        if not in_tool and seen is not None and seen.model.calls:
            run.chose_until, run.chose_by = span.end, (seen.clock, span.scope)
            run.direct = run.direct or not inside
        # OpenInference shows no model calls of Google's ADK that choose tools (1.0.5, ADK 2.13).
        elif not (inside or run.direct or run.turns.has_models) and isinstance(reading, ToolSpan):
            run.direct = True
        return True

    def _name(
        self, node: Node, span: SpanData, name: str | None, ended: ExternalRun | None
    ) -> None:
        """A span may name an agent: that of the run that it is the root of, or is inside."""
        run = ended or node.enclosing_run()
        if run is None or (run.agent and (ended is None or name is None)):
            return
        # OpenInference names agents of smolagents (0.1.43) and LlamaIndex (4.6) by the span alone:
        # "ToolCallingAgent.run", "FunctionAgent.run".
        name = name or (agent_in_name(span.name) if ended is not None else None)
        if not name:
            return
        run.agent = name
        for scope in run.scopes:
            self.names.show(run.service, scope, name, at=span.end, now=self._clock())

    def _goes_on(self, run: ExternalRun, root: SpanData) -> None:
        """The root of a run has ended, but not what it has started."""

    def _late(self) -> None:
        """A call came after its run had ended."""
        span_faults.drop("run_ended")

    def _handing_over(self, root: Node) -> ExternalRun | None:
        """The run that has ended with a hand-off, to the agent that is next in the same trace."""
        if root.trace_id in self._traces:
            return None  # that one may be at work beside it
        return self._handed_over.pop(root.trace_id, None)

    def _known(
        self,
        node: Node,
        reading: ModelSpan | ToolSpan,
        seen: SeenModel | None,
        resource: Mapping[str, Any],
    ) -> ExternalRun | None:
        """The run in which another instrumentation shows a call, in another trace perhaps."""
        if seen is None:
            return None

        def proves(before: SeenModel, run: ExternalRun) -> bool:
            if not (before.model.calls and seen.model.calls):
                return False
            infos = (reading.info, *(each.info() for each in node.lineage()))
            conversation = next((one.conversation for one in infos if one.conversation), None)
            return self._proves(before, run, seen, resource, conversation)

        return self._models.run_of(seen, node.trace_id, proves)

    def _proves(
        self,
        before: SeenModel,
        run: ExternalRun,
        seen: SeenModel,
        resource: Mapping[str, Any],
        conversation: str | None,
    ) -> bool:
        """Whether the process and conversation of two calls show that they are one.

        Args:
            before: one of them.
            run: the run that it is in.
            seen: the other.
            resource: the process that the other was made in: here, both were.
            conversation: that of the other; ``None``, not known.
        """
        theirs = run.recorded.event.conversation
        if conversation and theirs:
            return conversation == theirs
        # Both ended in threads that an event loop hands work to: there, the callback handlers of
        # an asynchronous agent end them, one after the other, each in any such thread.
        if seen.place or before.place:
            return False
        return None not in [call.id for one in (before, seen) for call in one.model.calls or ()]

    def _open(
        self,
        root: Node,
        inner: list[Node],
        span: SpanData,
        reading: ModelSpan | ToolSpan,
        around: ExternalRun | None = None,
        *,
        node: Node,
        resource: Mapping[str, Any],
        recorder: Recorder,
    ) -> ExternalRun:
        shown = self.names.only(service_of(resource), span.scope, at=span.end, now=self._clock())
        if shown == node.agent_inside:
            shown = None  # the name of an agent in its tool, which ended first, and not its own
        run = open_run(
            self._run_id(root, around),
            root,
            reading.info,
            reading.model if isinstance(reading, ModelSpan) else None,
            recorder=recorder,
            defaults=self._defaults,
            resource=resource,
            inner=inner,
            around=around,
            shown=shown,
        )
        self._runs[run.recorded.event.run] = run
        self._opened.append(run)
        return run

    def _run_id(self, root: Node, around: ExternalRun | None) -> str:
        """The id of a new run."""
        return new_run_id()

    def _take_expired(self, now: float) -> list[tuple[ExternalRun, str]]:
        """Evict the runs that are idle for too long, and those that are too many.

        Ask once at a time, as long as they are not too many: a receiver gets many spans together.
        """
        expired: list[tuple[ExternalRun, str]] = []
        self._expired_at = now
        while self._runs:
            run = next(iter(self._runs.values()))  # the one that was seen longest ago
            idle = now - run.last_seen > self._idle_seconds
            if not idle and len(self._runs) <= self._max_runs:
                break
            expired.append((run, "idle" if idle else "too many runs"))
            self._evict(run)
        return expired

    def _evict(self, run: ExternalRun) -> None:
        self._runs.pop(run.recorded.event.run, None)
        for trace_id in run.traces:
            others = self._beside.get(trace_id, [])
            if self._traces.get(trace_id) is run:
                if others:
                    self._traces[trace_id] = others.pop(0)
                else:
                    del self._traces[trace_id]
            elif run in others:
                others.remove(run)
            if not others:
                self._beside.pop(trace_id, None)

"""What is held of open traces: spans and calls that wait, and how spans are nested.

- Spans are held after their arrival, so that spans that ended earlier and arrive later can overtake
  them. When one is due, so are the held spans of its host that ended before it: their clock is the
  same. So the order does not depend on how the spans were batched.
- Calls wait for a span around them that decides about their run.
- A tool's span ends after the agent inside it, and the model call of the agent around it may end
  later still. So the run inside has ended, without a parent, before anything shows the run around
  it. The caller is found when its root arrives.
- Traces that were loaded from plain data are read when they are needed.
"""

from __future__ import annotations

import bisect
from collections import OrderedDict, deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple, TypeAlias

from opentelemetry._logs import NoOpLogger
from opentelemetry.trace import NoOpTracer

from tidegauge._span_counts import span_faults
from tidegauge.events import ABSENT, CallResult, RunStarted
from tidegauge.foreign_spans.dedupe import Interval, SeenModel
from tidegauge.foreign_spans.external_run import MAX_DEPTH, Earliest, ExternalRun, Node
from tidegauge.foreign_spans.matching import SpanCall, SpanTurn, SpanTurns
from tidegauge.foreign_spans.span import (
    UNKNOWN_ARGUMENTS,
    AgentSpan,
    Attributes,
    KnownSpan,
    ModelSpan,
    ReadSpan,
    RunInfo,
    SpanData,
    ToolSpan,
    clock_of,
)
from tidegauge.receivers.span_events import WaitingEvents
from tidegauge.runs.recorder import RecordedRun, Recorder
from tidegauge.runs.turn_calls import ChosenCall, OpenTurns
from tidegauge.tracer import SpanFactory
from tidegauge.values.plain_objects import Kept, PlainObjects

_Heap: TypeAlias = list[tuple[int, int]]
"""Traces with held spans of a host: (end of a span, before which none of them ended, trace id)."""

_NO_SPANS: Final[dict[int, SpanData]] = {}


class _Due(NamedTuple):
    """When spans that arrived together are due, and their latest ends."""

    when: float
    by_trace: dict[tuple[int, str], int]  # by trace and clock
    by_host: dict[str, int]

    def at(self) -> float:
        """When."""
        return self.when


class HeldSpans:
    """The held spans of all traces.

    Args:
        allowed_lateness: seconds that a span is held.
        across_traces: whether the order of a host's spans holds for spans of different traces, too.

    Attributes:
        size: bytes that the held spans came in.

    >>> held = HeldSpans(0.5)
    >>> held.add([SpanData(1, 3, 2, "later", "any", {}, 0, 9)], now=0.0)
    >>> held.add([SpanData(1, 2, None, "sooner", "any", {}, 0, 5)], now=0.1)
    >>> [[span.name for span in spans] for _, spans in held.take_due(0.5)]
    [['sooner', 'later']]
    """

    def __init__(self, allowed_lateness: float, *, across_traces: bool = True) -> None:
        self._allowed_lateness = allowed_lateness
        self._across_traces = across_traces
        self.size = 0
        self._traces: dict[int, dict[int, SpanData]] = {}
        self._clocks: dict[int, str | None] = {}  # of the held spans by trace; None: several
        self._by_host: dict[str, _Heap] = {}
        self._due: deque[_Due] = deque()

    @property
    def due(self) -> float | None:
        """When the next span is due; ``None``: no span is held."""
        return self._due[0].when if self._due else None

    def of(self, trace_id: int) -> dict[int, SpanData]:
        """The held spans of a trace by their ids."""
        return self._traces.get(trace_id, _NO_SPANS)

    def add(self, spans: Sequence[SpanData], *, now: float) -> None:
        """Hold spans that arrived together; ``now`` never goes back."""
        latest: dict[tuple[int, str], int] = {}  # ends by trace and clock
        first: dict[tuple[int, str], int] = {}
        resource: Attributes | None = None
        clock = ""
        for span in spans:
            if span.resource is not resource:  # which the spans of a request share
                resource = span.resource
                clock = clock_of(resource)
            trace_id = span.trace_id
            held = self._traces.get(trace_id)
            if held is None:
                held = self._traces[trace_id] = {}
                self._clocks[trace_id] = clock
            elif self._clocks[trace_id] != clock:
                self._clocks[trace_id] = None
            held[span.span_id] = span
            self.size += span.size
            key, end = (trace_id, clock), max(span.start, span.end)  # a clock may have gone back
            if end >= latest.get(key, 0):
                latest[key] = end
            if end <= first.get(key, end):
                first[key] = end
        by_host: dict[str, int] = {}
        for (trace_id, host), end in latest.items() if self._across_traces else ():
            if host:
                by_host[host] = max(end, by_host.get(host, 0))
                heappush(self._by_host.setdefault(host, []), (first[trace_id, host], trace_id))
        if latest:
            due = _Due(now + self._allowed_lateness, latest, by_host)
            if self._due and due.when < self._due[-1].when:  # what was loaded may be due later
                bisect.insort(self._due, due, key=_Due.at)
            else:
                self._due.append(due)

    def take_due(self, now: float) -> Iterator[tuple[float, list[SpanData]]]:
        """Take out the spans that are due: when, and those that became due together."""
        while self._due and self._due[0].when <= now:
            when, until, by_host = self._due.popleft()
            reached = {
                (host, trace_id)
                for host, end in by_host.items()
                for trace_id in self._reached(host, end, until)
            }
            ended: list[SpanData] = []
            for (trace_id, clock), end in until.items():
                self._take_until(trace_id, clock, end, ended)
            for host, trace_id in reached:
                ends = [max(span.start, span.end) for span in self._of_clock(trace_id, host)]
                if ends:
                    heappush(self._by_host.setdefault(host, []), (min(ends), trace_id))
            if len(ended) > 1:
                ended.sort(key=order)
            if ended:
                yield when, ended

    def replace(self, span: SpanData) -> None:
        """Hold this span in place of the one with its id."""
        self._traces[span.trace_id][span.span_id] = span

    def take(self, span: SpanData) -> None:
        """Take out one span."""
        spans = self._traces[span.trace_id]
        self.size -= spans.pop(span.span_id).size
        if not spans:
            self._forget(span.trace_id)

    def take_trace(self, trace_id: int) -> list[SpanData]:
        """Take out the spans of a trace, in the order of their ends."""
        spans = sorted(self.of(trace_id).values(), key=order)
        for span in spans:
            self.take(span)
        return spans

    def take_all(self) -> list[SpanData]:
        """Take out all spans, in the order of their ends."""
        spans = [span for trace_id in tuple(self._traces) for span in self.take_trace(trace_id)]
        self._due.clear()
        self._by_host.clear()
        return sorted(spans, key=order)

    def saved(self, trace_id: int) -> dict[str, Any]:
        """What is held of a trace, for :meth:`load`; empty: nothing. Not across traces."""
        spans = self._traces.get(trace_id)
        if not spans:
            return {}
        due = [
            (one.when, {clock: end for (each, clock), end in one.by_trace.items()})
            for one in self._due
            if any(each == trace_id for each, _ in one.by_trace)
        ]
        return {"spans": spans, "clock": self._clocks[trace_id], "due": due}

    def load(self, trace_id: int, saved: Mapping[str, Any]) -> None:
        """Hold what another process has held of a trace."""
        if not saved:
            return
        spans = self._traces[trace_id] = saved["spans"]
        self.size += sum([span.size for span in spans.values()])
        self._clocks[trace_id] = saved["clock"]
        for when, ends in saved["due"]:
            one = _Due(when, {(trace_id, clock): end for clock, end in ends.items()}, {})
            bisect.insort(self._due, one, key=_Due.at)

    def _reached(self, host: str, end: int, until: dict[tuple[int, str], int]) -> list[int]:
        """Take out the traces with spans of a host that had ended at this time, and note it."""
        heap, found = self._by_host.get(host, []), []
        while heap and heap[0][0] <= end:
            trace_id = heappop(heap)[1]
            found.append(trace_id)
            until[trace_id, host] = max(end, until.get((trace_id, host), 0))
        if not heap:
            self._by_host.pop(host, None)
        return found

    def _take_until(self, trace_id: int, clock: str, until: int, ended: list[SpanData]) -> None:
        """Move the spans of a trace that had ended at this time, by this clock, to a list."""
        spans = self._traces.get(trace_id, _NO_SPANS)
        found = [
            span
            for span in self._of_clock(trace_id, clock)
            if span.end <= until and span.start <= until
        ]
        if len(found) == len(spans):
            self._forget(trace_id)
        else:
            for span in found:
                del spans[span.span_id]
        self.size -= sum([span.size for span in found])
        ended += found

    def _of_clock(self, trace_id: int, clock: str) -> Iterable[SpanData]:
        """The held spans of a trace whose times are of a clock."""
        spans = self._traces.get(trace_id, _NO_SPANS).values()
        if self._clocks.get(trace_id) is not None:
            return spans
        return [span for span in spans if clock_of(span.resource) == clock]

    def _forget(self, trace_id: int) -> None:
        self._traces.pop(trace_id, None)
        self._clocks.pop(trace_id, None)


def order(span: SpanData) -> tuple[int, int]:
    """The order of ends; of spans that ended at once, the inner first."""
    start, end = span.start, span.end
    return end if end > start else start, -start  # a clock may have gone back


_MAX_PARENTLESS: Final = 1_000


class ParentlessRuns:
    """The last 1,000 runs of a trace that ended and are in no other run, as far as is known.

    >>> runs = ParentlessRuns()
    >>> runs.add("helper", around=3)
    >>> runs.take(1, parents={3: 2, 2: 1}, waiting=(), roots={1}, tools={3}, sure=False)
    ['helper']
    """

    def __init__(self) -> None:
        self._around: OrderedDict[str, tuple[int, bool]] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._around)

    def add(self, run: str, *, around: int) -> None:
        """A run without a parent has ended; the span around its root has this id."""
        self._around[run] = around, False
        if len(self._around) > _MAX_PARENTLESS:
            self._around.popitem(last=False)

    def take(
        self,
        root: int,
        *,
        parents: Mapping[int, int | None],
        waiting: Container[int],
        roots: Container[int],
        tools: Container[int],
        sure: bool,
    ) -> list[str]:
        """Take out the runs that were inside the run that ends, by their ids.

        If its root is no agent, and without a tool between them, two agents may be side by side in
        one workflow.

        Args:
            root: id of the root of the run that ends.
            parents: ids of the parents of the spans that have arrived, by id.
            waiting: ids of those that were not emitted yet: they are not known.
            roots: ids of the roots of runs.
            tools: ids of the spans that are tools.
            sure: whether the root is an agent, and not less.
        """
        found: list[str] = []
        known: dict[int, tuple[int | None, bool]] = {}  # where a climb from a span ends
        for run, (around, before) in list(self._around.items()):
            if around not in known:
                known[around] = _climb(around, parents, waiting, roots, tools)
            top, passed = known[around]
            in_tool = before or passed
            if top is None or top == root:
                del self._around[run]
            else:
                self._around[run] = top, in_tool
            if top == root and (in_tool or sure):
                found.append(run)
        return found


def _climb(
    span: int,
    parents: Mapping[int, int | None],
    waiting: Container[int],
    roots: Container[int],
    tools: Container[int],
) -> tuple[int | None, bool]:
    """The root around a span, or a span that is not known; and whether a tool is between."""
    in_tool, above = False, span
    while above not in roots:
        in_tool = in_tool or above in tools
        if above in waiting or above not in parents:
            break
        outer = parents[above]
        if outer is None:
            return None, in_tool
        above = outer
    return above, in_tool


class PendingCall(NamedTuple):
    """A call, or an agent around calls, that waits for a span around it, and what it shows."""

    span: SpanData
    reading: KnownSpan


_MAX_CHOSEN: Final = 1_000
"""Limit of the remembered ids of calls that models have chosen."""

_ID_BYTES: Final = 200
"""What one of them takes, about, without its characters."""


class OpenTrace:
    """An open trace. Of its spans, only their ids are kept, with those of their parents.

    The assembly fills in its attributes itself: it does so for every span.
    """

    __slots__ = (
        *("awaited", "chosen", "chosen_bytes", "clocks", "last_seen", "parentless", "parents"),
        *("pending", "roots", "tools", "waiting"),
    )

    def __init__(self) -> None:
        self.parents: dict[int, int | None] = {}  # ids of their parents, by id
        self.waiting: set[int] = set()  # ids of those that were not emitted yet
        self.chosen: OrderedDict[str, None] = OrderedDict()  # the model's ids of emitted calls
        self.chosen_bytes = 0
        self.awaited: set[int] = set()  # ids of parents that were not emitted yet
        self.clocks: set[str] = set()  # of its spans; two at most
        self.parentless = ParentlessRuns()
        # By the span that decides about their run, which has not arrived; no list is empty.
        self.pending: dict[int, list[PendingCall]] = {}
        self.roots: set[int] = set()  # ids of those that were roots of runs
        self.tools: set[int] = set()  # ids of those that are tools
        self.last_seen = 0.0

    def without_cycle(self, span: SpanData, held: Mapping[int, SpanData]) -> SpanData:
        """Cut the cycle of a span that is its own ancestor: the outermost of them is a root.

        Args:
            span: the span, whose parent has arrived.
            held: the held spans of the trace, by their ids.

        Returns:
            The span of the cycle that was cut, now without a parent; else the span as it was.
        """
        span_id, around, parents = span.span_id, span.parent_id, self.parents
        cycle = [span_id]
        while around is not None and around != span_id:
            if len(cycle) == MAX_DEPTH:
                span_faults.repair("depth")
                return self._cut(span)
            cycle.append(around)
            around = parents.get(around)
        if around is None:
            return span
        span_faults.repair("cycle")
        outermost = max((held.get(each, span) for each in cycle), key=order)  # it ends last
        return self._cut(outermost)

    def choose(self, model: ModelSpan) -> int:
        """Remember the ids of the calls that a model has chosen; returns the bytes that it adds."""
        before = self.chosen_bytes
        for call in model.calls or ():
            if call.id is not None and call.id not in self.chosen:
                self.chosen[call.id] = None
                self.chosen_bytes += _ID_BYTES + len(call.id)
                if len(self.chosen) > _MAX_CHOSEN:
                    forgotten, _ = self.chosen.popitem(last=False)
                    self.chosen_bytes -= _ID_BYTES + len(forgotten)
        return self.chosen_bytes - before

    def end_run(self, run: ExternalRun, root: SpanData, reading: KnownSpan | None) -> None:
        """The root of a run is emitted: the run was around others, or another is around it."""
        if self.parentless:
            run.earlier += self.parentless.take(
                root.span_id,
                parents=self.parents,
                waiting=self.waiting,
                roots=self.roots,
                tools=self.tools,
                sure=isinstance(reading, AgentSpan) and reading.sure,
            )
        if run.around is None and root.parent_id is not None and not root.remote:
            self.parentless.add(run.recorded.event.run, around=root.parent_id)

    def _cut(self, span: SpanData) -> SpanData:
        self.parents[span.span_id] = None
        return span._replace(parent_id=None)


class SleepingTrace(NamedTuple):
    """A trace that is not read yet.

    Args:
        parts: gives its plain data.
        ends: when the first part of it ends, if nothing comes until then.
    """

    parts: Callable[[], Any]
    spans: int
    runs: int
    ends: float


class SleepingTraces:
    """Traces that are not read yet; after :meth:`in_order`, the one that ends next is first.

    >>> sleeping = SleepingTraces()
    >>> for trace_id, ends in ((1, 9.0), (2, 3.0)):
    ...     sleeping.add(trace_id, SleepingTrace(dict, 5, 1, ends))
    >>> sleeping.in_order()
    >>> sleeping.ending(5.0), sleeping.spans, sleeping.pop(2).ends, sleeping.spans
    ([2], 10, 3.0, 5)
    """

    def __init__(self) -> None:
        self.spans = self.runs = 0
        self._traces: OrderedDict[int, SleepingTrace] = OrderedDict()

    def __len__(self) -> int:
        return len(self._traces)

    def __contains__(self, trace_id: int) -> bool:
        return trace_id in self._traces

    def add(self, trace_id: int, trace: SleepingTrace) -> None:
        """Add a trace."""
        self._traces[trace_id] = trace
        self.spans += trace.spans
        self.runs += trace.runs

    def pop(self, trace_id: int) -> SleepingTrace | None:
        """Take out a trace, to read it; ``None``: it does not sleep."""
        trace = self._traces.pop(trace_id, None)
        if trace is not None:
            self.spans -= trace.spans
            self.runs -= trace.runs
        return trace

    def first(self) -> int | None:
        """The id of the first trace; ``None``: there is none."""
        return next(iter(self._traces), None)

    def ending(self, until: float) -> list[int]:
        """The ids of the traces of which a part ends until this time."""
        found: list[int] = []
        for trace_id, trace in self._traces.items():
            if trace.ends > until:
                break
            found.append(trace_id)
        return found

    def in_order(self) -> None:
        """After the last was added."""
        self._traces = OrderedDict(sorted(self._traces.items(), key=_ends))


def _ends(item: tuple[int, SleepingTrace]) -> float:
    return item[1].ends


_NOWHERE: Final = SpanFactory(NoOpTracer(), NoOpLogger("tidegauge"))
_NO_SINK: Final[Any] = None
_NO_ROOT: Final = Node(0, 0, None, name="", scope="", live=None)
_RECORDER: Final = Recorder(_NO_SINK, _NOWHERE)


def _new_recorded() -> RecordedRun:
    return RecordedRun(_RECORDER, RunStarted(run=""))


PLAIN_TRACES: Final = PlainObjects(
    [
        Kept(Node, lambda: Node(0, 0, None, name="", scope="", live=None), ("_ended", "_reading")),
        Kept(ExternalRun, lambda: ExternalRun(_new_recorded(), _NO_ROOT, ""), ("size",)),
        # What a decision was based on is for agents in this process.
        Kept(SpanTurns, lambda: SpanTurns(_new_recorded()), ("_reports", "_last", "_by_id")),
        Kept(SpanTurn, lambda: SpanTurn([], 0, ""), ("decision", "issued", "seen")),
        Kept(SpanCall, lambda: SpanCall("", None), ("span",)),
        Kept(OpenTurns, OpenTurns),
        Kept(
            RecordedRun,
            _new_recorded,
            (
                *("_recorder", "spans", "_extractors", "_delivered", "decision", "nudge"),
                *("request", "counts_usage"),
            ),
        ),
        Kept(RunStarted, lambda: RunStarted(run="")),
        Kept(OpenTrace, OpenTrace, ("pending",)),  # these are read again
        Kept(ParentlessRuns, ParentlessRuns),
        Kept(WaitingEvents, WaitingEvents),
    ],
    [
        *(SpanData, ReadSpan, RunInfo, AgentSpan, ModelSpan, ToolSpan, ChosenCall, CallResult),
        *(SeenModel, Interval, Earliest),
    ],
    [ABSENT, UNKNOWN_ARGUMENTS],
)
"""The plain form of what an assembly holds of a trace. Its readers give the recorder."""

"""Assembles runs from ended spans that arrive in any order, in interleaved batches, some twice.

A span is held for the allowed lateness after its arrival, so that spans that ended earlier and
arrive later can overtake it. Then the spans of its trace are emitted in the order of their ends. So
the runs do not depend on the order of arrival within that time, and are the same as in the agent's
process.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from tidegauge._guard import guarded
from tidegauge._span_faults import span_faults
from tidegauge.instrumentation.current import get_recorder
from tidegauge.instrumentation.recorder import Recorder
from tidegauge.instrumentation.spans.convention_reader import (
    MARKER_ATTRIBUTES,
    may_enclose_run,
    read_span,
)
from tidegauge.instrumentation.spans.external_run import MAX_DEPTH, RunDefaults
from tidegauge.instrumentation.spans.span import KnownSpan, ModelSpan, SpanData, ToolSpan
from tidegauge.receivers.otlp.arrived_spans import ArrivedSpans
from tidegauge.receivers.otlp.causal_order import in_causal_order

__all__ = ["ASSEMBLY_LIMITS", "Assembly", "AssemblyLimits"]

_MAX_FINISHED: Final = 50_000
_MAX_PENDING_CALLS: Final = 1_000
"""Limit of the calls that wait for one span."""


class AssemblyLimits(NamedTuple):
    """How much is held, and for how long.

    Args:
        allowed_lateness: seconds that a span is held after its arrival, so that spans that ended
            earlier and arrive later can overtake it.
        idle_seconds: a trace or a run without a span for this long is ended.
        orphan_seconds: the same for a run whose outermost known span has ended, but not that
            span's parent, which never arrived.
        traces: limit of open traces; one more ends the trace that was idle for longest.
        runs: limit of open runs; one more ends the run that was idle for longest.
        spans: limit of the remembered span ids, which detect duplicates; beyond it, the traces
            that were idle for longest are ended.
        pending_bytes: limit of the calls that wait for a parent; one more does not wait.
    """

    allowed_lateness: float = 0.5
    idle_seconds: float = 600.0
    orphan_seconds: float = 60.0
    traces: int = 10_000
    runs: int = 10_000
    spans: int = 500_000
    pending_bytes: int = 64 * 1024 * 1024


ASSEMBLY_LIMITS: Final = AssemblyLimits()


class _Trace:
    """An open trace. Of emitted spans, only ``parents`` keeps something."""

    __slots__ = ("arrived", "awaited", "batches", "last_seen", "order", "parents")

    def __init__(self) -> None:
        self.arrived: dict[int, SpanData] = {}  # not emitted yet, by id
        self.order: list[tuple[int, int, int]] = []  # their ids, a heap by their ends
        self.parents: dict[int, int | None] = {}  # ids of their parents, by id
        self.batches: deque[tuple[float, int]] = deque()  # (when it arrived, its latest end)
        self.awaited: set[int] = set()  # ids of parents that have not arrived
        self.last_seen = 0.0

    def add(self, span: SpanData) -> None:
        """Add a span that has arrived. If it is its own ancestor, cut the cycle."""
        span_id, parents = span.span_id, self.parents
        parents[span_id] = span.parent_id
        self.arrived[span_id] = span
        heappush(self.order, (span.end, len(parents), span_id))
        cycle = [span_id]
        around = span.parent_id
        while around is not None and around != span_id:
            if len(cycle) == MAX_DEPTH:
                self._cut(span_id, "depth")
                return
            cycle.append(around)
            around = parents.get(around)
        if around is not None:  # the outermost span ends last
            waiting = [self.arrived[each] for each in cycle if each in self.arrived]
            self._cut(max(waiting, key=_order).span_id, "cycle")

    def _cut(self, span_id: int, fault: str) -> None:
        """Make this span a root."""
        span_faults.repair(fault)
        self.parents[span_id] = None
        self.arrived[span_id] = self.arrived[span_id]._replace(parent_id=None)


class _PendingCall(NamedTuple):
    span: SpanData
    reading: KnownSpan


class _PendingCalls:
    """The calls of all traces that wait for a span around them, which decides about their run.

    >>> pending = _PendingCalls(max_bytes=100)
    >>> call = _PendingCall(SpanData(1, 2, 3, "chat", "any", {}, 0, 1, size=99), ModelSpan())
    >>> pending.add(3, call), pending.add(3, call)
    (True, False)
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._calls: dict[int, dict[int, list[_PendingCall]]] = {}  # by trace and awaited span

    def add(self, awaited: int, call: _PendingCall) -> bool:
        """Let a call wait for a span; ``False``: there is no room."""
        if self._bytes + call.span.size > self._max_bytes:
            return False
        self._bytes += call.span.size
        self._calls.setdefault(call.span.trace_id, {}).setdefault(awaited, []).append(call)
        return True

    def surplus(self, trace_id: int, awaited: int) -> _PendingCall | None:
        """The oldest call that waits for this span, if there are too many; it waits no longer."""
        calls = self._calls.get(trace_id, {}).get(awaited, [])
        if len(calls) <= _MAX_PENDING_CALLS:
            return None
        call = calls.pop(0)
        self._bytes -= call.span.size
        return call

    def pop(self, trace_id: int, awaited: int) -> list[_PendingCall]:
        """Take out the calls that wait for this span, in order."""
        of_trace = self._calls.get(trace_id)
        return [] if of_trace is None else self._taken(of_trace.pop(awaited, []))

    def pop_all(self, trace_id: int) -> list[_PendingCall]:
        """Take out the calls of a trace."""
        of_trace = self._calls.pop(trace_id, {})
        return self._taken([call for calls in of_trace.values() for call in calls])

    def _taken(self, calls: list[_PendingCall]) -> list[_PendingCall]:
        self._bytes -= sum([call.span.size for call in calls])
        return calls


class Assembly:
    """The open traces. One thread at a time.

    Args:
        defaults: attributes of runs whose spans do not give them.
        limits: how much is held, and for how long.
        across_traces: whether a call that is in two traces joins them to one run.
        on_forgotten: called with the id of each trace that is no longer held.
        recorder: gives the recorder that new runs are reported to; left out, the configured one.

    Attributes:
        duplicates: number of spans that arrived again.

    >>> assembly = Assembly()
    >>> assembly.take([SpanData(1, 2, None, "GET /", "web", {}, 0, 1)], now=0.0)
    >>> len(assembly)
    1
    """

    def __init__(
        self,
        defaults: RunDefaults | None = None,
        limits: AssemblyLimits = ASSEMBLY_LIMITS,
        *,
        across_traces: bool = True,
        on_forgotten: Callable[[int], None] | None = None,
        recorder: Callable[[], Recorder] = get_recorder,
    ) -> None:
        self._limits = limits
        self._on_forgotten = on_forgotten
        self._now = 0.0
        self._spans = ArrivedSpans(
            recorder,
            defaults,
            max_runs=limits.runs,
            idle_seconds=limits.idle_seconds,
            orphan_seconds=limits.orphan_seconds,
            across_traces=across_traces,
            clock=lambda: self._now,
        )
        self.duplicates = 0
        self._late = 0
        self._traces: OrderedDict[int, _Trace] = OrderedDict()  # least recently seen first
        self._finished: OrderedDict[int, None] = OrderedDict()  # traces whose run has ended
        self._due: deque[tuple[float, int]] = deque()  # (when, trace id), in order
        self._remembered = 0
        self._arrived_bytes = 0
        self._pending = _PendingCalls(limits.pending_bytes)

    def __len__(self) -> int:
        """The number of open traces."""
        return len(self._traces)

    @property
    def late(self) -> int:
        """The number of spans that arrived after their run or trace had ended."""
        return self._late + self._spans.late_calls

    @property
    def arrived_bytes(self) -> int:
        """Size of the spans that arrived and were not emitted yet."""
        return self._arrived_bytes

    @property
    def open_runs(self) -> int:
        """The number of open runs."""
        return self._spans.open_runs

    @property
    def due(self) -> float | None:
        """When the next span must be emitted; ``None``: no span is held."""
        return self._due[0][0] if self._due else None

    def holds(self, trace_id: int) -> bool:
        """Whether a trace is open."""
        return trace_id in self._traces

    def finish(self, trace_id: int) -> None:
        """End a trace: further spans of it are late."""
        self._finished[trace_id] = None
        if len(self._finished) > _MAX_FINISHED:
            self._finished.popitem(last=False)

    def unfinish(self, trace_id: int) -> None:
        """Forget that a trace has ended: further spans of it begin a new one."""
        self._finished.pop(trace_id, None)
        self._spans.unname(trace_id)

    def abort(self, trace_id: int) -> None:
        """Emit what is held of a trace, and forget it. Its runs stay open."""
        if trace_id in self._traces:
            self._drop(trace_id)

    def take(self, spans: Sequence[SpanData], *, now: float) -> None:
        """Take spans that arrived together, in any order; ``now`` never goes back."""
        self._now = now
        touched: dict[int, int] = {}  # the latest end, by trace
        for span in spans:
            trace_id, span_id = span.trace_id, span.span_id
            trace = self._traces.get(trace_id)
            if trace is None:
                if trace_id in self._finished:
                    self._late += 1
                    continue
                trace = self._traces[trace_id] = _Trace()
            if span_id in trace.parents:
                self.duplicates += 1
                continue
            if not span.has_times:
                span_faults.repair("no_time")
            trace.add(span)
            self._remembered += 1
            self._arrived_bytes += span.size
            if span.end >= touched.get(trace_id, 0):
                touched[trace_id] = span.end
        due = now + self._limits.allowed_lateness
        for trace_id, end in touched.items():
            trace = self._traces[trace_id]
            trace.batches.append((due, end))
            trace.last_seen = now
            self._traces.move_to_end(trace_id)
            self._due.append((due, trace_id))
        self._make_room()
        self.expire(now)

    def expire(self, now: float) -> None:
        """Emit the spans that were held for long enough; end what was idle for too long."""
        self._now = now
        while self._due and self._due[0][0] <= now:
            due, trace_id = self._due.popleft()
            trace = self._traces.get(trace_id)
            if trace is not None and trace.batches and trace.batches[0][0] <= due:
                # With the time it was due: the result must not depend on when this is called.
                self._emit_due(trace_id, trace, due)
        while self._traces:
            trace_id, trace = next(iter(self._traces.items()))
            if now - trace.last_seen <= self._limits.idle_seconds:
                break
            self._drop(trace_id)
        self._spans.expire(now)

    def close(self) -> None:
        """Emit all spans, and end the open runs, with outcome unknown."""
        for trace_id in tuple(self._traces):
            self._drop(trace_id)
        self._due.clear()
        self._spans.close()

    def _emit_due(self, trace_id: int, trace: _Trace, now: float) -> None:
        """Emit the spans that ended before the latest end of the batches that are due."""
        latest = 0
        while trace.batches and trace.batches[0][0] <= now:
            latest = max(latest, trace.batches.popleft()[1])
        ended: list[SpanData] = []
        while trace.order and trace.order[0][0] <= latest:
            ended.append(trace.arrived[heappop(trace.order)[-1]])
        self._emit_all(trace_id, trace, ended)
        if trace_id in self._finished:
            self._forget(trace_id)

    def _emit_all(self, trace_id: int, trace: _Trace, spans: list[SpanData]) -> None:
        """Emit these spans, up to the root that ends their trace."""
        spans.sort(key=_order)
        readings = [
            # Most spans belong to no agent, and one look-up finds that out.
            (
                span,
                None
                if span.attributes.keys().isdisjoint(MARKER_ATTRIBUTES)
                else self._assigned(trace, span),
            )
            for span in spans
        ]
        for span, reading in in_causal_order(readings):
            if self._spans.node(trace_id, span.span_id) is not None:  # else it is not a parent
                self._emit(trace, span, reading)
            elif isinstance(reading, ModelSpan | ToolSpan):
                span_faults.drop("no_start")
            del trace.arrived[span.span_id]
            self._arrived_bytes -= span.size
            if trace_id in self._finished:
                self._late += len(trace.arrived)
                return

    @guarded("otlp.assembly", default=None)
    def _assigned(self, trace: _Trace, span: SpanData) -> KnownSpan | None:
        """Read a span; if it is a call, resolve it and the spans around it."""
        reading = None
        if not may_enclose_run(span.name, span.attributes):
            reading = read_span(span)
        if isinstance(reading, ModelSpan | ToolSpan):
            trace.awaited.update(self._spans.resolve(span, trace.arrived, trace.parents))
        return reading

    @guarded("otlp.assembly", default=None)
    def _emit(
        self, trace: _Trace, span: SpanData, reading: KnownSpan | None, *, final: bool = False
    ) -> None:
        """Emit a span, unless it must wait for a span around it (never if ``final``).

        Without a reading, only its end matters, to the spans inside.
        """
        node = self._spans.node(span.trace_id, span.span_id)
        if node is None:
            return
        if trace.awaited:
            trace.awaited.discard(span.span_id)
        call = isinstance(reading, ModelSpan | ToolSpan)
        if not call:  # calls are resolved already
            trace.awaited.update(self._spans.resolve(span, trace.arrived, trace.parents))
        for before in self._pending.pop(span.trace_id, span.span_id):
            self._emit(trace, *before)
        if isinstance(reading, ModelSpan | ToolSpan) and not final:
            parent, waits = self._spans.pending_parent(span, reading)
            if parent is not None and not waits:
                for before in self._pending.pop(span.trace_id, parent.span_id):
                    self._emit(trace, *before, final=True)
            elif parent is not None:
                if self._pending.add(parent.span_id, _PendingCall(span, reading)):
                    surplus = self._pending.surplus(span.trace_id, parent.span_id)
                    if surplus is not None:
                        span_faults.repair("pending_parent")
                        self._emit(trace, *surplus, final=True)
                    return
                span_faults.repair("pending_parent")
                self._emit_pending(
                    span.trace_id, trace
                )  # no room: the calls before it cannot wait either
        run = node.run
        if run is not None and run.root is node and run.around is None:
            self._emit_pending(span.trace_id, trace)
        self._spans.end(span, span.resource, reading=reading)
        if run is not None and run.recorded.ended and span.parent_id is None:
            self.finish(span.trace_id)

    def _emit_pending(self, trace_id: int, trace: _Trace) -> None:
        """Emit all calls of a trace that wait."""
        pending = self._pending.pop_all(trace_id)
        for span, reading in sorted(pending, key=lambda each: _order(each.span)):
            self._emit(trace, span, reading, final=True)

    def _make_room(self) -> None:
        limits = self._limits
        while len(self._traces) > limits.traces or (
            self._remembered > limits.spans and len(self._traces) > 1
        ):
            self._drop(next(iter(self._traces)))

    def _drop(self, trace_id: int) -> None:
        """Emit what is held of a trace, and forget it. Its runs end by their own limits."""
        trace = self._traces[trace_id]
        self._emit_all(trace_id, trace, list(trace.arrived.values()))
        self._emit_pending(trace_id, trace)
        self._forget(trace_id)

    def _forget(self, trace_id: int) -> None:
        trace = self._traces.pop(trace_id)
        self._remembered -= len(trace.parents)
        self._arrived_bytes -= sum([span.size for span in trace.arrived.values()])
        self._pending.pop_all(trace_id)
        for span_id in trace.awaited:
            self._spans.forget(trace_id, span_id)
        if self._on_forgotten is not None:
            self._on_forgotten(trace_id)


def _order(span: SpanData) -> tuple[bool, int, int]:
    """The order of their ends: inner spans first, and the root last even if a clock went back."""
    return span.parent_id is None, span.end, -span.start

"""Runs out of ended spans that arrive in any order, in batches that interleave, some twice.

A span is kept for a short while after it has arrived, so that what ended before it and arrives
after it can overtake it; then the spans of its trace are told in the order in which they ended.
Whatever order they arrive in within that while, the runs are the same, and the same as in the
process of the agent.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

from tidegauge._guard import guarded
from tidegauge._span_faults import span_faults
from tidegauge.instrumentation.otlp.arriving import ArrivedSpans
from tidegauge.instrumentation.otlp.causality import in_causal_order
from tidegauge.instrumentation.otlp.limits import ASSEMBLY_LIMITS, AssemblyLimits
from tidegauge.instrumentation.otlp.undecided import Undecided, UndecidedCall
from tidegauge.instrumentation.spans.nodes import MAX_DEPTH
from tidegauge.instrumentation.spans.reading import TELLTALES, may_enclose_run, read_span
from tidegauge.instrumentation.spans.span import ModelSpan, Reading, SpanData, ToolSpan
from tidegauge.instrumentation.spans.watched import RunDefaults

__all__ = ["Assembly", "AssemblyCounts"]

_MAX_FINISHED: Final = 50_000


@dataclass(slots=True)
class AssemblyCounts:
    """What was not told.

    Args:
        duplicates: spans that arrived twice.
        late: spans that arrived after their run, or their trace, had ended.
    """

    duplicates: int = 0
    late: int = 0


class _Trace:
    """One trace. Told spans stay in ``parents`` only."""

    __slots__ = ("arrived", "awaited", "batches", "last_seen", "order", "parents")

    def __init__(self) -> None:
        self.arrived: dict[int, SpanData] = {}  # not told yet, by id
        self.order: list[tuple[int, int, int]] = []  # their ids, a heap by their ends
        self.parents: dict[int, int | None] = {}  # ids of their parents, by id
        self.batches: deque[tuple[float, int]] = deque()  # (when it arrived, its latest end)
        self.awaited: set[int] = set()  # ids of spans that others are inside, and do not arrive
        self.last_seen = 0.0

    def add(self, span: SpanData) -> None:
        """A span has arrived. One that is inside itself has its cycle cut."""
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
        if around is not None:  # what is around others ends last
            waiting = [self.arrived[each] for each in cycle if each in self.arrived]
            self._cut(max(waiting, key=_order).span_id, "cycle")

    def _cut(self, span_id: int, fault: str) -> None:
        """From here on nothing is around this span."""
        span_faults.repair(fault)
        self.parents[span_id] = None
        self.arrived[span_id] = self.arrived[span_id]._replace(parent_id=None)


class Assembly:
    """The traces that are open. One thread at a time.

    Runs go to the recorder that is configured.

    Args:
        defaults: what runs are known by where their spans don't say.
        limits: how much is held, and for how long.
        across_traces: whether a call that two traces show makes one run of them.
        on_forgotten: told the id of each trace that is not held any more.

    Attributes:
        counts: what was not told.

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
    ) -> None:
        self._limits = limits
        self._on_forgotten = on_forgotten
        self._now = 0.0
        self._spans = ArrivedSpans(
            defaults,
            max_runs=limits.runs,
            idle_seconds=limits.idle_seconds,
            orphan_seconds=limits.orphan_seconds,
            across_traces=across_traces,
            clock=lambda: self._now,
        )
        self._counts = AssemblyCounts()
        self._traces: OrderedDict[int, _Trace] = OrderedDict()  # least recently seen first
        self._finished: OrderedDict[int, None] = OrderedDict()  # traces whose run has ended
        self._due: deque[tuple[float, int]] = deque()  # (when, trace id), in order
        self._remembered = 0
        self._arrived_bytes = 0
        self._undecided = Undecided(limits.undecided_bytes)

    def __len__(self) -> int:
        """How many traces are open."""
        return len(self._traces)

    @property
    def counts(self) -> AssemblyCounts:
        """What was not told."""
        return AssemblyCounts(self._counts.duplicates, self._counts.late + self._spans.late_calls)

    @property
    def arrived_bytes(self) -> int:
        """How large the spans are that were taken, and are to be told when they have settled."""
        return self._arrived_bytes

    @property
    def open_runs(self) -> int:
        """How many runs are open."""
        return self._spans.open_runs

    @property
    def due(self) -> float | None:
        """When there is something to be told next; ``None``, nothing is kept."""
        return self._due[0][0] if self._due else None

    def holds(self, trace_id: int) -> bool:
        """Whether spans of a trace are kept or remembered."""
        return trace_id in self._traces

    def finish(self, trace_id: int) -> None:
        """A trace is over: what still arrives of it is late."""
        self._finished[trace_id] = None
        if len(self._finished) > _MAX_FINISHED:
            self._finished.popitem(last=False)

    def unfinish(self, trace_id: int) -> None:
        """A trace may begin again, as one that nothing is known of: its spans are late no more."""
        self._finished.pop(trace_id, None)
        self._spans.unname(trace_id)

    def give_up(self, trace_id: int) -> None:
        """Tell what is kept of a trace, and forget it. Its runs are whose they are."""
        if trace_id in self._traces:
            self._drop(trace_id)

    def take(self, spans: Sequence[SpanData], *, now: float) -> None:
        """Spans have arrived together.

        Args:
            spans: they, in any order.
            now: seconds, on a clock that never goes back.
        """
        self._now = now
        touched: dict[int, int] = {}  # the latest end, by trace
        for span in spans:
            trace_id, span_id = span.trace_id, span.span_id
            trace = self._traces.get(trace_id)
            if trace is None:
                if trace_id in self._finished:
                    self._counts.late += 1
                    continue
                trace = self._traces[trace_id] = _Trace()
            if span_id in trace.parents:
                self._counts.duplicates += 1
                continue
            if not span.has_times:
                span_faults.repair("no_time")
            trace.add(span)
            self._remembered += 1
            self._arrived_bytes += span.size
            if span.end >= touched.get(trace_id, 0):
                touched[trace_id] = span.end
        due = now + self._limits.settle_seconds
        for trace_id, end in touched.items():
            trace = self._traces[trace_id]
            trace.batches.append((due, end))
            trace.last_seen = now
            self._traces.move_to_end(trace_id)
            self._due.append((due, trace_id))
        self._make_room()
        self.expire(now)

    def expire(self, now: float) -> None:
        """Tell what was kept for long enough; end what nothing was heard of for too long."""
        self._now = now
        while self._due and self._due[0][0] <= now:
            due, trace_id = self._due.popleft()
            trace = self._traces.get(trace_id)
            if trace is not None and trace.batches and trace.batches[0][0] <= due:
                # As of then, however late it is: what is told does not depend on when one looks.
                self._settle(trace_id, trace, due)
        while self._traces:
            trace_id, trace = next(iter(self._traces.items()))
            if now - trace.last_seen <= self._limits.idle_seconds:
                break
            self._drop(trace_id)
        self._spans.expire(now)

    def close(self) -> None:
        """Tell all that is kept, and end the runs that are open, as unknown."""
        for trace_id in tuple(self._traces):
            self._drop(trace_id)
        self._due.clear()
        self._spans.close()

    def _settle(self, trace_id: int, trace: _Trace, now: float) -> None:
        """Tell what ended up to the latest end among what was kept for long enough."""
        latest = 0
        while trace.batches and trace.batches[0][0] <= now:
            latest = max(latest, trace.batches.popleft()[1])
        ended: list[SpanData] = []
        while trace.order and trace.order[0][0] <= latest:
            ended.append(trace.arrived[heappop(trace.order)[-1]])
        self._tell_all(trace_id, trace, ended)
        if trace_id in self._finished:
            self._forget(trace_id)

    def _tell_all(self, trace_id: int, trace: _Trace, spans: list[SpanData]) -> None:
        """Tell these spans, up to the root that ends their trace."""
        spans.sort(key=_order)
        readings = [
            # Most spans belong to no agent: one look-up finds that out.
            (
                span,
                None if span.attributes.keys().isdisjoint(TELLTALES) else self._placed(trace, span),
            )
            for span in spans
        ]
        for span, reading in in_causal_order(readings):
            if self._spans.node(trace_id, span.span_id) is not None:  # else it is no parent
                self._tell(trace, span, reading)
            elif isinstance(reading, ModelSpan | ToolSpan):
                span_faults.drop("no_start")
            del trace.arrived[span.span_id]
            self._arrived_bytes -= span.size
            if trace_id in self._finished:
                self._counts.late += len(trace.arrived)
                return

    @guarded("otlp.assembling", default=None)
    def _placed(self, trace: _Trace, span: SpanData) -> Reading | None:
        """Read a span, and place it and those around it, if they matter to a run."""
        reading = None
        if not may_enclose_run(span.name, span.attributes):
            reading = read_span(span)
        if isinstance(reading, ModelSpan | ToolSpan):
            trace.awaited.update(self._spans.learn(span, trace.arrived, trace.parents))
        return reading

    @guarded("otlp.assembling", default=None)
    def _tell(
        self, trace: _Trace, span: SpanData, reading: Reading | None, *, decided: bool = False
    ) -> None:
        """Tell one span, unless it has to wait for one around it.

        Args:
            trace: its trace.
            span: it.
            reading: what it tells; of what encloses others, only its end is of interest.
            decided: nothing more will be known of it.
        """
        node = self._spans.node(span.trace_id, span.span_id)
        if node is None:
            return
        if trace.awaited:
            trace.awaited.discard(span.span_id)
        call = isinstance(reading, ModelSpan | ToolSpan)
        if not call:  # those have their places already
            trace.awaited.update(self._spans.learn(span, trace.arrived, trace.parents))
        for before in self._undecided.pop(span.trace_id, span.span_id):
            self._tell(trace, *before)
        if isinstance(reading, ModelSpan | ToolSpan) and not decided:
            unknown, waits = self._spans.unknown_around(span, reading)
            if unknown is not None and not waits:
                for before in self._undecided.pop(span.trace_id, unknown.span_id):
                    self._tell(trace, *before, decided=True)
            elif unknown is not None:
                if self._undecided.add(unknown.span_id, UndecidedCall(span, reading)):
                    surplus = self._undecided.surplus(span.trace_id, unknown.span_id)
                    if surplus is not None:
                        span_faults.repair("undecided")
                        self._tell(trace, *surplus, decided=True)
                    return
                span_faults.repair("undecided")
                self._decide(span.trace_id, trace)  # no room: those before it can wait no longer
        run = node.run
        if run is not None and run.root is node and run.around is None:
            self._decide(span.trace_id, trace)
        self._spans.end(span, span.resource, reading=reading)
        if run is not None and run.recorded.ended and span.parent_id is None:
            self.finish(span.trace_id)

    def _decide(self, trace_id: int, trace: _Trace) -> None:
        """Nothing more will be known: tell all that waits."""
        undecided = self._undecided.pop_all(trace_id)
        for span, reading in sorted(undecided, key=lambda each: _order(each.span)):
            self._tell(trace, span, reading, decided=True)

    def _make_room(self) -> None:
        limits = self._limits
        while len(self._traces) > limits.traces or (
            self._remembered > limits.spans and len(self._traces) > 1
        ):
            self._drop(next(iter(self._traces)))

    def _drop(self, trace_id: int) -> None:
        """Tell what is kept of a trace, and forget it. Its runs go by their own limits."""
        trace = self._traces[trace_id]
        self._tell_all(trace_id, trace, list(trace.arrived.values()))
        self._decide(trace_id, trace)
        self._forget(trace_id)

    def _forget(self, trace_id: int) -> None:
        trace = self._traces.pop(trace_id)
        self._remembered -= len(trace.parents)
        self._arrived_bytes -= sum([span.size for span in trace.arrived.values()])
        self._undecided.pop_all(trace_id)
        for span_id in trace.awaited:
            self._spans.forget(trace_id, span_id)
        if self._on_forgotten is not None:
            self._on_forgotten(trace_id)


def _order(span: SpanData) -> tuple[bool, int, int]:
    """In the order of their ends; what is inside another ends first, and the root last, whatever
    a clock that went back says of its end."""
    return span.parent_id is None, span.end, -span.start

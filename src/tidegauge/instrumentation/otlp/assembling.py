"""Runs out of ended spans that arrive in any order, in batches that interleave, some twice.

A span is kept for a short while after it has arrived, so that what ended before it and arrives
after it can overtake it; then the spans of its trace are told in the order in which they ended.
Whatever order they arrive in within that while, the runs are the same, and the same as in the
process of the agent.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from tidegauge._guard import guarded
from tidegauge.instrumentation.otlp.arriving import ArrivedSpans
from tidegauge.instrumentation.spans.reading import may_enclose_run, read_span
from tidegauge.instrumentation.spans.span import ModelSpan, Reading, SpanData, ToolSpan
from tidegauge.instrumentation.spans.watched import RunDefaults

__all__ = ["ASSEMBLY_LIMITS", "Assembly", "AssemblyCounts", "AssemblyLimits"]

_MAX_FINISHED: Final = 50_000
_MAX_UNDECIDED: Final = 1_000


class AssemblyLimits(NamedTuple):
    """How much is held, and for how long.

    Args:
        settle_seconds: for so long a span is kept after its arrival before it is told.
        idle_seconds: a trace, and a run, without a span for so long is ended.
        orphan_seconds: the same for a run whose outermost known span has ended, while that is
            inside one that never arrived.
        traces: traces held; one more ends the one idle for longest.
        runs: open runs held; one more ends the one idle for longest.
        spans: spans remembered, so that what arrives twice is counted once; of more, the traces
            idle for longest go.
    """

    settle_seconds: float = 0.5
    idle_seconds: float = 600.0
    orphan_seconds: float = 60.0
    traces: int = 10_000
    runs: int = 10_000
    spans: int = 500_000


ASSEMBLY_LIMITS: Final = AssemblyLimits()


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
    """One trace. Told spans stay in ``seen`` only."""

    __slots__ = ("arrived", "awaited", "batches", "last_seen", "seen", "undecided")

    def __init__(self) -> None:
        self.arrived: dict[int, SpanData] = {}  # not told yet, by id
        self.seen: set[int] = set()
        self.batches: deque[tuple[float, int]] = deque()  # (when it arrived, its latest end)
        self.awaited: set[int] = set()  # ids of spans that others are inside, and do not arrive
        self.undecided: dict[
            int, list[tuple[SpanData, Reading | None]]
        ] = {}  # by the id of the span that is awaited
        self.last_seen = 0.0


class Assembly:
    """The traces that are open. One thread at a time.

    Runs go to the recorder that is configured.

    Args:
        defaults: what runs are known by where their spans don't say.
        limits: how much is held, and for how long.

    Attributes:
        counts: what was not told.

    >>> assembly = Assembly()
    >>> assembly.take([SpanData(1, 2, None, "GET /", "web", {}, 0, 1)], now=0.0)
    >>> len(assembly)
    1
    """

    def __init__(
        self, defaults: RunDefaults | None = None, limits: AssemblyLimits = ASSEMBLY_LIMITS
    ) -> None:
        self._limits = limits
        self._now = 0.0
        self._spans = ArrivedSpans(
            defaults,
            max_runs=limits.runs,
            idle_seconds=limits.idle_seconds,
            orphan_seconds=limits.orphan_seconds,
            clock=lambda: self._now,
        )
        self._counts = AssemblyCounts()
        self._traces: OrderedDict[int, _Trace] = OrderedDict()  # least recently seen first
        self._finished: OrderedDict[int, None] = OrderedDict()  # traces whose run has ended
        self._due: deque[tuple[float, int]] = deque()  # (when, trace id), in order
        self._remembered = 0

    def __len__(self) -> int:
        """How many traces are open."""
        return len(self._traces)

    @property
    def counts(self) -> AssemblyCounts:
        """What was not told."""
        return AssemblyCounts(self._counts.duplicates, self._counts.late + self._spans.late_calls)

    @property
    def open_runs(self) -> int:
        """How many runs are open."""
        return self._spans.open_runs

    @property
    def due(self) -> float | None:
        """When there is something to be told next; ``None``, nothing is kept."""
        return self._due[0][0] if self._due else None

    def take(self, spans: Sequence[SpanData], *, now: float) -> None:
        """Spans have arrived together.

        Args:
            spans: they, in any order.
            now: seconds, on a clock that never goes back.
        """
        self._now = now
        touched: dict[int, int] = {}  # the latest end, by trace
        for span in spans:
            trace_id = span.trace_id
            trace = self._traces.get(trace_id)
            if trace is None:
                if trace_id in self._finished:
                    self._counts.late += 1
                    continue
                trace = self._traces[trace_id] = _Trace()
            if span.span_id in trace.seen:
                self._counts.duplicates += 1
                continue
            trace.seen.add(span.span_id)
            trace.arrived[span.span_id] = span
            self._remembered += 1
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
            _, trace_id = self._due.popleft()
            trace = self._traces.get(trace_id)
            if trace is not None and trace.batches and trace.batches[0][0] <= now:
                self._settle(trace_id, trace, now)
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
        ended = [span for span in trace.arrived.values() if span.end <= latest]
        self._tell_all(trace_id, trace, ended)

    def _tell_all(self, trace_id: int, trace: _Trace, spans: list[SpanData]) -> None:
        spans.sort(key=_order)
        told = [(span, self._placed(trace, span)) for span in spans]
        for span, reading in told:
            self._tell(trace, span, reading)
            trace.arrived.pop(span.span_id, None)
            if trace_id in self._finished:
                self._counts.late += len(trace.arrived)
                self._forget(trace_id)
                return

    @guarded("otlp.assembling", default=None)
    def _placed(self, trace: _Trace, span: SpanData) -> Reading | None:
        """Read a span, and give it and those around it their places, if anybody cares."""
        reading = None
        if not may_enclose_run(span.name, span.attributes):
            reading = read_span(span)
        if isinstance(reading, ModelSpan | ToolSpan):
            trace.awaited.update(self._spans.learn(span, trace.arrived, trace.seen))
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
            return  # it is nobody's parent
        if trace.awaited:
            trace.awaited.discard(span.span_id)
        call = isinstance(reading, ModelSpan | ToolSpan)
        if not call:  # those have their places already
            trace.awaited.update(self._spans.learn(span, trace.arrived, trace.seen))
        for before in trace.undecided.pop(span.span_id, ()):
            self._tell(trace, *before)
        if isinstance(reading, ModelSpan | ToolSpan) and not decided:
            unknown, waits = self._spans.unknown_around(span, reading)
            if unknown is not None and not waits:
                for before in trace.undecided.pop(unknown.span_id, ()):
                    self._tell(trace, *before, decided=True)
            elif unknown is not None:
                kept = trace.undecided.setdefault(unknown.span_id, [])
                kept.append((span, reading))
                if len(kept) > _MAX_UNDECIDED:
                    self._tell(trace, *kept.pop(0), decided=True)
                return
        run = node.run
        if run is not None and run.root is node and run.around is None:
            self._decide(trace)
        self._spans.end(span, span.resource, reading=reading)
        if run is not None and run.recorded.ended and span.parent_id is None:
            self._finished[span.trace_id] = None
            if len(self._finished) > _MAX_FINISHED:
                self._finished.popitem(last=False)

    def _decide(self, trace: _Trace) -> None:
        """Nothing more will be known: tell all that waits."""
        undecided, trace.undecided = trace.undecided, {}
        kept = [each for some in undecided.values() for each in some]
        for span, reading in sorted(kept, key=lambda each: _order(each[0])):
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
        self._decide(trace)
        self._forget(trace_id)

    def _forget(self, trace_id: int) -> None:
        trace = self._traces.pop(trace_id, None)
        if trace is not None:
            self._remembered -= len(trace.seen)
            for span_id in trace.awaited:
                self._spans.forget(trace_id, span_id)


def _order(span: SpanData) -> tuple[bool, int, int]:
    """In the order of their ends; what is inside another ends first, and the root last, whatever
    a clock that went back says of its end."""
    return span.parent_id is None, span.end, -span.start

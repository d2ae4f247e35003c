"""Holds spans for the allowed lateness, and gives them back in the order of their ends.

A span is held after its arrival, so that spans that ended earlier and arrive later can overtake
it. When it is due, so are the held spans that ended before it in its trace, and on its host: their
clock is the same. So the order does not depend on how the spans were batched.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple, TypeAlias

from tidegauge.instrumentation.spans.span import Attributes, SpanData, clock_of

__all__ = ["HeldSpans", "order"]

_Key: TypeAlias = tuple[int, int]
_Heap: TypeAlias = list[tuple[int, int, int, _Key]]
_NO_SPANS: Final[dict[int, SpanData]] = {}


class _Due(NamedTuple):
    """When spans that arrived together are due, and their latest ends."""

    when: float
    by_trace: dict[int, int]
    by_host: dict[str, int]


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
        self._by_trace: dict[int, _Heap] = {}
        self._by_host: dict[str, _Heap] = {}
        self._due: deque[_Due] = deque()
        self._arrived = 0

    @property
    def due(self) -> float | None:
        """When the next span is due; ``None``: no span is held."""
        return self._due[0].when if self._due else None

    def of(self, trace_id: int) -> dict[int, SpanData]:
        """The held spans of a trace by their ids."""
        return self._traces.get(trace_id, _NO_SPANS)

    def add(self, spans: Sequence[SpanData], *, now: float) -> None:
        """Hold spans that arrived together; ``now`` never goes back."""
        due = _Due(now + self._allowed_lateness, {}, {})
        resource: Attributes | None = None
        host = ""
        for span in spans:
            if span.resource is not resource:  # which the spans of a request share
                resource = span.resource
                host = clock_of(resource) if self._across_traces else ""
            trace_id, (end, began) = span.trace_id, order(span)
            self._traces.setdefault(trace_id, {})[span.span_id] = span
            self.size += span.size
            self._arrived += 1
            entry = (end, began, self._arrived, (trace_id, span.span_id))
            heappush(self._by_trace.setdefault(trace_id, []), entry)
            due.by_trace[trace_id] = max(end, due.by_trace.get(trace_id, end))
            if host:
                heappush(self._by_host.setdefault(host, []), entry)
                due.by_host[host] = max(end, due.by_host.get(host, end))
        if due.by_trace:
            self._due.append(due)

    def take_due(self, now: float) -> Iterator[tuple[float, list[SpanData]]]:
        """Take out the spans that are due: when, and those that became due together."""
        while self._due and self._due[0].when <= now:
            when, until, by_host = self._due.popleft()
            for host, end in by_host.items():
                heap = self._by_host.get(host, [])
                while heap and heap[0][0] <= end:
                    ended_at, _, _, (trace_id, _) = heappop(heap)
                    until[trace_id] = max(ended_at, until.get(trace_id, 0))
                if not heap:
                    self._by_host.pop(host, None)
            ended: list[SpanData] = []
            for trace_id, end in until.items():
                self._take_until(trace_id, end, ended)
            if ended:
                yield when, sorted(ended, key=order)

    def replace(self, span: SpanData) -> None:
        """Hold this span in place of the one with its id."""
        self._traces[span.trace_id][span.span_id] = span

    def take(self, span: SpanData) -> None:
        """Take out one span."""
        spans = self._traces[span.trace_id]
        del spans[span.span_id]
        self.size -= span.size
        if not spans:
            del self._traces[span.trace_id]
            self._by_trace.pop(span.trace_id, None)

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

    def _take_until(self, trace_id: int, until: int, ended: list[SpanData]) -> None:
        """Move the spans of a trace that had ended at this time to a list."""
        spans, heap = self._traces.get(trace_id), self._by_trace.get(trace_id)
        while spans and heap and heap[0][0] <= until:
            span = spans.pop(heappop(heap)[3][1], None)
            if span is not None:
                self.size -= span.size
                ended.append(span)
        if not spans:
            self._traces.pop(trace_id, None)
            self._by_trace.pop(trace_id, None)


def order(span: SpanData) -> tuple[int, int]:
    """The order of ends; of spans that ended at once, the inner first."""
    return max(span.start, span.end), -span.start  # a clock may have gone back

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

from tidegauge.instrumentation.spans.span import SpanData, clock_of

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
        for span in spans:
            trace_id, host, (end, began) = span.trace_id, clock_of(span.resource), order(span)
            self._traces.setdefault(trace_id, {})[span.span_id] = span
            self.size += span.size
            self._arrived += 1
            entry = (end, began, self._arrived, (trace_id, span.span_id))
            heappush(self._by_trace.setdefault(trace_id, []), entry)
            due.by_trace[trace_id] = max(end, due.by_trace.get(trace_id, end))
            if host and self._across_traces:
                heappush(self._by_host.setdefault(host, []), entry)
                due.by_host[host] = max(end, due.by_host.get(host, end))
        if due.by_trace:
            self._due.append(due)

    def take_due(self, now: float) -> Iterator[tuple[float, list[SpanData]]]:
        """Take out the spans that are due: when, and those that became due together."""
        while self._due and self._due[0].when <= now:
            when, by_trace, by_host = self._due.popleft()
            ended: list[SpanData] = []
            for host, end in by_host.items():
                heap = self._by_host.get(host, [])
                for until, trace_id in _popped(heap, end):
                    ended += self._take(trace_id, until)
                if not heap:
                    self._by_host.pop(host, None)
            for trace_id, end in by_trace.items():
                ended += self._take(trace_id, end)
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

    def _take(self, trace_id: int, until: int) -> list[SpanData]:
        """Take out the spans of a trace that had ended at this time."""
        ended: list[SpanData] = []
        for _, span_id in _popped(self._by_trace.get(trace_id, []), until, span_ids=True):
            span = self.of(trace_id).get(span_id)
            if span is not None:
                self.take(span)
                ended.append(span)
        return ended


def order(span: SpanData) -> tuple[int, int]:
    """The order of ends; of spans that ended at once, the inner first."""
    return max(span.start, span.end), -span.start  # a clock may have gone back


def _popped(heap: _Heap, until: int, *, span_ids: bool = False) -> list[tuple[int, int]]:
    """The end, and the id of the trace or span, of each entry up to this end."""
    found = []
    while heap and heap[0][0] <= until:
        end, _, _, key = heappop(heap)
        found.append((end, key[span_ids]))
    return found

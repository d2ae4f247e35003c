"""Holds spans for the allowed lateness, and gives them back in the order of their ends.

A span is held after its arrival, so that spans that ended earlier and arrive later can overtake
it. When it is due, so are the held spans of its host that ended before it: their clock is the same.
So the order does not depend on how the spans were batched.
"""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple, TypeAlias

from tidegauge.foreign_spans.span import Attributes, SpanData, clock_of

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
            key, (end, _) = (trace_id, clock), order(span)
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

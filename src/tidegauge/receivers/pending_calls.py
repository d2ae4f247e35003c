"""Holds calls until a span around them is known, which decides about their run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tidegauge.foreign_spans.convention_reader import read_span
from tidegauge.foreign_spans.span import KnownSpan, SpanData

_MAX_CALLS: Final = 1_000
"""Limit of the calls that wait for one span."""


class PendingCall(NamedTuple):
    """A call, or an agent around calls, that waits, and what it shows."""

    span: SpanData
    reading: KnownSpan


class PendingCalls:
    """The calls of all traces that wait for a span around them, which decides about their run.

    The agents around them wait with them.

    >>> from tidegauge.foreign_spans.span import ModelSpan
    >>> pending = PendingCalls(max_bytes=100)
    >>> call = PendingCall(SpanData(1, 2, 3, "chat", "any", {}, 0, 1, size=99), ModelSpan())
    >>> pending.add(3, call), pending.add(3, call)
    (True, False)
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._calls: dict[int, dict[int, list[PendingCall]]] = {}  # by trace and awaited span

    @property
    def size(self) -> int:
        """Bytes of memory that they take, about."""
        return self._bytes

    def add(self, awaited: int, call: PendingCall, *, always: bool = False) -> bool:
        """Let a call wait for a span; ``False``: there is no room."""
        if not always and self._bytes + call.span.size > self._max_bytes:
            return False
        self._bytes += call.span.size
        self._calls.setdefault(call.span.trace_id, {}).setdefault(awaited, []).append(call)
        return True

    def surplus(self, trace_id: int, awaited: int) -> PendingCall | None:
        """The oldest call that waits for this span, if there are too many; it waits no longer."""
        calls = self._calls.get(trace_id, {}).get(awaited, [])
        if len(calls) <= _MAX_CALLS:
            return None
        call = calls.pop(0)
        self._bytes -= call.span.size
        return call

    def pop(self, trace_id: int, awaited: int) -> list[PendingCall]:
        """Take out the calls that wait for this span, in order."""
        of_trace = self._calls.get(trace_id)
        if of_trace is None:
            return []
        calls = of_trace.pop(awaited, [])
        if calls and not of_trace:
            del self._calls[trace_id]
        self._bytes -= sum([call.span.size for call in calls])
        return calls

    def pop_all(self, trace_id: int) -> list[PendingCall]:
        """Take out the calls of a trace."""
        return [call for awaited in self.awaited(trace_id) for call in self.pop(trace_id, awaited)]

    def awaited(self, trace_id: int) -> list[int]:
        """The ids of the spans of a trace that calls wait for."""
        return list(self._calls.get(trace_id, ()))

    def saved(self, trace_id: int) -> dict[int, list[SpanData]]:
        """The spans of a trace that wait, by what they wait for, for :meth:`load`."""
        of_trace = self._calls.get(trace_id, {})
        return {awaited: [call.span for call in calls] for awaited, calls in of_trace.items()}

    def load(self, trace_id: int, saved: Mapping[int, Iterable[SpanData]]) -> None:
        """Let spans wait that have waited in another process."""
        for awaited, spans in saved.items():
            for span in spans:
                reading = read_span(span)
                if reading is not None:
                    self.add(awaited, PendingCall(span, reading), always=True)

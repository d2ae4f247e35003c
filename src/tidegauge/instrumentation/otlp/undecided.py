"""Calls that wait for a span around them: where they belong is known when that has arrived."""

from __future__ import annotations

from typing import Final, NamedTuple

from tidegauge.instrumentation.spans.span import Reading, SpanData

__all__ = ["Undecided", "UndecidedCall"]

_MAX_CALLS: Final = 1_000


class UndecidedCall(NamedTuple):
    """A call that waits.

    Args:
        span: its span.
        reading: what that tells.
    """

    span: SpanData
    reading: Reading


class Undecided:
    """The calls that wait, of all traces.

    Args:
        max_bytes: how large their spans may be together.

    >>> from tidegauge.instrumentation.spans.span import ModelSpan
    >>> undecided = Undecided(max_bytes=100)
    >>> call = UndecidedCall(SpanData(1, 2, 3, "chat", "any", {}, 0, 1, size=99), ModelSpan())
    >>> undecided.add(3, call), undecided.add(3, call)
    (True, False)
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._calls: dict[int, dict[int, list[UndecidedCall]]] = {}  # by trace and awaited span

    def add(self, awaited: int, call: UndecidedCall) -> bool:
        """Let a call wait for a span; ``False``, there is no room."""
        if self._bytes + call.span.size > self._max_bytes:
            return False
        self._bytes += call.span.size
        self._calls.setdefault(call.span.trace_id, {}).setdefault(awaited, []).append(call)
        return True

    def surplus(self, trace_id: int, awaited: int) -> UndecidedCall | None:
        """The call that has waited for this span for longest, when there is one too many."""
        calls = self._calls.get(trace_id, {}).get(awaited, [])
        if len(calls) <= _MAX_CALLS:
            return None
        call = calls.pop(0)
        self._bytes -= call.span.size
        return call

    def pop(self, trace_id: int, awaited: int) -> list[UndecidedCall]:
        """The calls that waited for this span, in their order; none waits for it any more."""
        of_trace = self._calls.get(trace_id)
        return [] if of_trace is None else self._gone(of_trace.pop(awaited, []))

    def pop_all(self, trace_id: int) -> list[UndecidedCall]:
        """The calls of a trace; none of it waits any more."""
        of_trace = self._calls.pop(trace_id, {})
        return self._gone([call for calls in of_trace.values() for call in calls])

    def _gone(self, calls: list[UndecidedCall]) -> list[UndecidedCall]:
        self._bytes -= sum([call.span.size for call in calls])
        return calls

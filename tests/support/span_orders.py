"""The same spans, arriving over the wire in other orders and batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from support.other_spans import Listener
from tidegauge import testing
from tidegauge.foreign_spans.span import SpanData
from tidegauge.receivers.assembly import Assembly


def arriving(batches: Iterable[Sequence[SpanData]], *, every: float = 0.01, **settings):
    """What the runs are when these batches arrive one after the other; and the assembly."""
    with testing.capture(**settings) as seen:
        listener = Listener(seen)
        assembly, now = Assembly(), 100.0
        for batch in batches:
            assembly.take(batch, now=now)
            now += every
        assembly.expire(now + 1.0)
        assembly.close()
        assert assembly.open_runs == 0
        return listener.story(), assembly

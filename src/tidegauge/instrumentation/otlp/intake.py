"""Between the listeners and the assembly: a bounded queue, and the one thread that empties it.

A listener waits for room for a second, in the order of arrival: that slows its sender down, and
puts nothing out of order. What does not fit then is refused, and whoever sent it is told to try
again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tidegauge import catalog
from tidegauge._guard import guarded
from tidegauge.catalog import MetricDefinition
from tidegauge.instrumentation.otlp.assembling import Assembly
from tidegauge.instrumentation.spans.span import SpanData

__all__ = ["Intake"]

_LONGEST_WAIT: Final = 1.0
"""Seconds after which the thread looks for runs to expire, though nothing arrives."""


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    arrived: float
    spans: Sequence[SpanData]
    size: int


class Intake:
    """Feeds an assembly from one daemon thread, in the order of arrival.

    Args:
        assembly: is fed; nobody else is to touch it until :meth:`close` has returned.
        max_spans: how many may wait.
        max_bytes: how large the requests that they came in may be together, and the spans that the
            assembly has taken and not told.
        patience: seconds to wait for room.
        clock: seconds, never going back.
    """

    def __init__(
        self,
        assembly: Assembly,
        *,
        max_spans: int = 100_000,
        max_bytes: int = 256 * 1024 * 1024,
        patience: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._assembly = assembly
        self._max_spans = max_spans
        self._max_bytes = max_bytes
        self._patience = patience
        self._clock = clock
        lock = threading.Lock()
        self._changed = threading.Condition(lock)  # something waits, or nothing more will
        self._freed = threading.Condition(lock)  # there is more room, or none any more
        self._batches: deque[_Batch] = deque()
        self._line: deque[_Batch] = deque()  # those that wait for room
        self._waiting = 0
        self._waiting_bytes = 0
        self._closing = False
        self._thread = threading.Thread(target=self._work, name="tidegauge-otlp", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many spans wait."""
        return self._waiting

    @property
    def alive(self) -> bool:
        """Whether spans are taken, and somebody empties the queue."""
        return self._thread.is_alive() and not self._closing

    def offer(self, spans: Sequence[SpanData], size: int = 0) -> bool:
        """Queue these spans, all or none; ``False``, there was no room for them in time.

        More at once than may ever wait are taken when nothing waits, or they never would be.

        Args:
            spans: what has arrived together.
            size: bytes of the request that they came in.
        """
        if not spans:
            return True
        with self._changed:
            batch = _Batch(self._clock(), spans, size)
            self._line.append(batch)
            has_room = self._freed.wait_for(
                lambda: self._closing or self._has_room(batch), self._patience
            )
            self._line.remove(batch)
            if self._line:
                self._freed.notify_all()
            if self._closing or not has_room:
                return False
            self._batches.append(batch)
            self._waiting += len(spans)
            self._waiting_bytes += size
            self._changed.notify()
        return True

    def close(self, timeout: float | None = None) -> bool:
        """Take no more, tell what waits, and end the runs that are open, as unknown.

        Args:
            timeout: seconds to wait for that; left out, as long as it takes.

        Returns:
            Whether all of it was done in time.
        """
        with self._changed:
            self._closing = True
            self._changed.notify()
            self._freed.notify_all()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float]]:
        """Its health and its assembly's, as the catalogue's metrics."""
        counts = self._assembly.counts
        return {
            catalog.SPANS_DUPLICATE: {(): counts.duplicates},
            catalog.SPANS_LATE: {(): counts.late},
            catalog.SPANS_QUEUED: {(): self._waiting},
            catalog.TRACES_OPEN: {(): len(self._assembly)},
        }

    def _has_room(self, batch: _Batch) -> bool:
        if self._line[0] is not batch:
            return False
        held = self._waiting_bytes + self._assembly.arrived_bytes
        too_many = self._waiting and self._waiting + len(batch.spans) > self._max_spans
        too_large = held and held + batch.size > self._max_bytes
        return not (too_many or too_large)

    def _work(self) -> None:
        while True:
            batch, closing = self._next()
            if batch is not None:
                # As of its arrival: while others wait, nothing is settled that they may precede.
                self._take(batch.spans, batch.arrived)
                with self._changed:
                    self._waiting -= len(batch.spans)
                    self._waiting_bytes -= batch.size
                    self._freed.notify_all()
            elif closing:
                self._close()
                return
            else:
                self._expire()
                with self._changed:
                    self._freed.notify_all()

    def _next(self) -> tuple[_Batch | None, bool]:
        """What arrived first, as soon as there is something, or something else to be done."""
        with self._changed:
            if not self._batches and not self._closing:
                due = self._assembly.due
                wait = _LONGEST_WAIT if due is None else due - self._clock()
                if wait > 0:
                    self._changed.wait(min(wait, _LONGEST_WAIT))
            return self._batches.popleft() if self._batches else None, self._closing

    @guarded("otlp.take", default=None)
    def _take(self, spans: Sequence[SpanData], arrived: float) -> None:
        self._assembly.take(spans, now=arrived)

    @guarded("otlp.expire", default=None)
    def _expire(self) -> None:
        self._assembly.expire(self._clock())

    @guarded("otlp.close", default=None)
    def _close(self) -> None:
        self._assembly.close()

"""The OTLP receiver: listeners, a request handler, and a queue from which one thread takes spans.

The queue is bounded. If it is full, a listener waits for room for a second, in the order of
arrival: this slows its sender down and keeps the order. Spans that still do not fit are rejected,
and the sender is asked to try again.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Final

from tidegauge import catalog
from tidegauge.catalog import MetricDefinition
from tidegauge.foreign_spans.external_run import RunDefaults
from tidegauge.foreign_spans.span import SpanData
from tidegauge.net.listener import Listener, Tls
from tidegauge.receivers.assembly import ASSEMBLY_LIMITS, Assembly, AssemblyLimits
from tidegauge.receivers.decoding import READ_LIMITS, ReadLimits
from tidegauge.receivers.forwarding import Forwarder, Forwarding
from tidegauge.receivers.http_server import HttpServer
from tidegauge.receivers.request_handler import RequestHandler, SpanConsumer
from tidegauge.safety.guard import guarded

if TYPE_CHECKING:
    from tidegauge.receivers.grpc_server import GrpcServer

_ANSWERING: Final = 0.1
"""Share of the time for stopping in which each listener answers the requests that it has begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverSettings:
    """Settings of a receiver.

    Args:
        grpc: listener for OTLP over gRPC; ``None``: off.
        http: listener for OTLP over HTTP; ``None``: off.
        token: bearer token that senders must send.
        defaults: attributes of runs whose spans do not give them.
        queued_spans: limit of the waiting spans.
    """

    grpc: Listener | None = field(default_factory=lambda: Listener(port=4317))
    http: Listener | None = field(default_factory=lambda: Listener(port=4318))
    tls: Tls | None = None
    token: str | None = None
    defaults: RunDefaults | None = None
    read: ReadLimits = READ_LIMITS
    assembly: AssemblyLimits = ASSEMBLY_LIMITS
    queued_spans: int = 100_000
    forwarding: Forwarding | None = None


class Receiver:
    """Receives from its construction until :meth:`stop`.

    Args:
        spans: takes the spans, and is closed with the receiver; ``None``: the receiver assembles
            runs from them, which go to the configured recorder.

    Attributes:
        urls: URLs of the listeners by protocol: ``grpc``, ``http``.

    Raises:
        ConfigurationError: the TLS files, the token or the forwarding settings cannot be used.
        OSError: a listener cannot listen on its address.
    """

    def __init__(self, settings: ReceiverSettings, spans: SpanConsumer | None = None) -> None:
        if settings.grpc is not None:  # a missing package fails before anything is started
            from tidegauge.receivers.grpc_server import GrpcServer
        if settings.tls is not None:
            settings.tls.context()  # gRPC does not say what is wrong with them
        forwarding = settings.forwarding
        self._forwarder = None if forwarding is None else Forwarder(forwarding)
        self._spans = spans or SpanQueue(
            Assembly(settings.defaults, settings.assembly), max_spans=settings.queued_spans
        )
        self._handler = RequestHandler(
            self._spans, limits=settings.read, token=settings.token, forwarder=self._forwarder
        )
        self.urls: dict[str, str] = {}
        self._servers: list[HttpServer | GrpcServer] = []
        try:
            if settings.grpc is not None:
                one = GrpcServer(self._handler, settings.grpc, settings.tls)
                self._servers.append(one)
                self.urls["grpc"] = one.url
            if settings.http is not None:
                other = HttpServer(self._handler, settings.http, settings.tls)
                other.start()
                self._servers.append(other)
                self.urls["http"] = other.url
        except BaseException:
            self.stop(0.0)
            raise

    @property
    def ready(self) -> bool:
        """Whether it accepts requests."""
        return self._spans.alive

    def stop(self, seconds: float = 5.0) -> list[str]:
        """Stop listening, process the received spans, forward the waiting requests.

        Args:
            seconds: how long all of it may take.

        Returns:
            What was lost, in words.
        """
        until = time.monotonic() + seconds
        for server in self._servers:
            server.stop(_ANSWERING * seconds)
        if self._forwarder is not None:
            self._forwarder.begin_close(until)
        lost = self._spans.close(max(until - time.monotonic(), 0.0))
        if self._forwarder is not None:
            lost += self._forwarder.end_close()
        return lost

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float]]:
        """Its health, as metrics of the catalogue: by metric and the values of its labels."""
        metrics: dict[MetricDefinition, Mapping[tuple[str, ...], float]] = {
            catalog.SPANS_RECEIVED: {(): self._handler.received},
            catalog.SPANS_REFUSED: _by_reason(catalog.SPANS_REFUSED, self._handler.rejected),
            **self._spans.metrics(),
        }
        if self._forwarder is not None:
            metrics[catalog.SPANS_FORWARDED] = {(): self._forwarder.forwarded}
            metrics[catalog.SPANS_NOT_FORWARDED] = _by_reason(
                catalog.SPANS_NOT_FORWARDED, self._forwarder.dropped
            )
            metrics[catalog.REQUESTS_TO_FORWARD] = {(): self._forwarder.waiting}
        return metrics


def _by_reason(metric: MetricDefinition, counts: Counter[str]) -> dict[tuple[str, ...], float]:
    return {(reason,): counts[reason] for reason in metric.values}


_LONGEST_WAIT: Final = 1.0
"""Seconds after which the thread ends idle runs, even if nothing arrives."""

_TAKING: Final = 0.35
_EMITTING: Final = 0.5
"""Shares of the time for closing that the waiting spans may take, then the held ones. The rest is
for the ends of runs: without them, more than the last spans would be missing."""

_SLACK: Final = 0.5
_AT_ONCE: Final = 1_000
"""Spans of a request that are taken at once: in between it is seen that there is no more time."""


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    arrived: float
    spans: Sequence[SpanData]
    size: int


class SpanQueue:
    """Feeds an assembly from one daemon thread, in the order of arrival.

    Args:
        assembly: gets the spans; only this thread may use it until :meth:`close` has returned.
        max_spans: limit of the waiting spans.
        max_bytes: limit of the memory of these and of the spans that the assembly holds.
        max_wait: seconds to wait for room.
        clock: seconds, on a clock that never goes back.
    """

    def __init__(
        self,
        assembly: Assembly,
        *,
        max_spans: int = 100_000,
        max_bytes: int = 96 * 1024 * 1024,
        max_wait: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._assembly = assembly
        self._max_spans = max_spans
        self._max_bytes = max_bytes
        self._max_wait = max_wait
        self._clock = clock
        lock = threading.Lock()
        self._changed = threading.Condition(lock)  # there are spans, or there will be no more
        self._freed = threading.Condition(lock)  # there is more room, or there will be none
        self._batches: deque[_Batch] = deque()
        self._senders: deque[_Batch] = deque()  # batches that wait for room
        self._waiting = 0
        self._waiting_bytes = 0
        self._closing = False
        self._take_until = self._end_until = inf
        self._not_taken = self._not_ended = 0
        self._thread = threading.Thread(target=self._work, name="tidegauge-otlp", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of waiting spans."""
        return self._waiting

    @property
    def alive(self) -> bool:
        """Whether the queue accepts spans, and the thread empties it."""
        return self._thread.is_alive() and not self._closing

    def offer(self, spans: Sequence[SpanData], size: int = 0) -> bool:
        """Queue spans that take ``size`` bytes; ``False``: there was no room in time.

        A batch beyond the limits is accepted when the queue is empty; otherwise it never would be.
        """
        if not spans:
            return True
        with self._changed:
            batch = _Batch(self._clock(), spans, size)
            self._senders.append(batch)
            has_room = self._freed.wait_for(
                lambda: self._closing or self._has_room(batch), self._max_wait
            )
            self._senders.remove(batch)
            if self._senders:
                self._freed.notify_all()
            if self._closing or not has_room:
                return False
            self._batches.append(batch)
            self._waiting += len(spans)
            self._waiting_bytes += size
            self._changed.notify()
        return True

    def close(self, timeout: float | None = None) -> list[str]:
        """Accept no more spans, emit all, and end the open runs.

        Args:
            timeout: seconds; what there is no time for is lost, spans before ends of runs.

        Returns:
            What was lost, in words.
        """
        with self._changed:
            if timeout is not None:
                now = time.monotonic()
                self._take_until = now + _TAKING * timeout
                self._assembly.emit_until = now + _EMITTING * timeout
                self._end_until = now + timeout
            self._closing = True
            self._changed.notify()
            self._freed.notify_all()
        # It ends by itself at this time, unless a span or an end takes it very long.
        self._thread.join(None if timeout is None else timeout + _SLACK)
        stuck = self._thread.is_alive()
        spans = self._not_taken + self._assembly.not_emitted + (self._waiting if stuck else 0)
        runs = max(self._assembly.open_runs, 1) if stuck else self._not_ended
        lost = {"received spans were not measured": spans, "runs were not ended": runs}
        return [f"{number:,} {what}" for what, number in lost.items() if number]

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float]]:
        """Health of the queue and the assembly, as metrics of the catalogue."""
        return {
            catalog.SPANS_DUPLICATE: {(): self._assembly.duplicates},
            catalog.SPANS_LATE: {(): self._assembly.late},
            catalog.SPANS_QUEUED: {(): self._waiting},
            catalog.TRACES_OPEN: {(): len(self._assembly)},
        }

    def _has_room(self, batch: _Batch) -> bool:
        if self._senders[0] is not batch:
            return False
        held = self._waiting_bytes + self._assembly.arrived_bytes
        too_many = self._waiting and self._waiting + len(batch.spans) > self._max_spans
        too_large = held and held + batch.size > self._max_bytes
        return not (too_many or too_large)

    def _work(self) -> None:
        while True:
            batch, closing = self._next()
            if batch is not None:
                # With the time of its arrival: waiting batches may still overtake held spans.
                for first in range(0, len(batch.spans), _AT_ONCE):
                    spans = batch.spans[first : first + _AT_ONCE]
                    if time.monotonic() > self._take_until:
                        self._not_taken += len(spans)
                    else:
                        self._take(spans, batch.arrived)
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
        """The oldest batch, if there is one; returns after a while, or when a span is due."""
        with self._changed:
            if not self._batches and not self._closing:
                due = self._assembly.due
                wait = _LONGEST_WAIT if due is None else due - self._clock()
                if wait > 0:
                    self._changed.wait(min(wait, _LONGEST_WAIT))
            if time.monotonic() > self._take_until:
                self._give_up()
            return self._batches.popleft() if self._batches else None, self._closing

    def _give_up(self) -> None:
        """Lose the batches that wait. Call it with the lock."""
        for batch in self._batches:
            self._not_taken += len(batch.spans)
            self._waiting -= len(batch.spans)
            self._waiting_bytes -= batch.size
        self._batches.clear()

    @guarded("otlp.take", default=None)
    def _take(self, spans: Sequence[SpanData], arrived: float) -> None:
        self._assembly.take(spans, now=arrived)

    @guarded("otlp.expire", default=None)
    def _expire(self) -> None:
        self._assembly.expire(self._clock())

    @guarded("otlp.close", default=None)
    def _close(self) -> None:
        self._not_ended = self._assembly.close(self._end_until)

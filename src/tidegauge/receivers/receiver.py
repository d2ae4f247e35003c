"""The OTLP receiver: joins, starts and stops listeners, request handler and span queue."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tidegauge import catalog
from tidegauge.catalog import MetricDefinition
from tidegauge.foreign_spans.external_run import RunDefaults
from tidegauge.net.listener import Listener, Tls
from tidegauge.receivers.assembly import ASSEMBLY_LIMITS, Assembly, AssemblyLimits
from tidegauge.receivers.decoding import READ_LIMITS, ReadLimits
from tidegauge.receivers.forwarding import Forwarder
from tidegauge.receivers.http_server import HttpServer
from tidegauge.receivers.request_handler import RequestHandler, SpanConsumer
from tidegauge.receivers.senders import Forwarding
from tidegauge.receivers.span_queue import SpanQueue

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
        tls: files of TLS for both.
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
        settings: the settings.
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

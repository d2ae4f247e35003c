"""The receiver: listeners, reception, and what takes the spans, joined, started and stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tidegauge import catalog
from tidegauge.catalog import MetricDefinition
from tidegauge.instrumentation.otlp.assembling import Assembly
from tidegauge.instrumentation.otlp.forwarding import Forwarder
from tidegauge.instrumentation.otlp.http_server import HttpServer
from tidegauge.instrumentation.otlp.intake import Intake
from tidegauge.instrumentation.otlp.limits import (
    ASSEMBLY_LIMITS,
    READ_LIMITS,
    AssemblyLimits,
    ReadLimits,
)
from tidegauge.instrumentation.otlp.listening import Listening, Tls
from tidegauge.instrumentation.otlp.reception import Reception, TakesSpans
from tidegauge.instrumentation.otlp.sending import Forwarding
from tidegauge.instrumentation.spans.watched import RunDefaults

if TYPE_CHECKING:
    from tidegauge.instrumentation.otlp.grpc_server import GrpcServer

__all__ = ["Receiver", "ReceiverSettings", "SpanIntake"]


class SpanIntake(TakesSpans, Protocol):
    """What takes the spans that were received, and does something with them in the background."""

    @property
    def alive(self) -> bool:
        """Whether spans are taken."""

    def close(self, timeout: float | None = None) -> bool:
        """Take no more, and finish what was taken; whether that was done in time."""

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float]]:
        """Its health."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverSettings:
    """What a receiver is made from.

    Args:
        grpc: where to listen for OTLP over gRPC; ``None``, nowhere.
        http: where to listen for OTLP over HTTP; ``None``, nowhere.
        tls: speak TLS on both.
        token: what senders are to show.
        defaults: what runs are known by where their spans don't say.
        read: how much of a request is read.
        assembly: how much is held, and for how long.
        queued_spans: how many spans may wait.
        forwarding: where requests are passed on to.
    """

    grpc: Listening | None = field(default_factory=lambda: Listening(port=4317))
    http: Listening | None = field(default_factory=lambda: Listening(port=4318))
    tls: Tls | None = None
    token: str | None = None
    defaults: RunDefaults | None = None
    read: ReadLimits = READ_LIMITS
    assembly: AssemblyLimits = ASSEMBLY_LIMITS
    queued_spans: int = 100_000
    forwarding: Forwarding | None = None


class Receiver:
    """Receives from its making on, until :meth:`stop`.

    Args:
        settings: what it is made from.
        intake: takes the spans, and is closed with it; left out, they are made runs of here, which
            go to the recorder configured.

    Attributes:
        urls: where it listens, by protocol: ``grpc``, ``http``.

    Raises:
        ConfigurationError: the files of TLS cannot be used, requests not be passed on to there, or
            the token is empty.
        MissingExtraError: gRPC is to be spoken, and grpcio is not installed.
        OSError: an address cannot be listened on.
    """

    def __init__(self, settings: ReceiverSettings, intake: SpanIntake | None = None) -> None:
        if settings.grpc is not None:  # what it needs is missed before anything is started
            from tidegauge.instrumentation.otlp.grpc_server import GrpcServer
        if settings.tls is not None:
            settings.tls.context()  # gRPC does not tell what is wrong with them
        told = settings.forwarding
        self._forwarder = None if told is None else Forwarder(told)
        self._intake = intake or Intake(
            Assembly(settings.defaults, settings.assembly), max_spans=settings.queued_spans
        )
        self._reception = Reception(
            self._intake, limits=settings.read, token=settings.token, forwards=self._forwarder
        )
        self.urls: dict[str, str] = {}
        self._servers: list[HttpServer | GrpcServer] = []
        try:
            if settings.grpc is not None:
                one = GrpcServer(self._reception, settings.grpc, settings.tls)
                self._servers.append(one)
                self.urls["grpc"] = one.url
            if settings.http is not None:
                other = HttpServer(self._reception, settings.http, settings.tls)
                self._servers.append(other)
                self.urls["http"] = other.url
        except BaseException:
            self.stop(0.0)
            raise

    @property
    def ready(self) -> bool:
        """Whether requests are taken."""
        return self._intake.alive

    def stop(self, grace: float = 5.0) -> bool:
        """Stop listening, finish what was taken, pass on what is to be passed on.

        Args:
            grace: seconds for each of these.

        Returns:
            Whether all of it was done in time.
        """
        for server in self._servers:
            server.stop(grace)
        drained = self._intake.close(grace)
        if self._forwarder is not None:
            drained = self._forwarder.close(grace) and drained
        return drained

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float]]:
        """Its health, as the catalogue's metrics: by metric and the values of its labels."""
        reception = self._reception.counts
        told: dict[MetricDefinition, Mapping[tuple[str, ...], float]] = {
            catalog.SPANS_RECEIVED: {(): reception.received},
            catalog.SPANS_REFUSED: _by_reason(catalog.SPANS_REFUSED, reception.refused),
            **self._intake.metrics(),
        }
        if self._forwarder is not None:
            counts = self._forwarder.counts
            told[catalog.SPANS_FORWARDED] = {(): counts.forwarded}
            told[catalog.SPANS_NOT_FORWARDED] = _by_reason(
                catalog.SPANS_NOT_FORWARDED, counts.dropped
            )
            told[catalog.REQUESTS_TO_FORWARD] = {(): self._forwarder.waiting}
        return told


def _by_reason(metric: MetricDefinition, counts: Mapping[str, int]) -> dict[tuple[str, ...], float]:
    return {(reason,): counts.get(reason, 0) for reason in metric.values}

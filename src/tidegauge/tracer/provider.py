"""Where spans and events go: the application's own providers, else the standard variables.

With ``OTEL_EXPORTER_OTLP_ENDPOINT`` (or the one for a single signal) set and no provider of the
application's own, spans and events are exported over OTLP by the SDK's batch processors, which
read the other ``OTEL_`` variables themselves. Without either, spans cost next to nothing and go
nowhere. The global providers are never set: that is the application's to do.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry import _logs, trace
from opentelemetry._logs import Logger, LoggerProvider
from opentelemetry.trace import Tracer, TracerProvider

from tidegauge._version import __version__
from tidegauge.errors import ConfigurationError
from tidegauge.tracer.conventions import SCHEMA_URL

__all__ = ["Telemetry", "open_telemetry"]


_CLOSING_SECONDS: Final = 5.0


class OwnProvider:
    """A provider of ours with its exporter, and the thread that will close it.

    Closing sends what waits, and a collector that is not there would hold up the process for as
    long as the exporter tries. So a thread does it, on which nobody has to wait; it is started
    now, since none can be when the interpreter exits.
    """

    def __init__(self, provider: Any, exporter: Any) -> None:
        self.provider = provider
        self.exporter = exporter
        self._close = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidegauge-close", daemon=True)
        self._thread.start()

    def begin_shutdown(self) -> None:
        """Start sending what waits."""
        self._close.set()
        if not self._thread.is_alive():  # it ended, or is that of the process before a fork
            self.provider.shutdown()

    def end_shutdown(self, deadline: float) -> None:
        """Wait for the end of it, up to a moment of the monotonic clock; then give up."""
        self._thread.join(max(deadline - time.monotonic(), 0.0))
        if self._thread.is_alive():
            self.exporter.shutdown()

    def _run(self) -> None:
        self._close.wait()
        self.provider.shutdown()


@dataclass(frozen=True, slots=True)
class Telemetry:
    """A tracer and an event logger, and how to flush and close what was made for them."""

    tracer: Tracer
    logger: Logger
    owned: tuple[OwnProvider, ...] = ()

    def force_flush(self, timeout_millis: int = 5_000) -> None:
        """Send what waits in our own batch processors."""
        for own in self.owned:
            own.provider.force_flush(timeout_millis)

    def shutdown(self) -> None:
        """Close our own providers, within seconds; those of the application are left alone."""
        deadline = time.monotonic() + _CLOSING_SECONDS
        for own in self.owned:
            own.begin_shutdown()
        for own in self.owned:
            own.end_shutdown(deadline)


def open_telemetry(
    tracer_provider: TracerProvider | None = None,
    logger_provider: LoggerProvider | None = None,
) -> Telemetry:
    """Find or make the providers.

    Args:
        tracer_provider: use this one for spans.
        logger_provider: use this one for events.

    Raises:
        ConfigurationError: ``OTEL_EXPORTER_OTLP_PROTOCOL`` names no known protocol.
    """
    owned: list[OwnProvider] = []
    if tracer_provider is None:
        tracer_provider = _own_or_global_tracer_provider(owned)
    if logger_provider is None:
        # Whoever has set up spans has decided about logs too: ours come only beside our spans.
        own = bool(owned) and _otlp_asked_for("logs")
        logger_provider = _own_logger_provider(owned) if own else _logs.get_logger_provider()
    return Telemetry(
        tracer_provider.get_tracer("tidegauge", __version__, schema_url=SCHEMA_URL),
        logger_provider.get_logger("tidegauge", __version__, schema_url=SCHEMA_URL),
        tuple(owned),
    )


def _own_or_global_tracer_provider(owned: list[OwnProvider]) -> TracerProvider:
    current = trace.get_tracer_provider()
    if not isinstance(current, trace.ProxyTracerProvider) or not _otlp_asked_for("traces"):
        return current
    from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    exporter = _exporter("traces")
    provider = SdkTracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    owned.append(OwnProvider(provider, exporter))
    return provider


def _own_logger_provider(owned: list[OwnProvider]) -> LoggerProvider:
    from opentelemetry.sdk._logs import LoggerProvider as SdkLoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    exporter = _exporter("logs")
    provider = SdkLoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    owned.append(OwnProvider(provider, exporter))
    return provider


def _otlp_asked_for(signal: str) -> bool:
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", "otlp")
    if "otlp" not in (name.strip() for name in exporters.split(",")):
        return False
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    return any(os.environ.get(name, "").strip() for name in names)


def _exporter(signal: str) -> Any:
    protocol = (
        os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL")
        or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    ).strip()
    makers: dict[tuple[str, str], Callable[[], Any]] = {
        ("http/protobuf", "traces"): _http_traces,
        ("http/protobuf", "logs"): _http_logs,
        ("grpc", "traces"): _grpc_traces,
        ("grpc", "logs"): _grpc_logs,
    }
    maker = makers.get((protocol, signal))
    if maker is None:
        raise ConfigurationError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol!r}: choose grpc or http/protobuf"
        )
    return maker()


def _http_traces() -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _http_logs() -> Any:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter

    return OTLPLogExporter()


def _grpc_traces() -> Any:
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _grpc_logs() -> Any:
    from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter

    return OTLPLogExporter()

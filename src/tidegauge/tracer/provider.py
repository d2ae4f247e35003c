"""Where spans, events and metrics go: the application's own providers, else the standard variables.

With ``OTEL_EXPORTER_OTLP_ENDPOINT`` (or the one for a single signal) set and no provider of the
application's own, spans and events are exported over OTLP by the SDK's batch processors, which
read the other ``OTEL_`` variables themselves. Without either, spans cost next to nothing and go
nowhere. Metrics are pushed only when that is asked for, since they are usually scraped. The global
providers are never set: that is the application's to do.

A variable that cannot be read costs a line in the log, and at most the export of its signal.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

from opentelemetry import _logs, metrics, trace
from opentelemetry._logs import Logger, LoggerProvider, NoOpLoggerProvider
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Tracer, TracerProvider

from tidegauge._version import __version__
from tidegauge.errors import ConfigurationError
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.safety.guard import arrived_from_outside, log
from tidegauge.tracer.conventions import SCHEMA_URL

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

P = TypeVar("P")

OtlpSignal: TypeAlias = Literal["traces", "logs", "metrics"]

_CLOSING_SECONDS: Final = 5.0
_NOT_OURS: Final = (
    'tidegauge: export="troubled" does not change the application\'s own tracer provider, which '
    "exports all runs; add a tidegauge.sampling.TroubledSpanProcessor with your exporter to it"
)
_MAX_SERIES: Final = 100_000
_NUMBER: Final = re.compile(r"OTEL_\w+_(LIMIT|SIZE|DELAY|INTERVAL|TIMEOUT)")
"""Names of variables that are numbers."""

_WHOLE: Final = re.compile("[0-9]{1,9}")
_DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{0,9})?")
_FILES: Final = ("CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE")
_SHOWN: Final[dict[OtlpSignal, str]] = {"traces": "spans", "logs": "events", "metrics": "metrics"}
_EXPORTERS: Final[dict[tuple[str, OtlpSignal], tuple[str, str]]] = {
    ("http/protobuf", "traces"): ("http.trace_exporter", "OTLPSpanExporter"),
    ("http/protobuf", "logs"): ("http._log_exporter", "OTLPLogExporter"),
    ("http/protobuf", "metrics"): ("http.metric_exporter", "OTLPMetricExporter"),
    ("grpc", "traces"): ("grpc.trace_exporter", "OTLPSpanExporter"),
    ("grpc", "logs"): ("grpc._log_exporter", "OTLPLogExporter"),
    ("grpc", "metrics"): ("grpc.metric_exporter", "OTLPMetricExporter"),
}


_without_meters: Final[list[bool]] = []
"""Has an element if the environment names a provider of metrics that cannot be loaded."""


class OwnProvider:
    """A provider of ours with its exporter, and the thread that will close it.

    Closing sends what waits, and a collector that is not there would hold up the process for as
    long as the exporter tries. So a thread does it, that no other thread waits for; it is started
    now, since none can be when the interpreter exits.

    Args:
        provider: the provider.
        exporter: what it exports to.
    """

    def __init__(self, provider: Any, exporter: CountedExporter) -> None:
        self.provider = provider
        self.exporter = exporter
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()  # of the flushes
        self._flushes: list[Flush] = []
        self._flushing = False
        self._close = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidegauge-close", daemon=True)
        with contextlib.suppress(RuntimeError):  # the system starts no more threads
            self._thread.start()

    def begin_flush(self) -> Flush:
        """Start sending what waits now."""
        flush = Flush()
        with here.critical, self._lock:
            self._flushes.append(flush)
            idle, self._flushing = not self._flushing, True
        if idle:
            try:
                threading.Thread(target=self._flush, name="tidegauge-flush", daemon=True).start()
            except RuntimeError:  # as above
                self._flush()
        return flush

    def begin_shutdown(self) -> None:
        """Start sending what waits."""
        self._close.set()
        if not self._thread.is_alive():
            self._shutdown()

    def end_shutdown(self, deadline: float) -> None:
        """Wait for the end of it, up to a moment of the monotonic clock; then give up."""
        if self._thread.is_alive():
            self._thread.join(max(deadline - time.monotonic(), 0.0))
        if self._thread.is_alive():
            self.exporter.shutdown()

    def _run(self) -> None:
        self._close.wait()
        self._shutdown()

    def _shutdown(self) -> None:
        with contextlib.suppress(Exception):  # that of metrics raises what was not sent in time
            self.provider.shutdown()

    def _flush(self) -> None:
        """Flush until no one waits for it: one flush is for all that were waiting when it began."""
        while True:
            with here.critical, self._lock:
                flushes, self._flushes = self._flushes, []
                if not flushes:
                    self._flushing = False
                    return
            failures, sent = self.exporter.failures, False
            with contextlib.suppress(Exception):  # as above
                sent = self.provider.force_flush() is not False
            for flush in flushes:
                flush.sent = sent and self.exporter.failures == failures
                flush.done.set()


class Flush:
    """What waits when this is made is being sent.

    Attributes:
        done: set when it was tried.
        sent: whether all of it has arrived.
    """

    def __init__(self) -> None:
        self.done = threading.Event()
        self.sent = False

    def wait(self, deadline: float) -> bool:
        """Whether all has arrived by a moment of the monotonic clock."""
        return self.done.wait(max(deadline - time.monotonic(), 0.0)) and self.sent


class CountedExporter:
    """An exporter, and how often it failed: the SDK's processors do not say it.

    Args:
        exporter: the exporter.

    Attributes:
        exporter: the same.
        failures: exports that failed.
    """

    def __init__(self, exporter: Any) -> None:
        self.exporter = exporter
        self.failures = 0

    def export(self, *args: Any, **kwargs: Any) -> Any:
        """Export; what fails is counted."""
        result = None
        try:
            result = self.exporter.export(*args, **kwargs)
        finally:
            if result is None or result.name != "SUCCESS":
                self.failures += 1
        return result

    def __getattr__(self, name: str) -> Any:
        return getattr(self.exporter, name)


@dataclass(frozen=True, slots=True)
class Telemetry:
    """A tracer and an event logger, and how to flush and close what was made for them.

    Attributes:
        tracer: of spans.
        logger: of events.
        meter_provider: of metrics; ``None``, the application's, whenever it sets one up.
        owned: what was made here.
    """

    tracer: Tracer
    logger: Logger
    meter_provider: MeterProvider | None = None
    owned: tuple[OwnProvider, ...] = ()

    @property
    def owns_metrics(self) -> bool:
        """Whether the provider of metrics is one of ours."""
        return any(own.provider is self.meter_provider for own in self.owned)

    def flush(self, deadline: float) -> bool:
        """Send what waits in our own processors, and the metrics of this moment.

        Args:
            deadline: give up at this moment of the monotonic clock.

        Returns:
            Whether all of it has arrived.
        """
        flushes = [own.begin_flush() for own in self.owned]
        return all(flush.wait(deadline) for flush in flushes)

    def shutdown(self, seconds: float | None = None) -> None:
        """Close our own providers; those of the application are left alone.

        Args:
            seconds: how long that may take; left out, five.
        """
        deadline = time.monotonic() + (_CLOSING_SECONDS if seconds is None else seconds)
        for own in self.owned:
            own.begin_shutdown()
        for own in self.owned:
            own.end_shutdown(deadline)


def open_telemetry(
    tracer_provider: TracerProvider | None = None,
    logger_provider: LoggerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    *,
    push_metrics: Callable[[Any], Any] | None = None,
    before_export: Callable[[Any], Any] | None = None,
) -> Telemetry:
    """Find or make the providers.

    Args:
        tracer_provider: use this one for spans.
        logger_provider: use this one for events.
        meter_provider: use this one for metrics.
        push_metrics: whether metrics are pushed; where the application has no provider for them,
            the exporter of ours is what this makes of an OTLP exporter.
        before_export: makes the processor of spans for an exporter of ours; left out, all spans are
            exported in batches. A provider of the application is left as it is, and one line says
            so.
    """
    owned: list[OwnProvider] = []
    with _readable_environment():
        if tracer_provider is None:
            tracer_provider = _own_or_global_tracer_provider(owned, before_export)
        if logger_provider is None:
            # An application with its own spans has decided about logs: ours come only with ours.
            own = bool(owned) and otlp_asked_for("logs")
            made = _tried("logs", lambda: _own_logger_provider(owned)) if own else None
            logger_provider = (
                made or _tried("logs", _logs.get_logger_provider) or NoOpLoggerProvider()
            )
        if meter_provider is None and push_metrics is not None and not _sdk_disabled():
            wrapped = push_metrics
            meter_provider = application_meter_provider() or _tried(
                "metrics", lambda: _own_meter_provider(owned, wrapped)
            )
    return Telemetry(
        tracer_provider.get_tracer("tidegauge", __version__, schema_url=SCHEMA_URL),
        logger_provider.get_logger("tidegauge", __version__, schema_url=SCHEMA_URL),
        meter_provider,
        tuple(owned),
    )


def unreadable_variables() -> dict[str, str]:
    """The variables of OpenTelemetry that should be a number and are none, by their names."""
    found = {name: value.strip() for name, value in os.environ.items() if _NUMBER.fullmatch(name)}
    return {name: value for name, value in found.items() if not _is_number(name, value)}


def _is_number(name: str, value: str) -> bool:
    if name.endswith("_LIMIT"):
        return value.lower() == "unset" or _WHOLE.fullmatch(value) is not None
    decimal = name.startswith(("OTEL_EXPORTER_", "OTEL_METRIC_"))
    number = (_DECIMAL if decimal else _WHOLE).fullmatch(value)
    return number is not None and float(value) > 0


@contextlib.contextmanager
def _readable_environment() -> Iterator[None]:
    """Variables that are no number are not there meanwhile.

    OpenTelemetry's specification treats them as not set. The SDK raises exceptions, or logs them.
    """
    bad = unreadable_variables()
    shown = ", ".join(f"{name}={value!r}" for name, value in bad.items() if value)
    if shown:
        log(
            logging.WARNING,
            "tidegauge: %s: the default is used, because that is not a number above 0; correct the "
            "variable, or unset it",
            shown,
        )
    hidden = {name: os.environ.pop(name, "") for name in bad}
    try:
        yield
    finally:
        os.environ.update(hidden)


def _tried(signal: OtlpSignal, make: Callable[[], P]) -> P | None:
    """What this makes; ``None``, the environment does not let it, and one line says why."""
    try:
        return make()
    except Exception as error:
        if arrived_from_outside(error):
            raise
        why = " ".join(str(error).split()) or type(error).__name__
        if not isinstance(error, ConfigurationError):
            why += "; correct the variables OTEL_*"
        log(logging.WARNING, "tidegauge: %s are not exported: %s", _SHOWN[signal], why)
        return None


def application_meter_provider() -> MeterProvider | None:
    """The global provider of metrics, if the application has set one up."""
    if _without_meters:
        return None
    provider = _tried("metrics", metrics.get_meter_provider)
    if provider is None:
        _without_meters.append(True)  # asked once a run, and OpenTelemetry logs it each time
    # Those of the API package itself collect nothing: they stand for one that is not there.
    missing = provider is None or type(provider).__module__.startswith("opentelemetry.metrics")
    return None if missing else provider


def _own_or_global_tracer_provider(
    owned: list[OwnProvider], before_export: Callable[[Any], Any] | None
) -> TracerProvider:
    current = _tried("traces", trace.get_tracer_provider) or trace.NoOpTracerProvider()
    if not isinstance(current, trace.ProxyTracerProvider):
        if before_export is not None:
            log(logging.WARNING, _NOT_OURS)
        return current
    if not otlp_asked_for("traces"):
        return current
    return _tried("traces", lambda: _own_tracer_provider(owned, before_export)) or current


def _own_tracer_provider(
    owned: list[OwnProvider], before_export: Callable[[Any], Any] | None
) -> TracerProvider:
    from opentelemetry.sdk.trace import TracerProvider as SdkTracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    exporter = _otlp_exporter("traces")
    provider = SdkTracerProvider(resource=_resource(), shutdown_on_exit=False)
    provider.add_span_processor((before_export or BatchSpanProcessor)(exporter))
    owned.append(OwnProvider(provider, exporter))
    return provider


def _own_logger_provider(owned: list[OwnProvider]) -> LoggerProvider:
    from opentelemetry.sdk._logs import LoggerProvider as SdkLoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

    exporter = _otlp_exporter("logs")
    provider = SdkLoggerProvider(resource=_resource(), shutdown_on_exit=False)
    provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
    owned.append(OwnProvider(provider, exporter))
    return provider


def _own_meter_provider(owned: list[OwnProvider], wrapped: Callable[[Any], Any]) -> MeterProvider:
    from opentelemetry.sdk.metrics import MeterProvider as SdkMeterProvider

    exporter = _otlp_exporter("metrics")
    reader = _reader(wrapped(exporter))
    provider = SdkMeterProvider([reader], resource=_resource(), shutdown_on_exit=False)
    owned.append(OwnProvider(provider, exporter))
    return provider


def _reader(exporter: Any) -> Any:
    """The SDK's periodic reader, without its limit of 2,000 series a metric: ours are bounded."""
    from opentelemetry.sdk.metrics import Histogram, ObservableCounter, ObservableGauge
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

    limits: dict[Any, int] = dict.fromkeys(
        (Histogram, ObservableCounter, ObservableGauge), _MAX_SERIES
    )
    try:
        return PeriodicExportingMetricReader(exporter, cardinality_limits=limits)
    except TypeError:  # an SDK from before there was a limit
        return PeriodicExportingMetricReader(exporter)


def _resource() -> Resource:
    """The resource of this process from the environment, with a new id if it has none."""
    from opentelemetry.sdk.resources import Resource

    own = Resource({"service.instance.id": str(uuid.uuid4())})
    return own.merge(Resource.create())


def _sdk_disabled() -> bool:
    """Whether ``OTEL_SDK_DISABLED`` turns everything off."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def otlp_asked_for(signal: OtlpSignal, *, default: str = "otlp") -> bool:
    """Whether the environment names an endpoint and, for this signal, the exporter ``otlp``.

    Args:
        signal: what would be sent.
        default: the exporter where ``OTEL_<SIGNAL>_EXPORTER`` names none.
    """
    if _sdk_disabled():
        return False
    exporters = os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", default)
    if "otlp" not in (name.strip() for name in exporters.split(",")):
        return False
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    return any(os.environ.get(name, "").strip() for name in names)


def _otlp_exporter(signal: OtlpSignal) -> Any:
    """The exporter that the environment describes, counted; it reads the other variables itself.

    Raises:
        ConfigurationError: a variable names no known protocol, no URL or no readable file.
    """
    name, protocol = _otlp_variable(signal, "PROTOCOL")
    protocol = protocol or "http/protobuf"
    known = _EXPORTERS.get((protocol, signal))
    if known is None:
        raise ConfigurationError(f"{name}={protocol!r} is not supported; use grpc or http/protobuf")
    name, endpoint = _otlp_variable(signal, "ENDPOINT")
    if protocol != "grpc" and urlsplit(endpoint).scheme not in ("http", "https"):
        raise ConfigurationError(f"{name} is no URL; use http://HOST:4318")
    for kind in _FILES:
        name, path = _otlp_variable(signal, kind)
        if path and not os.access(path, os.R_OK):
            raise ConfigurationError(f"{name}={path!r} cannot be read; name a file")
    module, name = known
    exporter = getattr(import_module(f"opentelemetry.exporter.otlp.proto.{module}"), name)()
    return CountedExporter(exporter)


def _otlp_variable(signal: OtlpSignal, kind: str) -> tuple[str, str]:
    """The variable that holds for a signal, and its value; empty, it is not set."""
    general = f"OTEL_EXPORTER_OTLP_{kind}"
    name = f"OTEL_EXPORTER_OTLP_{signal.upper()}_{kind}"
    name = name if os.environ.get(name, "").strip() else general
    return name, os.environ.get(name, "").strip()

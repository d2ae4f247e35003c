"""What the standard variables say of OTLP: whether it is asked for, and which exporter."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, Final, Literal, TypeAlias

from tidegauge.errors import ConfigurationError

__all__ = ["Signal", "otlp_asked_for", "otlp_exporter", "sdk_disabled"]

Signal: TypeAlias = Literal["traces", "logs", "metrics"]

_EXPORTERS: Final[dict[tuple[str, Signal], tuple[str, str]]] = {
    ("http/protobuf", "traces"): ("http.trace_exporter", "OTLPSpanExporter"),
    ("http/protobuf", "logs"): ("http._log_exporter", "OTLPLogExporter"),
    ("http/protobuf", "metrics"): ("http.metric_exporter", "OTLPMetricExporter"),
    ("grpc", "traces"): ("grpc.trace_exporter", "OTLPSpanExporter"),
    ("grpc", "logs"): ("grpc._log_exporter", "OTLPLogExporter"),
    ("grpc", "metrics"): ("grpc.metric_exporter", "OTLPMetricExporter"),
}


def sdk_disabled() -> bool:
    """Whether ``OTEL_SDK_DISABLED`` turns everything off."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def otlp_asked_for(signal: Signal, *, untold: str = "otlp") -> bool:
    """Whether the environment names an endpoint and, for this signal, the exporter ``otlp``.

    Args:
        signal: what would be sent.
        untold: the exporter where ``OTEL_<SIGNAL>_EXPORTER`` names none.
    """
    if sdk_disabled():
        return False
    exporters = os.environ.get(f"OTEL_{signal.upper()}_EXPORTER", untold)
    if "otlp" not in (name.strip() for name in exporters.split(",")):
        return False
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT")
    return any(os.environ.get(name, "").strip() for name in names)


def otlp_exporter(signal: Signal) -> Any:
    """The exporter that the environment describes; it reads the rest of the variables itself.

    Raises:
        ConfigurationError: ``OTEL_EXPORTER_OTLP_PROTOCOL`` names no known protocol.
    """
    protocol = (
        os.environ.get(f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL")
        or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    ).strip()
    known = _EXPORTERS.get((protocol, signal))
    if known is None:
        raise ConfigurationError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol!r}: choose grpc or http/protobuf"
        )
    module, name = known
    return getattr(import_module(f"opentelemetry.exporter.otlp.proto.{module}"), name)()

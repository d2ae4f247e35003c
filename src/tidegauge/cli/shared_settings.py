"""Settings that more than one serving command has: each is defined once, here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tidegauge.cli.settings_table import Setting

if TYPE_CHECKING:
    from tidegauge.instrumentation.otlp.limits import AssemblyLimits

__all__ = [
    "IDLE_SECONDS",
    "KAFKA_CONFIG",
    "LISTENING",
    "METRICS",
    "RUN_DEFAULTS",
    "SETTLE_SECONDS",
    "TLS",
    "assembly_limits",
]

LISTENING: Final = (
    Setting("host", "text", "127.0.0.1", "Address to listen on."),
    Setting(
        "allowed_hosts",
        "text",
        None,
        "Further host names that clients may use, separated by commas. Loopback names and the "
        "address itself are always allowed. Off: on a loopback address no others, elsewhere all.",
    ),
)
"""The address, and the names in ``Host`` that are accepted there."""

METRICS: Final = (
    Setting("metrics_port", "port", 9464, "/metrics, /healthz and /readyz; / is the live page."),
    Setting("page", "switch", True, "Serve the live page at /; off, / serves the metrics, too."),
)

TLS: Final = (
    Setting("tls_certificate", "file", None, "Use TLS on every port, with this certificate."),
    Setting("tls_key", "file", None, "The private key of that certificate."),
    Setting(
        "tls_client_ca",
        "file",
        None,
        "Accept only clients whose certificate is signed by one of the certificates in this file.",
    ),
)

RUN_DEFAULTS: Final = (
    Setting("task_group", "text", None, "Task group of runs that name none."),
    Setting("t_max", "count", None, "Turns within which success counts towards AUV."),
)

KAFKA_CONFIG: Final = Setting(
    "kafka_config",
    "file",
    None,
    "TOML file of librdkafka properties: authentication, TLS, limits.",
)
SETTLE_SECONDS: Final = Setting(
    "settle_seconds", "seconds", 0.5, "How long to wait for earlier spans that arrive late."
)
IDLE_SECONDS: Final = Setting(
    "idle_seconds", "seconds", 600.0, "End a run that sends no span for this long."
)


def assembly_limits(values: Mapping[str, Any]) -> AssemblyLimits:
    """The limits of assembling spans into runs, from the values of the settings."""
    from tidegauge.instrumentation.otlp.limits import AssemblyLimits

    return AssemblyLimits(
        settle_seconds=values["settle_seconds"],
        idle_seconds=values["idle_seconds"],
        traces=values["max_traces"],
        runs=values["max_runs"],
        spans=values["max_remembered_spans"],
    )

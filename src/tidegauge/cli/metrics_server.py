"""The metrics server of a serving command, from its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidegauge.cli.exposure import host_names
from tidegauge.errors import ConfigurationError

if TYPE_CHECKING:
    from tidegauge.exporters.prometheus import MetricsServer
    from tidegauge.streaming_metrics import Engine

__all__ = ["require_metrics_port", "start_metrics_server"]


def require_metrics_port(settings: Mapping[str, Any]) -> None:
    """Refuse ``metrics_port`` off.

    Raises:
        ConfigurationError: it is off.
    """
    if settings["metrics_port"] is None:
        raise ConfigurationError("metrics_port cannot be off: without metrics there is no use")


def start_metrics_server(
    engine: Engine, settings: Mapping[str, Any], **contents: Any
) -> MetricsServer:
    """Serve ``/metrics`` at the address, under the names and with the TLS of the settings.

    Args:
        engine: the runs that are measured.
        settings: those of :data:`~tidegauge.cli.shared_settings.LISTENING`, ``METRICS`` and
            ``TLS``.
        **contents: what :class:`~tidegauge.exporters.prometheus.MetricsServer` serves besides.

    Raises:
        ConfigurationError: a setting cannot work.
        OSError: the address cannot be listened on.
    """
    from tidegauge.exporters.prometheus import MetricsServer

    require_metrics_port(settings)
    host, port = settings["host"], settings["metrics_port"]
    try:
        return MetricsServer(
            engine,
            host=host,
            port=port,
            certificate=settings["tls_certificate"],
            key=settings["tls_key"],
            client_ca=settings["tls_client_ca"],
            allowed_hosts=host_names(settings["allowed_hosts"]),
            **contents,
        )
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"cannot listen on {host}:{port} for metrics: {why}") from error

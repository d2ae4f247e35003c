"""Prometheus: the catalogue's metrics, read from an engine whenever somebody scrapes.

:class:`TidegaugeCollector` belongs into a registry of prometheus_client, your own for example:
``registry.register(TidegaugeCollector(engine))``. :class:`MetricsServer` serves them by itself.
"""

from tidegauge.exporters.prometheus.collector import TidegaugeCollector
from tidegauge.exporters.prometheus.server import MetricsServer

__all__ = ["MetricsServer", "TidegaugeCollector"]

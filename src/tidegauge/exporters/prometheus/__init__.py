"""Prometheus: the catalog's metrics, read from an engine at every scrape.

:class:`RegistryExporter` registers a :class:`TidegaugeCollector` in your registry of
prometheus_client. :class:`MetricsServer` serves the metrics; :func:`asgi_app` and :func:`wsgi_app`
are for your own server.
"""

from tidegauge.exporters.prometheus.collector import RegistryExporter, TidegaugeCollector
from tidegauge.exporters.prometheus.server import MetricsServer, asgi_app, wsgi_app

__all__ = ["MetricsServer", "RegistryExporter", "TidegaugeCollector", "asgi_app", "wsgi_app"]

"""Prometheus: the catalogue's metrics, read from an engine whenever somebody scrapes.

:class:`TidegaugeCollector` belongs into a registry of prometheus_client, your own for example:
``registry.register(TidegaugeCollector(engine))``. :class:`MetricsServer` serves them by itself;
:func:`asgi_app` and :func:`wsgi_app` are for a server of yours.
"""

from tidegauge.exporters.prometheus.collector import TidegaugeCollector
from tidegauge.exporters.prometheus.server import MetricsServer, asgi_app, wsgi_app

__all__ = ["MetricsServer", "TidegaugeCollector", "asgi_app", "wsgi_app"]

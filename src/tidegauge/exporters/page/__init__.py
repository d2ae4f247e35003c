"""The live page: the current runs, without a dashboard.

:class:`Page` is the exporter and the WSGI application;
:class:`~tidegauge.exporters.prometheus.MetricsServer` serves it with ``/metrics``.
:class:`LiveReading` reads an engine as plain data.
"""

from tidegauge.exporters.page.app import Page
from tidegauge.exporters.page.live import Asked, LiveReading

__all__ = ["Asked", "LiveReading", "Page"]

"""The live page: what an engine shows now, for people without a dashboard.

:class:`Page` answers for the page, its files and what it polls;
:class:`~tidegauge.exporters.prometheus.MetricsServer` serves it beside ``/metrics``.
:class:`LiveReading` reads an engine as plain data.
"""

from tidegauge.exporters.page.app import Page
from tidegauge.exporters.page.live import Asked, LiveReading

__all__ = ["Asked", "LiveReading", "Page"]

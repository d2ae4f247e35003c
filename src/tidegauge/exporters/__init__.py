"""Exporters read snapshots of an engine. Nothing on the step path depends on them.

- :mod:`~tidegauge.exporters.reading`: families of samples, and the ``Exporter`` protocol
- :mod:`~tidegauge.exporters.prometheus`: metrics for scrapes
- :mod:`~tidegauge.exporters.otlp`: metrics through OpenTelemetry
- :mod:`~tidegauge.exporters.page`: the live page
"""

"""OTLP: the catalog's metrics, pushed through the OpenTelemetry metrics SDK.

:class:`OtlpExporter` shows an engine in a provider of metrics as observable instruments.
:class:`HistogramExporter` adds its histograms, for which OpenTelemetry has no observable
instrument, to what an exporter sends.
"""

from tidegauge.exporters.otlp.exporter import HistogramExporter, OtlpExporter

__all__ = ["HistogramExporter", "OtlpExporter"]

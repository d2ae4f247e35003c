"""OTLP: the catalogue's metrics, pushed through the OpenTelemetry metrics SDK.

:class:`Readings` is what an engine shows, one snapshot a collection. :func:`observe` puts it into
a provider of metrics as observable instruments; :class:`HistogramExporter` adds its histograms,
for which OpenTelemetry has no observable instrument, to what an exporter of ours sends.
"""

from tidegauge.exporters.otlp.histograms import HistogramExporter
from tidegauge.exporters.otlp.instruments import observe
from tidegauge.exporters.otlp.readings import Readings

__all__ = ["HistogramExporter", "Readings", "observe"]

"""Histograms of an engine as data points of OpenTelemetry, added to what an exporter sends.

OpenTelemetry has no observable histogram, and its Python SDK no producer of metrics that were
counted elsewhere. What it has is an exporter that is handed plain data: so real histograms, with
the engine's own buckets, are put among those data on their way out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, TypeAlias

from opentelemetry.sdk.metrics import Exemplar, Histogram
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    ResourceMetrics,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData

from tidegauge._guard import guarded
from tidegauge.catalog import METRICS, MetricDefinition
from tidegauge.exporters.otlp.instruments import SCOPE
from tidegauge.exporters.otlp.readings import Readings, attributes, otlp_name, otlp_unit
from tidegauge.streaming_metrics.totals import Buckets

__all__ = ["HistogramExporter"]

_HISTOGRAMS: Final = tuple(metric for metric in METRICS if metric.kind == "histogram")

_UNKNOWN: Final[Any] = None  # the least and the greatest value, which OTLP lets be absent

_Before: TypeAlias = dict[tuple[MetricDefinition, tuple[str, ...]], tuple[list[int], float]]


class HistogramExporter(MetricExporter):
    """Adds the histograms of an engine to what another exporter sends.

    They are cumulative or deltas as that exporter wants histograms to be.

    Args:
        exporter: sends.
        readings: the engine's metrics, as the instruments beside it read them.
    """

    def __init__(self, exporter: MetricExporter, readings: Readings) -> None:
        # The reader takes both from whatever exporter it is given, by these names.
        temporality = exporter._preferred_temporality
        super().__init__(temporality, exporter._preferred_aggregation)
        self._exporter = exporter
        self._readings = readings
        self._temporality = (temporality or {}).get(Histogram, AggregationTemporality.CUMULATIVE)
        self._since = time.time_ns()
        self._before: _Before = {}

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        """Send the metrics and the histograms together."""
        whole = self._with_histograms(metrics_data) or metrics_data
        return self._exporter.export(whole, timeout_millis, **kwargs)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Send what waits."""
        return self._exporter.force_flush(timeout_millis)

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """Close the exporter."""
        self._exporter.shutdown(timeout_millis, **kwargs)

    @guarded("otlp", default=None, interrupting="run")
    def _with_histograms(self, data: MetricsData) -> MetricsData:
        found = list(self._metrics())
        return replace(data, resource_metrics=[_added(one, found) for one in data.resource_metrics])

    def _metrics(self) -> Iterator[Metric]:
        now = time.time_ns()
        before, self._before = self._before, {}
        for metric in _HISTOGRAMS:
            rows = self._readings.rows(metric.name, metric)
            points = [
                self._point(metric, labels, value, before, now)
                for labels, value in rows
                if isinstance(value, Buckets)
            ]
            if points:
                data = HistogramData(points, self._temporality)
                yield Metric(otlp_name(metric), metric.help, otlp_unit(metric), data)
        if self._temporality is AggregationTemporality.DELTA:
            self._since = now

    def _point(
        self,
        metric: MetricDefinition,
        labels: tuple[str, ...],
        value: Buckets,
        before: _Before,
        now: int,
    ) -> HistogramDataPoint:
        counts, total = list(value.counts), value.total
        delta = self._temporality is AggregationTemporality.DELTA
        if delta:
            self._before[metric, labels] = counts, total
            known = before.get((metric, labels))
            if known is not None:
                counts = [count - then for count, then in zip(counts, known[0], strict=True)]
                total -= known[1]
        return HistogramDataPoint(
            attributes=attributes(metric, labels),
            start_time_unix_nano=self._since,
            time_unix_nano=now,
            count=sum(counts),
            sum=total,
            bucket_counts=counts,
            explicit_bounds=list(value.bounds),
            min=_UNKNOWN,
            max=_UNKNOWN,
            exemplars=_exemplars(value, self._since if delta else 0),
        )


def _exemplars(value: Buckets, since: int) -> list[Exemplar]:
    """Their trace is an attribute: the encoder drops the id of a trace without a span's."""
    found = [
        Exemplar({"trace_id": one.trace_id}, float(one.value), int(one.time * 1e9), None, None)
        for one in value.exemplars.values()
    ]
    return [one for one in found if one.time_unix_nano >= since]


def _added(data: ResourceMetrics, metrics: list[Metric]) -> ResourceMetrics:
    """With the metrics in our instruments' scope: a second one of its name would replace it."""
    scopes = [
        replace(one, metrics=[*one.metrics, *metrics])
        if one.scope.name == SCOPE and not one.scope.schema_url
        else one
        for one in data.scope_metrics
    ]
    return replace(data, scope_metrics=scopes)

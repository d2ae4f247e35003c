"""Histograms as data points of OpenTelemetry, added to what an exporter sends.

OpenTelemetry has no observable histogram, and its Python SDK no producer of external metrics. But
an exporter receives plain data, to which real histograms with the engine's buckets can be added.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
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

from tidegauge.catalog import MetricDefinition
from tidegauge.exporters.reading import Row
from tidegauge.safety.guard import guarded
from tidegauge.streaming_metrics.buckets import Buckets
from tidegauge.streaming_metrics.registry import METRICS

SCOPE: Final = "tidegauge"
"""Name of the instrumentation scope of all metrics."""

_HISTOGRAMS: Final = tuple(metric for metric in METRICS if metric.kind == "histogram")

_UNKNOWN: Final[Any] = None  # the minimum and the maximum, which are optional in OTLP

_Before: TypeAlias = dict[tuple[MetricDefinition, tuple[str, ...]], tuple[list[int], float]]


class HistogramExporter(MetricExporter):
    """Adds histograms to what another exporter sends, in the temporality that it prefers.

    Args:
        exporter: sends the metrics.
        rows: gives the series of a metric, as to the instruments of the same collection.
    """

    def __init__(
        self, exporter: MetricExporter, rows: Callable[[str, MetricDefinition], Iterable[Row]]
    ) -> None:
        # A metric reader takes both from its exporter, by these names.
        temporality = exporter._preferred_temporality
        super().__init__(temporality, exporter._preferred_aggregation)
        self._exporter = exporter
        self._rows = rows
        self._temporality = (temporality or {}).get(Histogram, AggregationTemporality.CUMULATIVE)
        self._since = time.time_ns()
        self._before: _Before = {}

    def export(
        self, metrics_data: MetricsData, timeout_millis: float = 10_000, **kwargs: Any
    ) -> MetricExportResult:
        """Send the metrics and the histograms."""
        whole = self._with_histograms(metrics_data) or metrics_data
        return self._exporter.export(whole, timeout_millis, **kwargs)

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Send pending metrics."""
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
            rows = self._rows(metric.name, metric)
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
    """The trace id as an attribute, because the encoder drops a trace id without a span id."""
    found = [
        Exemplar({"trace_id": one.trace_id}, float(one.value), int(one.time * 1e9), None, None)
        for one in value.exemplars.values()
    ]
    return [one for one in found if one.time_unix_nano >= since]


def _added(data: ResourceMetrics, metrics: list[Metric]) -> ResourceMetrics:
    """The data with the metrics in our scope; a second scope of its name would replace it."""
    scopes = [
        replace(one, metrics=[*one.metrics, *metrics])
        if one.scope.name == SCOPE and not one.scope.schema_url
        else one
        for one in data.scope_metrics
    ]
    return replace(data, scope_metrics=scopes)


def otlp_name(metric: MetricDefinition) -> str:
    """The metric's name without ``_total``, which converters from OTLP to Prometheus add.

    >>> from tidegauge.streaming_metrics.run_counts import STEPS
    >>> otlp_name(STEPS)
    'tidegauge_steps'
    """
    return metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name


def otlp_unit(metric: MetricDefinition) -> str:
    """The metric's unit in UCUM, so that Prometheus adds no second unit to the name.

    Names contain seconds already. Other units are UCUM annotations, which are not added.

    >>> from tidegauge.streaming_metrics.exploration import RUN_PLACE
    >>> from tidegauge.streaming_metrics.loop_cost import LOOP_SECONDS
    >>> from tidegauge.streaming_metrics.run_counts import STEPS
    >>> otlp_unit(LOOP_SECONDS), otlp_unit(STEPS), otlp_unit(RUN_PLACE)
    ('s', '{steps}', '')
    """
    if metric.unit == "seconds":
        return "s"
    return "" if metric.unit == "1" else f"{{{metric.unit}}}"


def attributes(metric: MetricDefinition, labels: tuple[str, ...]) -> dict[str, str]:
    """The labels of one series, by name."""
    return dict(zip(metric.labels, labels, strict=True))

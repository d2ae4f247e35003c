"""OTLP: the catalog's metrics, pushed through the OpenTelemetry metrics SDK.

:class:`OtlpExporter` shows an engine in a provider of metrics as observable instruments.
:class:`HistogramExporter` adds its histograms, for which OpenTelemetry has no observable
instrument, to what an exporter sends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias
from weakref import ref

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
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

from tidegauge._version import __version__
from tidegauge.catalog import MetricDefinition
from tidegauge.exporters.reading import Family, Reader, Row, cumulative
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


_Part: TypeAlias = Callable[[MetricDefinition, tuple[str, ...], Any], Iterable[Observation]]


class OtlpExporter:
    """Shows an engine's metrics in a provider of metrics, with one snapshot per collection.

    :meth:`observe` creates the instruments. Until :meth:`start` and after :meth:`close` they have
    no values, because OpenTelemetry cannot remove instruments.

    A collection reads one instrument after the other, each once, and has no start that we see. So
    an instrument that is read a second time starts the next collection.

    >>> from tidegauge.streaming_metrics.run_counts import RUNS_ACTIVE
    >>> from tidegauge.events import RunStarted
    >>> from tidegauge.streaming_metrics import Engine
    >>> engine, exporter = Engine(), OtlpExporter()
    >>> exporter.start(Reader(engine))
    >>> exporter.rows("a", RUNS_ACTIVE)
    ()
    >>> engine.run_started(RunStarted(run="r1", agent="browser", task_group="shop"))
    >>> exporter.rows("b", RUNS_ACTIVE)  # still the same collection
    ()
    >>> exporter.rows("a", RUNS_ACTIVE)
    [(('browser', 'shop'), 1.0)]
    """

    def __init__(self) -> None:
        self._reader: Reader | None = None
        self._families: dict[MetricDefinition, Family] = {}
        self._read: set[str] | None = None

    def start(self, reader: Reader) -> None:
        """Show what the reader reads."""
        self._reader = reader

    def close(self) -> None:
        """Show nothing."""
        self._reader = None
        self._families = {}

    def observe(self, provider: MeterProvider, *, histograms: bool = True) -> None:
        """Show the catalog in a provider; the last exporter of a provider replaces the others.

        Args:
            histograms: whether to observe histograms, too, as three series each.
        """
        _instruments[:] = [one for one in _instruments if one[0]() is not None]
        instruments = next((own for known, own in _instruments if known() is provider), None)
        if instruments is None:
            meter = provider.get_meter(SCOPE, __version__)
            instruments = _Instruments(meter, histograms=histograms)
            _instruments.append((ref(provider), instruments))
        instruments.exporter = self

    def with_histograms(self, exporter: MetricExporter) -> HistogramExporter:
        """An exporter that adds histograms to what another one sends."""
        return HistogramExporter(exporter, self.rows)

    def rows(self, instrument: str, metric: MetricDefinition) -> Iterable[Row]:
        """The series of a metric."""
        reader = self._reader
        if reader is None:
            return ()
        if self._read is None or instrument in self._read:
            self._families = {family.metric: family for family in reader.families()}
            self._read = set()
        self._read.add(instrument)
        family = self._families.get(metric)
        return () if family is None else family.rows


class _Instruments:
    """The instruments of one provider, created once.

    Args:
        histograms: whether to observe histograms, too, as the three series that Prometheus has of
            each (``_bucket`` by ``le``, ``_sum``, ``_count``).

    Attributes:
        exporter: gives the values.
    """

    def __init__(self, meter: Meter, *, histograms: bool) -> None:
        self.exporter: OtlpExporter | None = None
        for metric in METRICS:
            name, unit = otlp_name(metric), otlp_unit(metric)
            if metric.kind == "counter":
                callbacks = [partial(self._observed, name, metric, _number)]
                meter.create_observable_counter(name, callbacks, unit, metric.help)
            elif metric.kind == "gauge":
                callbacks = [partial(self._observed, name, metric, _number)]
                meter.create_observable_gauge(name, callbacks, unit, metric.help)
            elif histograms:
                for suffix, part in (("_bucket", _buckets), ("_sum", _sum), ("_count", _count)):
                    series = name + suffix
                    callbacks = [partial(self._observed, series, metric, part)]
                    # Not a counter, which Prometheus would name _bucket_total.
                    meter.create_observable_up_down_counter(series, callbacks, "", metric.help)

    def _observed(
        self, name: str, metric: MetricDefinition, part: _Part, _: CallbackOptions
    ) -> Iterable[Observation]:
        return self._read(name, metric, part)

    @guarded("otlp", default=(), interrupting="run")
    def _read(self, name: str, metric: MetricDefinition, part: _Part) -> Iterable[Observation]:
        exporter = self.exporter
        if exporter is None:
            return ()
        rows = exporter.rows(name, metric)
        return [found for labels, value in rows for found in part(metric, labels, value)]


_instruments: Final[list[tuple[ref[MeterProvider], _Instruments]]] = []


def _number(
    metric: MetricDefinition, labels: tuple[str, ...], value: float
) -> Iterator[Observation]:
    yield Observation(value, attributes(metric, labels))


def _buckets(
    metric: MetricDefinition, labels: tuple[str, ...], value: Buckets
) -> Iterator[Observation]:
    shared = attributes(metric, labels)
    for bound, count in cumulative(value):
        yield Observation(count, {**shared, "le": bound})


def _sum(
    metric: MetricDefinition, labels: tuple[str, ...], value: Buckets
) -> Iterator[Observation]:
    yield Observation(value.total, attributes(metric, labels))


def _count(
    metric: MetricDefinition, labels: tuple[str, ...], value: Buckets
) -> Iterator[Observation]:
    yield Observation(sum(value.counts), attributes(metric, labels))

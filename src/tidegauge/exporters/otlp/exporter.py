"""The OTLP exporter: the catalog as observable instruments of a provider of metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias
from weakref import ref

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation
from opentelemetry.sdk.metrics.export import MetricExporter

from tidegauge._version import __version__
from tidegauge.catalog import MetricDefinition
from tidegauge.exporters.otlp.histograms import (
    SCOPE,
    HistogramExporter,
    attributes,
    otlp_name,
    otlp_unit,
)
from tidegauge.exporters.reading import Family, Reader, Row, cumulative
from tidegauge.safety.guard import guarded
from tidegauge.streaming_metrics.buckets import Buckets
from tidegauge.streaming_metrics.registry import METRICS

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
            provider: collects the metrics.
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
        """The series of a metric.

        Args:
            instrument: name of the instrument that is read.
            metric: its metric.
        """
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
        meter: creates the instruments.
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

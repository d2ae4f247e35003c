"""The collector: the engine's metrics in a registry of prometheus_client."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar as ClientExemplar

from tidegauge.exporters.prometheus.families import (
    Family,
    More,
    PlaceLabel,
    cumulative,
    read_families,
)
from tidegauge.streaming_metrics.engine import Engine
from tidegauge.streaming_metrics.totals import Buckets, Exemplar

__all__ = ["TidegaugeCollector"]


class TidegaugeCollector(Collector):
    """Computes every metric of the catalogue at the moment of a scrape.

    The engine's step path knows nothing of it, and a fault while reading costs the metrics that
    could not be read, never the scrape.

    Args:
        engine: what is shown.
        place_label: what is shown of a place; left out, places are not shown.
        more: tells metrics that are none of the engine's.

    >>> from prometheus_client import CollectorRegistry
    >>> from tidegauge.events import RunStarted
    >>> engine = Engine()
    >>> engine.run_started(RunStarted(run="r1", agent="browser", task_group="shop"))
    >>> registry = CollectorRegistry()
    >>> registry.register(TidegaugeCollector(engine))
    >>> labels = {"agent": "browser", "task_group": "shop"}
    >>> registry.get_sample_value("tidegauge_runs_active", labels)
    1.0
    """

    def __init__(
        self, engine: Engine, *, place_label: PlaceLabel | None = None, more: More | None = None
    ) -> None:
        self._engine = engine
        self._place_label = place_label
        self._more = more

    def describe(self) -> Iterable[Metric]:
        """Nothing: the names are the catalogue's, and asking must not take a snapshot."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Every metric that is measured now. Never raises."""
        families = read_families(self._engine, place_label=self._place_label, more=self._more)
        return [_metric(family) for family in families]


def _metric(family: Family) -> Metric:
    """In the client's form, which adds the suffixes of counters and histograms by itself."""
    metric, rows, exemplars = family
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, value in rows:
            if isinstance(value, Buckets):
                histogram.add_metric(labels, _buckets(value), sum_value=value.total)
        return histogram
    if metric.kind == "counter":
        counter = CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, value in rows:
            if not isinstance(value, Buckets):
                counter.add_metric(labels, value, exemplar=_exemplar(exemplars.get(labels)))
        return counter
    gauge = GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
    for labels, value in rows:
        if not isinstance(value, Buckets):
            gauge.add_metric(labels, value)
    return gauge


def _buckets(value: Buckets) -> list[tuple[str, float] | tuple[str, float, ClientExemplar]]:
    buckets: list[tuple[str, float] | tuple[str, float, ClientExemplar]] = []
    for index, (bound, count) in enumerate(cumulative(value)):
        exemplar = _exemplar(value.exemplars.get(index))
        buckets.append((bound, count) if exemplar is None else (bound, count, exemplar))
    return buckets


def _exemplar(exemplar: Exemplar | None) -> ClientExemplar | None:
    if exemplar is None:
        return None
    return ClientExemplar(
        {"trace_id": exemplar.trace_id}, float(exemplar.value), round(exemplar.time, 3)
    )

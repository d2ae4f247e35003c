"""The engine's metrics for Prometheus: in a registry of prometheus_client, and as text."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector, CollectorRegistry
from prometheus_client.samples import Exemplar as ClientExemplar
from prometheus_client.utils import floatToGoString

from tidegauge.exporters.reading import Family, Reader, cumulative
from tidegauge.streaming_metrics.buckets import Buckets, Exemplar


class TidegaugeCollector(Collector):
    """Computes every metric of the catalog during a scrape.

    A fault while reading costs only the metrics that could not be read, never the scrape.

    >>> from tidegauge.events import RunStarted
    >>> from tidegauge.streaming_metrics import Engine
    >>> engine, registry = Engine(), CollectorRegistry()
    >>> engine.run_started(RunStarted(run="r1", agent="browser", task_group="shop"))
    >>> registry.register(TidegaugeCollector(Reader(engine)))
    >>> labels = {"agent": "browser", "task_group": "shop"}
    >>> registry.get_sample_value("tidegauge_runs_active", labels)
    1.0
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def describe(self) -> Iterable[Metric]:
        """Nothing, because registering must not take a snapshot."""
        return []

    def collect(self) -> Iterable[Metric]:
        """Every measured metric. Never raises."""
        return [_metric(family) for family in self._reader.families()]


class RegistryExporter:
    """Exports to a registry of the application's.

    Args:
        registry: is scraped by the application.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._collector: TidegaugeCollector | None = None

    def start(self, reader: Reader) -> None:
        """Register a collector."""
        collector = TidegaugeCollector(reader)
        self._registry.register(collector)
        self._collector = collector

    def close(self) -> bool:
        """Unregister the collector; returns whether it was registered."""
        collector, self._collector = self._collector, None
        if collector is None:
            return False
        try:
            self._registry.unregister(collector)
        except KeyError:  # the application has unregistered it
            return False
        return True


def _metric(family: Family) -> Metric:
    """The family in the form of prometheus_client, which adds the suffixes."""
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


_number: Final = lru_cache(maxsize=4_096)(floatToGoString)


def write_text(families: Iterable[Family], *, openmetrics: bool = False) -> bytes:
    """The families in Prometheus's text format 0.0.4, or in OpenMetrics 1.0 with exemplars.

    prometheus_client writes the same text, one label at a time: 8 µs per series, a tenth of a
    second of the interpreter at every scrape with hundreds of agents. This takes a tenth of that.

    >>> from tidegauge import catalog
    >>> family = Family(catalog.EVICTED_RUNS, [((), 2.0)])
    >>> print(write_text([family]).decode().splitlines()[-1])
    tidegauge_evicted_runs_total 2.0
    """
    lines: list[str] = []
    for metric, rows, exemplars in families:
        name = metric.name
        shown = name.removesuffix("_total") if openmetrics else name
        lines.append(f"# HELP {shown} {metric.help}\n# TYPE {shown} {metric.kind}\n")
        template = ",".join([f'{label}="%s"' for label in metric.labels])
        for values, value in rows:
            labels = template % tuple([_escaped(text) for text in values])
            if isinstance(value, Buckets):
                buckets = cumulative(value)
                shown_exemplars = value.exemplars if openmetrics else {}
                lines += [
                    f'{name}_bucket{{{labels},le="{bound}"}} {_number(count)}'
                    f"{_exemplar_text(shown_exemplars.get(index))}\n"
                    for index, (bound, count) in enumerate(buckets)
                ]
                lines.append(f"{name}_count{{{labels}}} {_number(buckets[-1][1])}\n")
                lines.append(f"{name}_sum{{{labels}}} {_number(value.total)}\n")
            elif labels:
                exemplar = exemplars.get(values) if openmetrics and exemplars else None
                lines.append(f"{name}{{{labels}}} {_number(value)}{_exemplar_text(exemplar)}\n")
            else:
                lines.append(f"{name} {_number(value)}\n")
    if openmetrics:
        lines.append("# EOF\n")
    return "".join(lines).encode()


def _exemplar_text(exemplar: Exemplar | None) -> str:
    if exemplar is None:
        return ""
    value = _number(float(exemplar.value))
    return f' # {{trace_id="{exemplar.trace_id}"}} {value} {exemplar.time:.3f}'


@lru_cache(maxsize=4_096)
def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")

"""The catalogue as observable instruments of a provider of metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import accumulate
from typing import Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider
from opentelemetry.metrics import Observation as Observed

from tidegauge._guard import guarded
from tidegauge._version import __version__
from tidegauge.catalog import METRICS, MetricDefinition
from tidegauge.exporters.otlp.readings import Readings, attributes, otlp_name, otlp_unit
from tidegauge.streaming_metrics.totals import Buckets

__all__ = ["SCOPE", "observe"]

SCOPE: Final = "tidegauge"

_Part: TypeAlias = Callable[[MetricDefinition, tuple[str, ...], Any], Iterable[Observed]]


class Observation:
    """The instruments of one provider. It makes them once: they cannot be taken back.

    Args:
        meter: makes the instruments.
        histograms: whether histograms are observed too, as the three series that Prometheus has of
            each (``_bucket`` by ``le``, ``_sum``, ``_count``).

    Attributes:
        readings: what is shown.
    """

    def __init__(self, meter: Meter, *, histograms: bool) -> None:
        self.readings: Readings | None = None
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
                    # No counter: it would come out of Prometheus as _bucket_total.
                    meter.create_observable_up_down_counter(series, callbacks, "", metric.help)

    def _observed(
        self, name: str, metric: MetricDefinition, part: _Part, _: CallbackOptions
    ) -> Iterable[Observed]:
        return self._read(name, metric, part)

    @guarded("otlp", default=(), interrupting="run")
    def _read(self, name: str, metric: MetricDefinition, part: _Part) -> Iterable[Observed]:
        readings = self.readings
        if readings is None:
            return ()
        rows = readings.rows(name, metric)
        return [found for labels, value in rows for found in part(metric, labels, value)]


def observe(readings: Readings, provider: MeterProvider, *, histograms: bool = True) -> None:
    """Show the catalogue in a provider of metrics; another call for it takes the place of the last.

    Args:
        readings: what is shown.
        provider: where it is collected.
        histograms: whether histograms are observed too, as three series each.
    """
    observation = _observations.get(provider)
    if observation is None:
        observation = Observation(provider.get_meter(SCOPE, __version__), histograms=histograms)
        _observations[provider] = observation
    observation.readings = readings


_observations: Final[WeakKeyDictionary[MeterProvider, Observation]] = WeakKeyDictionary()


def _number(metric: MetricDefinition, labels: tuple[str, ...], value: float) -> Iterator[Observed]:
    yield Observed(value, attributes(metric, labels))


def _buckets(
    metric: MetricDefinition, labels: tuple[str, ...], value: Buckets
) -> Iterator[Observed]:
    told = attributes(metric, labels)
    bounds = (*(str(float(bound)) for bound in value.bounds), "+Inf")
    for bound, count in zip(bounds, accumulate(value.counts), strict=True):
        yield Observed(count, {**told, "le": bound})


def _sum(metric: MetricDefinition, labels: tuple[str, ...], value: Buckets) -> Iterator[Observed]:
    yield Observed(value.total, attributes(metric, labels))


def _count(metric: MetricDefinition, labels: tuple[str, ...], value: Buckets) -> Iterator[Observed]:
    yield Observed(sum(value.counts), attributes(metric, labels))

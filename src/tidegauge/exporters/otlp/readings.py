"""What an engine shows, in the form in which OpenTelemetry asks for it: a metric at a time."""

from __future__ import annotations

from collections.abc import Iterable

from tidegauge.catalog import MetricDefinition
from tidegauge.exporters.prometheus.families import Family, More, PlaceLabel, Row, read_families
from tidegauge.streaming_metrics.engine import Engine

__all__ = ["Readings", "attributes", "otlp_name", "otlp_unit"]


class Readings:
    """The metrics of an engine, where every collection takes one snapshot.

    A collection asks for one metric after another and does not say when it begins. But it asks for
    each only once: so whoever asks for what it was already given begins another collection.

    Args:
        engine: what is read.
        place_label: what is shown of a place; left out, places are not shown.
        more: tells metrics that are none of the engine's.

    >>> from tidegauge import catalog
    >>> from tidegauge.events import RunStarted
    >>> engine = Engine()
    >>> readings = Readings(engine)
    >>> readings.rows("a", catalog.RUNS_ACTIVE)
    ()
    >>> engine.run_started(RunStarted(run="r1", agent="browser", task_group="shop"))
    >>> readings.rows("b", catalog.RUNS_ACTIVE)  # still the same collection
    ()
    >>> readings.rows("a", catalog.RUNS_ACTIVE)
    [(('browser', 'shop'), 1.0)]
    """

    def __init__(
        self, engine: Engine, *, place_label: PlaceLabel | None = None, more: More | None = None
    ) -> None:
        self._engine: Engine | None = engine
        self._place_label = place_label
        self._more = more
        self._families: dict[MetricDefinition, Family] = {}
        self._given: set[str] | None = None

    def rows(self, asker: str, metric: MetricDefinition) -> Iterable[Row]:
        """The series of a metric.

        Args:
            asker: the name of the instrument that asks.
            metric: what it asks for.
        """
        engine = self._engine
        if engine is None:
            return ()
        if self._given is None or asker in self._given:
            families = read_families(engine, place_label=self._place_label, more=self._more)
            self._families = {family.metric: family for family in families}
            self._given = set()
        self._given.add(asker)
        family = self._families.get(metric)
        return () if family is None else family.rows

    def close(self) -> None:
        """Show nothing any more: instruments that were made for it cannot be taken back."""
        self._engine = None
        self._families = {}


def otlp_name(metric: MetricDefinition) -> str:
    """Its name without ``_total``, which whoever makes Prometheus' metrics of OTLP's adds.

    >>> from tidegauge import catalog
    >>> otlp_name(catalog.STEPS)
    'tidegauge_steps'
    """
    return metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name


def otlp_unit(metric: MetricDefinition) -> str:
    """Its unit in UCUM, so that no second unit is added to the name in Prometheus.

    Names tell seconds already; what UCUM has no unit for is an annotation, which is left out.

    >>> from tidegauge import catalog
    >>> otlp_unit(catalog.LOOP_SECONDS), otlp_unit(catalog.STEPS), otlp_unit(catalog.RUN_PLACE)
    ('s', '{steps}', '')
    """
    if metric.unit == "seconds":
        return "s"
    return "" if metric.unit == "1" else f"{{{metric.unit}}}"


def attributes(metric: MetricDefinition, labels: tuple[str, ...]) -> dict[str, str]:
    """The labels of one series with their names."""
    return dict(zip(metric.labels, labels, strict=True))

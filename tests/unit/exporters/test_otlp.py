"""The catalogue in a provider of metrics of the application's, and in what an exporter sends."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    InMemoryMetricReader,
    MetricExporter,
    MetricExportResult,
    PeriodicExportingMetricReader,
)

import tidegauge
from support.otlp_metrics import meet_everything, scraped
from tidegauge.catalog import SPANS_LATE
from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step
from tidegauge.exporters.otlp import OtlpExporter, otlp_name, otlp_unit
from tidegauge.exporters.reading import Reader
from tidegauge.safety.guard import internal_errors
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.registry import METRICS
from tidegauge.testing import capture


class Application:
    """An application that has set up its metrics."""

    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.provider = MeterProvider([self.reader], shutdown_on_exit=False)

    def metrics(self):
        data = self.reader.get_metrics_data()
        return {
            metric.name: metric
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }

    def series(self):
        """Every series of ours, as Prometheus names them."""
        series = {}
        for name, metric in self.metrics().items():
            if name.startswith("tidegauge_"):
                shown = name + "_total" if getattr(metric.data, "is_monotonic", False) else name
                for point in metric.data.data_points:
                    series[shown, frozenset(point.attributes.items())] = point.value
        return series

    def steps(self):
        return [point.value for point in self.metrics()["tidegauge_steps"].data.data_points]


class Kept(MetricExporter):
    """An exporter that keeps what it is to send."""

    def __init__(self, temporality=AggregationTemporality.CUMULATIVE) -> None:
        super().__init__(preferred_temporality={Histogram: temporality})
        self.sent = []
        self.closed = False

    def export(self, metrics_data, timeout_millis=10_000, **kwargs):
        [resource] = metrics_data.resource_metrics
        self.sent.append(
            {metric.name: metric for one in resource.scope_metrics for metric in one.metrics}
        )
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis=10_000):
        return True

    def shutdown(self, timeout_millis=30_000, **kwargs):
        self.closed = True


@pytest.fixture
def application():
    return Application()


def engine_with(steps: int, run: str = "r1") -> Engine:
    engine = Engine()
    engine.run_started(RunStarted(run=run, agent="a", task_group="g"))
    more_steps(engine, steps, run)
    return engine


def exporting(engine: Engine) -> OtlpExporter:
    exporter = OtlpExporter()
    exporter.start(Reader(engine))
    return exporter


def more_steps(engine: Engine, steps: int, run: str = "r1") -> None:
    for _ in range(steps):
        engine.step_issued(Step(run, (Call("look"),)))
        engine.step_observed(Outcome(run, (CallResult("nothing"),), seconds=0.5))


def test_the_application_s_provider_has_every_series_that_is_scraped(application):
    settings = {"meter_provider": application.provider, "otlp_metrics": True}
    with capture(stop_on_loop=3, **settings) as seen:
        meet_everything()
        assert application.series() == scraped(seen.pipeline)


def test_the_application_s_provider_gets_nothing_unasked(application):
    with capture(meter_provider=application.provider):
        meet_everything()
        assert application.series() == {}


def test_names_and_units_give_back_the_catalogue_s_names():
    for metric in METRICS:
        name, unit = otlp_name(metric), otlp_unit(metric)
        assert (name + "_total" if metric.kind == "counter" else name) == metric.name
        assert unit in ("", "s") or (unit[0], unit[-1]) == ("{", "}")
        assert unit != "s" or "seconds" in name.split("_")


def test_a_collection_is_one_snapshot(application, monkeypatch):
    engine, taken = engine_with(3), []
    snapshot = engine.snapshot
    monkeypatch.setattr(engine, "snapshot", lambda: taken.append(1) or snapshot())  # type: ignore[func-returns-value]
    exporting(engine).observe(application.provider)
    for collections in (1, 2, 3):
        application.metrics()
        assert len(taken) == collections


def test_metrics_that_are_none_of_the_engine_s(application):
    exporter = OtlpExporter()
    exporter.observe(application.provider)
    assert application.series() == {}  # not started
    exporter.start(Reader(Engine(), more=lambda: {SPANS_LATE: {(): 7}}))
    assert application.series()["tidegauge_receiver_late_spans_total", frozenset()] == 7


def test_a_second_pipeline_takes_the_first_one_s_place(application):
    settings = {"meter_provider": application.provider, "otlp_metrics": True}
    for steps in (2, 5):
        with capture(**settings), tidegauge.run(agent="a") as run:
            for _ in range(steps):
                run.act("look")
                run.observe("nothing")
            assert application.steps() == [steps]
    assert application.series() == {}  # both are closed


def test_a_closed_engine_is_let_go(application):
    exporter = exporting(engine_with(1))
    exporter.observe(application.provider)
    assert application.steps() == [1]
    exporter.close()
    assert application.series() == {}


@pytest.mark.usefixtures("faults_are_swallowed")
def test_a_fault_costs_what_could_not_be_read(application, monkeypatch):
    engine = engine_with(1)
    exporting(engine).observe(application.provider)
    monkeypatch.setattr(engine, "snapshot", lambda: 1 // 0)
    assert {name for name, _ in application.series()} == {"tidegauge_internal_errors_total"}
    assert internal_errors.counts()["exporters"] >= 1


class TestHistograms:
    @staticmethod
    def pushed(engine, exporter):
        ours = exporting(engine)
        reader = PeriodicExportingMetricReader(
            ours.with_histograms(exporter), export_interval_millis=1e9
        )
        provider = MeterProvider([reader], shutdown_on_exit=False)
        ours.observe(provider, histograms=False)
        return provider

    def test_they_go_with_the_rest_and_of_the_same_snapshot(self, monkeypatch):
        engine, taken, kept = engine_with(3), [], Kept()
        snapshot = engine.snapshot
        monkeypatch.setattr(engine, "snapshot", lambda: taken.append(1) or snapshot())  # type: ignore[func-returns-value]
        provider = self.pushed(engine, kept)
        provider.force_flush()
        provider.force_flush()
        assert len(taken) == len(kept.sent) == 2
        provider.shutdown()
        assert kept.closed
        seconds = kept.sent[0]["tidegauge_step_duration_seconds"]
        assert (seconds.unit, len(kept.sent[0]["tidegauge_steps"].data.data_points)) == ("s", 1)
        [point] = seconds.data.data_points
        assert (point.count, point.sum, sum(point.bucket_counts)) == (3, 1.5, 3)
        assert point.attributes == {"agent": "a", "task_group": "g"}
        assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
        assert not [name for name in kept.sent[0] if name.endswith("_bucket")]

    @pytest.mark.parametrize(
        ("temporality", "counts"),
        [(AggregationTemporality.CUMULATIVE, [3, 5, 5]), (AggregationTemporality.DELTA, [3, 2, 0])],
    )
    def test_they_are_reported_as_the_exporter_wants_them(self, temporality, counts):
        engine, kept = engine_with(3), Kept(temporality)
        provider = self.pushed(engine, kept)
        provider.force_flush()
        more_steps(engine, 2)
        provider.force_flush()
        provider.force_flush()
        found = [sent["tidegauge_step_duration_seconds"].data for sent in kept.sent]
        assert [data.aggregation_temporality for data in found] == [temporality] * 3
        points = [data.data_points[0] for data in found]
        assert [point.count for point in points] == counts
        assert [point.sum for point in points] == [count / 2 for count in counts]
        starts = [point.start_time_unix_nano for point in points]
        if temporality is AggregationTemporality.DELTA:
            assert starts[1:] == [point.time_unix_nano for point in points[:2]]
        else:
            assert len(set(starts)) == 1
        provider.shutdown()

    @pytest.mark.usefixtures("faults_are_swallowed")
    def test_a_fault_costs_the_histograms_and_not_the_rest(self, monkeypatch):
        kept = Kept()
        provider = self.pushed(engine_with(1), kept)
        monkeypatch.setattr("tidegauge.exporters.otlp._exemplars", lambda *_: 1 // 0)
        provider.force_flush()
        assert "tidegauge_steps" in kept.sent[0]
        assert "tidegauge_step_duration_seconds" not in kept.sent[0]
        assert internal_errors.counts() == {"otlp": 1}
        provider.shutdown()

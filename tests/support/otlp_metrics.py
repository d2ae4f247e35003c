"""What arrived over OTLP as Prometheus would have it, and an agent that meets every metric."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families

import tidegauge
from support.otlp_receiver import ReceivedPoint
from tidegauge.catalog import MetricDefinition
from tidegauge.events import Task
from tidegauge.exporters.prometheus.collector import write_text
from tidegauge.exporters.reading import read_families
from tidegauge.pipeline import Pipeline
from tidegauge.streaming_metrics.registry import METRICS

Series: TypeAlias = dict[tuple[str, frozenset[tuple[str, str]]], float]

CATALOGUE = {metric.name.removesuffix("_total"): metric for metric in METRICS}


def meet_everything() -> None:
    """Runs after which, with ``stop_on_loop=3``, every metric of finished runs is measured."""
    with tidegauge.run(agent="a", task="find it", t_max=5, memory="on", operations=3) as run:
        run.act("find", {"handle": object()}, entropy=0.5)  # by an address: not comparable
        run.observe("found", progress=1.0)
        run.finish(success=True)
    with tidegauge.run(agent="a", t_max=5, memory="off") as run:
        run.finish(success=False)
    with contextlib.suppress(tidegauge.RunStopped), tidegauge.run(agent="a", t_max=5) as run:
        for _ in range(9):
            run.act("look", state="here", tokens=10)
            run.observe("nothing", error=True)


@contextlib.contextmanager
def explorer() -> Iterator[None]:
    """A run that goes on: with :func:`meet_everything`, every metric there is."""
    with tidegauge.run(agent="a", t_max=5, place="hall", exits=["kitchen"]) as run:
        run.act("look", mentions=["knife"])
        run.act("find", uses=["knife"], entropy=0.5)
        run.observe("part 1", progress=0.5, place="kitchen", tasks=[Task("cook")])
        for _ in range(2):  # once more: it is in a loop
            run.act("wait", state="there", tokens=10)
            run.observe("nothing")
        yield


def scraped(pipeline: Pipeline) -> Series:
    """Every series of ``/metrics`` now."""
    place_label = pipeline.recorder.spans.exported_place
    families = read_families(pipeline.engine, place_label=place_label, more=pipeline.more_metrics)
    text = write_text(families).decode()
    return {
        (sample.name, _labels(sample.labels)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def as_prometheus(points: Iterable[ReceivedPoint]) -> Series:
    """The series that Prometheus makes of them, by OpenTelemetry's rules for that."""
    series: Series = {}
    for point in points:
        name = _prometheus_name(point)
        labels = {key: str(value) for key, value in point.attributes.items()}
        if point.kind != "histogram":
            series[name, _labels(labels)] = point.value
            continue
        bounds = [*map(str, map(float, point.raw.explicit_bounds)), "+Inf"]
        counts = itertools.accumulate(point.raw.bucket_counts)
        for bound, count in zip(bounds, counts, strict=True):
            series[f"{name}_bucket", _labels({**labels, "le": bound})] = count
        series[f"{name}_sum", _labels(labels)] = point.raw.sum
        series[f"{name}_count", _labels(labels)] = point.raw.count
    return series


def of_catalogue(points: Sequence[ReceivedPoint]) -> list[tuple[MetricDefinition, ReceivedPoint]]:
    """Those of our own metrics, each with its definition."""
    return [(CATALOGUE[one.metric], one) for one in points if one.metric in CATALOGUE]


def ours(points: Iterable[ReceivedPoint]) -> list[ReceivedPoint]:
    """Those whose name is ours: not the conventions'."""
    return [point for point in points if point.metric.startswith("tidegauge_")]


def _prometheus_name(point: ReceivedPoint) -> str:
    name = re.sub(r"[^a-zA-Z0-9_:]", "_", point.metric)
    counter = point.kind == "sum" and point.monotonic
    name = name.removesuffix("_total") if counter else name
    unit = {"s": "seconds", "1": "ratio" if point.kind == "gauge" else ""}.get(
        re.sub(r"\{.*?\}", "", point.unit), re.sub(r"\{.*?\}", "", point.unit)
    )
    if unit and unit not in name.split("_"):
        name += f"_{unit}"
    return name + "_total" if counter else name


def _labels(labels: dict[str, str]) -> frozenset[tuple[str, str]]:
    return frozenset(labels.items())

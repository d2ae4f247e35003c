"""The catalogue: complete, legal for Prometheus, and what the docs say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from tidegauge import catalog
from tidegauge.catalog import GROUP_LABELS, METRICS, Kind, MetricDefinition

DOCS = Path(__file__).parents[2] / "docs" / "prometheus.md"
SUFFIXES = {
    "counter": ("_total", "_created"),
    "gauge": ("",),
    "histogram": ("", "_bucket", "_sum", "_count", "_created"),
}


def family_name(metric: MetricDefinition) -> str:
    return metric.name.removesuffix("_total")


def test_every_definition_is_listed_once() -> None:
    defined = [value for value in vars(catalog).values() if isinstance(value, MetricDefinition)]
    assert {metric.name for metric in METRICS} == {metric.name for metric in defined}
    assert len(METRICS) == len(defined)


def test_names_and_labels_are_legal() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"tidegauge_[a-z][a-z0-9_]*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.kind in get_args(Kind)
        assert len(set(metric.labels)) == len(metric.labels)
        assert not {"job", "instance", "le"} & set(metric.labels)


def test_no_series_of_one_metric_could_be_of_another() -> None:
    series = [family_name(metric) + end for metric in METRICS for end in SUFFIXES[metric.kind]]
    assert len(set(series)) == len(series)


def test_all_but_health_are_told_by_agent_and_task_group() -> None:
    health = {catalog.INTERNAL_ERRORS, catalog.EVICTED_RUNS, catalog.DROPPED_EVENTS}
    health |= {*catalog.RECEIVER, *catalog.RECORDING, catalog.FAILED_JUDGEMENTS}
    health |= {*catalog.SPAN_FAULTS}
    health |= {catalog.DROPPED_JUDGEMENTS, *catalog.DECISIONS, *catalog.WORKER}
    assert health == {metric for metric in METRICS if metric.labels[:2] != GROUP_LABELS}


def test_help_is_one_plain_sentence_or_more() -> None:
    # Written to the wire as it is: nothing in it may need an escape.
    for metric in METRICS:
        assert re.fullmatch(r'[A-Z][^\\"\n|]+\.', metric.help), metric.name


def test_metrics_with_known_values_have_a_label_for_them() -> None:
    for metric in METRICS:
        if metric.values:
            alone = metric in catalog.RECEIVER + catalog.RECORDING + catalog.JUDGING
            alone = alone or metric in catalog.SPAN_FAULTS
            alone = alone or metric in catalog.DECISIONS + catalog.WORKER
            before = 0 if alone else 3 if metric in catalog.POLICY else len(GROUP_LABELS)
            assert len(metric.labels) == before + 1


def test_the_table_in_the_docs_is_the_catalogue() -> None:
    assert catalog.metrics_table() in DOCS.read_text(), (
        "write the table anew: python -c "
        "'from tidegauge.catalog import metrics_table; print(metrics_table())'"
    )

"""The catalogue: complete, legal for Prometheus, and what the docs say."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path
from typing import get_args

from tidegauge import catalog, streaming_metrics
from tidegauge.catalog import GROUP_LABELS, MetricDefinition, MetricKind
from tidegauge.streaming_metrics.declaration import Declaration, GroupDeclaration
from tidegauge.streaming_metrics.registry import GROUPS, METRICS, RUNS, metrics_tables

DOCS = Path(__file__).parents[2] / "docs" / "prometheus.md"
SUFFIXES = {
    "counter": ("_total", "_created"),
    "gauge": ("",),
    "histogram": ("", "_bucket", "_sum", "_count", "_created"),
}


def family_name(metric: MetricDefinition) -> str:
    return metric.name.removesuffix("_total")


def test_every_definition_is_listed_once() -> None:
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.iter_modules(
            streaming_metrics.__path__, "tidegauge.streaming_metrics."
        )
    ]
    defined = {
        value.name
        for module in (catalog, *modules)
        for value in vars(module).values()
        if isinstance(value, MetricDefinition)
    }
    unlisted = defined - {metric.name for metric in METRICS}
    assert not unlisted, (
        f"{sorted(unlisted)} are defined and not in the catalogue. Name them in the declaration of "
        "their metric, and the declaration in streaming_metrics/registry.py."
    )
    assert {metric.name for metric in METRICS} == defined
    assert len(METRICS) == len(defined)


def test_every_declaration_of_a_module_is_in_the_registry() -> None:
    declared = [
        value
        for module in pkgutil.iter_modules(
            streaming_metrics.__path__, "tidegauge.streaming_metrics."
        )
        for value in vars(importlib.import_module(module.name)).values()
        if isinstance(value, Declaration | GroupDeclaration)
    ]
    missing = [one.name for one in declared if not any(one is known for known in (*RUNS, *GROUPS))]
    assert not missing, f"Add {missing} to RUNS or GROUPS in streaming_metrics/registry.py."


def test_names_and_labels_are_legal() -> None:
    for metric in METRICS:
        assert re.fullmatch(r"tidegauge_[a-z][a-z0-9_]*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.kind in get_args(MetricKind)
        assert len(set(metric.labels)) == len(metric.labels)
        assert not {"job", "instance", "le"} & set(metric.labels)


def test_no_series_of_one_metric_could_be_of_another() -> None:
    series = [family_name(metric) + end for metric in METRICS for end in SUFFIXES[metric.kind]]
    assert len(set(series)) == len(series)


def test_all_but_health_are_reported_by_agent_and_task_group() -> None:
    health = {catalog.INTERNAL_ERRORS, catalog.EVICTED_RUNS, catalog.DROPPED_EVENTS}
    health |= {catalog.STARTED, catalog.RUN_STORE_FAILURES, catalog.UNKNOWN_RESUMES}
    health |= {*catalog.RECEIVER, *catalog.RECORDING, catalog.FAILED_JUDGEMENTS}
    health |= {*catalog.SPAN_FAULTS, *catalog.SAMPLING, catalog.NAMES_BEYOND_LIMIT}
    health |= {catalog.DROPPED_JUDGEMENTS, *catalog.DECISIONS, *catalog.WORKER, *catalog.LIMITS}
    assert health == {metric for metric in METRICS if metric.labels[:2] != GROUP_LABELS}


def test_help_is_one_plain_sentence_or_more() -> None:
    # Written to the wire as it is: nothing in it may need an escape.
    for metric in METRICS:
        assert re.fullmatch(r'[A-Z][^\\"\n|]+\.', metric.help), metric.name


def test_metrics_with_known_values_have_a_label_for_them() -> None:
    for metric in METRICS:
        if metric.values:
            alone = metric in catalog.RECEIVER + catalog.RECORDING + catalog.JUDGING
            alone = alone or metric in (
                *catalog.SPAN_FAULTS,
                *catalog.SAMPLING,
                catalog.NAMES_BEYOND_LIMIT,
            )
            alone = alone or metric in catalog.DECISIONS + catalog.WORKER + catalog.LIMITS
            before = 0 if alone else 3 if metric in catalog.POLICY else len(GROUP_LABELS)
            assert len(metric.labels) == before + 1


def with_the_tables(page: str) -> str:
    """The page with the tables of the catalogue as they must be."""
    begin = page.index("### Counters by agent and task group")
    return page[:begin] + metrics_tables() + page[page.index("\n\n## ", begin) :]


def test_the_tables_in_the_docs_are_the_catalogue() -> None:
    page = DOCS.read_text()
    assert page == with_the_tables(page), (
        "docs/prometheus.md is out of date. Run: .venv/bin/python tests/unit/test_catalog.py"
    )


if __name__ == "__main__":
    DOCS.write_text(with_the_tables(DOCS.read_text()))

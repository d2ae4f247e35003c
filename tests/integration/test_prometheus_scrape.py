"""A real Prometheus scrapes a live pipeline: what it computes is what the metrics say."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidegauge
from support.prometheus import Prometheus
from support.servers import SharedPrometheus
from tidegauge.catalog import (
    DECISIONS,
    JUDGING,
    LIMITS,
    POLICY,
    RECEIVER,
    RUN_STORE_FAILURES,
    SAMPLING,
    SESSION_METRICS,
    SPAN_FAULTS,
    UNKNOWN_RESUMES,
    WORKER,
)
from tidegauge.streaming_metrics import IssuedStep, Loops
from tidegauge.streaming_metrics.registry import METRICS
from tidegauge.testing import capture

pytestmark = pytest.mark.system

DOCS = Path(__file__).parents[2] / "docs" / "prometheus.md"
ODD_NAME = 'a "quoted"\\ one\nin two lines\t\x00\x85 ünïcode \udc80'

EXPLORING = [(f"page {number}", "open") for number in range(7)]
ROUND = [("cart", "open"), ("shipping", "choose"), ("address", "type")]
STEPS = [*EXPLORING, *ROUND * 6, *EXPLORING[:2], *ROUND * 2]


@pytest.fixture(autouse=True)
def pipeline(prometheus: SharedPrometheus, tmp_path: Path) -> Iterator[None]:
    recording = tmp_path / "runs.jsonl"
    with capture(serve_metrics=True, metrics_port=prometheus.port, record_to=recording) as seen:
        assert seen.pipeline.metrics_url is not None
        yield


def shop(run: tidegauge.Run) -> None:
    """A plain agent that looks around, then goes in circles."""
    for (state, action), (ahead, _) in zip(STEPS, [*STEPS[1:], STEPS[0]], strict=True):
        entity = [f"link to {state}"]
        run.act(action, {"on": state}, state=state, tokens=10, uses=entity, mentions=entity)
        run.observe(f"did {action} on {state}", progress=0.25, place=state, exits=["help", ahead])


@pytest.mark.end_to_end
def test_the_loop_ratio_of_a_live_run_is_that_of_the_metric(prometheus: Prometheus) -> None:
    loops = Loops()
    for t, (state, action) in enumerate(STEPS):
        loops.update(IssuedStep(t, state.encode(), f"{action} on {state}".encode(), action))
    with tidegauge.run(agent="shopper", task_group="shop", t_max=50) as run:
        shop(run)
        prometheus.wait_for(
            "sum(tidegauge_steps_total)", lambda found: found and found[0].value == len(STEPS)
        )
        ratio = prometheus.value("sum(tidegauge_loop_steps_total) / sum(tidegauge_steps_total)")
        assert ratio == loops.value
        assert ratio is not None
        assert ratio > 0.5
        repeats = prometheus.value(f'tidegauge_run_loop_repeats{{run="{run.id}"}}')
        assert repeats == loops.repeats
    prometheus.wait_for(f'tidegauge_run_steps{{run="{run.id}"}}', lambda found: not found)


def test_every_metric_and_every_query_of_the_docs_is_answered(prometheus: Prometheus) -> None:
    for memory, success in (("on", True), ("off", False)):
        with tidegauge.run(
            agent="a", task_group="g", task="buy", t_max=50, memory=memory, operations=9
        ) as run:
            shop(run)
            run.act("lock", object(), entropy=0.5)  # not comparable
            run.observe("locked")
            run.finish(success=success)
    with tidegauge.run(agent="a", task_group="g", t_max=50) as run:  # without a loop
        run.act("look")
        run.observe("nothing")
        run.finish(success=True)
    with (
        tidegauge.run(agent="a", task_group="g", t_max=50) as looping,
        tidegauge.run(agent="a", task_group="g", t_max=50) as run,
    ):
        shop(looping)
        shop(run)
        run.act("wait", entropy=0.5)
        run.observe("nothing")
        prometheus.wait_for(
            'count_over_time(tidegauge_runs_active{agent="a"}[1m])',
            lambda found: found and found[0].value >= 3,
        )
        elsewhere = [*RECEIVER, *POLICY, *JUDGING, *DECISIONS, *WORKER, *SPAN_FAULTS, *SAMPLING]
        elsewhere += (*SESSION_METRICS, *LIMITS, RUN_STORE_FAILURES, UNKNOWN_RESUMES)
        for metric in [one for one in METRICS if one not in elsewhere]:
            name = metric.name + ("_bucket" if metric.kind == "histogram" else "")
            for sample in prometheus.query(name):
                assert set(metric.labels) & {"agent", "task_group", "run"} <= set(sample.labels)
            assert prometheus.query(name), name
        queries = re.findall(r"```promql\n(.*?)```", DOCS.read_text(), re.DOTALL)
        assert len(queries) > 10
        for query in queries:
            assert prometheus.query(query), query


def test_names_that_nobody_should_give_are_scraped(prometheus: Prometheus) -> None:
    with tidegauge.run(agent=ODD_NAME, task_group=ODD_NAME, memory=ODD_NAME, t_max=9) as run:
        for _ in range(3):
            run.act(ODD_NAME, state="here")
            run.observe("nothing")
        found = prometheus.wait_for('tidegauge_run_steps{agent=~"(?s)a .*"}', bool)
        assert prometheus.scrape_error() == ""
    [sample] = found
    assert sample.labels["agent"].startswith(
        'a "quoted"\\ one\nin two lines\t\x00\x85 ünïcode \\udc80…'
    )

"""A real Prometheus and several processes: sums are those of a replay; exemplars lead to traces."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from support.prometheus import Prometheus, scraping
from tidegauge.cli.main import cli

WORKERS = 2

# As a server that forks its workers does it: each of them is configured after the fork.
PROGRAM = """
import json, os, pathlib, sys
import tidegauge
from opentelemetry.sdk.trace import TracerProvider

folder = pathlib.Path(sys.argv[1])

def configured():
    pipeline = tidegauge.configure(
        metrics_port=0,
        record_to=folder / "runs-{pid}.jsonl",
        tracer_provider=TracerProvider(shutdown_on_exit=False),
    )
    target = pipeline.metrics_url.removeprefix("http://").removesuffix("/metrics")
    found = folder / "targets" / f"{os.getpid()}.json"
    found.with_suffix(".new").write_text(json.dumps([{"targets": [target]}]))
    found.with_suffix(".new").replace(found)
    return pipeline

def agents(number):
    for attempt in range(3 + number):
        with tidegauge.run(agent="shopper", task_group="shop", t_max=20) as run:
            for t in range(10 + attempt):
                run.act("look" if t < 4 else "click", state=t if t < 4 else t % (2 + number))
                run.observe("page", error=t % 2 == 0)
            run.finish(success=attempt % 2 == 0)

configured()  # what the parent has before it forks does not disturb
children = []
for number in range(int(sys.argv[2])):
    going, stop = os.pipe()
    child = os.fork()
    if not child:
        os.close(stop)
        pipeline = configured()
        agents(number)
        os.read(going, 1)  # until the parent is gone
        pipeline.shutdown()
        os._exit(0)
    children.append((child, stop))
sys.stdin.read()
for child, stop in children:
    os.close(stop)
for child, _ in children:
    os.waitpid(child, 0)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("processes")
    (folder / "targets").mkdir()
    return folder


@pytest.fixture(scope="module")
def prometheus(folder: Path) -> Iterator[Prometheus]:
    """Scrapes the workers, which end when the tests do."""
    workers = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(folder), str(WORKERS)],
        stdin=subprocess.PIPE,
        env=os.environ | {"OTEL_EXPORTER_OTLP_ENDPOINT": ""},
    )
    try:
        with scraping(None, folder, flags=["--enable-feature=exemplar-storage"]) as prometheus:
            yield prometheus
    finally:
        assert workers.stdin is not None
        workers.stdin.close()
        try:
            assert workers.wait(30) == 0
        finally:
            workers.kill()


def test_sums_over_processes_are_those_of_the_replay(folder: Path, prometheus: Prometheus) -> None:
    runs = sum(3 + number for number in range(WORKERS))
    prometheus.wait_for(
        "sum(tidegauge_runs_finished_total)", lambda found: found and found[0].value == runs
    )
    files = [str(path) for path in folder.glob("runs-*.jsonl") if path.stat().st_size]
    assert len(files) == WORKERS
    ran = CliRunner().invoke(cli, ["replay", "--json", "--strict", *files])
    assert (ran.exit_code, ran.stderr) == (0, "")
    document = json.loads(ran.stdout)
    [group] = document["groups"]
    steps = sum(run["steps"] for run in document["runs"])
    assert group["runs"] == runs
    assert 0 < group["loop_ratio"] < 1
    for expression, expected in {
        "sum(tidegauge_steps_total)": steps,
        "sum(tidegauge_loop_steps_total)": sum(run["loop_steps"] for run in document["runs"]),
        "sum(tidegauge_loop_steps_total) / sum(tidegauge_steps_total)": group["loop_ratio"],
        "sum(tidegauge_auv_sum_total) / sum(tidegauge_auv_runs_total)": group["auv"],
        'sum(tidegauge_runs_finished_total{outcome="success"})'
        ' / sum(tidegauge_runs_finished_total{outcome!="unknown"})': group["success_rate"],
        "sum(tidegauge_step_duration_seconds_count)": steps,
        "sum(tidegauge_recorded_lines_total)": steps + 2 * runs,
        "sum(tidegauge_dropped_lines_total)": 0,
    }.items():
        assert prometheus.value(expression) == pytest.approx(expected), expression


def test_exemplars_are_traces_of_runs(folder: Path, prometheus: Prometheus) -> None:
    prometheus.wait_for("sum(tidegauge_loops_total)", bool)
    traces = {
        json.loads(line)["trace_id"]
        for path in folder.glob("runs-*.jsonl")
        for line in path.read_bytes().splitlines()
        if json.loads(line)["type"] == "start"
    }
    assert len(traces) == sum(3 + number for number in range(WORKERS))
    now = time.time()
    for metric in ("tidegauge_loops_total", "tidegauge_step_duration_seconds_bucket"):
        found = prometheus.get(
            "/api/v1/query_exemplars", query=metric, start=str(now - 600), end=str(now + 60)
        )
        shown = {one["labels"]["trace_id"] for series in found for one in series["exemplars"]}
        assert shown
        assert shown <= traces

"""``configure(export="troubled")`` over OTLP: a real exporter, a real receiver, many runs."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from support.otlp_receiver import grpc_receiver, http_receiver
from support.processes import run_python

RUNS = """
import json, sys, threading
import tidegauge
from tidegauge.errors import RunStopped

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])

def agent(number):
    kind = KINDS.get(number % 100, "healthy")
    agent = "guarded" if kind == "stopped" else "agent"
    try:
        with tidegauge.run(agent=agent, run_id=f"r{number}") as run:
            for step in range(4):
                same = kind in ("loop", "stopped")
                run.act("look", {"page": 0 if same else step})
                tokens = 900 if kind == "cost" else 100
                run.observe("page" if same else f"page {step}", tokens=tokens)
            if kind == "error":
                raise KeyError
            if kind == "failure":
                run.finish(success=False)
    except (KeyError, RunStopped):
        pass
    return run.id, kind

KINDS = {7: "loop", 23: "stopped", 41: "error", 60: "failure", 99: "cost"}
"""

SOAK = (
    RUNS
    + """
pipeline = tidegauge.configure(
    export="troubled", sample=0.02, serve_metrics=False,
    rules=[tidegauge.policies.Rule("loop_repeats", 2, "stop", agent="guarded")],
)
from tidegauge.runs.recorder import RecordedRun
traces, sizes, kinds = {}, [], {}
end = RecordedRun.end
def noted(self, **given):
    traces[self.id] = self.event.trace_id
    return end(self, **given)
RecordedRun.end = noted

count = int(sys.argv[1])
def work(first):
    for number in range(first, count, 4):
        name, kind = agent(number)
        kinds[name] = kind
        if number % (count // 10) == 0:
            sizes.append(resident())
threads = [threading.Thread(target=work, args=(first,)) for first in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
pipeline.force_flush()
counts = {
    metric.name: {labels[0]: value for labels, value in rows if value}
    for metric, rows, _ in pipeline.reader.families() if "sampling" in metric.name
}
finished = sum(
    value for metric, rows, _ in pipeline.reader.families()
    if metric.name == "tidegauge_runs_finished_total" for _, value in rows
)
print(json.dumps([kinds, traces, sizes, counts, finished]))
"""
)

OPEN = """
import tidegauge
tidegauge.configure(export="troubled", sample=0, serve_metrics=False)
with tidegauge.run(agent="done") as run:
    run.act("look")
    run.observe("x")
run = tidegauge.run(agent="open").__enter__()
run.act("look")
run.observe("x")
"""

HAS_ITS_OWN = """
import logging
logging.basicConfig(format="%(message)s")
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
trace.set_tracer_provider(TracerProvider(shutdown_on_exit=False))
import tidegauge
tidegauge.configure(export="troubled", serve_metrics=False)
"""


@pytest.mark.parametrize(
    ("protocol", "receiver"), [("http/protobuf", http_receiver), ("grpc", grpc_receiver)]
)
def test_only_troubled_runs_arrive(protocol: str, receiver: Any) -> None:
    with receiver() as arrived:
        done = run_python(
            SOAK.replace("sample=0.02", "sample=0"),
            100,
            OTEL_EXPORTER_OTLP_ENDPOINT=arrived.endpoint,
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
        )
        assert done.stderr == ""
        kinds = json.loads(done.stdout)[0]
    runs = {span.attributes.get("tidegauge.run.id") for span in arrived.spans} - {None}
    assert {kinds[run] for run in runs} == {"loop", "stopped", "error", "failure", "cost"}
    assert len(runs) == 5
    assert len(arrived.spans) == 4 * 5 + 4  # the stopped run took a step less
    assert {span.attributes["tidegauge.sample.ratio"] for span in arrived.spans} == {1.0}


def test_a_run_that_is_open_when_the_process_ends_is_exported() -> None:
    with http_receiver() as arrived:
        done = run_python(OPEN, OTEL_EXPORTER_OTLP_ENDPOINT=arrived.endpoint)
        assert done.stderr == ""
    assert [span.name for span in arrived.spans] == ["execute_tool look"]


def test_an_application_s_own_provider_is_left_alone_and_one_line_says_so() -> None:
    done = run_python(HAS_ITS_OWN)
    assert done.stderr.count("TroubledSpanProcessor") == 1
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_many_runs_of_which_few_are_troubled() -> None:
    share = 0.02
    with http_receiver() as arrived:
        done = run_python(SOAK, 10_000, OTEL_EXPORTER_OTLP_ENDPOINT=arrived.endpoint)
        kinds, traces, sizes, counts, finished = json.loads(done.stdout)
    troubled = {run for run, kind in kinds.items() if kind != "healthy"}
    drawn = {run for run, trace in traces.items() if int(trace[16:], 16) < share * 2**64}
    drawn -= troubled
    assert len(troubled) == 500
    assert 120 < len(drawn) < 270
    assert finished == len(kinds) == 10_000

    of_trace = {trace: run for run, trace in traces.items()}
    found = Counter(of_trace[span.trace_id.hex()] for span in arrived.spans)
    assert set(found) == troubled | drawn
    assert all(count == (4 if kinds[run] == "stopped" else 5) for run, count in found.items())
    for span in arrived.spans:
        run = of_trace[span.trace_id.hex()]
        assert span.attributes["tidegauge.sample.ratio"] == (1.0 if run in troubled else share)

    decisions = counts["tidegauge_sampling_decisions_total"]
    assert decisions.pop("sample") == len(drawn)
    assert decisions.pop("not_troubled") == 9_500 - len(drawn)
    assert decisions == dict.fromkeys(("loop", "stopped", "error", "failure", "cost"), 100)
    spans = 10_000 * 5 - 100
    dropped = counts["tidegauge_sampling_dropped_spans_total"]
    assert dropped == {"not_troubled": spans - len(arrived.spans)}
    assert max(sizes[5:]) < 1.1 * sizes[2], sizes


@pytest.mark.slow
def test_what_an_exporter_that_is_down_loses_is_counted() -> None:
    done = run_python(
        SOAK,
        1_000,
        OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9",
        OTEL_EXPORTER_OTLP_TIMEOUT="1",
    )
    kinds, traces, _, counts, finished = json.loads(done.stdout)
    troubled = {run for run, kind in kinds.items() if kind != "healthy"}
    drawn = {run for run, trace in traces.items() if int(trace[16:], 16) < 0.02 * 2**64}
    spans = 5 * len(troubled | drawn) - 10
    dropped = counts["tidegauge_sampling_dropped_spans_total"]
    assert dropped["export_failed"] + dropped.get("queue_full", 0) == spans
    assert finished == 1_000

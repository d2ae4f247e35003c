"""Metrics over the wire: the catalogue, pushed to a real collector, is what ``/metrics`` shows."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import tidegauge
from support.otlp_metrics import (
    as_prometheus,
    explorer,
    meet_everything,
    of_catalogue,
    ours,
    scraped,
)
from support.otlp_receiver import OtlpReceiver, grpc_receiver, http_receiver
from support.processes import run_python, without_otel
from support.requirements import needs_fork
from support.rotel import rotel
from tidegauge.catalog import (
    DECISIONS,
    JUDGING,
    LIMITS,
    POLICY,
    RECEIVER,
    RECORDING,
    RUN_STORE_FAILURES,
    SAMPLING,
    SESSION_METRICS,
    SPAN_FAULTS,
    UNKNOWN_RESUMES,
    WORKER,
)
from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step
from tidegauge.streaming_metrics.registry import METRICS

RECEIVERS = {"grpc": grpc_receiver, "http/protobuf": http_receiver}
DELTA, CUMULATIVE = 1, 2


@pytest.fixture(params=list(RECEIVERS))
def receiver(request, monkeypatch):
    """A collector that the standard variables of this process lead to."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    with RECEIVERS[request.param]() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", request.param)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "100")  # the machine may be busy
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
        monkeypatch.setenv("OTEL_SERVICE_NAME", "shopper")
        yield receiver


@pytest.fixture
def pipeline(receiver):
    pipeline = tidegauge.configure(
        serve_metrics=False, stop_on_loop=3, repetition=True, otlp_metrics=True
    )
    yield pipeline
    pipeline.shutdown()


def test_the_whole_catalogue_arrives_as_it_is_scraped(receiver, pipeline):
    meet_everything()
    with explorer():
        pipeline.force_flush()
        expected = scraped(pipeline)
    [points] = receiver.exports
    assert as_prometheus(ours(points)) == expected
    found = of_catalogue(points)
    elsewhere = (
        RECORDING,
        POLICY,
        LIMITS,
        JUDGING,
        RECEIVER,
        SAMPLING,
        SPAN_FAULTS,
        DECISIONS,
        WORKER,
        SESSION_METRICS,
        (RUN_STORE_FAILURES, UNKNOWN_RESUMES),
    )
    assert {metric for metric, _ in found} == set(METRICS).difference(*elsewhere)
    kinds = {"counter": ("sum", CUMULATIVE, True), "gauge": ("gauge", None, None)}
    for metric, point in found:
        reported = (point.kind, point.temporality, point.monotonic)
        assert reported == kinds.get(metric.kind, ("histogram", CUMULATIVE, None)), metric.name
        assert set(point.attributes) == set(metric.labels)
        assert point.scope == "tidegauge"
        assert point.resource["service.name"] == "shopper"


def test_what_was_counted_since_the_last_time_is_sent_when_deltas_are_preferred(
    receiver, monkeypatch
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    pipeline = tidegauge.configure(serve_metrics=False, stop_on_loop=3, otlp_metrics=True)
    meet_everything()
    pipeline.force_flush()
    first = scraped(pipeline)
    meet_everything()
    meet_everything()
    pipeline.force_flush()
    second = scraped(pipeline)
    pipeline.shutdown()
    assert as_prometheus(ours(receiver.exports[0])) == first
    sent = as_prometheus(ours(receiver.exports[1]))
    assert sent.keys() == second.keys()
    agent = frozenset({("agent", "a"), ("task_group", "")})
    assert sent["tidegauge_steps_total", agent] == 2 * first["tidegauge_steps_total", agent] == 10
    for (name, labels), value in sent.items():
        if name.endswith(("_total", "_bucket", "_sum", "_count")):
            assert value == pytest.approx(second[name, labels] - first[name, labels]), name
        else:
            assert value == second[name, labels]
    before = {point.metric: point.raw.time_unix_nano for point in receiver.exports[0]}
    for metric, point in of_catalogue(receiver.exports[1]):
        if metric.kind == "gauge":
            assert point.temporality is None
        else:
            assert point.temporality == DELTA
            assert point.raw.start_time_unix_nano == before[point.metric]


def test_exemplars_lead_to_the_run_s_trace(receiver, monkeypatch):
    monkeypatch.delenv("OTEL_TRACES_EXPORTER")
    pipeline = tidegauge.configure(serve_metrics=False, otlp_metrics=True)
    with tidegauge.run(agent="a") as run:
        run.act("look")
        run.observe("nothing")
    pipeline.shutdown()
    [root] = [span for span in receiver.spans if span.name == "invoke_agent a"]
    [steps] = [one for one in receiver.points if one.metric == "tidegauge_finished_run_steps"]
    [exemplar] = steps.raw.exemplars
    [trace] = exemplar.filtered_attributes
    assert (trace.key, trace.value.string_value) == ("trace_id", root.trace_id.hex())
    assert exemplar.as_double == 1


@pytest.mark.slow
def test_a_hostile_stream_stays_within_the_bounds_and_loses_no_series(receiver, pipeline):
    engine = pipeline.engine
    for number in range(300):
        run = f"r{number}"
        engine.run_started(RunStarted(run=run, agent=f"a{number}", task_group="g"))
        for action in range(60):
            for _ in range(3):
                engine.step_issued(Step(run, (Call(f"do {action}"),), state=action))
                engine.step_observed(Outcome(run, (CallResult("nothing"),)))
    pipeline.force_flush()
    [points] = receiver.exports
    assert as_prometheus(ours(points)) == scraped(pipeline)
    looped = [one for one in points if one.metric == "tidegauge_loop_steps"]
    assert 2_000 < len(looped) <= 201 * 51
    assert not [one for one in points if "otel.metric.overflow" in one.attributes]


@pytest.mark.system
@pytest.mark.parametrize("protocol", list(RECEIVERS))
def test_a_collector_of_somebody_else_passes_them_on_unchanged(protocol, monkeypatch, tmp_path):
    with grpc_receiver() as receiver, rotel(receiver.endpoint, tmp_path) as between:
        address = between.grpc_endpoint if protocol == "grpc" else between.http_endpoint
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
        pipeline = tidegauge.configure(serve_metrics=False, stop_on_loop=3, otlp_metrics=True)
        meet_everything()
        expected = scraped(pipeline)
        pipeline.shutdown()
        receiver.wait_until(lambda: as_prometheus(ours(receiver.points)).keys() >= expected.keys())
    assert as_prometheus(ours(receiver.points)) == expected


# What needs a process of its own.

AGENT = """
import os, sys, tidegauge
tidegauge.configure(serve_metrics=False)
with tidegauge.run(agent="a") as run:
    for _ in range(int(sys.argv[1])):
        run.act("look")
        run.observe("nothing")
"""
ASKED = {"OTEL_METRICS_EXPORTER": "otlp"}


def run_agent(*arguments, code=AGENT, **variables):
    return run_python(code, *arguments, OTEL_TRACES_EXPORTER="none", **variables)


@pytest.mark.parametrize(
    ("variables", "asked"),
    [
        ({}, False),  # an endpoint alone is no wish for metrics
        (ASKED, True),
        ({"OTEL_METRICS_EXPORTER": "prometheus, otlp"}, True),
        ({"OTEL_METRICS_EXPORTER": "none"}, False),
        ({**ASKED, "OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({**ASKED, "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_metrics_are_pushed_only_when_that_is_asked_for(variables, asked):
    with http_receiver() as receiver:
        done = run_agent(1, **{"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, **variables})
    assert receiver.paths == (["/v1/metrics"] if asked else [])
    assert done.stderr == ""


def counted(receiver: OtlpReceiver) -> dict[str, float]:
    """Steps by the process that counted them."""
    return {
        point.resource["service.instance.id"]: point.value
        for point in receiver.points
        if point.metric == "tidegauge_steps"
    }


def test_processes_of_one_service_are_distinguished():
    with http_receiver() as receiver:
        for number in (2, 3):
            run_agent(
                number,
                OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint,
                OTEL_SERVICE_NAME="shopper",
                **ASKED,
            )
        named = "OTEL_RESOURCE_ATTRIBUTES"
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": receiver.endpoint, **ASKED}
        run_agent(4, **variables, **{named: "service.instance.id=pod-7"})
    steps = counted(receiver)
    assert sorted(steps.values()) == [2, 3, 4]
    assert steps["pod-7"] == 4


FORKS = """
import os, sys, time, tidegauge
pipeline = tidegauge.configure(serve_metrics=False)
def agent(steps):
    with tidegauge.run(agent="a") as run:
        for _ in range(steps):
            run.act("look")
            run.observe("nothing")
child = os.fork()
agent(2 if child else 5)
pipeline.force_flush()
if not child:
    os._exit(0)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


@needs_fork
def test_a_forked_process_sends_its_own():
    with http_receiver() as receiver:
        run_agent(code=FORKS, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint, **ASKED)
    assert sorted(counted(receiver).values()) == [2, 5]


def test_metrics_are_pushed_while_the_agent_goes_on():
    code = AGENT + "    sys.stdin.read()\n"
    with http_receiver() as receiver:
        agent = subprocess.Popen(
            [sys.executable, "-c", code, "3"],
            stdin=subprocess.PIPE,
            env=without_otel(
                OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint,
                OTEL_METRIC_EXPORT_INTERVAL="50",
                **ASKED,
            ),
        )
        receiver.wait_until(lambda: len(receiver.exports) >= 2)
        assert set(counted(receiver).values()) == {3}
        agent.communicate(timeout=30)
    assert agent.returncode == 0


MEASURED = """
import json, os, statistics, time
import tidegauge
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
def median():
    seconds = []
    with tidegauge.run(agent="a") as run:
        for n in range(1_000):
            begin = time.perf_counter()
            run.act("look", {"n": n})
            run.observe("nothing")
            seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)
# without a collector to send to, but with the same metrics
provider = MeterProvider([InMemoryMetricReader()])
tidegauge.configure(serve_metrics=False, meter_provider=provider)
median()
without = median()
tidegauge.configure(serve_metrics=False)
median()
print(json.dumps({"without": without, "with": median(), "end": time.time()}))
"""
UNREACHABLE = [(kind, protocol) for kind in ("closed", "silent") for protocol in RECEIVERS]


@pytest.fixture(scope="module")
def unreachable():
    """What each agent reported of itself, and how long its process went on after its work."""

    def measured(case):
        kind, protocol = case
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            if kind == "silent":
                listener.listen()
            done = run_agent(
                code=MEASURED,
                OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{listener.getsockname()[1]}",
                OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
                OTEL_METRIC_EXPORT_INTERVAL="200",
                **ASKED,
            )
            document = json.loads(done.stdout)
            return {**document, "stderr": done.stderr, "exit": time.time() - document["end"]}

    with ThreadPoolExecutor() as pool:  # most of their time they wait
        return dict(zip(UNREACHABLE, pool.map(measured, UNREACHABLE), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("case", UNREACHABLE, ids="-".join)
def test_a_collector_that_is_not_there_neither_slows_the_agent_nor_holds_up_its_end(
    unreachable, case
):
    report = unreachable[case]
    assert report["with"] < 3 * report["without"]
    assert report["exit"] < 10
    assert "Traceback" not in report["stderr"]

"""Spans and events over the wire: a plain agent, the standard variables, a real collector."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.otlp_receiver import OtlpReceiver, grpc_receiver, http_receiver
from support.processes import run_python, without_otel

RECEIVERS = {"grpc": grpc_receiver, "http/protobuf": http_receiver}

AGENT = """
import tidegauge

@tidegauge.tool
def look(place):
    return "s3cret-result"

with tidegauge.run(agent="browser", task="s3cret-task", task_group="shop", t_max=30, run_id="r1"):
    for _ in range(4):
        look("s3cret-argument")
try:
    with tidegauge.run(agent="broken", run_id="r2") as run:
        run.act_round([("read", {"id": "s3cret"}), ("write", None)])
        run.observe_round([("s3cret", False), ("s3cret", ValueError("s3cret"))])
        raise KeyError("s3cret")
except KeyError:
    pass
"""


@pytest.fixture(scope="module", params=list(RECEIVERS))
def arrived(request) -> OtlpReceiver:
    """What a collector has of the agent, with nothing set but the standard variables."""
    with RECEIVERS[request.param]() as receiver:
        done = run_python(
            AGENT,
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint,
            OTEL_EXPORTER_OTLP_PROTOCOL=request.param,
            OTEL_SERVICE_NAME="shopper",
            OTEL_RESOURCE_ATTRIBUTES="deployment.environment=test",
        )
        assert done.stderr == ""
        return receiver


def named(received, name):
    return [one for one in received if one.name == name]


def test_every_span_arrives_under_its_parent(arrived):
    assert sorted(span.name for span in arrived.spans) == [
        *["execute_tool look"] * 4,
        "execute_tool read",
        "execute_tool write",
        "invoke_agent broken",
        "invoke_agent browser",
    ]
    for agent, tools in (("browser", ["look"]), ("broken", ["read", "write"])):
        [root] = named(arrived.spans, f"invoke_agent {agent}")
        assert root.parent_id == b""
        for tool in tools:
            for span in named(arrived.spans, f"execute_tool {tool}"):
                assert (span.trace_id, span.parent_id) == (root.trace_id, root.span_id)
                assert root.raw.start_time_unix_nano <= span.raw.start_time_unix_nano
                assert span.raw.end_time_unix_nano <= root.raw.end_time_unix_nano


def test_the_run_s_attributes_arrive(arrived):
    [browser] = named(arrived.spans, "invoke_agent browser")
    assert browser.attributes.pop("tidegauge.loop.lost_seconds") > 0
    assert browser.attributes == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "browser",
        "tidegauge.run.id": "r1",
        "tidegauge.task_group": "shop",
        "tidegauge.t_max": 30,
        "tidegauge.steps": 4,
        "tidegauge.outcome": "unknown",
        "tidegauge.loop.ratio": 0.5,
        "tidegauge.stale_score.max": 1,
        "tidegauge.novelty": 0.25,
        "tidegauge.recurrence.max": 3,
        "tidegauge.loop.steps": 2,
        "tidegauge.repetition": 3.0,
        "tidegauge.repetition_recent": 3.0,
        "tidegauge.stagnation": 20.0,
        "tidegauge.troubled": True,
        "tidegauge.troubles": ["loop", "result_streak"],
    }
    [broken] = named(arrived.spans, "invoke_agent broken")
    assert broken.attributes["tidegauge.outcome"] == "error"
    assert broken.attributes["error.type"] == "builtins.KeyError"
    assert (broken.raw.status.code, broken.raw.status.message) == (2, "")
    assert browser.raw.status.code == 0


def test_the_tools_attributes_arrive(arrived):
    looks = sorted(
        (span.attributes for span in named(arrived.spans, "execute_tool look")),
        key=lambda given: given["tidegauge.step.index"],
    )
    digests = [
        (one.pop("tidegauge.action.digest"), one.pop("tidegauge.state.digest")) for one in looks
    ]
    actions, states = zip(*digests, strict=True)
    assert len(set(actions)) == 1
    assert (states[0] != states[1], len(set(states[1:]))) == (True, 1)
    common = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.type": "function",
        "gen_ai.agent.name": "browser",
    }
    assert looks == [
        {**common, "tidegauge.step.index": 0},
        {**common, "tidegauge.step.index": 1},
        {
            **common,
            "tidegauge.step.index": 2,
            "tidegauge.loop.repeats": 1,
            "tidegauge.loop.period": 1,
        },
        {
            **common,
            "tidegauge.step.index": 3,
            "tidegauge.loop.repeats": 2,
            "tidegauge.loop.period": 1,
            "tidegauge.stale_score": 1,
        },
    ]
    [write] = named(arrived.spans, "execute_tool write")
    assert write.attributes["error.type"] == "builtins.ValueError"


def test_events_arrive_as_logs_of_their_run(arrived):
    [browser] = named(arrived.spans, "invoke_agent browser")
    [onset] = arrived.logs
    assert onset.name == "tidegauge.loop.onset"
    assert onset.attributes == {
        "tidegauge.run.id": "r1",
        "tidegauge.step.index": 2,
        "tidegauge.loop.period": 1,
        "tidegauge.loop.first_step": 2,
    }
    assert (onset.trace_id, onset.span_id) == (browser.trace_id, browser.span_id)


def test_who_sent_it_is_reported(arrived):
    for received in (*arrived.spans, *arrived.logs):
        assert received.resource["service.name"] == "shopper"
        assert received.resource["deployment.environment"] == "test"
        assert received.scope == "tidegauge"


def test_no_content_leaves_the_process(arrived):
    sent = [str(received.raw) for received in (*arrived.spans, *arrived.logs)]
    assert not [text for text in sent if "s3cret" in text]


def test_contents_leave_when_they_are_asked_for():
    with grpc_receiver() as receiver:
        run_python(
            AGENT,
            OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint,
            OTEL_EXPORTER_OTLP_PROTOCOL="grpc",
            OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="SPAN_ONLY",
        )
    look = named(receiver.spans, "execute_tool look")[0].attributes
    assert look["gen_ai.tool.call.arguments"] == '{"place":"s3cret-argument"}'
    assert look["gen_ai.tool.call.result"] == "s3cret-result"
    assert not [log for log in receiver.logs if "s3cret" in str(log.raw)]


@pytest.mark.parametrize(
    ("variables", "paths"),
    [
        ({"OTEL_SDK_DISABLED": "true"}, set()),
        ({"OTEL_TRACES_SAMPLER": "always_off"}, {"/v1/logs"}),
        ({"OTEL_LOGS_EXPORTER": "none"}, {"/v1/traces"}),
    ],
)
def test_the_standard_switches(variables, paths):
    with http_receiver() as receiver:
        run_python(AGENT, OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint, **variables)
    assert set(receiver.paths) == paths


def test_spans_are_sent_while_the_agent_goes_on():
    code = """
import sys, tidegauge
with tidegauge.run(run_id="r1") as run:
    run.act("look")
    run.observe("nothing")
    sys.stdin.read()
"""
    with http_receiver() as receiver:
        agent = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            env=without_otel(
                OTEL_EXPORTER_OTLP_ENDPOINT=receiver.endpoint, OTEL_BSP_SCHEDULE_DELAY="50"
            ),
        )
        receiver.wait_for(spans=1)
        assert [span.name for span in receiver.spans] == ["execute_tool look"]
        agent.communicate(timeout=30)
        receiver.wait_for(spans=2)
    assert agent.returncode == 0


MEASURED = """
import json, os, statistics, time
import tidegauge
from opentelemetry.sdk.trace import TracerProvider

def median():
    seconds = []
    with tidegauge.run(agent="a", task="t") as run:
        for n in range(1_000):
            begin = time.perf_counter()
            run.act("look", {"n": n})
            run.observe("nothing")
            seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)

# without a collector to send to, but with the same spans
tidegauge.configure(serve_metrics=False, tracer_provider=TracerProvider())
median()
without = median()
os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = os.environ["UNREACHABLE"]
tidegauge.configure(serve_metrics=False)
median()
print(json.dumps({"without": without, "with": median(), "end": time.time()}))
"""


UNREACHABLE = [(kind, protocol) for kind in ("closed", "silent") for protocol in RECEIVERS]
"""A port where nobody listens, and one where somebody does and never answers."""


@pytest.fixture(scope="module")
def unreachable():
    """What each agent reported of itself, and how long its process went on after its work."""

    def measured(case):
        kind, protocol = case
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            if kind == "silent":
                listener.listen()
            done = run_python(
                MEASURED,
                UNREACHABLE=f"http://127.0.0.1:{listener.getsockname()[1]}",
                OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
            )
            document = json.loads(done.stdout)
            return {**document, "stderr": done.stderr, "exit": time.time() - document["end"]}

    with ThreadPoolExecutor() as pool:  # most of their time they wait
        return dict(zip(UNREACHABLE, pool.map(measured, UNREACHABLE), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("case", UNREACHABLE, ids="-".join)
def test_an_unreachable_collector_neither_slows_the_agent_nor_holds_up_its_end(unreachable, case):
    report = unreachable[case]
    assert report["with"] < 3 * report["without"]
    assert report["exit"] < 10
    assert "Traceback" not in report["stderr"]

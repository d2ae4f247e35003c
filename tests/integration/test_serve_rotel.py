"""Agents that others trace, sent to ``tidegauge serve`` by the SDK, some by way of a collector.

What ``/metrics`` says there is what the same spans give in the agent's own process.
"""

from __future__ import annotations

import contextlib
import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict  # type: ignore[import-untyped]
from langchain.agents import create_agent
from langchain_core.tools import tool
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from support.other_spans import instrumented
from support.rotel import Rotel, rotel
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from support.serve import Server, samples_at, serving
from support.span_files import otlp_spans, replay_spans
from tidegauge import testing
from tidegauge.foreign_spans.grouping import Grouping
from tidegauge.runs.current import get_recorder

pytestmark = pytest.mark.system

DIALECTS = ("openinference", "openllmetry", "otel-genai")
FIXTURES = (
    "openinference_langchain_agent.otlp.json",
    "openllmetry_0.62_langchain_agent.otlp.json",
)


@tool
def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("serve")) as server:
        yield server


@pytest.fixture(scope="module")
def collector(serve: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rotel]:
    with rotel(f"http://{serve.grpc_target}", tmp_path_factory.mktemp("rotel")) as collector:
        yield collector


@pytest.fixture
def route(request: pytest.FixtureRequest, serve: Server) -> Any:
    """An exporter of the SDK for a way to the server."""
    way, _, protocol = request.param.partition(" ")
    if way == "straight":
        grpc, http = f"http://{serve.grpc_target}", serve.traces_url
    else:
        collector = request.getfixturevalue("collector")
        grpc, http = collector.grpc_endpoint, f"{collector.http_endpoint}/v1/traces"
    if protocol == "grpc":
        return GrpcExporter(endpoint=grpc, insecure=True)
    return HttpExporter(endpoint=http)


WAYS = ["straight grpc", "straight http", "collector grpc", "collector http"]


def of_agent(samples: dict[Any, float], agent: str) -> dict[Any, float]:
    """What a page of metrics says of an agent."""
    return {key: value for key, value in samples.items() if ("agent", agent) in key[1]}


def script(messages: Sequence[Any]) -> Any:
    """Two rooms, in turn, until it gives up: a loop of two steps."""
    turn = turns(messages)
    if turn == 0:
        return chooses(("look", {"place": "attic"}), ("look", {"place": "cellar"}), tokens=(30, 4))
    if turn < 9:
        return chooses(("look", {"place": "hall" if turn % 2 else "yard"}))
    return answers("I give up")


@pytest.mark.parametrize("route", WAYS, indirect=True)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_agent_that_others_trace_shows_its_loop(
    dialect: str, route: Any, serve: Server, monkeypatch: pytest.MonkeyPatch, request: Any
) -> None:
    name = request.node.callspec.id
    monkeypatch.setenv("OTEL_SERVICE_NAME", name)  # not all dialects name the agent on its calls
    sending = BatchSpanProcessor(route, schedule_delay_millis=50)
    with testing.capture(serve_metrics=True, metrics_port=0) as seen, contextlib.ExitStack() as on:
        on.enter_context(instrumented(monkeypatch, dialect, beside=[sending]))
        agent = create_agent(ScriptedChatModel(script=script), [look], name=name)
        agent.invoke({"messages": [("system", "be brief"), ("user", "find the key")]})
        on.close()  # what is left is sent
        here = of_agent(samples_at(seen.pipeline.metrics_url), name)
    serve.wait_for("tidegauge_runs_finished_total", agent=name)
    there = of_agent(serve.samples(), name)
    assert set(there) ^ set(here) == set()
    assert there == pytest.approx(here)
    assert serve.value("tidegauge_steps_total", agent=name) == 9
    assert serve.value("tidegauge_loop_steps_total", agent=name) == 5  # of 7 in turn, all but 2
    assert serve.value("tidegauge_runs_finished_total", agent=name) == 1


def in_protobuf(path: Path) -> bytes:
    """A file of OTLP's JSON, where ids are hexadecimal, which in protobuf's own JSON are not."""

    def with_base64_ids(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        ids = ("traceId", "spanId", "parentSpanId")
        return {
            key: b64encode(bytes.fromhex(value)).decode() if key in ids else value
            for key, value in pairs
        }

    document = json.loads(path.read_text(), object_pairs_hook=with_base64_ids)
    return ParseDict(document, ExportTraceServiceRequest()).SerializeToString()


def _unnamed(labels: Any) -> Any:
    """The labels of a run whose agent has no name."""
    return type(labels)((key, "" if key == "agent" else value) for key, value in labels)


@pytest.mark.parametrize("way", ["straight", "collector"])
@pytest.mark.parametrize("name", FIXTURES)
def test_recorded_spans(name: str, way: str, recorded_runs: Path, tmp_path: Path) -> None:
    path = recorded_runs / "spans" / name
    with testing.capture(serve_metrics=True, metrics_port=0) as seen:
        replay_spans(Grouping(get_recorder), otlp_spans(path))
        here = of_agent(samples_at(seen.pipeline.metrics_url), "AgentExecutor")
        here = {(metric, _unnamed(labels)): value for (metric, labels), value in here.items()}
    with serving(tmp_path) as serve, contextlib.ExitStack() as stack:
        if way == "straight":
            answer = serve.post(path.read_bytes(), kind="application/json")
        else:  # which takes no names of enumerations in JSON
            collector = stack.enter_context(rotel(f"http://{serve.grpc_target}", tmp_path))
            answer = serve.post(in_protobuf(path), url=f"{collector.http_endpoint}/v1/traces")
        assert answer.status == 200
        # In the agent's process its name is known from the start, over the wire from its end on.
        serve.wait_for("tidegauge_runs_finished_total", agent="")
        there = of_agent(serve.samples(), "")
    assert here
    assert there == pytest.approx(here)

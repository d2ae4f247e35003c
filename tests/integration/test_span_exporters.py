"""The SDK's exporters, over real sockets: runs are what they are in the process of the agent."""

from __future__ import annotations

import time

import pytest
from langchain.agents import create_agent
from langchain_core.tools import tool
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from support.other_spans import INSTRUMENTORS, Listener, instrumented
from support.receiving import receiving
from support.scripted_model import ScriptedChatModel, answers, chooses, turns
from tidegauge import catalog, testing
from tidegauge.receivers.assembly import AssemblyLimits


@tool
def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


@tool
def ask_expert(question: str) -> str:
    """Ask somebody who knows."""
    expert = create_agent(model(3, "look", {"place": "hall"}), [look], name="expert")
    return str(expert.invoke({"messages": [("user", question)]})["messages"][-1].content)


def model(rounds: int, name: str, arguments: dict[str, str]) -> ScriptedChatModel:
    def script(messages):
        return chooses((name, arguments)) if turns(messages) < rounds else answers("I give up")

    return ScriptedChatModel(script=script)


def loop() -> None:
    agent = create_agent(model(5, "look", {"place": "hall"}), [look], name="searcher")
    agent.invoke({"messages": [("user", "find the key")]})


def delegate() -> None:
    boss = create_agent(model(2, "ask_expert", {"question": "where?"}), [ask_expert], name="boss")
    boss.invoke({"messages": [("user", "find the key")]})


def in_process(monkeypatch, dialect, act) -> tuple[list, list[ReadableSpan]]:
    spans: list[ReadableSpan] = []
    with testing.capture() as seen, instrumented(monkeypatch, dialect) as processor:
        listener = Listener(seen)
        reported = processor.on_end

        def on_end(span: ReadableSpan) -> None:
            spans.append(span)
            reported(span)

        monkeypatch.setattr(processor, "on_end", on_end)
        act()
        return listener.story(), spans


@pytest.mark.parametrize("protocol", [pytest.param("grpc", marks=pytest.mark.slow), "http"])
@pytest.mark.parametrize("act", [pytest.param(loop, marks=pytest.mark.slow), delegate])
@pytest.mark.parametrize("dialect", INSTRUMENTORS)
def test_runs_are_those_of_the_process(monkeypatch, dialect, act, protocol) -> None:
    expected, spans = in_process(monkeypatch, dialect, act)
    assert expected[0][2], "no steps"
    with testing.capture() as seen:
        listener = Listener(seen)
        with receiving(assembly=AssemblyLimits(allowed_lateness=1.5)) as receiver:
            exporter: GrpcExporter | HttpExporter
            if protocol == "grpc":
                exporter = GrpcExporter(endpoint=receiver.urls["grpc"], insecure=True)
            else:
                exporter = HttpExporter(
                    endpoint=receiver.urls["http"] + "/v1/traces", compression=Compression.Gzip
                )
            for start in range(3):  # batches that interleave
                assert exporter.export(spans[start::3]) is SpanExportResult.SUCCESS
            exporter.shutdown()
            deadline = time.monotonic() + 10
            while len(listener.ended) < len(expected):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            metrics = receiver.metrics()
            assert metrics[catalog.SPANS_RECEIVED][()] == len(spans)
            assert metrics[catalog.SPANS_LATE][()] == metrics[catalog.SPANS_DUPLICATE][()] == 0
        if dialect == "openllmetry":  # where only the last span of a run shows its task
            expected, found = (without_task(story) for story in (expected, listener.story()))
            assert found == expected
        else:
            assert listener.story() == expected


def without_task(story: list) -> list:
    """The runs without what only their tasks decide: the states before the first steps."""
    return [
        ((name, *labels), inside, [(*step[:3], *step[4:]) for step in steps], outcomes)
        for (name, _, *labels), inside, steps, outcomes, _ in story
    ]

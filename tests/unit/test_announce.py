"""Agents are announced when they start, others are not, and nothing goes wrong with odd spans."""

from __future__ import annotations

import subprocess
import sys
from typing import cast

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import Span, TracerProvider, sampling
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tidegauge import announce
from tidegauge.announce import AnnouncingSpanProcessor


def traced(*, sampler=sampling.ALWAYS_ON, names=()):
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    provider.add_span_processor(AnnouncingSpanProcessor(provider, names=names))
    return provider.get_tracer("theirs"), exporter


def test_an_agent_is_announced_before_it_ends():
    tracer, exporter = traced()
    with tracer.start_as_current_span("POST /ask") as outer:
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "searcher"}
        with tracer.start_as_current_span("invoke_agent searcher", attributes=attributes) as agent:
            [span] = exporter.get_finished_spans()
    assert span.name == span.instrumentation_scope.name == "tidegauge.announce"
    assert span.attributes == {
        "tidegauge.announce.span_id": f"{agent.get_span_context().span_id:016x}",
        "tidegauge.announce.parent_id": f"{outer.get_span_context().span_id:016x}",
        "tidegauge.announce.name": "invoke_agent searcher",
        "tidegauge.announce.agent": "searcher",
    }
    assert span.parent.span_id == agent.get_span_context().span_id
    assert span.context.trace_id == agent.get_span_context().trace_id
    assert span.start_time == span.end_time == agent.start_time
    assert len(exporter.get_finished_spans()) == 3


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("invoke_agent a", {}),
        ("invoke_workflow", {}),
        ("run", {"gen_ai.operation.name": "invoke_agent"}),
        ("run", {"openinference.span.kind": "AGENT"}),
        ("run", {"agent.name": "a"}),
        ("run", {"traceloop.span.kind": "agent"}),
        ("run", {"traceloop.span.kind": "workflow"}),
        ("run", {"langfuse.observation.type": "agent"}),
        ("run", {"mlflow.spanType": '"AGENT"'}),
        ("LangGraph", {}),
    ],
)
def test_these_are_agents(name, attributes):
    tracer, exporter = traced(names={"LangGraph"})
    tracer.start_span(name, attributes=attributes)
    [span] = exporter.get_finished_spans()
    assert span.attributes["tidegauge.announce.name"] == name
    assert "tidegauge.announce.parent_id" not in span.attributes


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("POST", {}),
        ("chat m", {"gen_ai.operation.name": "chat", "gen_ai.agent.name": "a"}),
        ("chat m", {"gen_ai.operation.name": "chat", "agent.name": "a"}),
        ("create_agent a", {"gen_ai.operation.name": "create_agent"}),
        ("look", {"openinference.span.kind": "TOOL"}),
        ("look", {"traceloop.span.kind": "tool"}),
        ("tidegauge.announce", {"tidegauge.announce.span_id": "00000000000000ff"}),
        ("run", {"gen_ai.operation.name": ("invoke_agent",)}),
    ],
)
def test_these_are_not(name, attributes):
    tracer, exporter = traced()
    tracer.start_span(name, attributes=attributes)
    assert exporter.get_finished_spans() == ()


def test_an_announcement_is_never_announced():
    tracer, exporter = traced(names={"tidegauge.announce", "agent"})
    tracer.start_span("agent")
    assert len(exporter.get_finished_spans()) == 1


@pytest.mark.parametrize("decision", ["DROP", "RECORD_ONLY"])
def test_what_is_not_sampled_is_not_announced(decision):
    class Sampler(sampling.Sampler):
        def should_sample(self, *_, **__):
            return sampling.SamplingResult(sampling.Decision[decision])

        def get_description(self):
            return decision

    tracer, exporter = traced(sampler=Sampler())
    tracer.start_span("invoke_agent a")
    assert exporter.get_finished_spans() == ()


def test_the_sampling_of_the_agent_is_the_announcements():
    tracer, exporter = traced(sampler=sampling.ParentBased(sampling.ALWAYS_OFF))
    context = trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(1))
    parent = trace.set_span_in_context(trace.NonRecordingSpan(context))
    tracer.start_span("invoke_agent a", context=parent)
    [span] = exporter.get_finished_spans()
    assert span.attributes["tidegauge.announce.parent_id"] == f"{2:016x}"


def test_a_fault_does_not_reach_the_agent():
    class Broken:
        def get_span_context(self):
            raise RuntimeError("broken")

    AnnouncingSpanProcessor(TracerProvider(shutdown_on_exit=False)).on_start(cast("Span", Broken()))


def test_the_module_needs_nothing_of_tidegauge():
    program = (
        "import runpy, sys; runpy.run_path(sys.argv[1]); "
        "assert not [name for name in sys.modules if name.startswith('tidegauge')]"
    )
    subprocess.run([sys.executable, "-c", program, announce.__file__], check=True, timeout=60)

"""OpenInference's attributes beside those of the GenAI conventions, for one exporter only."""

from __future__ import annotations

import json
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, StatusCode, TraceFlags

import tidegauge
from tidegauge.openinference import OpenInferenceExporter

semconv = pytest.importorskip("openinference.semconv.trace")


def exported(**attributes: Any) -> dict[str, Any]:
    """The attributes that a span is exported with, without those that it had."""
    kept = InMemorySpanExporter()
    context = SpanContext(1, 2, is_remote=False, trace_flags=TraceFlags(1))
    given = {name.replace("__", "."): value for name, value in attributes.items()}
    OpenInferenceExporter(kept).export([ReadableSpan("x", context, attributes=given)])
    [span] = kept.get_finished_spans()
    found = dict(span.attributes or {})
    assert {name: found.pop(name) for name in given} == given
    return found


def message(role: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "parts": list(parts)}


TEXT = {"type": "text", "content": "Why?"}
CALL = {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"page": 7}}
RESULT = {"type": "tool_call_response", "id": "c0", "response": "gone"}


def test_a_model_call() -> None:
    found = exported(
        gen_ai__operation__name="chat",
        gen_ai__provider__name="openai",
        gen_ai__request__model="m",
        gen_ai__response__model="m-2",
        gen_ai__request__temperature=0.2,
        gen_ai__usage__input_tokens=30,
        gen_ai__usage__output_tokens=12,
        **{
            "gen_ai.usage.cache_read.input_tokens": 8,
            "gen_ai.usage.reasoning.output_tokens": 4,
            "gen_ai.response.finish_reasons": ("tool_calls",),
            "gen_ai.system_instructions": json.dumps([{"type": "text", "content": "Be brief."}]),
            "gen_ai.input.messages": json.dumps([message("user", TEXT), message("tool", RESULT)]),
            "gen_ai.output.messages": json.dumps([message("assistant", CALL)]),
            "gen_ai.tool.definitions": json.dumps([{"type": "function", "name": "look"}]),
        },
    )
    assert json.loads(found.pop("input.value"))[1]["role"] == "tool"
    assert json.loads(found.pop("output.value"))[0]["parts"] == [CALL]
    assert json.loads(found.pop("llm.invocation_parameters")) == {"temperature": 0.2}
    assert json.loads(found.pop("llm.tools.0.tool.json_schema"))["name"] == "look"
    call = "llm.output_messages.0.message.tool_calls.0.tool_call"
    assert json.loads(found.pop(f"{call}.function.arguments")) == {"page": 7}
    assert found == {
        "openinference.span.kind": "LLM",
        "input.mime_type": "application/json",
        "output.mime_type": "application/json",
        "llm.provider": "openai",
        "llm.system": "openai",
        "llm.model_name": "m-2",
        "llm.finish_reason": "tool_calls",
        "llm.token_count.prompt": 30,
        "llm.token_count.completion": 12,
        "llm.token_count.total": 42,
        "llm.token_count.prompt_details.cache_read": 8,
        "llm.token_count.completion_details.reasoning": 4,
        "llm.input_messages.0.message.role": "system",
        "llm.input_messages.0.message.content": "Be brief.",
        "llm.input_messages.1.message.role": "user",
        "llm.input_messages.1.message.content": "Why?",
        "llm.input_messages.2.message.role": "tool",
        "llm.input_messages.2.message.tool_call_id": "c0",
        "llm.input_messages.2.message.content": "gone",
        "llm.output_messages.0.message.role": "assistant",
        f"{call}.id": "c1",
        f"{call}.function.name": "look",
    }


def test_a_tool_call() -> None:
    assert exported(
        gen_ai__operation__name="execute_tool",
        gen_ai__tool__name="look",
        gen_ai__tool__description="Look.",
        gen_ai__tool__call__id="c1",
        gen_ai__tool__call__arguments='{"page": 7}',
        gen_ai__tool__call__result="gone",
    ) == {
        "openinference.span.kind": "TOOL",
        "tool.name": "look",
        "tool.description": "Look.",
        "tool.id": "c1",
        "input.value": '{"page": 7}',
        "input.mime_type": "application/json",
        "output.value": "gone",
        "output.mime_type": "text/plain",
    }


def test_an_agent() -> None:
    assert exported(
        gen_ai__operation__name="invoke_agent",
        gen_ai__agent__name="lead",
        gen_ai__conversation__id="t1",
        tidegauge__tags=("a", "b"),
        gen_ai__input__messages=json.dumps([message("user", TEXT)]),
        gen_ai__output__messages=json.dumps([message("assistant", {**TEXT, "content": "So."})]),
    ) == {
        "openinference.span.kind": "AGENT",
        "agent.name": "lead",
        "session.id": "t1",
        "tag.tags": ("a", "b"),
        "input.value": "Why?",
        "input.mime_type": "text/plain",
        "output.value": "So.",
        "output.mime_type": "text/plain",
    }


def test_the_task_is_an_agent_s_input_where_it_has_no_messages() -> None:
    found = exported(gen_ai__operation__name="invoke_agent", tidegauge__task="Find it")
    assert found["input.value"] == "Find it"


def test_a_retrieval() -> None:
    documents = [{"id": "d1", "score": 0.5, "content": "text"}, {"id": "d2"}]
    assert exported(
        gen_ai__operation__name="retrieval",
        gen_ai__retrieval__query__text="tides",
        gen_ai__retrieval__documents=json.dumps(documents),
    ) == {
        "openinference.span.kind": "RETRIEVER",
        "input.value": "tides",
        "input.mime_type": "text/plain",
        "retrieval.documents.0.document.id": "d1",
        "retrieval.documents.0.document.score": 0.5,
        "retrieval.documents.0.document.content": "text",
        "retrieval.documents.1.document.id": "d2",
    }


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"http__method": "GET"},
        {"gen_ai__operation__name": "chat", "openinference__span__kind": "LLM"},
    ],
)
def test_other_spans_are_exported_as_they_are(attributes: dict[str, Any]) -> None:
    assert exported(**attributes) == {}


@pytest.mark.parametrize("text", ["[", "7", "[7]", '[{"role": 5, "parts": 6}]', '[{"parts": [7]}]'])
def test_contents_of_another_form_are_left_out(text: str) -> None:
    found = exported(gen_ai__operation__name="chat", gen_ai__input__messages=text)
    assert found["openinference.span.kind"] == "LLM"
    assert found["input.value"] == text


def test_every_name_is_one_of_openinference_s() -> None:
    known = {
        value
        for kind in vars(semconv).values()
        if isinstance(kind, type) and kind.__name__.endswith("Attributes")
        for value in vars(kind).values()
        if isinstance(value, str)
    }
    test_names = "llm.finish_reason", "tool.id"  # newer than the package that the tests have
    from tidegauge import openinference

    assert set(openinference.NAMES) - set(test_names) <= known


def test_the_application_s_own_exporters_get_the_span_unchanged() -> None:
    one, other = InMemorySpanExporter(), InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    exporters: list[SpanExporter] = [one, OpenInferenceExporter(other)]
    for exporter in exporters:
        provider.add_span_processor(SimpleSpanProcessor(exporter))
    pipeline = tidegauge.configure(tracer_provider=provider, serve_metrics=False)
    with tidegauge.run(agent="a") as run:
        run.act("look")
        run.observe("x", error=True)
    pipeline.shutdown()
    for plain, more in zip(one.get_finished_spans(), other.get_finished_spans(), strict=True):
        assert "openinference.span.kind" not in (plain.attributes or {})
        assert (more.attributes or {})["openinference.span.kind"] in ("TOOL", "AGENT")
        assert (plain.context, plain.name, plain.status) == (more.context, more.name, more.status)
        assert plain.to_json() != more.to_json()
    assert other.get_finished_spans()[0].status.status_code is StatusCode.ERROR

"""Spans that look like those of an agent and make no step are counted, and logged once a scope."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider

from tidegauge import catalog, testing
from tidegauge._span_counts import SpanFaults, span_faults
from tidegauge.foreign_spans.convention_reader import content_hint
from tidegauge.foreign_spans.span import SpanData
from tidegauge.instrumentation.spans import TidegaugeSpanProcessor
from tidegauge.receivers.assembly import Assembly
from tidegauge.receivers.decoding import decode_protobuf
from tidegauge.receivers.json_decoding import decode_json


def counts() -> Any:
    span_faults.reading()
    return span_faults.metrics()[catalog.UNREAD_SPANS]


def in_json(attributes: dict[str, str]) -> None:
    pairs = [{"key": key, "value": {"stringValue": text}} for key, text in attributes.items()]
    span = {"traceId": f"{1:032x}", "spanId": f"{2:016x}", "name": "any", "attributes": pairs}
    scope = {"scope": {"name": "theirs"}, "spans": [span]}
    decode_json(json.dumps({"resourceSpans": [{"scopeSpans": [scope]}]}).encode())


def in_protobuf(attributes: dict[str, str]) -> None:
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    scope.scope.name = "theirs"
    span = scope.spans.add(trace_id=b"1" * 16, span_id=b"1" * 8, name="any")
    for key, text in attributes.items():
        span.attributes.add(key=key).value.string_value = text
    decode_protobuf(request.SerializeToString())


def in_process(attributes: dict[str, str]) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(TidegaugeSpanProcessor())
    provider.get_tracer("theirs").start_span("any", attributes=attributes).end()


WAYS = pytest.mark.parametrize("arrives", [in_json, in_protobuf, in_process])


@WAYS
@pytest.mark.parametrize(
    "name",
    [
        "gen_ai.request.model",
        "gen_ai.tool.name",
        "gen_ai.agent.name",
        "llm.model",
        "ai.model.id",
        "langsmith.span.unheard_of",
        "haystack.tool.name",
    ],
)
def test_a_span_of_no_known_convention_is_counted(arrives, name):
    arrives({"http.method": "POST", name: "x"})
    assert counts() == {("theirs", "unknown_convention"): 1}


@WAYS
@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"http.method": "POST", "email.ai.x": "1", "main.gen_ai.x": "1"},
        {"gen_ai.conversation.id": "c", "ai.telemetry.metadata.x": "1"},
        {"gen_ai.event.start_time": "2026-01-01", "event_loop.cycle_id": "c"},
        {"db.statement": "a text\n-llm.model, and\n ai.model"},
        {"gen_ai.operation.name": "embeddings", "gen_ai.request.model": "m"},
        {"openinference.span.kind": "LLM", "llm.model_name": "m"},
    ],
)
def test_others_are_not(arrives, attributes):
    arrives(attributes)
    assert "unknown_convention" not in [reason for _, reason in counts()]


def test_each_scope_is_logged_once_with_what_to_do(caplog):
    faults = SpanFaults()
    with caplog.at_level(logging.WARNING, "tidegauge"):
        for _ in range(3):
            faults.unread("pydantic-ai", "no_contents", content_hint)
        faults.unread("pydantic-ai", "late")
        faults.unread("app", "no_run")
        faults.unread("", "unknown_convention")
    contents, no_run, unknown = caplog.messages
    assert "'pydantic-ai'" in contents
    assert "include_content=True" in contents
    assert "invoke_agent" in no_run
    assert "'unknown'" in unknown


def test_scopes_are_bounded(caplog):
    faults = SpanFaults()
    faults.reading()
    for number in range(150):
        faults.unread(f"scope {number}", "late")
    faults.unread("x" * 10_000, "late")
    found = faults.metrics()[catalog.UNREAD_SPANS]
    assert len(found) == 101
    assert found["other", "late"] == 51
    assert len(caplog.messages) == 100
    assert max(len(scope) for scope, _ in found) <= 200


def test_counts_of_a_replay_are_discarded():
    span_faults.unread("a", "late")
    with span_faults.paused():
        span_faults.unread("b", "late")
    assert counts() == {("a", "late"): 1}


@pytest.mark.parametrize(
    ("scope", "part"),
    [
        ("openinference.instrumentation.langchain", "OPENINFERENCE_HIDE_INPUTS"),
        ("openinference.instrumentation.google_genai", "automatic_function_calling"),
        ("opentelemetry.instrumentation.genai.openai", "=SPAN_ONLY"),
        ("opentelemetry.instrumentation.openai_v2", "=SPAN_ONLY"),
        ("opentelemetry.instrumentation.openai.v1", "TRACELOOP_TRACE_CONTENT"),
        ("gcp.vertex.agent", "ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS"),
        ("semantic_kernel.utils.telemetry.model_diagnostics.decorators", "log records"),
        ("agent_framework", "ENABLE_SENSITIVE_DATA"),
        ("ai", "recordInputs"),
        ("somebody.else", "switch on"),
    ],
)
def test_the_hint_is_that_of_the_instrumentation(scope, part):
    assert part in content_hint(scope)


AGENT = {"gen_ai.operation.name": "invoke_agent"}
SILENT = {"gen_ai.operation.name": "chat"}
SAID = {**SILENT, "gen_ai.output.messages": "[]"}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}


def one(number: int, parent: int | None, end: int, given: Any, *, failed: bool = False) -> SpanData:
    return SpanData(7, number, parent, "any", "theirs", given, end - 5, end, failed)


@pytest.mark.parametrize(
    ("spans", "reasons"),
    [
        ([one(2, 1, 20, SILENT), one(1, None, 90, AGENT)], {"no_contents": 1}),
        ([one(2, 1, 20, SILENT, failed=True), one(1, None, 90, AGENT)], {}),
        ([one(2, 1, 20, SAID), one(3, 1, 30, TOOL), one(1, None, 90, AGENT)], {}),
        ([one(2, None, 20, SAID), one(3, None, 30, TOOL)], {"no_run": 2}),
        ([one(3, 2, 20, TOOL), one(2, None, 30, SAID)], {"no_run": 1}),
        ([one(2, 1, 30, AGENT), one(1, None, 40, AGENT)], {"no_calls": 2}),
        (
            [
                one(3, 2, 20, TOOL)._replace(scope="other"),
                one(2, 1, 30, AGENT)._replace(scope="other"),
                one(4, 1, 40, AGENT),
            ],
            {},
        ),
        ([one(2, 1, 20, SAID), one(1, None, 30, AGENT), one(4, None, 90, AGENT)], {}),
    ],
)
def test_calls_without_contents_or_a_run_are_counted(spans, reasons):
    with testing.capture():
        assembly = Assembly()
        assembly.take(spans, now=0.0)
        assembly.close()
    assert counts() == {("theirs", reason): count for reason, count in reasons.items()}


def test_an_agent_without_calls_is_counted_in_process():
    with testing.capture():
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(TidegaugeSpanProcessor())
        tracer = provider.get_tracer("theirs")
        tracer.start_span("any", attributes=AGENT).end()
        assert counts() == {("theirs", "no_calls"): 1}
        with tracer.start_as_current_span("any", attributes=AGENT):
            tracer.start_span("any", attributes=TOOL).end()
        tracer.start_span("any", attributes=AGENT).end()
    assert counts() == {("theirs", "no_calls"): 1}


def test_functions_that_the_client_of_the_model_calls_by_itself_are_counted():
    """Google's automatic function calling: one span shows the last answer alone."""
    scope = "openinference.instrumentation.google_genai"
    call = {"function_call": {"name": "look", "args": {}}}
    history = [{"role": "user", "parts": [{"text": "go"}]}, {"role": "model", "parts": [call]}]
    output = {"automatic_function_calling_history": history}
    model = {
        "openinference.span.kind": "LLM",
        "llm.output_messages.0.message.role": "model",
        "llm.output_messages.0.message.content": "done",
    }
    given = {**model, "output.value": json.dumps(output), "output.mime_type": "application/json"}
    none = {**given, "output.value": '{"automatic_function_calling_history": []}'}
    spans = [one(number, 1, 10 * number, each) for number, each in ((2, given), (3, none))]
    with testing.capture():
        assembly = Assembly()
        assembly.take(
            [*(span._replace(scope=scope) for span in spans), one(1, None, 90, AGENT)], now=0
        )
        assembly.close()
    assert counts() == {(scope, "no_contents"): 1}


def test_an_agent_of_haystack_without_calls_is_counted():
    chain = {"openinference.span.kind": "CHAIN"}
    scope = "openinference.instrumentation.haystack"
    spans = [
        one(2, 1, 20, chain)._replace(name="Agent.run", scope=scope),
        one(1, None, 30, chain)._replace(name="Pipeline.run", scope=scope),
    ]
    with testing.capture():
        assembly = Assembly()
        assembly.take(spans, now=0.0)
        assembly.close()
    assert counts() == {(scope, "no_calls"): 1}


def test_a_call_whose_contents_a_span_around_it_shows_is_read():
    spans = [
        one(number + inner, number if inner else 1, end - inner, SILENT if inner else SAID)
        for number, end in ((10, 30), (20, 50))
        for inner in (1, 0)
    ]
    spans = [span._replace(scope="sdk") if span.attributes is SILENT else span for span in spans]
    alone = one(40, 41, 70, SILENT)._replace(scope="sdk", trace_id=8)
    with testing.capture():
        assembly = Assembly()
        for span in [*spans, one(1, None, 60, AGENT), alone]:
            assembly.take([span], now=span.end)
        assembly.take([one(41, None, 90, AGENT)._replace(trace_id=8)], now=90)
        assembly.close()
    assert counts() == {("sdk", "no_contents"): 1}


def test_a_call_after_the_end_of_its_run_is_counted():
    with testing.capture():
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(TidegaugeSpanProcessor())
        tracer = provider.get_tracer("theirs")
        agent = tracer.start_span("any", attributes=AGENT)
        inside = trace.set_span_in_context(agent)
        tracer.start_span("any", inside, attributes=SAID).end()
        later = tracer.start_span("any", inside, attributes=SAID)
        agent.end()
        later.end()
    assert counts() == {("theirs", "late"): 1}

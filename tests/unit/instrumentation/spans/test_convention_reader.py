"""Reading single spans of each dialect."""

from __future__ import annotations

import importlib
import json
import pkgutil
from typing import Any

import pytest

from tidegauge.events import ABSENT, CallResult
from tidegauge.foreign_spans import conventions
from tidegauge.foreign_spans.convention_reader import (
    CONVENTIONS,
    may_enclose_run,
    read_span,
)
from tidegauge.foreign_spans.span import (
    AgentSpan,
    ModelSpan,
    SpanData,
    ToolSpan,
)
from tidegauge.runs.turn_calls import ChosenCall


def read(
    attributes: dict[str, Any], name: str = "a span", scope: str = "theirs", **found: Any
) -> Any:
    return read_span(SpanData(1, 2, None, name, scope, attributes, 0, 10, **found))


def tool(**attributes: Any) -> Any:
    fields = {key.replace("__", "."): value for key, value in attributes.items()}
    return read({"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look", **fields})


def test_each_convention_is_in_the_table():
    modules = [
        importlib.import_module(module.name)
        for module in pkgutil.iter_modules(conventions.__path__, f"{conventions.__name__}.")
    ]
    defined = {module.CONVENTION.name for module in modules if hasattr(module, "CONVENTION")}
    assert defined
    assert defined == {convention.name for convention in CONVENTIONS}


def test_spans_that_are_nothing_to_us():
    assert read({"http.method": "GET"}) is None
    assert read({"gen_ai.operation.name": "embeddings"}) is None
    assert read({"openinference.span.kind": "RETRIEVER"}) is None
    assert read({"traceloop.workflow.name": "w"}) is None
    ours = {"gen_ai.operation.name": "chat"}
    assert read_span(SpanData(1, 2, None, "chat m", "tidegauge", ours, 0, 1)) is None


@pytest.mark.parametrize("structured", [True, False])
def test_a_model_of_the_genai_conventions(structured):
    said = [
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "content": "let me see"},
                {"type": "tool_call", "id": "c1", "name": "look", "arguments": {"place": "hall"}},
                {"type": "tool_call", "id": "c2", "name": "rest", "arguments": '{"n": 1}'},
            ],
        }
    ]
    shown = [
        {"role": "system", "parts": [{"type": "text", "content": "be brief"}]},
        {"role": "user", "parts": [{"type": "text", "content": "find the key"}]},
        {"role": "assistant", "parts": [{"type": "tool_call", "id": "c0", "name": "look"}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c0", "result": "no"}]},
    ]
    found = read(
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "m",
            "gen_ai.conversation.id": "t1",
            "gen_ai.agent.name": "helper",
            "gen_ai.usage.input_tokens": 10,
            "gen_ai.usage.output_tokens": 2,
            "gen_ai.input.messages": shown if structured else json.dumps(shown),
            "gen_ai.output.messages": said if structured else json.dumps(said),
        }
    )
    assert isinstance(found, ModelSpan)
    assert found.calls == (
        ChosenCall("look", {"place": "hall"}, "c1"),
        ChosenCall("rest", {"n": 1}, "c2"),
    )
    assert (found.tokens, found.model) == (12, "m")
    assert found.answers == (("c0", CallResult("no", None)),)
    assert (found.info.agent, found.info.conversation) == ("helper", "t1")
    assert found.info.task == "find the key"


def test_a_model_that_does_not_report_its_calls_is_not_one_that_chose_nothing():
    quiet = {"gen_ai.operation.name": "chat"}
    assert read(quiet).calls is None
    assert read(quiet).tokens is None
    assert read({**quiet, "gen_ai.output.messages": "[]"}).calls == ()
    assert read({**quiet, "gen_ai.output.messages": "no JSON"}).calls is None
    assert read({"openinference.span.kind": "LLM"}).calls is None


@pytest.mark.parametrize("several", [False, True])
def test_openinference_a_response_that_was_streamed_has_no_messages(several):
    call = {"type": "function_call", "name": "look", "arguments": "{}", "call_id": "c", "id": "f"}
    response = {"object": "response", "output": [{"type": "reasoning"}, call]}
    streamed = {
        "openinference.span.kind": "LLM",
        "output.mime_type": "application/json",
        "output.value": json.dumps([response] if several else response),
    }
    assert read(streamed).calls == (("look", {}, "c"),)
    only_text = json.dumps({**response, "output": []})
    assert read({**streamed, "output.value": only_text}).calls == ()
    assert read({**streamed, "output.value": "[1, {}]"}).calls is None


def test_only_the_answers_since_the_last_message_of_the_model():
    def answer(of: str) -> dict[str, Any]:
        return {"role": "tool", "parts": [{"type": "tool_call_response", "id": of, "result": of}]}

    shown = [answer("old"), {"role": "assistant", "parts": []}, answer("a"), answer("b")]
    found = read({"gen_ai.operation.name": "chat", "gen_ai.input.messages": shown})
    assert {call_id for call_id, _ in found.answers} == {"a", "b"}


def test_a_tool_of_the_genai_conventions():
    found = tool(
        gen_ai__tool__call__arguments='{"place": "hall"}',
        gen_ai__tool__call__id="c1",
        gen_ai__tool__call__result='{"seen": 1}',
    )
    assert isinstance(found, ToolSpan)
    assert (found.name, found.arguments, found.id) == ("look", {"place": "hall"}, "c1")
    assert found.result == CallResult('{"seen": 1}', False)  # a text, as the model is shown it
    hidden = tool()
    assert hidden.arguments is ABSENT
    assert hidden.result == CallResult(ABSENT, False)


@pytest.mark.parametrize("more", [{}, {"gcp.vertex.agent.llm_request": "{}"}])
def test_googles_span_of_what_parallel_calls_returned_is_no_call(more):
    merged = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "(merged tools)"}
    assert read({**merged, **more}, "execute_tool (merged)") is None


@pytest.mark.parametrize(
    ("description", "events", "outcome"),
    [
        ("no key", (), "KeyError: no key"),
        ("KeyError: no key", (), "KeyError: no key"),
        (None, (), "KeyError"),
        (
            "a traceback",
            [("exception", {"exception.type": "a.b.Lost", "exception.message": "gone"})],
            "Lost: gone",
        ),
    ],
)
def test_what_a_failed_tool_says(description, events, outcome):
    found = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "error.type": "KeyError",
    }
    failed = read(found, failed=True, description=description, events=events)
    assert failed.result == CallResult(outcome, True)
    assert failed.raised


@pytest.mark.parametrize("kind", ["GraphInterrupt", "langgraph.errors.GraphInterrupt"])
def test_an_exception_that_steers_is_no_failure(kind):
    found = {"gen_ai.operation.name": "execute_tool", "error.type": kind}
    steered = read(found, failed=True, description="wait")
    assert steered.result == CallResult()
    assert not steered.raised


def test_openinference_tools():
    kind = {"openinference.span.kind": "TOOL", "tool.name": "look"}
    plain = read({**kind, "input.value": "hall", "output.value": "nothing"})
    assert (plain.arguments, plain.result) == ("hall", CallResult("nothing", False))
    message = {"content": "nothing", "status": "error", "tool_call_id": "c1", "id": "new"}
    wrapped = read(
        {
            **kind,
            "input.value": '{"a": 1, "b": 2}',
            "input.mime_type": "application/json",
            "output.value": json.dumps({"type": "tool", "data": message}),
            "output.mime_type": "application/json",
        }
    )
    assert wrapped.arguments == {"a": 1, "b": 2}
    assert (wrapped.result, wrapped.id) == (CallResult("nothing", True), "c1")
    hidden = read({**kind, "input.value": "__REDACTED__", "output.value": "__REDACTED__"})
    assert (hidden.arguments, hidden.result.outcome) == (ABSENT, ABSENT)


def test_openinference_a_tool_of_crewai_has_the_name_that_the_model_knows():
    titled = {
        "openinference.span.kind": "TOOL",
        "tool.name": "Search the web",
        "tool.description": "Tool Name: search_the_web\nTool Arguments: {}",
    }
    assert read(titled, scope="openinference.instrumentation.crewai").name == "search_the_web"
    assert read(titled).name == "Search the web"


def test_openinference_commands_are_what_their_messages_say():
    found = {"type": "tool", "data": {"type": "tool", "content": "done", "tool_call_id": "c1"}}
    command = {"graph": None, "update": {"messages": [found]}, "goto": []}
    read_back = read(
        {
            "openinference.span.kind": "TOOL",
            "output.value": json.dumps(command),
            "output.mime_type": "application/json",
        }
    )
    assert (read_back.result, read_back.id) == (CallResult("done", False), "c1")


def test_openllmetry_takes_arguments_and_results_out_of_their_wrapping():
    def call(step: int) -> Any:
        message = {"type": "tool", "content": "nothing", "tool_call_id": "c1", "id": f"new {step}"}
        return read(
            {
                "traceloop.span.kind": "tool",
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "look",
                "gen_ai.tool.call.arguments": json.dumps(
                    {
                        "input_str": "{'place': 'hall'}",
                        "inputs": {"place": "hall"},
                        "metadata": {"langgraph_step": step},
                        "kwargs": {"color": "green"},
                    }
                ),
                "gen_ai.tool.call.result": json.dumps(
                    {"output": {"lc": 1, "kwargs": message}, "kwargs": {"step": step}}
                ),
            }
        )

    assert call(1) == call(2)
    assert call(1).arguments == {"place": "hall"}
    assert (call(1).result, call(1).id) == (CallResult("nothing", False), "c1")


def test_openllmetry_leaves_a_tools_own_inputs_alone():
    found = read(
        {
            "traceloop.span.kind": "tool",
            "traceloop.entity.name": "add",
            "traceloop.entity.input": '{"inputs": [1, 2], "to": 3}',
        }
    )
    assert (found.name, found.arguments) == ("add", {"inputs": [1, 2], "to": 3})


def test_openllmetry_before_it_took_the_messages_of_the_conventions():
    found = read(
        {
            "traceloop.workflow.name": "w",
            "llm.request.type": "chat",
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.tool_calls.0.id": "c1",
            "gen_ai.completion.0.tool_calls.0.name": "look",
            "gen_ai.completion.0.tool_calls.0.arguments": '{"place": "hall"}',
            "gen_ai.usage.prompt_tokens": 3,
            "gen_ai.usage.completion_tokens": 4,
        }
    )
    assert found.calls == (ChosenCall("look", {"place": "hall"}, "c1"),)
    assert found.tokens == 7


def test_labels_on_spans_and_in_metadata():
    metadata = json.dumps({"tidegauge_task_group": "g", "lc_agent_name": "a", "thread_id": "t"})
    found = read({"openinference.span.kind": "CHAIN", "metadata": metadata, "tidegauge.agent": "b"})
    assert isinstance(found, AgentSpan)
    assert found.info.labels == {"agent": "b", "task_group": "g"}
    assert (found.info.agent, found.info.conversation) == ("a", "t")


def test_what_may_enclose_a_run():
    assert may_enclose_run("invoke_agent a", {}) is True
    assert may_enclose_run("any", {"gen_ai.operation.name": "invoke_workflow"}) is True
    assert may_enclose_run("any", {"gen_ai.operation.name": "chat"}) is False
    assert may_enclose_run("any", {"openinference.span.kind": "CHAIN"}) is True
    assert may_enclose_run("any", {"traceloop.span.kind": "task"}) is False
    assert may_enclose_run("GET /", {"http.method": "GET"}) is False
    assert may_enclose_run("any", {}) is None

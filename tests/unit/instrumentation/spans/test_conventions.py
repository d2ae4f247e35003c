"""Each convention: an agent, a model and a tool, with and without contents, and a failure."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from tidegauge.events import ABSENT, CallResult
from tidegauge.foreign_spans.convention_reader import (
    convention_of,
    may_enclose_run,
    read_span,
)
from tidegauge.foreign_spans.span import AgentSpan, ModelSpan, SpanData, ToolSpan
from tidegauge.runs.turn_calls import ChosenCall

CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q": 1}'}}
ASKED = [{"role": "user", "content": "find the key"}]
SAID = {"role": "assistant", "content": None, "tool_calls": [CALL]}
GEMINI = {"role": "model", "parts": [{"function_call": {"name": "look", "args": {"q": 1}}}]}


class Shown(NamedTuple):
    """Spans of one convention, by their names and attributes."""

    scope: str
    agent: tuple[str, dict[str, Any]]
    model: tuple[str, dict[str, Any]]
    tool: tuple[str, dict[str, Any]]
    silent: dict[str, Any]
    name: str | None = "helper"
    tool_id: str | None = "c1"
    model_id: str | None = "c1"


CONVENTIONS = {
    "Vercel AI SDK 5 and 6": Shown(
        "ai",
        (
            "ai.generateText",
            {
                "ai.operationId": "ai.generateText",
                "ai.telemetry.functionId": "helper",
                "ai.prompt": json.dumps({"prompt": "find the key"}),
            },
        ),
        (
            "ai.generateText.doGenerate",
            {
                "ai.operationId": "ai.generateText.doGenerate",
                "ai.prompt.messages": json.dumps(ASKED),
                "ai.response.toolCalls": json.dumps(
                    [{"toolCallId": "c1", "toolName": "look", "input": '{"q": 1}'}]
                ),
            },
        ),
        (
            "ai.toolCall",
            {
                "ai.operationId": "ai.toolCall",
                "ai.toolCall.name": "look",
                "ai.toolCall.id": "c1",
                "ai.toolCall.args": '{"q": 1}',
                "ai.toolCall.result": '"nothing"',
            },
        ),
        {"ai.operationId": "ai.streamText.doStream"},
    ),
    "Langfuse": Shown(
        "langfuse-sdk",
        (
            "helper",
            {
                "langfuse.observation.type": "agent",
                "langfuse.observation.input": json.dumps({"args": ["find the key"], "kwargs": {}}),
            },
        ),
        (
            "OpenAI-generation",
            {
                "langfuse.observation.type": "generation",
                "langfuse.observation.input": json.dumps({"messages": ASKED}),
                "langfuse.observation.output": json.dumps(SAID),
            },
        ),
        (
            "look",
            {
                "langfuse.observation.type": "tool",
                "langfuse.observation.input": json.dumps({"args": [], "kwargs": {"q": 1}}),
                "langfuse.observation.output": "nothing",
            },
        ),
        {"langfuse.observation.type": "generation"},
        tool_id=None,
    ),
    "Laminar": Shown(
        "lmnr.tracer",
        (
            "helper",
            {"lmnr.span.type": "DEFAULT", "gen_ai.agent.name": "helper", "lmnr.span.input": "{}"},
        ),
        (
            "litellm.completion",
            {
                "lmnr.span.type": "LLM",
                "lmnr.span.input": json.dumps(ASKED),
                "lmnr.span.output": json.dumps([SAID]),
            },
        ),
        (
            "look",
            {
                "lmnr.span.type": "TOOL",
                "lmnr.span.input": '{"q": 1}',
                "lmnr.span.output": "nothing",
            },
        ),
        {"lmnr.span.type": "LLM"},
        tool_id=None,
    ),
    "LangSmith": Shown(
        "langsmith",
        (
            "helper",
            {
                "langsmith.span.kind": "chain",
                "langsmith.metadata.lc_agent_name": "helper",
                "gen_ai.prompt": json.dumps({"messages": [["user", "find the key"]]}),
            },
        ),
        (
            "ChatOpenAI",
            {
                "langsmith.span.kind": "llm",
                "gen_ai.operation.name": "chat",
                "gen_ai.prompt": json.dumps({"messages": [ASKED]}),
                "gen_ai.completion": json.dumps({"generations": [[{"message": SAID}]]}),
            },
        ),
        (
            "look",
            {
                "langsmith.span.kind": "tool",
                "gen_ai.tool.name": "look",
                "gen_ai.tool.call.id": "c1",
                "gen_ai.prompt": '{"q": 1}',
                "gen_ai.completion": json.dumps(
                    {"output": {"type": "tool", "content": "nothing", "tool_call_id": "c1"}}
                ),
            },
        ),
        {"langsmith.span.kind": "llm"},
    ),
    "MLflow": Shown(
        "mlflow.tracing.provider",
        (
            "helper",
            {"mlflow.spanType": '"AGENT"', "mlflow.spanInputs": '{"prompt": "find the key"}'},
        ),
        (
            "Completions",
            {
                "mlflow.spanType": '"CHAT_MODEL"',
                "mlflow.spanInputs": json.dumps({"messages": ASKED}),
                "mlflow.spanOutputs": json.dumps({"choices": [{"message": SAID}]}),
            },
        ),
        (
            "look",
            {
                "mlflow.spanType": '"TOOL"',
                "mlflow.spanInputs": '{"q": 1}',
                "mlflow.spanOutputs": '"nothing"',
            },
        ),
        {"mlflow.spanType": '"CHAT_MODEL"'},
        tool_id=None,
    ),
    "Google ADK": Shown(
        "gcp.vertex.agent",
        (
            "invoke_agent helper",
            {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"},
        ),
        (
            "call_llm",
            {
                "gcp.vertex.agent.llm_request": json.dumps(
                    {"contents": [{"role": "user", "parts": [{"text": "find the key"}]}]}
                ),
                "gcp.vertex.agent.llm_response": json.dumps({"content": GEMINI}),
            },
        ),
        (
            "execute_tool look",
            {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "look",
                "gen_ai.tool.call.id": "c1",
                "gcp.vertex.agent.tool_call_args": '{"q": 1}',
                "gcp.vertex.agent.tool_response": '{"result": "nothing"}',
            },
        ),
        {"gen_ai.operation.name": "generate_content"},
        model_id=None,
    ),
    "Logfire": Shown(
        "logfire.openai_agents",
        ("Agent run: {name!r}", {"logfire.msg_template": "Agent run: {name!r}", "name": "helper"}),
        (
            "Responses API",
            {
                "logfire.msg_template": "Responses API with {gen_ai.request.model!r}",
                "raw_input": json.dumps(ASKED),
                "response": json.dumps(
                    {
                        "output": [
                            {
                                "type": "function_call",
                                "id": "fc_1",
                                "call_id": "c1",
                                "name": "look",
                                "arguments": '{"q": 1}',
                            }
                        ]
                    }
                ),
            },
        ),
        (
            "Function: {name}",
            {
                "logfire.msg_template": "Function: {name}",
                "name": "look",
                "input": '{"q": 1}',
                "output": "nothing",
            },
        ),
        {"logfire.msg_template": "Responses API with {gen_ai.request.model!r}"},
        tool_id=None,
    ),
}


def read(scope: str, name: str, attributes: dict[str, Any], **more: Any) -> Any:
    return read_span(SpanData(1, 2, None, name, scope, attributes, 0, 10, **more))


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_an_agent(convention: str) -> None:
    shown = CONVENTIONS[convention]
    found = convention_of(shown.agent[1], shown.scope)
    assert found is not None
    assert found.name == convention
    assert may_enclose_run(*shown.agent, shown.scope) is True
    agent = read(shown.scope, *shown.agent)
    assert isinstance(agent, AgentSpan)
    assert agent.info.agent == shown.name
    assert agent.info.task in ("find the key", None)


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_model(convention: str) -> None:
    shown = CONVENTIONS[convention]
    model = read(shown.scope, *shown.model)
    assert isinstance(model, ModelSpan)
    assert model.calls == (ChosenCall("look", {"q": 1}, shown.model_id),)
    assert model.info.task == "find the key"
    assert may_enclose_run(*shown.model, shown.scope) is False
    silent = read(shown.scope, shown.model[0], shown.silent)
    assert isinstance(silent, ModelSpan)
    assert silent.calls is None


@pytest.mark.parametrize("convention", CONVENTIONS)
def test_a_tool(convention: str) -> None:
    shown = CONVENTIONS[convention]
    tool = read(shown.scope, *shown.tool)
    assert isinstance(tool, ToolSpan)
    assert (tool.name, tool.arguments, tool.id) == ("look", {"q": 1}, shown.tool_id)
    assert tool.result.outcome in ("nothing", {"result": "nothing"})
    assert not tool.raised
    kinds = {"langfuse.observation.type", "langsmith.span.kind", "mlflow.spanType"}
    kinds |= {
        "lmnr.span.type",
        "ai.operationId",
        "gen_ai.operation.name",
        "logfire.msg_template",
        "name",
    }
    bare = {key: value for key, value in shown.tool[1].items() if key in kinds}
    events = [("exception", {"exception.type": "ValueError", "exception.message": "no"})]
    failed = read(shown.scope, shown.tool[0], bare, failed=True, events=events)
    assert failed.arguments is ABSENT
    assert failed.result == CallResult("ValueError: no", True)
    assert failed.raised


def test_spans_of_details_as_events() -> None:
    """Strands by default: a message is an event, and so is what a tool was given and said."""
    chosen = json.dumps([{"toolUse": {"toolUseId": "c1", "name": "look", "input": {"q": 1}}}])
    answered = json.dumps([{"toolResult": {"toolUseId": "c0", "content": [{"text": "nothing"}]}}])
    model = read(
        "strands",
        "chat",
        {"gen_ai.operation.name": "chat"},
        events=[
            ("gen_ai.user.message", {"content": '[{"text": "find the key"}]'}),
            ("gen_ai.tool.message", {"content": answered}),
            ("gen_ai.choice", {"finish_reason": "tool_use", "message": chosen}),
        ],
    )
    assert model.calls == (ChosenCall("look", {"q": 1}, "c1"),)
    assert model.answers == (("c0", CallResult("nothing", None)),)
    assert model.info.task == "find the key"
    tool = read(
        "strands",
        "execute_tool look",
        {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.id": "c1"},
        events=[
            ("gen_ai.tool.message", {"content": '{"q": 1}', "id": "c1"}),
            ("gen_ai.choice", {"message": '[{"text": "nothing"}]', "id": "c1"}),
        ],
    )
    assert (tool.name, tool.arguments, tool.result.outcome) == ("look", {"q": 1}, "nothing")


def test_lite_llm_writes_python_and_over_the_span_around_it() -> None:
    raw = {
        "llm.openai.messages": str(ASKED),
        "llm.openai.choices": str([{"message": SAID}]),
        "llm.openai.usage": "{'total_tokens': 12, 'prompt_tokens': None}",
    }
    model = read("litellm", "raw_gen_ai_request", raw)
    assert model.calls == (ChosenCall("look", {"q": 1}, "c1"),)
    assert (model.tokens, model.info.task) == (12, "find the key")
    both = {"llm.openai.input": "[]", **raw}
    for attributes in (both, dict(reversed(both.items()))):  # an order that means nothing
        assert read("litellm", "raw_gen_ai_request", attributes) == model
    around = {"gen_ai.operation.name": "chat", "gen_ai.agent.name": "helper"}
    agent = read("app", "invoke_agent helper", around)
    assert isinstance(agent, AgentSpan)
    assert may_enclose_run("invoke_agent helper", around) is True


def test_names_of_agents_that_open_inference_does_not_call_so() -> None:
    agent = {"openinference.span.kind": "AGENT"}
    smol = "openinference.instrumentation.smolagents"
    assert read(smol, "researcher.run", agent).info.agent == "researcher"
    unnamed = read(smol, "CodeAgent.run", agent)
    assert (unnamed.info.agent, unnamed.sure) == (None, True)
    crew = "openinference.instrumentation.crewai"
    assert read(crew, "x", {**agent, "graph.node.id": "Researcher"}).info.agent == "Researcher"
    chain = read("openinference.instrumentation.langchain", "AgentExecutor", agent)
    assert (chain.info.agent, chain.sure) == (None, False)


def test_llama_index_by_open_llmetry() -> None:
    scope = "opentelemetry.instrumentation.llamaindex"
    task = {"traceloop.span.kind": "task"}
    said = json.dumps([{"role": "assistant", "parts": [], "finish_reason": ""}])
    chat = {**task, "gen_ai.operation.name": "chat", "gen_ai.output.messages": said}
    assert read(scope, "OpenAI.task", chat).calls is None, "calls are left out"
    output = {"tool_name": "look", "tool_id": "c1", "tool_output": {"raw_output": "nothing"}}
    given = {"tool.name": "look", "tool.arguments": '{"q": 1}'}
    tool = read(scope, "x", {**task, **given, "traceloop.entity.output": json.dumps(output)})
    assert (tool.name, tool.arguments, tool.id) == ("look", {"q": 1}, "c1")
    assert tool.result.outcome == "nothing"
    workflow = read(scope, "x.workflow", {"traceloop.span.kind": "workflow"})
    assert workflow.early


def test_llama_index_by_open_inference() -> None:
    scope = "openinference.instrumentation.llama_index"
    chain = {"openinference.span.kind": "CHAIN"}
    assert read(scope, "FunctionAgent.run", chain).sure
    assert read(scope, "AgentWorkflow.run", chain).sure
    assert not read(scope, "BaseWorkflowAgent.call_tool", chain).sure
    model = {"openinference.span.kind": "LLM"}
    assert read(scope, "OpenAILike._prepare_chat_with_tools", model) is None
    assert isinstance(read(scope, "OpenAILike.achat", model), ModelSpan)
    assert not read("openinference.instrumentation.langchain", "Agent.run", chain).sure
    given = {"input.value": '{"kwargs": {"q": 1}}', "input.mime_type": "application/json"}
    tool = {"openinference.span.kind": "TOOL", "tool.name": "look", **given}
    assert read(scope, "FunctionTool.acall", tool).arguments == {"q": 1}
    other = read("openinference.instrumentation.langchain", "look", tool)
    assert other.arguments == {"kwargs": {"q": 1}}, "an argument that is called so"


def test_dspy_by_open_inference() -> None:
    given = {"input.value": '{"kwargs": {"q": 1}}', "input.mime_type": "application/json"}
    tool = {"openinference.span.kind": "TOOL", **given}
    found = read("openinference.instrumentation.dspy", "look.__call__", tool)
    assert (found.name, found.arguments) == ("look", {"q": 1})


def test_lite_llm_and_bee_ai_by_open_inference() -> None:
    given = [
        {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "look"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "nothing"},
    ]
    model = {
        "openinference.span.kind": "LLM",
        "llm.input_messages.0.message.role": "assistant",
        "llm.input_messages.1.message.role": "tool",
        "llm.input_messages.1.message.content": "nothing",
        "input.value": json.dumps({"messages": given}),
        "input.mime_type": "application/json",
    }
    scope = "openinference.instrumentation.litellm"
    assert read(scope, "completion", model).answers == (("c1", CallResult("nothing", None)),)
    part = "llm.input_messages.1.message.contents.0.message"
    of_bee = {f"{part}_content.text": "nothing", f"{part}.tool_call_id": "c1"}
    named = {key: value for key, value in model.items() if not key.endswith("1.message.content")}
    named = {**named, **of_bee, "input.value": "{}"}
    assert read(scope, "completion", named).answers == (("c1", CallResult("nothing", None)),)
    hidden = read(scope, "completion", {**model, "input.value": "__REDACTED__"})
    assert hidden.answers == ()


def test_langfuse_s_handler_for_langchain() -> None:
    metadata = "langfuse.observation.metadata."
    noted = {f"{metadata}lc_agent_name": '"helper"', f"{metadata}tool_call_id": '"c1"'}
    message = {"content": "nothing", "type": "tool", "tool_call_id": "c1", "status": "success"}
    tool = {"langfuse.observation.type": "tool", "langfuse.observation.input": '{"q": 1}', **noted}
    found = read(
        "langfuse-sdk", "look", {**tool, "langfuse.observation.output": json.dumps(message)}
    )
    assert (found.info.agent, found.id, found.result) == (
        "helper",
        "c1",
        CallResult("nothing", False),
    )
    raised = read("langfuse-sdk", "look", tool, failed=True)
    assert (raised.id, raised.raised) == ("c1", True)
    broken = {**tool, f"{metadata}lc_agent_name": '"helper'}
    assert read("langfuse-sdk", "look", broken).info.agent == '"helper'


def test_langfuse_of_langchain_writes_metadata_and_messages_as_json() -> None:
    metadata = "langfuse.observation.metadata."
    common = {f"{metadata}lc_agent_name": '"helper"', f"{metadata}thread_id": '"t1"'}
    said = {"type": "tool", "content": "nothing", "id": "new", "status": "error"}
    tool = read(
        "langfuse-sdk",
        "look",
        {
            **common,
            f"{metadata}tool_call_id": '"c1"',
            "langfuse.observation.type": "tool",
            "langfuse.observation.input": '{"q": 1}',
            "langfuse.observation.output": json.dumps({**said, "tool_call_id": "c1"}),
        },
    )
    assert (tool.info.agent, tool.info.conversation) == ("helper", "t1")
    assert (tool.id, tool.result) == ("c1", CallResult("nothing", True))
    update = {"messages": [{**said, "tool_call_id": "c2"}]}
    command = read(
        "langfuse-sdk",
        "look",
        {
            "langfuse.observation.type": "tool",
            "langfuse.observation.output": json.dumps({"update": update, "goto": []}),
            f"{metadata}tool_call_id": '"c2"',
        },
    )
    assert (command.id, command.result.outcome) == ("c2", "nothing")

"""What spans and hooks carry is read as it is; payloads as the SDK 0.24 makes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agents import Agent, ModelResponse, ModelSettings, Runner, TracingProcessor
from agents.models import get_default_model
from agents.tracing import GenerationSpanData, ResponseSpanData
from agents.usage import Usage
from openai.types.responses import Response

from support.agents_sdk import chat_completions, responses, scripted, traced_by
from tidegauge import tracer
from tidegauge.events import ABSENT, CallResult
from tidegauge.instrumentation.openai_agents import parsing
from tidegauge.instrumentation.openai_agents.parsing import ModelAnswer
from tidegauge.runs.request_metadata import RunLabels, run_labels
from tidegauge.runs.turn_calls import ChosenCall

# A span of chat completions, as captured: the message, with its empty fields.
CHAT_MESSAGE: dict[str, Any] = {
    "content": None,
    "refusal": None,
    "role": "assistant",
    "annotations": None,
    "audio": None,
    "function_call": None,
    "tool_calls": [
        {
            "id": "call-1",
            "function": {"arguments": '{"door": "red"}', "name": "push"},
            "type": "function",
        },
        {"id": "call-2", "custom": {"input": "door = red", "name": "run"}, "type": "custom"},
    ],
}
CHAT_USAGE = {
    "requests": 1,
    "input_tokens": 10,
    "output_tokens": 2,
    "total_tokens": 12,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens_details": {"reasoning_tokens": 0},
}
# The output of the Responses API, one item of each kind.
OUTPUT: list[dict[str, Any]] = [
    {"id": "r", "type": "reasoning", "summary": []},
    {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "let me see", "annotations": []}],
    },
    {
        "id": "w",
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "search", "query": "doors"},
    },
    {
        "type": "function_call",
        "name": "push",
        "arguments": '{"door": "red"}',
        "call_id": "call-1",
        "namespace": None,
    },
    {
        "type": "function_call",
        "name": "push",
        "arguments": "",
        "call_id": "call-2",
        "namespace": "doors",
    },
    {"type": "custom_tool_call", "name": "run", "input": "door = red", "call_id": "call-3"},
    {
        "id": "c",
        "type": "computer_call",
        "call_id": "call-4",
        "action": {"type": "wait"},
        "pending_safety_checks": [],
        "status": "completed",
    },
]
CALLS = (
    ChosenCall("push", {"door": "red"}, "call-1"),
    ChosenCall("doors.push", "", "call-2"),
    ChosenCall("run", "door = red", "call-3"),
    ChosenCall("computer", {"type": "wait"}, "call-4"),
)


def response(output: list[dict[str, Any]]) -> Response:
    return Response.model_validate(
        {
            "id": "resp-1",
            "object": "response",
            "created_at": 0,
            "model": "m",
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "output": output,
            "usage": {
                "input_tokens": 10,
                "output_tokens": 2,
                "total_tokens": 12,
                "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
                "output_tokens_details": {"reasoning_tokens": 0},
            },
        }
    )


def test_a_chat_message_has_its_calls_and_tokens() -> None:
    answer = parsing.generation_answer(GenerationSpanData(output=[CHAT_MESSAGE], usage=CHAT_USAGE))
    assert answer == ModelAnswer(
        (ChosenCall("push", {"door": "red"}, "call-1"), ChosenCall("run", "door = red", "call-2")),
        tracer.ModelResponse(input_tokens=10, output_tokens=2),
    )
    assert answer.tokens == 12


def test_a_streamed_generation_has_a_whole_response() -> None:
    dumped = response(OUTPUT).model_dump()
    answer = parsing.generation_answer(GenerationSpanData(output=[dumped], usage=CHAT_USAGE))
    assert [(call.name, call.id) for call in answer.calls or ()] == [
        (call.name, call.id) for call in CALLS
    ]
    assert (answer.calls or ())[0] == CALLS[0]


def test_a_response_has_the_calls_that_the_sdk_runs() -> None:
    answer = parsing.response_answer(ResponseSpanData(response=response(OUTPUT)))
    assert [(call.name, call.id) for call in answer.calls or ()] == [
        (call.name, call.id) for call in CALLS
    ]
    assert (answer.calls or ())[:3] == CALLS[:3]
    assert (answer.calls or ())[3].arguments["type"] == "wait"  # type: ignore[index]
    assert answer.tokens == 12


def test_without_contents_calls_are_not_known_and_tokens_are() -> None:
    nothing = ModelAnswer(None, tracer.ModelResponse(input_tokens=10, output_tokens=2))
    assert parsing.generation_answer(GenerationSpanData(usage=CHAT_USAGE)) == nothing
    assert parsing.response_answer(ResponseSpanData(usage=CHAT_USAGE)) == nothing
    assert parsing.response_answer(ResponseSpanData()) == ModelAnswer()
    assert ModelAnswer().tokens is None


def test_usage_of_no_request_is_not_reported() -> None:
    items = response(OUTPUT[3:4]).output
    result = ModelResponse(output=items, usage=Usage(), response_id=None)
    assert parsing.hook_answer(result) == ModelAnswer(CALLS[:1])
    usage = Usage(requests=1, input_tokens=10, output_tokens=2, total_tokens=12)
    result = ModelResponse(output=items, usage=usage, response_id=None)
    read = parsing.hook_answer(result)
    assert read == ModelAnswer(CALLS[:1], tracer.ModelResponse(input_tokens=10, output_tokens=2))


def test_tokens_of_caches_and_of_reasoning() -> None:
    usage = {
        **CHAT_USAGE,
        "input_tokens_details": {"cached_tokens": 7},
        "output_tokens_details": {"reasoning_tokens": 1},
    }
    read = parsing.generation_answer(GenerationSpanData(usage=usage)).response
    assert (read.cache_read_tokens, read.cache_write_tokens, read.reasoning_tokens) == (7, None, 1)


class Kept(TracingProcessor):
    """Keeps the data of model spans."""

    def __init__(self) -> None:
        self.data: list[Any] = []

    def on_trace_start(self, trace: Any) -> None: ...
    def on_trace_end(self, trace: Any) -> None: ...
    def on_span_start(self, span: Any) -> None: ...
    def on_span_end(self, span: Any) -> None:
        if isinstance(span.span_data, GenerationSpanData | ResponseSpanData):
            self.data.append(span.span_data)

    def shutdown(self) -> None: ...
    def force_flush(self) -> None: ...


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("make", [chat_completions, responses])
async def test_the_sdks_models_report_what_hooks_receive(make: Any, streamed: bool) -> None:
    kept = Kept()
    with traced_by(kept):
        agent = Agent(name="porter", model=make(["no way"]))
        if streamed:
            result: Any = Runner.run_streamed(agent, "open")
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(agent, "open")
    (data,) = kept.data
    read = parsing.generation_answer if make is chat_completions else parsing.response_answer
    answers = read(data), parsing.hook_answer(result.raw_responses[0])
    assert [(answer.calls, answer.tokens) for answer in answers] == [((), 12)] * 2
    if make is responses or streamed:
        assert answers[0].response.id


@pytest.mark.parametrize(
    ("output", "error", "result"),
    [
        ("empty", None, CallResult("empty", False)),
        (None, None, CallResult(None, False)),
        (ABSENT, None, CallResult(ABSENT, False)),
        (
            "An error occurred while running the tool. Please try again.",
            {"message": "Error running tool (non-fatal)", "data": {"tool_name": "push"}},
            CallResult("An error occurred while running the tool. Please try again.", True),
        ),
        (
            None,
            {"message": "Error running tool", "data": None},
            CallResult("Error running tool", True),
        ),
    ],
)
def test_a_tools_result_is_what_the_model_is_shown(
    output: Any, error: Any, result: CallResult
) -> None:
    assert parsing.tool_result(output, error) == result


def test_arguments_are_values_where_they_are_json() -> None:
    deep = "[" * 100_000
    assert parsing.arguments_value('{"a": 1}') == {"a": 1}
    for text in ("", "red", '{"a"', deep, None, 7):
        assert parsing.arguments_value(text) is text
    with pytest.raises(json.JSONDecodeError):
        json.loads('{"a"')


def test_labels_are_read_from_metadata_as_far_as_they_are_sound() -> None:
    assert run_labels({}) == RunLabels()
    fields = {"tidegauge_t_max": -1, "tidegauge_task": 7, "other": "x", "tidegauge_memory": None}
    assert run_labels(fields) == RunLabels(task="7")


@pytest.mark.parametrize(
    ("model", "read"),
    [
        ("gpt-x", ("gpt-x", "openai")),
        ("litellm/anthropic/claude", ("litellm/anthropic/claude", "anthropic")),
        (chat_completions([]), ("scripted-1", "openai")),
        (scripted([]), (None, "scripted")),
        (None, (get_default_model(), "openai")),
    ],
)
def test_a_model_has_the_name_that_it_reports(
    model: Any, read: tuple[str | None, str | None]
) -> None:
    settings = ModelSettings(temperature=0.5, max_tokens=9)
    request = parsing.agent_request(Agent(name="a", model=model, model_settings=settings))
    assert request[:2] == read
    assert request.parameters == {
        "gen_ai.request.temperature": 0.5,
        "gen_ai.request.max_tokens": 9,
    }


def test_a_span_says_where_its_model_was_asked() -> None:
    config = {"base_url": "https://mine.openai.azure.com/v1", "temperature": 0.5, "top_p": None}
    data = GenerationSpanData(model="m", model_config=config)
    request = parsing.generation_request(data)
    assert (request.model, request.provider) == ("m", "azure.ai.openai")
    assert request.parameters == {
        "gen_ai.request.temperature": 0.5,
        "server.address": "mine.openai.azure.com",
        "server.port": 443,
    }

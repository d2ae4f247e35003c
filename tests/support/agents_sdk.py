"""The OpenAI Agents SDK with models that follow a script: the SDK's own, and no network."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx
from agents import Model, OpenAIChatCompletionsModel, OpenAIResponsesModel, set_trace_processors
from agents.testing import ModelStep, ScriptedModel
from agents.usage import Usage
from openai import AsyncOpenAI
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from tidegauge import testing
from tidegauge.instrumentation.openai_agents import TidegaugeTracingProcessor

Turn = Sequence[tuple[str, dict[str, Any]]] | str
"""What a model says in one turn: tool calls (name, arguments), or its final answer."""

_ids = itertools.count(1)


def scripted(turns: Sequence[Turn]) -> ScriptedModel:
    """The SDK's own scripted model, which opens no spans: what it says is known by hooks alone."""
    return ScriptedModel([_step(turn) for turn in turns])


def chat_completions(turns: Sequence[Turn]) -> Model:
    """The real model of chat completions; the wire is scripted."""
    return OpenAIChatCompletionsModel("scripted-1", _client(turns, _chat_body))


def responses(turns: Sequence[Turn]) -> Model:
    """The real model of the Responses API; the wire is scripted."""
    return OpenAIResponsesModel("scripted-1", _client(turns, _response_body))


@contextlib.contextmanager
def traced_by(*processors: Any) -> Iterator[None]:
    """Only these take the SDK's traces: its own exporter would send them over the network."""
    set_trace_processors(list(processors))
    try:
        yield
    finally:
        set_trace_processors([])


def nothing_is_left(processor: TidegaugeTracingProcessor, seen: testing.Capture) -> bool:
    """Whether no run is open anywhere: in the processor, in the engine, among the spans."""
    return (
        len(processor._runs) == 0
        and not processor._runs._runs
        and not processor._tasks
        and not seen.pipeline.engine.snapshot().active
        and seen.pipeline.recorder.spans.open_runs == 0
    )


def _step(turn: Turn) -> ModelStep:
    usage = Usage(requests=1, input_tokens=10, output_tokens=2, total_tokens=12)
    if isinstance(turn, str):
        text = ResponseOutputText(text=turn, type="output_text", annotations=[])
        message = ResponseOutputMessage(
            id=f"msg-{next(_ids)}",
            role="assistant",
            type="message",
            status="completed",
            content=[text],
        )
        return ModelStep(output=[message], usage=usage)
    calls = [
        ResponseFunctionToolCall(
            name=name,
            arguments=json.dumps(arguments),
            call_id=f"call-{next(_ids)}",
            type="function_call",
        )
        for name, arguments in turn
    ]
    return ModelStep(output=calls, usage=usage)


def _client(turns: Sequence[Turn], body: Callable[[Turn], dict[str, Any]]) -> AsyncOpenAI:
    script = iter(turns)

    def answer(request: httpx.Request) -> httpx.Response:
        reported = body(next(script))
        if not json.loads(request.content).get("stream"):
            return httpx.Response(200, json=reported)
        events = "".join(f"data: {json.dumps(event)}\n\n" for event in _events(reported))
        headers = {"content-type": "text/event-stream"}
        return httpx.Response(200, text=events + "data: [DONE]\n\n", headers=headers)

    http_client: Any = httpx.AsyncClient(transport=httpx.MockTransport(answer))
    return AsyncOpenAI(api_key="none", base_url="http://scripted/v1", http_client=http_client)


def _chat_body(turn: Turn) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None}
    if isinstance(turn, str):
        message["content"] = turn
    else:
        message["tool_calls"] = [
            {
                "id": f"call-{next(_ids)}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for name, arguments in turn
        ]
    return {
        "id": "chat-1",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted-1",
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": "stop" if isinstance(turn, str) else "tool_calls",
            }
        ],
        "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
    }


def _response_body(turn: Turn) -> dict[str, Any]:
    return {
        "id": "resp-1",
        "object": "response",
        "created_at": 0,
        "model": "scripted-1",
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "output": [item.model_dump() for item in _step(turn).output],
        "usage": {
            "input_tokens": 10,
            "output_tokens": 2,
            "total_tokens": 12,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens_details": {"reasoning_tokens": 0},
        },
    }


def _events(given: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if given["object"] == "response":
        yield {"type": "response.completed", "sequence_number": 0, "response": given}
        return
    (choice,) = given["choices"]
    delta = dict(choice["message"])
    if "tool_calls" in delta:
        delta["tool_calls"] = [
            {"index": number, **call} for number, call in enumerate(delta["tool_calls"])
        ]
    chunk = {**given, "object": "chat.completion.chunk", "usage": None}
    reason = choice["finish_reason"]
    yield {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
    yield {**chunk, "choices": [], "usage": given["usage"]}

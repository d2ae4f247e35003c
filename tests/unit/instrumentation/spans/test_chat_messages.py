"""Messages of models, in the shapes that instrumentations write."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.events import CallResult
from tidegauge.foreign_spans.chat_messages import (
    answers_in,
    calls_in,
    last_text,
    messages,
    task_in,
)
from tidegauge.runs.turn_calls import ChosenCall

ARGUMENTS = {"q": "key"}
TEXT = json.dumps(ARGUMENTS)
CALL = ChosenCall("look", ARGUMENTS, "c1")

CHOSEN: dict[str, Any] = {
    "openai chat": {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": TEXT}}
        ],
    },
    "openai choice": {
        "finish_reason": "tool_calls",
        "message": {
            "role": "assistant",
            "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": TEXT}}],
        },
    },
    "openai responses": {
        "type": "function_call",
        "id": "fc_9",
        "call_id": "c1",
        "name": "look",
        "arguments": TEXT,
    },
    "anthropic": {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "I look"},
            {"type": "tool_use", "id": "c1", "name": "look", "input": ARGUMENTS},
        ],
    },
    "bedrock": {
        "role": "assistant",
        "content": [{"toolUse": {"toolUseId": "c1", "name": "look", "input": ARGUMENTS}}],
    },
    "gemini": {
        "role": "model",
        "parts": [{"functionCall": {"id": "c1", "name": "look", "args": ARGUMENTS}}],
    },
    "gemini candidate": {
        "content": {
            "role": "model",
            "parts": [{"function_call": {"id": "c1", "name": "look", "args": ARGUMENTS}}],
        }
    },
    "vercel": {
        "role": "assistant",
        "content": [
            {"type": "tool-call", "toolCallId": "c1", "toolName": "look", "input": ARGUMENTS}
        ],
    },
    "genai": {
        "role": "assistant",
        "parts": [{"type": "tool_call", "id": "c1", "name": "look", "arguments": TEXT}],
    },
    "langchain": {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", "AIMessage"],
        "kwargs": {
            "content": "",
            "tool_calls": [{"name": "look", "args": ARGUMENTS, "id": "c1", "type": "tool_call"}],
        },
    },
    "langchain dict": {
        "type": "ai",
        "data": {"content": "", "tool_calls": [{"name": "look", "args": ARGUMENTS, "id": "c1"}]},
    },
    "llama-index": {
        "role": "assistant",
        "additional_kwargs": {
            "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": TEXT}}]
        },
        "blocks": [],
    },
}

ANSWERED: dict[str, Any] = {
    "openai chat": {"role": "tool", "tool_call_id": "c1", "content": "nothing"},
    "openai responses": {"type": "function_call_output", "call_id": "c1", "output": "nothing"},
    "anthropic": {
        "role": "user",
        "content": [
            {
                "type": "tool_result",
                "tool_use_id": "c1",
                "content": [{"type": "text", "text": "nothing"}],
            }
        ],
    },
    "bedrock": {
        "role": "user",
        "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "nothing"}]}}],
    },
    "vercel": {
        "role": "tool",
        "content": [
            {
                "type": "tool-result",
                "toolCallId": "c1",
                "output": {"type": "text", "value": "nothing"},
            }
        ],
    },
    "genai": {
        "role": "tool",
        "parts": [{"type": "tool_call_response", "id": "c1", "response": "nothing"}],
    },
    "langchain": {
        "lc": 1,
        "type": "constructor",
        "id": ["langchain", "schema", "messages", "ToolMessage"],
        "kwargs": {"content": "nothing", "tool_call_id": "c1"},
    },
    "llama-index": {
        "role": "tool",
        "additional_kwargs": {"tool_call_id": "c1"},
        "blocks": [{"block_type": "text", "text": "nothing"}],
    },
}


@pytest.mark.parametrize("shape", CHOSEN)
@pytest.mark.parametrize("as_text", [True, False])
def test_the_calls_that_were_chosen(shape: str, as_text: bool) -> None:
    value = json.dumps([CHOSEN[shape]]) if as_text else [[CHOSEN[shape]]]
    said = messages(value)
    assert said is not None
    assert calls_in(said) == [CALL]


def test_several_calls_in_their_order_and_no_call_twice() -> None:
    two = [{"type": "tool_use", "id": str(n), "name": "look", "input": {"n": n}} for n in range(2)]
    listed = [{"id": str(n), "name": "look", "args": {"n": n}} for n in range(2)]
    said = messages([{"role": "assistant", "content": two, "tool_calls": listed}])
    assert said is not None
    assert [call.id for call in calls_in(said)] == ["0", "1"]


@pytest.mark.parametrize("shape", ANSWERED)
def test_the_results_that_were_shown(shape: str) -> None:
    question = {"role": "user", "content": "find the key"}
    shown = messages([question, CHOSEN["anthropic"], ANSWERED[shape]])
    assert shown is not None
    assert answers_in(shown) == [("c1", CallResult("nothing", None))]
    assert task_in(shown) == "find the key"
    assert answers_in([*shown, {"role": "assistant", "content": "done"}]) == []


@pytest.mark.parametrize(
    "value", [{"role": "human", "content": [{"type": "text", "text": "hi"}]}, [["user", "hi"]]]
)
def test_what_was_asked(value: Any) -> None:
    shown = messages(value)
    assert shown is not None
    assert (task_in(shown), last_text(shown)) == ("hi", "hi")


@pytest.mark.parametrize("value", [None, 5, "a text", '[{"role"', [5, None]])
def test_what_is_no_messages(value: Any) -> None:
    assert not messages(value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("role", "type", "content", "parts", "tool_calls", "kwargs", "data", "id"),
                    *("function", "functionCall", "toolResult", "additional_kwargs", "message"),
                    *("tool_call_id", "name", "arguments", "output", "blocks", "text"),
                ]
            ),
            inner | st.sampled_from(["assistant", "tool", "tool_call", "tool_result", "user"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_nothing_in_them_can_raise(value: Any) -> None:
    found = messages(value) or []
    for call in calls_in(found):
        assert isinstance(call.name, str)
    answers_in(found)
    task_in(found)
    last_text(found)

"""Tool calls as JSON: a schema for the model's grammar, and a parser of what the model wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

from langchain_core.messages import AIMessage, BaseMessage, SystemMessage

__all__ = ["ChatTurn", "WrittenCall", "call_schema", "chat_turns", "read_call"]


class WrittenCall(NamedTuple):
    """A tool call as the model wrote it."""

    name: str
    arguments: dict[str, Any]


class ChatTurn(TypedDict):
    """One turn of a conversation, as a chat template takes it."""

    role: str
    content: str


def call_schema(tools: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The JSON schema of one call of one of these tools.

    Args:
        tools: each as ``{"type": "function", "function": {"name": ..., "parameters": ...}}``.
    """
    return {"anyOf": [_one_call(tool["function"]) for tool in tools]}


def read_call(text: str) -> WrittenCall:
    """The call in what the model wrote.

    Raises:
        ValueError: the text is no call, for example because it was cut off.

    >>> read_call('{"name": "move", "arguments": {"direction": "up"}}')
    WrittenCall(name='move', arguments={'direction': 'up'})
    """
    match json.loads(text):
        case {"name": str(name), "arguments": dict(arguments)}:
            return WrittenCall(name, arguments)
    raise ValueError(f"Not a tool call: {text!r}.")


def chat_turns(messages: Sequence[BaseMessage]) -> list[ChatTurn]:
    """LangChain's messages for a chat template without tools.

    Calls appear in the form that the model must write, answers of tools as the user's next text.
    Consecutive turns of one role become one turn, because templates require alternating roles.
    """
    turns: list[ChatTurn] = []
    for message in messages:
        role, content = _turn(message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += f"\n{content}"
        else:
            turns.append({"role": role, "content": content})
    return turns


def _turn(message: BaseMessage) -> tuple[str, str]:
    if isinstance(message, SystemMessage):
        return "system", message.text
    if isinstance(message, AIMessage):
        calls = [{"name": call["name"], "arguments": call["args"]} for call in message.tool_calls]
        return "assistant", "\n".join(map(json.dumps, calls)) or message.text
    return "user", message.text


def _one_call(function: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": function["name"]}, "arguments": function["parameters"]},
        "required": ["name", "arguments"],
    }

"""LangChain's messages and tools as the GenAI conventions write them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration, Generation, LLMResult

from tidegauge.tracer import Item, MessageFormat, Prompt, Reply
from tidegauge.values import exact_text
from tidegauge.values.safe_reading import (
    entry,
    first,
    is_a,
    label,
    part,
    plain_items,
    same_value,
)

_MAX_PARTS: Final = 1_000
_ROLES: Final = {"human": "user", "developer": "system", "function": "tool"}
_CALLS: Final = frozenset(
    {"tool_use", "tool_call", "tool_call_chunk", "function_call", "input_json_delta"}
)
"""Blocks that say again what the calls of a message say."""
_MEDIA: Final = {
    "image": "image",
    "image_url": "image",
    "audio": "audio",
    "input_audio": "audio",
    "video": "video",
    "file": "document",
    "document": "document",
}


def prompt_of(messages: object, parameters: object) -> Prompt | None:
    """What a chat model is shown; ``None``, it is not known.

    The system messages at the beginning are the instructions.
    """
    if not is_a(messages, list):
        return None
    given: Sequence[Any] = messages if type(messages) is list else part(messages, slice(None))
    leading = 0
    while leading < len(given) and is_a(given[leading], SystemMessage):
        leading += 1
    system: tuple[str, ...] = ()
    if leading:
        system = tuple([text for message in given[:leading] for text in _texts(message.content)])
        given = given[leading:]
    # The user's tools are not asked for their truth.
    tools = plain_items(entry(parameters, "tools")) or plain_items(entry(parameters, "functions"))
    return Prompt(_FORMAT, given, system, tools)


def text_prompt_of(prompt: object) -> Prompt | None:
    """What a model is shown that completes a text; ``None``, it is not known."""
    text = exact_text(prompt) if is_a(prompt, str) else None
    return None if text is None else Prompt(_FORMAT, [text])


def answer_of(response: LLMResult, finish_reasons: Sequence[str]) -> Reply:
    """What a model answered."""
    choices: list[Item] = []
    messages: list[Any] = []
    reason = first(finish_reasons) or "stop"
    for generation in _begun(first(response.generations)):
        if is_a(generation, ChatGeneration):
            message = cast("ChatGeneration", generation).message
            choice = _message(message)
            choice["finish_reason"] = reason
            choices.append(choice)
            messages.append(message)
        elif is_a(generation, Generation):
            text = exact_text(cast("Generation", generation).text)
            parts = [{"type": "text", "content": text}]
            choices.append({"role": "assistant", "parts": parts, "finish_reason": reason})
    return Reply(choices, messages)


def text_of(content: object) -> str:
    """What a model says in a message, in a part of one, or in blocks of it: with its reasoning."""
    if is_a(content, str):
        return exact_text(content) or ""
    blocks = [content] if is_a(content, dict) else content
    return "".join([item["content"] for item in _parts(blocks) if "content" in item])


def shown_result(result: object) -> object:
    """What a tool returned: of content blocks the texts and addresses, and no data of pictures."""
    if type(result) is not list or not result:
        return result
    kinds = [label(entry(block, "type")) for block in result[:_MAX_PARTS]]
    return list(_parts(result)) if any(kind in _MEDIA for kind in kinds) else result


def _message(message: Any) -> Item:
    # Most messages are of one of three classes: to ask whether a class is below another is slow.
    kind: Any = type(message)
    answers, results = kind is AIMessage, kind is ToolMessage
    if not (answers or results or kind is HumanMessage):
        if not is_a(message, BaseMessage):
            text = exact_text(message) if is_a(message, str) else None
            return {"role": "user", "parts": [{"type": "text", "content": text}] if text else []}
        answers = is_a(message, AIMessage)
        results = is_a(message, (ToolMessage, FunctionMessage))
    if results:
        call_id = label(getattr(message, "tool_call_id", None))
        answer: Item = {"type": "tool_call_response", "response": shown_result(message.content)}
        return {"role": "tool", "parts": [{**answer, "id": call_id} if call_id else answer]}
    said = message.content
    if type(said) is str:
        parts: list[Item] = [{"type": "text", "content": said}] if said else []
    else:
        parts = list(_parts(said))
    if not answers:
        role = label(message.role if is_a(message, ChatMessage) else message.type) or "user"
        return {"role": _ROLES.get(role.lower(), role), "parts": parts}
    for call in _begun(message.tool_calls):
        name, call_id = label(entry(call, "name")), label(entry(call, "id"))
        chosen: Item = {"type": "tool_call", "name": name or "tool"}
        if call_id is not None:
            chosen["id"] = call_id
        chosen["arguments"] = entry(call, "args")
        parts.append(chosen)
    return {"role": "assistant", "parts": parts}


def _begun(items: Any) -> Sequence[Any]:
    """The first items of a list."""
    if type(items) is list and len(items) <= _MAX_PARTS:
        return items
    return part(items, slice(_MAX_PARTS))


def _parts(content: object) -> Iterator[Item]:
    if is_a(content, str):
        text = exact_text(content)
        if text:
            yield {"type": "text", "content": text}
        return
    for block in part(content, slice(_MAX_PARTS)):
        if is_a(block, str):
            yield {"type": "text", "content": exact_text(block)}
            continue
        kind = label(entry(block, "type")) or "unknown"
        if kind in _CALLS:
            continue
        if kind in ("text", "output_text", "text-delta"):
            yield {"type": "text", "content": _text(entry(block, "text"))}
        elif kind in ("reasoning", "thinking", "reasoning-delta"):
            said = entry(block, "reasoning") or entry(block, "thinking")
            yield {"type": "reasoning", "content": _text(said)}
        elif kind in _MEDIA:
            yield _medium(_MEDIA[kind], block)
        else:
            yield {"type": kind}


def _medium(modality: str, block: object) -> Item:
    """A picture and so on by its address; its data are left out."""
    given = entry(block, "image_url") or entry(block, "url")
    url = label(entry(given, "url") or given)
    if url is None or url.startswith("data:"):
        return {"type": "omitted", "modality": modality}
    return {"type": "uri", "modality": modality, "uri": url}


def _texts(content: object) -> list[str]:
    return [item["content"] for item in _parts(content) if item["type"] == "text"]


def _text(value: object) -> str:
    return exact_text(value) or "" if is_a(value, str) else ""


def _same(one: Any, other: Any) -> bool:
    """Whether two messages say the same; one may be the answer of a model, in chunks."""
    if not is_a(one, BaseMessage) or not is_a(other, BaseMessage):
        return same_value(one, other)
    answers = is_a(one, AIMessage)
    if answers != is_a(other, AIMessage) or not same_value(one.content, other.content):
        return False
    if answers:
        return same_value(one.tool_calls, other.tool_calls)
    return type(one) is type(other) and same_value(
        getattr(one, "tool_call_id", None), getattr(other, "tool_call_id", None)
    )


def _tools(given: object) -> list[Item]:
    """Tools in the forms of OpenAI and of Anthropic; of others their types and names."""
    found: list[Item] = []
    for tool in part(given, slice(_MAX_PARTS)):
        function = entry(tool, "function") or tool
        name = label(entry(function, "name")) or label(tool)
        if name is None:
            found.append({"type": label(entry(tool, "type")) or "unknown"})
            continue
        definition: Item = {"type": "function", "name": name}
        description = entry(function, "description")
        if is_a(description, str):
            definition["description"] = exact_text(description)
        parameters = entry(function, "parameters") or entry(function, "input_schema")
        if is_a(parameters, dict):
            definition["parameters"] = parameters
        found.append(definition)
    return found


_FORMAT: Final = MessageFormat(_message, _same, _tools)

"""Items of the Agents SDK, and chat messages, as the GenAI conventions write them.

Items are mappings or objects: input, output and the messages of chat completions have other forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from tidegauge.instrumentation.openai_agents.parsing import arguments_value
from tidegauge.instrumentation.values import label, same_value
from tidegauge.tracer import Item, MessageFormat, Prompt, Reply

__all__ = ["answer_of", "prompt_of"]

_ROLES: Final = {"developer": "system", "model": "assistant", "function": "tool"}
_TEXTS: Final = frozenset({"input_text", "output_text", "text", "summary_text", "refusal"})
_OMITTED: Final = {
    "input_image": "image",
    "image_url": "image",
    "input_audio": "audio",
    "input_file": "document",
    "file": "document",
}


def prompt_of(given: object, system: object = None, tools: object = None) -> Prompt | None:
    """What a model is shown; ``None``, it is not known.

    Args:
        given: its input: a text, items or chat messages.
        system: its instructions.
        tools: the tools that it may choose.
    """
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, Sequence):
        return None
    texts = [system] if isinstance(system, str) else []
    messages = list(given)
    while messages and _role(messages[0]) == "system":
        texts += [part["content"] for part in _parts(messages.pop(0)) if "content" in part]
    return Prompt(_FORMAT, messages, tuple(texts), tools)


def answer_of(items: Iterable[Any] | None, finish_reasons: Sequence[str] = ()) -> Reply | None:
    """What a model answered; ``None``, it is not known.

    Args:
        items: its output: items, or chat messages.
        finish_reasons: why it stopped.
    """
    if items is None:
        return None
    known = list(items)
    parts = [part for item in known for part in _parts(item)]
    reason = finish_reasons[0] if finish_reasons else "stop"
    choice = {"role": "assistant", "parts": parts, "finish_reason": reason}
    return Reply([choice], known)


def _message(item: Any) -> Item:
    return {"role": _role(item), "parts": list(_parts(item))}


def _role(item: Any) -> str:
    kind = label(_read(item, "type")) or ""
    if kind.endswith("_output"):
        return "tool"
    role = label(_read(item, "role")) or "assistant"
    return _ROLES.get(role, role)


def _parts(item: Any) -> Iterator[Item]:
    kind, call_id = label(_read(item, "type")) or "message", label(_read(item, "call_id"))
    if kind.endswith("_output"):
        yield _with_id(
            {"type": "tool_call_response", "response": _plain(_read(item, "output"))}, call_id
        )
        return
    if kind.endswith("_call") and kind != "message":
        given = _read(item, "arguments")
        name = label(_read(item, "name")) or kind.removesuffix("_call")
        call: Item = {"type": "tool_call", "name": name, "arguments": arguments_value(given)}
        yield _with_id(call, call_id)
        return
    if kind == "reasoning":
        for one in _read(item, "summary") or ():
            yield {"type": "reasoning", "content": str(_read(one, "text") or "")}
        return
    content = _read(item, "content")
    if _role(item) == "tool":
        answers: Item = {"type": "tool_call_response", "response": _plain(content)}
        yield _with_id(answers, label(_read(item, "tool_call_id")))
        return
    if isinstance(content, str):
        if content:
            yield {"type": "text", "content": content}
    else:
        for block in content or ():
            yield _block(block)
    for chosen in _read(item, "tool_calls") or ():
        tool = _read(chosen, "function") or _read(chosen, "custom")
        given = _read(tool, "arguments") or _read(tool, "input")
        call = {"type": "tool_call", "name": label(_read(tool, "name")) or "tool"}
        call["arguments"] = arguments_value(given)
        yield _with_id(call, label(_read(chosen, "id")))


def _block(block: Any) -> Item:
    kind = label(_read(block, "type")) or "unknown"
    if kind in _TEXTS:
        return {
            "type": "text",
            "content": str(_read(block, "text") or _read(block, "refusal") or ""),
        }
    if kind in _OMITTED:
        return {"type": "omitted", "modality": _OMITTED[kind]}
    return {"type": kind}


def _with_id(item: Item, call_id: str | None) -> Item:
    return item if call_id is None else {**item, "id": call_id}


def _same(one: Any, other: Any) -> bool:
    return same_value(_message(one), _message(other))


def _tools(given: object) -> list[Item]:
    found: list[Item] = []
    for tool in given if isinstance(given, Sequence) else ():
        function = _read(tool, "function") or tool
        name = label(_read(function, "name"))
        if name is None:
            found.append({"type": label(_read(tool, "type")) or "unknown"})
            continue
        definition: Item = {"type": "function", "name": name}
        description = _read(function, "description")
        if isinstance(description, str):
            definition["description"] = description
        parameters = _read(function, "parameters") or _read(function, "params_json_schema")
        if isinstance(parameters, Mapping):
            definition["parameters"] = parameters
        found.append(definition)
    return found


def _read(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _plain(value: Any) -> Any:
    """The output of a tool: a text, or blocks of which the texts are taken."""
    if isinstance(value, list):
        return [_block(block) for block in value]
    return value


_FORMAT: Final = MessageFormat(_message, _same, _tools)

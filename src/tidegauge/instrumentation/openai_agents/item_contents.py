"""Items of the Agents SDK, and chat messages, as the GenAI conventions write them.

Items are mappings or objects: input, output and the messages of chat completions have other forms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from agents import FunctionTool
from pydantic import BaseModel

from tidegauge.instrumentation.openai_agents.parsing import arguments_value
from tidegauge.tracer import Item, MessageFormat, Prompt, Reply
from tidegauge.values import class_name, exact_text
from tidegauge.values.safe_reading import entry, is_a, label, part, plain_items, same_value

_MAX_ITEMS: Final = 1_000
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
    """What a model is shown; ``None``, it is not known."""
    messages: list[Any] = [{"role": "user", "content": given}] if is_a(given, str) else []
    if is_a(given, (list, tuple)):
        messages = list(part(given, slice(None)))
    elif not messages:
        return None
    texts = [exact_text(system)] if is_a(system, str) else []
    leading = 0
    while leading < len(messages) and _role(messages[leading]) == "system":
        texts += [found["content"] for found in _parts(messages[leading]) if "content" in found]
        leading += 1
    system_texts = tuple([text for text in texts if text])
    return Prompt(_FORMAT, messages[leading:], system_texts, plain_items(tools))


def answer_of(items: object, finish_reasons: Sequence[str] = ()) -> Reply | None:
    """What a model answered; ``None``, it is not known."""
    if not is_a(items, (list, tuple)):
        return None
    known = part(items, slice(None))
    parts = [found for item in known[:_MAX_ITEMS] for found in _parts(item)]
    reason = finish_reasons[0] if finish_reasons else "stop"
    choice = {"role": "assistant", "parts": parts, "finish_reason": reason}
    return Reply([choice], known)


def text_of(items: object) -> str:
    """What a model says in its answer, with its reasoning."""
    said: list[str] = []
    for item in part(items, slice(_MAX_ITEMS)):
        if not (label(_read(item, "type")) or "").endswith("_call"):
            said += [found["content"] for found in _parts(item) if "content" in found]
    return "".join(said)


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
        result: Item = {"type": "tool_call_response", "response": _result(_read(item, "output"))}
        yield _with_id(result, call_id)
    elif kind.endswith("_call"):
        name = label(_read(item, "name")) or kind.removesuffix("_call")
        yield _with_id(_call(name, _read(item, "arguments")), call_id)
    elif kind == "reasoning":
        for one in part(_read(item, "summary"), slice(_MAX_ITEMS)):
            yield {"type": "reasoning", "content": _text(_read(one, "text"))}
    elif _role(item) == "tool":
        answer: Item = {"type": "tool_call_response", "response": _result(_read(item, "content"))}
        yield _with_id(answer, label(_read(item, "tool_call_id")))
    else:
        yield from _said(item)


def _said(item: Any) -> Iterator[Item]:
    """The parts of a message: its text or blocks, and the calls of a chat message."""
    content = _read(item, "content")
    text = _text(content)
    if text:
        yield {"type": "text", "content": text}
    for block in part(content, slice(_MAX_ITEMS)):
        yield _block(block)
    for chosen in part(_read(item, "tool_calls"), slice(_MAX_ITEMS)):
        function = _read(chosen, "function")
        tool = _read(chosen, "custom") if function is None else function
        given = _read(tool, "input" if function is None else "arguments")
        name = label(_read(tool, "name")) or "tool"
        yield _with_id(_call(name, given), label(_read(chosen, "id")))


def _block(block: Any) -> Item:
    kind = label(_read(block, "type")) or "unknown"
    if kind in _TEXTS:
        return {"type": "text", "content": _text(_read(block, "text")) or _text(_read(block, kind))}
    if kind in _OMITTED:
        return {"type": "omitted", "modality": _OMITTED[kind]}
    return {"type": kind}


def _call(name: str, given: object) -> Item:
    arguments = arguments_value(exact_text(given)) if is_a(given, str) else given
    return {"type": "tool_call", "name": name, "arguments": arguments}


def _result(value: object) -> object:
    """The output of a tool: a text, or blocks of which the texts are taken."""
    if is_a(value, list):
        return [_block(block) for block in part(value, slice(_MAX_ITEMS))]
    return value


def _with_id(item: Item, call_id: str | None) -> Item:
    return item if call_id is None else {**item, "id": call_id}


def _text(value: object) -> str:
    return exact_text(value) or "" if is_a(value, str) else ""


def _same(one: Any, other: Any) -> bool:
    return same_value(one, other) or same_value(_message(one), _message(other))


def _tools(given: object) -> list[Item]:
    found: list[Item] = []
    for tool in part(given, slice(_MAX_ITEMS)):
        inner = _read(tool, "function")
        function = tool if inner is None else inner
        name = label(_read(function, "name"))
        if name is None:
            found.append({"type": label(_read(tool, "type")) or class_name(type(tool))})
            continue
        definition: Item = {"type": "function", "name": name}
        description = _text(_read(function, "description"))
        if description:
            definition["description"] = description
        given_schema = _read(function, "params_json_schema")
        schema = _read(function, "parameters") if given_schema is None else given_schema
        if is_a(schema, dict):
            definition["parameters"] = schema
        found.append(definition)
    return found


def _read(item: Any, name: str) -> Any:
    """A field of a dictionary, or of an object of the SDK's; other objects are not looked into."""
    if is_a(item, (BaseModel, FunctionTool)):
        return object.__getattribute__(item, "__dict__").get(name)
    return entry(item, name)


_FORMAT: Final = MessageFormat(_message, _same, _tools)

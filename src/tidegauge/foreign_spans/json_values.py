"""Values inside attributes: JSON texts, numbered lists, LangChain's messages, failures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tidegauge._span_counts import span_faults
from tidegauge.events import ABSENT, CallResult
from tidegauge.foreign_spans.span import MAX_READ, Attributes, SpanData
from tidegauge.redact import python_literal
from tidegauge.values.exact_json import exact_json

HUMAN: Final = ("user", "human")

_LABELS: Final = tuple(
    (name, key)
    for name in ("agent", "task", "task_group", "t_max", "memory")
    for key in (f"tidegauge.{name}", f"tidegauge_{name}")
)
LABEL_KEYS: Final = frozenset(key for _, key in _LABELS)
"""Attributes of which one is there, or :func:`labels` finds none."""

_MAX_OPENED: Final = 1 << 15
"""Brackets in a JSON text that is parsed: lists and mappings take the longest."""

_TOOL_MESSAGE: Final = re.compile(
    r"""content=('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*") .*\btool_call_id='""", re.DOTALL
)

_MAX_ODD: Final = 1 << 16
"""Characters of a JSON text with a huge number or a lone surrogate, which is parsed slowly."""

STOPPED: Final = frozenset({"AgentRunStopped", "GraphRunStopped", "RunStopped"})
"""Names of the exceptions that end a run by our policy."""

_CONTROL_FLOW: Final = STOPPED | frozenset(
    {
        "ApprovalRequired",
        "CallDeferred",
        "CancelledError",
        "GeneratorExit",
        "GraphBubbleUp",
        "GraphInterrupt",
        "KeyboardInterrupt",
        "NodeInterrupt",
        "ParentCommand",
    }
)


def parsed(value: object) -> Any:
    """The value of a JSON text; anything else, and a text that takes long to parse, unchanged.

    >>> parsed('{"q": 1}'), parsed("same"), parsed("{not JSON")
    ({'q': 1}, 'same', '{not JSON')
    """
    if type(value) is not str or len(value) > MAX_READ or value.lstrip()[:1] not in ("{", "["):
        return value
    if len(value) > _MAX_OPENED and value.count("[") + value.count("{") > _MAX_OPENED:
        return value
    try:
        return exact_json(value, max_slow=_MAX_ODD)
    except (ValueError, RecursionError):
        return value


def json_value(value: object) -> Any:
    """The value of a JSON text, a text in quotes included; see :func:`parsed`.

    >>> json_value('"AGENT"'), json_value('{"q": 1}'), json_value("plain")
    ('AGENT', {'q': 1}, 'plain')
    """
    if isinstance(value, str) and len(value) > 1 and value[0] == value[-1] == '"':
        inside = parsed(f"[{value}]")
        return inside[0] if isinstance(inside, list) and len(inside) == 1 else value
    return parsed(value)


def mapping(value: object) -> Mapping[str, Any]:
    """The mapping that ``value`` is, or is the JSON text of; else an empty one."""
    value = parsed(value)
    return value if type(value) is dict else {}


def text(value: object) -> str | None:
    """A text, a number or a flag as text; ``None``, nothing and anything else are ``None``.

    >>> text("a"), text(7), text(""), text(["a"])
    ('a', '7', None, None)
    """
    if isinstance(value, str):
        return value or None
    return str(value) if isinstance(value, int | float) else None


def integer(value: object) -> int | None:
    """A whole number; what is none is counted, and left out.

    >>> integer(5.0), integer(None), integer("five")
    (5, None, None)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if value is not None:
        span_faults.repair("unreadable")
    return None


def numbered(attributes: Attributes, prefix: str) -> list[dict[str, Any]]:
    """A list that was spread over attributes: ``prefix.0.a``, ``prefix.1.a``, ...

    >>> numbered({"m.1.role": "tool", "m.0.role": "user", "m.0.name": "a", "n": 1}, "m")
    [{'role': 'user', 'name': 'a'}, {'role': 'tool'}]
    """
    found: dict[int, dict[str, Any]] = {}
    start = len(prefix) + 1
    for key, value in attributes.items():
        if key.startswith(prefix) and key[start - 1 : start] == ".":
            number, _, rest = key[start:].partition(".")
            if number.isdecimal():
                found.setdefault(int(number), {})[rest] = value
    return [found[number] for number in sorted(found)]


def labels(*given: Mapping[str, Any]) -> dict[str, str]:
    """Labels that a user gave: ``tidegauge.task_group`` on spans, ``tidegauge_task_group`` in
    metadata; also agent, task, t_max and memory. The first one wins.

    >>> labels({"tidegauge.agent": "a"}, {"tidegauge_agent": "b", "tidegauge_t_max": 30})
    {'agent': 'a', 't_max': '30'}
    """
    found: dict[str, str] = {}
    for attributes in given:
        if LABEL_KEYS.isdisjoint(attributes):
            continue
        for name, key in _LABELS:
            if key in attributes:
                value = text(attributes[key])
                if value is not None:
                    found.setdefault(name, value)
    return found


def error_type(span: SpanData) -> str | None:
    """Name of the exception that a span ended with, without its module."""
    if span.read is not None:
        return span.read.error
    kind = text(span.attributes.get("error.type"))
    for name, attributes in span.events:
        if name == "exception":
            kind = text(attributes.get("exception.type")) or kind
    return kind.rpartition(".")[2] if kind else None


def failure_text(span: SpanData) -> str | None:
    """The failure of a failed span: ``ValueError: no such key``."""
    if span.read is not None:
        return span.read.failure
    kind, message = error_type(span), span.description
    for name, attributes in span.events:
        if name == "exception":
            message = text(attributes.get("exception.message")) or message
    if kind and message and message.startswith(f"{kind}: "):
        return message
    return ": ".join(filter(None, (kind, message))) or None


def control_flow(span: SpanData) -> bool:
    """Whether a span ended with an exception of control flow, which is not a failure."""
    return error_type(span) in _CONTROL_FLOW


def langchain_tool_message(value: object) -> Mapping[str, Any] | None:
    """The fields of a serialised ``ToolMessage``, in any of its three forms.

    >>> langchain_tool_message({"type": "tool", "content": "none", "tool_call_id": "c"})["content"]
    'none'
    """
    if type(value) is not dict:
        return None
    if value.get("type") == "tool" and "tool_call_id" in value:  # its fields, not wrapped
        return value
    fields = value.get("data") if "data" in value else value.get("kwargs")
    if type(fields) is dict and fields.get("type", value.get("type")) == "tool":
        return fields
    return None


def tool_message_text(result: object) -> object:
    """The content of a LangChain ``ToolMessage`` that was written as text; else the result.

    >>> tool_message_text("content='nothing' name='look' tool_call_id='call_1'")
    'nothing'
    >>> tool_message_text("content of a file")
    'content of a file'
    """
    if not isinstance(result, str) or len(result) > MAX_READ:
        return result
    found = _TOOL_MESSAGE.match(result)
    return result if found is None else python_value(found[1])


def python_value(value: object) -> Any:
    """The value of a Python literal, such as ``{'q': None}``; anything else, unchanged.

    >>> python_value("[{'q': None}]"), python_value("same")
    ([{'q': None}], 'same')
    """
    if not isinstance(value, str) or len(value) > MAX_READ:
        return value
    try:
        return python_literal(value)
    except ValueError:
        return value


def langchain_result(
    value: object, failed: bool | None = False, call_id: str | None = None
) -> tuple[CallResult, str | None]:
    """What a LangChain tool returned, and the id of the call that it answers.

    Messages lose what is new at every call (their ids). Of a ``Command``, the message in its update
    that answers the call counts, or where it goes, as in our own callback handler.
    """
    message = langchain_tool_message(value)
    if message is not None:
        result = CallResult(message.get("content"), message.get("status") == "error")
        return result, text(message.get("tool_call_id"))
    if type(value) is dict and "update" in value and "goto" in value:
        return _command_result(value["update"], value["goto"], failed, call_id)
    if isinstance(value, list) and value and langchain_tool_message(value[0]) is not None:
        return _joined(list(_tool_results(value)))
    return CallResult(value, failed), None


def langchain_task(inputs: object) -> str | None:
    """The task in a chain's input: its first human message, else its first text.

    >>> langchain_task({"messages": [["system", "be brief"], ["user", "find the key"]]})
    'find the key'
    """
    if isinstance(inputs, str):
        return text(inputs)
    if type(inputs) is dict:
        messages = inputs.get("messages")
        if messages is None:
            return next((one for one in inputs.values() if isinstance(one, str) and one), None)
        inputs = messages if isinstance(messages, list) else [messages]
    if isinstance(inputs, list):
        return next(filter(None, map(_human_text, inputs)), None)
    return None


def last_content(value: object) -> object:
    """How an agent's input or output ends: its last message, by its content alone.

    Messages with which langgraph-supervisor shows that an agent is done do not count: they are the
    same, whatever the agent said.

    >>> last_content({"messages": [["user", "find the key"]]})
    'find the key'
    """
    if type(value) is dict and "messages" in value:
        value = value["messages"]
    if isinstance(value, list) and value:
        said = (message for message in reversed(value) if not _hands_back(message))
        value = next(said, value[-1])
    if isinstance(value, list) and len(value) == 2:  # (role, content)
        return value[1]
    return _fields(value).get("content", value)


def _human_text(message: object) -> str | None:
    if isinstance(message, str):
        return message
    if isinstance(message, list) and len(message) == 2:
        role, content = message
    else:
        fields = _fields(message)
        role, content = fields.get("type") or fields.get("role"), fields.get("content")
    if role not in HUMAN:
        return None
    if isinstance(content, list):
        blocks = (item.get("text") for item in content if type(item) is dict)
        content = " ".join([block for block in blocks if isinstance(block, str)])
    return content if isinstance(content, str) else None


def _command_result(
    update: object, goto: object, failed: bool | None, call_id: str | None
) -> tuple[CallResult, str | None]:
    messages = update.get("messages") if type(update) is dict else None
    for message in reversed(messages if isinstance(messages, list) else [messages]):
        fields = langchain_tool_message(message)
        if fields is not None and call_id in (None, text(fields.get("tool_call_id"))):
            return langchain_result(message)
        if call_id is None and _fields(message).get("type") == "ai":
            break
    if update is not None and messages is None:
        return CallResult(update, failed), None
    return CallResult(text(goto) or last_content(update), failed), None


def _fields(message: object) -> Mapping[str, Any]:
    """The fields of a serialised message, in either of its two forms, or as they are."""
    if type(message) is not dict:
        return {}
    fields = message.get("data") or message.get("kwargs") or message
    return fields if type(fields) is dict else {}


def _hands_back(message: object) -> bool:
    """Whether a supervisor appended a message to what its agent said."""
    metadata = _fields(message).get("response_metadata")
    return type(metadata) is dict and metadata.get("__is_handoff_back") is True


def _tool_results(messages: object) -> Iterator[tuple[CallResult, str | None]]:
    for message in messages if isinstance(messages, list) else [messages]:
        if langchain_tool_message(message) is not None:
            yield langchain_result(message)


def _joined(results: list[tuple[CallResult, str | None]]) -> tuple[CallResult, str | None]:
    if len(results) == 1:
        return results[0]
    outcomes = [result.outcome for result, _ in results]
    failed = True in [result.error for result, _ in results]
    return CallResult(outcomes if outcomes else ABSENT, failed), None

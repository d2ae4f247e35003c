"""Messages of models in JSON, in the shapes that instrumentations write them.

OpenAI's chat and responses, Anthropic's and Gemini's blocks, Bedrock's, the Vercel AI SDK's parts,
the parts of the GenAI conventions, LangChain's serialized messages and LlamaIndex's blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from tidegauge._span_counts import span_faults
from tidegauge.events import ABSENT, CallResult, made
from tidegauge.foreign_spans.json_values import HUMAN, parsed, text
from tidegauge.runs.turn_calls import ChosenCall

_MAX_MESSAGES: Final = 20_000
_LISTS: Final = (list, tuple)
_MODEL: Final = ("assistant", "model", "ai")
_CALLS: Final = frozenset(
    {"tool_call", "tool-call", "tool_use", "function_call", "toolUse", "functionCall"}
)
_RESULTS: Final = frozenset(
    {
        *("tool_call_response", "tool-result", "tool_result", "toolResult"),
        *("function_call_output", "function_response", "functionResponse"),
    }
)
_ROLES: Final = {"AIMessage": "ai", "HumanMessage": "human", "ToolMessage": "tool"}
_WRAPPERS: Final = frozenset({"message", "content", "kwargs", "data"})
_ARGUMENTS: Final = ("arguments", "input", "args")
_CALL_IDS: Final = ("call_id", "toolCallId", "tool_call_id", "tool_use_id", "toolUseId", "id")
_OUTCOMES: Final = ("response", "output", "result", "content")


def messages(value: object) -> list[Mapping[str, Any]] | None:
    """The messages in a value or its JSON text; ``None``: there are none.

    Lists inside lists, and a single message, are messages, too.

    >>> messages('[{"role": "user", "content": "hi"}]'), messages(None)
    ([{'role': 'user', 'content': 'hi'}], None)
    """
    if value is None:
        return None
    value = parsed(value)
    if type(value) is dict:
        value = [value]
    if not isinstance(value, _LISTS) or len(value) > _MAX_MESSAGES:
        span_faults.repair("unreadable")
        return None
    found: list[Mapping[str, Any]] = []
    for item in value if str not in map(type, value) else map(parsed, value):
        if isinstance(item, _LISTS):
            if len(item) == 2 and isinstance(item[0], str):
                found.append({"role": item[0], "content": item[1]})
            else:
                found += [_fields(one) for one in map(parsed, item) if type(one) is dict]
        elif type(item) is dict:
            found.append(item if _WRAPPERS.isdisjoint(item) else _fields(item))
    return found


def calls_in(said: Sequence[Mapping[str, Any]]) -> list[ChosenCall]:
    """The tool calls that the model chose in these messages.

    >>> chosen = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    >>> calls_in([{"role": "assistant", "tool_calls": [chosen]}])
    [ChosenCall(name='look', arguments={}, id='c1')]
    >>> calls_in([{"role": "model", "parts": [{"function_call": {"name": "look", "args": {}}}]}])
    [ChosenCall(name='look', arguments={}, id=None)]
    """
    found: list[ChosenCall] = []
    for message in said:
        listed = message.get("tool_calls")
        if not listed and "additional_kwargs" in message:
            listed = _inside(message, "additional_kwargs", "tool_calls")
        given = _parts(message, _CALLS)
        if listed:
            given = [*_dicts(listed), *given]
        seen: set[str] = set()
        for call in map(_call, given):
            if call is not None and (call.id is None or call.id not in seen):
                found.append(call)
                seen.update([] if call.id is None else [call.id])
    return found


def answers_in(shown: Sequence[Mapping[str, Any]]) -> list[tuple[str, CallResult]]:
    """The results of calls after the model's last message, by the ids of the calls.

    >>> answers_in([{"role": "tool", "tool_call_id": "c1", "content": "nothing"}])
    [('c1', CallResult(outcome='nothing', error=None))]
    """
    found: list[tuple[str, CallResult]] = []
    for message in reversed(shown):
        if _role(message) in _MODEL or _parts(message, _CALLS):
            break
        results = _parts(message, _RESULTS)
        call_id = text(message.get("tool_call_id"))
        if call_id is None and "additional_kwargs" in message:
            call_id = text(_inside(message, "additional_kwargs", "tool_call_id"))
        if call_id is not None and not results:
            found.append((call_id, CallResult(_plain(_content(message)), None)))
        found += filter(None, map(_result, results))
    return found


def task_in(shown: Sequence[Mapping[str, Any]]) -> str | None:
    """The first text of a human.

    >>> task_in([{"role": "user", "parts": [{"type": "text", "content": "find the key"}]}])
    'find the key'
    """
    for message in shown:
        if _role(message) in HUMAN:
            content = _plain(_content(message))
            if isinstance(content, str) and content:
                return content
    return None


def last_text(given: Sequence[Mapping[str, Any]]) -> object:
    """The text of the last message; absent, there is none."""
    return _plain(_content(given[-1])) if given else ABSENT


def _fields(message: dict[str, Any]) -> Mapping[str, Any]:
    """The fields of a message, which LangChain's serializers wrap."""
    for around in ("message", "content"):  # a choice, a generation or a candidate around it
        if type(message.get(around)) is dict:
            return _fields(message[around])
    for wrapper in ("kwargs", "data"):
        fields = message.get(wrapper)
        if type(fields) is dict and ("content" in fields or "tool_calls" in fields):
            path = message.get("id")
            kind = path[-1] if isinstance(path, list) and path else message.get("type")
            return {"type": _ROLES.get(str(kind), kind), **fields}
    return message


def _role(message: Mapping[str, Any]) -> str:
    return str(message.get("role") or message.get("type") or "")


def _content(message: Mapping[str, Any]) -> object:
    for name in ("content", "parts", "blocks"):
        content = message.get(name)
        if content is not None:
            return parsed(content) if type(content) is str else content
    return ABSENT


def _parts(message: Mapping[str, Any], kinds: frozenset[str]) -> list[Mapping[str, Any]]:
    """The parts of a message that are of these kinds; the message itself may be one."""
    content = _content(message)
    parts = content if isinstance(content, _LISTS) else ()
    found: list[Mapping[str, Any]] = []
    for part in (message, *parts):
        if type(part) is not dict:
            continue
        kind = part.get("type")
        if type(kind) is str:
            if kind in kinds:
                found.append(part)
        elif not kinds.isdisjoint(part):
            found += [one for kind, one in part.items() if kind in kinds and type(one) is dict]
    return found


def _call(call: Mapping[str, Any]) -> ChosenCall | None:
    function = call.get("function")
    given = function if type(function) is dict else call
    name = given.get("name") or given.get("toolName") or given.get("tool_name")
    if type(name) is not str:
        name = text(name)
    if not name:
        return None
    missing: Any = {} if given is call else ABSENT  # a function without arguments hides them
    arguments: Any = next((given[key] for key in _ARGUMENTS if key in given), missing)
    if type(arguments) is str:
        arguments = parsed(arguments)
    return made(ChosenCall, (name, arguments, _first_id(call)))


def _result(part: Mapping[str, Any]) -> tuple[str, CallResult] | None:
    call_id = _first_id(part)
    outcome = next((part[key] for key in _OUTCOMES if part.get(key) is not None), ABSENT)
    if call_id is None:
        return None
    failed = True if part.get("is_error") is True or part.get("status") == "error" else None
    return call_id, CallResult(_plain(parsed(outcome)), failed)


def _first_id(part: Mapping[str, Any]) -> str | None:
    for key in _CALL_IDS:
        given = part.get(key)
        if given is not None:
            return given or None if type(given) is str else text(given)
    return None


def _plain(content: object) -> object:
    """The texts of a content that consists of texts alone; else the content as it is."""
    if type(content) is dict and content.keys() == {"type", "value"}:  # the Vercel AI SDK's output
        return content["value"]
    if not isinstance(content, _LISTS) or not content:
        return content
    texts = [_text(part) for part in content]
    return " ".join(filter(None, texts)) if None not in texts else content


def _text(part: object) -> str | None:
    if isinstance(part, str):
        return part
    if type(part) is not dict:
        return None
    for name in ("text", "content"):
        if isinstance(part.get(name), str) and part.get("type", "text") not in _RESULTS:
            return str(part[name])
    return None


def _inside(message: Mapping[str, Any], *path: str) -> Any:
    value: Any = message
    for name in path:
        value = value.get(name) if type(value) is dict else None
    return value


def _dicts(listed: object) -> Iterator[Mapping[str, Any]]:
    for item in map(parsed, listed if isinstance(listed, _LISTS) else ()):
        if type(item) is dict:
            yield item

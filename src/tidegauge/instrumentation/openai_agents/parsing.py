"""What the spans and hooks of the Agents SDK carry, read by pure functions.

A model's answer has three forms: the ``Response`` of the Responses API, the same as a mapping
(chat completions that were streamed), and a chat message as a mapping. Its items and fields are
read by name from either kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from agents import (
    GenerationSpanData,
    ModelResponse,
    ResponseSpanData,
    SpanError,
)

from tidegauge.events import ABSENT, CallResult
from tidegauge.instrumentation.turn_calls import ChosenCall
from tidegauge.instrumentation.values import total

__all__ = [
    "ModelAnswer",
    "arguments_value",
    "error_kind",
    "generation_answer",
    "hook_answer",
    "model_name",
    "response_answer",
    "tool_result",
]

_CALLED_BY_KIND: Final = {  # items that the SDK runs a tool for -> name of the tool
    "function_call": None,  # the item's own, handoffs among them
    "custom_tool_call": None,
    "computer_call": "computer",
    "local_shell_call": "local_shell",
    "shell_call": "shell",
    "apply_patch_call": "apply_patch",
}
_ARGUMENTS: Final = ("arguments", "input", "action", "actions", "operation")


class ModelAnswer(NamedTuple):
    """What a model call gave; ``None``: not said."""

    calls: tuple[ChosenCall, ...] | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None

    @property
    def tokens(self) -> int | None:
        """Tokens of both directions together."""
        return total(self.input_tokens, self.output_tokens)


def hook_answer(response: ModelResponse) -> ModelAnswer:
    """The answer that a hook gets. Usage without any request is not known."""
    usage = response.usage
    calls = tuple(_calls(response.output))
    if not (usage.requests or usage.total_tokens):
        return ModelAnswer(calls)
    return ModelAnswer(calls, usage.input_tokens, usage.output_tokens)


def response_answer(data: ResponseSpanData) -> ModelAnswer:
    """The answer on a span of the Responses API. Its calls are not known without contents."""
    calls = None if data.response is None else tuple(_calls(data.response.output))
    usage = data.usage
    if not usage and data.response is not None:
        usage = _plain(data.response.usage)
    return ModelAnswer(calls, *_tokens(usage))


def generation_answer(data: GenerationSpanData) -> ModelAnswer:
    """The answer on a span of any other model. Its calls are not known without contents."""
    if data.output is None:
        return ModelAnswer(None, *_tokens(data.usage))
    calls: list[ChosenCall] = []
    for message in data.output:
        items = message.get("output")
        calls += _calls(items) if items is not None else _calls_of_message(message)
    return ModelAnswer(tuple(calls), *_tokens(data.usage))


def tool_result(output: object, error: SpanError | None) -> CallResult:
    """What a tool returned: the model's view of it, and whether the span says it failed.

    >>> tool_result(None, {"message": "Error running tool", "data": None})
    CallResult(outcome='Error running tool', error=True)
    """
    if error is None:
        return CallResult(output, False)
    return CallResult(error["message"] if output is ABSENT or output is None else output, True)


def error_kind(error: SpanError | None) -> str | None:
    """The error of a span, without the contents that its details may have."""
    return None if error is None else str(error.get("message") or "error")


def model_name(model: object) -> str | None:
    """Name of an agent's model, which is given as a name or as an object that may have one."""
    name = model if isinstance(model, str) else getattr(model, "model", None)
    return None if name is None else str(name)


def arguments_value(text: object) -> object:
    """Arguments, which the SDK hands over as the model wrote them.

    >>> arguments_value('{"page": 7}'), arguments_value("seven")
    ({'page': 7}, 'seven')
    """
    if isinstance(text, str) and text.lstrip()[:1] in ("{", "["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def _calls(items: Iterable[Any]) -> Iterator[ChosenCall]:
    for item in items:
        kind = _read(item, "type")
        if kind not in _CALLED_BY_KIND:
            continue  # text, reasoning, and tools that the provider has run itself
        name = _CALLED_BY_KIND[kind] or str(_read(item, "name") or "tool")
        namespace = _read(item, "namespace")
        if namespace and namespace != name:
            name = f"{namespace}.{name}"
        given = (value for key in _ARGUMENTS if (value := _read(item, key)) is not None)
        arguments = arguments_value(next(given, None))
        yield ChosenCall(name, _plain(arguments), _read(item, "call_id"))


def _calls_of_message(message: Mapping[str, Any]) -> Iterator[ChosenCall]:
    for call in message.get("tool_calls") or ():
        tool = call.get("function") or call.get("custom") or {}
        arguments = tool.get("arguments", tool.get("input"))
        yield ChosenCall(
            str(tool.get("name") or "tool"), arguments_value(arguments), call.get("id")
        )


def _tokens(usage: Mapping[str, Any] | None) -> tuple[int | None, int | None]:
    counts = usage or {}
    return (
        counts.get("input_tokens", counts.get("prompt_tokens")),
        counts.get("output_tokens", counts.get("completion_tokens")),
    )


def _read(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) else value

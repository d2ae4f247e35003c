"""What the spans and hooks of the Agents SDK carry, read by pure functions.

A model's answer has three forms: the ``Response`` of the Responses API, the same as a mapping
(chat completions that were streamed), and a chat message as a mapping. Its items and fields are
read by name from either kind.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import agents
from agents import (
    GenerationSpanData,
    ResponseSpanData,
    SpanError,
)
from agents.models import get_default_model

from tidegauge.events import ABSENT, CallResult
from tidegauge.runs.turn_calls import ChosenCall
from tidegauge.tracer import CallFailure, ModelRequest, ModelResponse
from tidegauge.tracer.conventions import SERVER_ADDRESS, SERVER_PORT
from tidegauge.tracer.model_calls import request_parameters
from tidegauge.values.safe_reading import count, entry, label, total

_CALLED_BY_KIND: Final = {  # items that the SDK runs a tool for -> name of the tool
    "function_call": None,  # the item's own, handoffs among them
    "custom_tool_call": None,
    "computer_call": "computer",
    "local_shell_call": "local_shell",
    "shell_call": "shell",
    "apply_patch_call": "apply_patch",
}
_OPENAI: Final = "openai"
_AZURE: Final = ".openai.azure.com"
_ARGUMENTS: Final = ("arguments", "input", "action", "actions", "operation")


class ModelAnswer(NamedTuple):
    """What a model call gave; ``None``: not said."""

    calls: tuple[ChosenCall, ...] | None = None
    response: ModelResponse = ModelResponse()

    @property
    def tokens(self) -> int | None:
        """Tokens of both directions together."""
        return total(self.response.input_tokens, self.response.output_tokens)


def hook_answer(response: agents.ModelResponse) -> ModelAnswer:
    """The answer that a hook gets. Usage without any request is not known."""
    usage = response.usage
    calls = tuple(_calls(response.output))
    known = vars(usage) if usage.requests or usage.total_tokens else None
    return ModelAnswer(calls, _response(known, id=response.response_id))


def response_answer(data: ResponseSpanData) -> ModelAnswer:
    """The answer on a span of the Responses API. Its calls are not known without contents."""
    given = data.response
    calls = None if given is None else tuple(_calls(given.output))
    usage = data.usage
    if not usage and given is not None:
        usage = _plain(given.usage)
    known = _response(usage, id=_read(given, "id"), model=_read(given, "model"))
    return ModelAnswer(calls, known)


def generation_answer(data: GenerationSpanData) -> ModelAnswer:
    """The answer on a span of any other model. Its calls are not known without contents."""
    if data.output is None:
        return ModelAnswer(None, _response(data.usage))
    calls: list[ChosenCall] = []
    whole: Any = None
    reasons: list[str] = []
    for message in data.output:
        items = message.get("output")
        whole = whole or (message if items is not None else None)
        calls += _calls(items) if items is not None else _calls_of_message(message)
        reasons += filter(None, [label(message.get("finish_reason"))])
    known = _response(data.usage, id=_read(whole, "id"), model=_read(whole, "model"))
    return ModelAnswer(tuple(calls), known._replace(finish_reasons=tuple(reasons)))


def output_items(data: GenerationSpanData) -> list[Any] | None:
    """The items and messages of an answer; ``None``, they are not known."""
    if data.output is None:
        return None
    found: list[Any] = []
    for message in data.output:
        items = message.get("output")
        found += [message] if items is None else items
    return found


def tool_result(output: object, error: SpanError | None) -> CallResult:
    """What a tool returned: the model's view of it, and whether the span says it failed.

    >>> tool_result(None, {"message": "Error running tool", "data": None})
    CallResult(outcome='Error running tool', error=True)
    """
    if error is None:
        return CallResult(output, False)
    return CallResult(error["message"] if output is ABSENT or output is None else output, True)


def failure(error: SpanError | None) -> CallFailure | None:
    """The error of a span: its kind, and with its details what it says.

    >>> failure({"message": "Error getting response", "data": {"error": "timeout"}})
    CallFailure(kind='Error getting response', said='Error getting response: timeout')
    """
    if error is None:
        return None
    kind, data = str(error.get("message") or "error"), entry(error, "data")
    details = (label(entry(data, name)) for name in ("error", "details", "message"))
    said = next(filter(None, details), None)
    return CallFailure(kind, kind if said is None else f"{kind}: {said}")


def tool_failure(result: CallResult, error: SpanError | None) -> CallFailure | None:
    """What a tool failed with: what the model is shown of it, else what the span says.

    >>> tool_failure(CallResult("Please try again.", True), {"message": "m", "data": None})
    CallFailure(kind='tool_error', said='Please try again.')
    """
    if not result.error:
        return None
    known, said = failure(error), result.outcome
    if known is not None and (type(said) is str and said == known.kind):
        said = known.said
    return CallFailure("tool_error", said)


def agent_request(agent: agents.Agent[Any]) -> ModelRequest:
    """What the model of an agent is asked for, as far as its settings say it."""
    model = agent.model
    name = model if isinstance(model, str) else getattr(model, "model", None)
    kind = "" if model is None or isinstance(model, str) else type(model).__name__
    return ModelRequest(
        model=get_default_model() if model is None else None if name is None else str(name),
        provider=_provider(str(name or ""), kind),
        parameters=request_parameters(_settings(agent.model_settings)),
    )


def generation_request(data: GenerationSpanData) -> ModelRequest:
    """What a model was asked for, by its span."""
    given = dict(data.model_config or {})
    parameters = request_parameters(_settings(given))
    host, port = _address(given.get("base_url"))
    if host is not None:
        parameters[SERVER_ADDRESS] = host
        if port is not None:
            parameters[SERVER_PORT] = port
    kind = str(given.get("model_impl") or "")
    provider = "azure.ai.openai" if (host or "").endswith(_AZURE) else _provider(data.model, kind)
    return ModelRequest(model=data.model, provider=provider, parameters=parameters)


def response_parameters(data: ResponseSpanData) -> ModelRequest:
    """What a model was asked for, as its response repeats it."""
    given = data.response
    names = ("temperature", "top_p", "max_output_tokens", "reasoning")
    known = {name: _plain(_read(given, name)) for name in names} if given is not None else {}
    return ModelRequest(provider=_OPENAI, parameters=request_parameters(known))


def _settings(given: object) -> dict[str, Any]:
    """Settings of a model by name, those inside it as dictionaries."""
    found = given if isinstance(given, dict) else vars(given)
    return {name: _plain(value) for name, value in found.items() if value is not None}


def _provider(model: str | None, kind: str) -> str:
    """The provider of a model, by its name and by what asks it.

    A name like ``anthropic/claude`` has the provider in front; ``litellm/anthropic/claude`` says
    first what asks it.

    >>> _provider("gpt-5", "OpenAIResponsesModel"), _provider("litellm/mistral/large", "")
    ('openai', 'mistral')
    >>> _provider("claude", "MyModel")
    'my'
    """
    prefix = (model or "").removeprefix("litellm/").removeprefix("any-llm/").rpartition("/")[0]
    if prefix:
        return prefix.partition("/")[0]
    own = kind.removesuffix("Model").lower()
    return _OPENAI if not own or own.startswith(_OPENAI) else own


def _address(url: object) -> tuple[str | None, int | None]:
    try:
        found = urlsplit(str(url or ""))
        port = found.port or {"https": 443, "http": 80}.get(found.scheme)
        return found.hostname, port
    except ValueError:
        return None, None


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


def _response(
    usage: Mapping[str, Any] | None, *, id: object = None, model: object = None
) -> ModelResponse:
    """What is known of a response, by the names of either API."""
    counts = usage or {}
    read = counts.get("input_tokens_details") or counts.get("prompt_tokens_details")
    written = counts.get("output_tokens_details") or counts.get("completion_tokens_details")
    return ModelResponse(
        id=label(id),
        model=label(model),
        input_tokens=count(counts.get("input_tokens", counts.get("prompt_tokens"))),
        output_tokens=count(counts.get("output_tokens", counts.get("completion_tokens"))),
        # The SDK writes 0 where the provider says nothing.
        cache_read_tokens=count(_read(read, "cached_tokens")) or None,
        cache_write_tokens=count(_read(read, "cache_write_tokens")) or None,
        reasoning_tokens=count(_read(written, "reasoning_tokens")) or None,
    )


def _read(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, Mapping) else getattr(item, name, None)


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) else value

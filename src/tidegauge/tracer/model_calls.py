"""What is known of a model call, as attributes of its span."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from opentelemetry.util.types import AttributeValue

from tidegauge.events import ModelUsage
from tidegauge.tracer import conventions as names
from tidegauge.tracer.span_texts import plain_name
from tidegauge.values.safe_reading import count, entry, is_a, label, number, part

Attributes: TypeAlias = dict[str, AttributeValue]

_MAX_PARAMETERS: Final = 1_000
_MAX_SEQUENCES: Final = 100
_JSON: Final = ("json_object", "json_schema", "json")
_NOTHING: Final[Mapping[str, AttributeValue]] = {}


class ModelRequest(NamedTuple):
    """What a model is asked for.

    Attributes:
        model: its name.
        provider: whose it is, by the convention's names.
        operation: ``chat`` or ``text_completion``.
        parameters: temperature and so on, by the convention's names.
    """

    model: str | None = None
    provider: str | None = None
    operation: str = names.CHAT
    parameters: Mapping[str, AttributeValue] = _NOTHING

    def attributes(self) -> Attributes:
        """The attributes with which the span begins."""
        found: Attributes = {names.OPERATION_NAME: self.operation}
        for name, value in self.parameters.items():
            found[name] = _writable(value)
        for name, text in (
            (names.REQUEST_MODEL, self.model),
            (names.PROVIDER_NAME, self.provider),
        ):
            if text:
                found[name] = text if text.isascii() else plain_name(text)
        return found


class ModelResponse(NamedTuple):
    """What a model call gave, besides contents; ``None``: not reported.

    Attributes:
        id: the provider's id of the response.
        model: the model that answered.
        finish_reasons: why it stopped, for each of its answers.
        input_tokens: tokens that it read, those from a cache included.
        output_tokens: tokens that it wrote, those of its reasoning included.
        cache_read_tokens: of the tokens that it read, those from the provider's cache.
        cache_write_tokens: of the tokens that it read, those written to the provider's cache.
        reasoning_tokens: of the tokens that it wrote, those of its reasoning.
    """

    id: str | None = None
    model: str | None = None
    finish_reasons: tuple[str, ...] = ()
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None

    def usage(self, asked: str | None = None) -> ModelUsage:
        """What the call used, for budgets.

        Args:
            asked: name of the model that was asked for.
        """
        tokens = (self.input_tokens, self.output_tokens, self.cache_read_tokens)
        return ModelUsage(
            *(None, *tokens, self.cache_write_tokens, self.reasoning_tokens, self.model, asked)
        )

    def attributes(self) -> Attributes:
        """The attributes that the span gets at its end."""
        found: Attributes = {}
        if self.id is not None:
            found[names.RESPONSE_ID] = _writable(self.id)
        if self.model is not None:
            found[names.RESPONSE_MODEL] = _writable(self.model)
        if self.finish_reasons:
            found[names.RESPONSE_FINISH_REASONS] = _writable(self.finish_reasons)
        if self.input_tokens is not None:
            found[names.USAGE_INPUT_TOKENS] = self.input_tokens
        if self.output_tokens is not None:
            found[names.USAGE_OUTPUT_TOKENS] = self.output_tokens
        if self.cache_read_tokens is not None:
            found[names.USAGE_CACHE_READ_TOKENS] = self.cache_read_tokens
        if self.cache_write_tokens is not None:
            found[names.USAGE_CACHE_WRITE_TOKENS] = self.cache_write_tokens
        if self.reasoning_tokens is not None:
            found[names.USAGE_REASONING_TOKENS] = self.reasoning_tokens
        return found


def _writable(value: Any) -> AttributeValue:
    if type(value) is str:
        return plain_name(value)
    return tuple(map(plain_name, value)) if type(value) is tuple else value


def request_parameters(given: object) -> dict[str, AttributeValue]:
    """The attributes of the GenAI conventions for the parameters in a dictionary.

    >>> request_parameters({"temperature": 0, "max_tokens": 100, "stop": ["\\n"], "n": 1})
    {'gen_ai.request.temperature': 0.0, 'gen_ai.request.max_tokens': 100, \
'gen_ai.request.stop_sequences': ('\\n',)}
    >>> request_parameters({"response_format": {"type": "json_object"}, "temperature": None})
    {'gen_ai.output.type': 'json'}
    """
    found: dict[str, AttributeValue] = {}
    if type(given) is not dict or len(given) > _MAX_PARAMETERS:
        return found
    for name, value in given.items():
        if type(name) is str and value is not None and name in _PARAMETERS:
            attribute, read = _PARAMETERS[name]
            known = read(value)
            if known is not None:
                found[attribute] = known
    return found


def _sequences(value: object) -> tuple[str, ...] | None:
    texts = [value] if is_a(value, str) else part(value, slice(_MAX_SEQUENCES))
    found = [label(text) for text in texts]
    return tuple([text for text in found if text]) or None


def _choices(value: object) -> int | None:
    choices = count(value)
    return None if choices == 1 else choices


def _seed(value: object) -> int | None:
    return int.__index__(value) if is_a(value, int) else None  # type: ignore[arg-type]


def _streams(value: object) -> bool | None:
    return True if value is True else None


def _effort(value: object) -> str | None:
    return label(entry(value, "effort"))


def _form(value: object) -> str | None:
    if is_a(value, type):
        return "json"  # of this class
    kind = label(entry(value, "type"))
    return "json" if kind in _JSON else "text" if kind == "text" else None


_PARAMETERS: Final[dict[str, tuple[str, Callable[[Any], AttributeValue | None]]]] = {
    "temperature": (names.REQUEST_TEMPERATURE, number),
    "top_p": (names.REQUEST_TOP_P, number),
    "top_k": (names.REQUEST_TOP_K, number),
    "max_tokens": (names.REQUEST_MAX_TOKENS, count),
    "max_completion_tokens": (names.REQUEST_MAX_TOKENS, count),
    "max_output_tokens": (names.REQUEST_MAX_TOKENS, count),
    "stop": (names.REQUEST_STOP_SEQUENCES, _sequences),
    "stop_sequences": (names.REQUEST_STOP_SEQUENCES, _sequences),
    "frequency_penalty": (names.REQUEST_FREQUENCY_PENALTY, number),
    "presence_penalty": (names.REQUEST_PRESENCE_PENALTY, number),
    "seed": (names.REQUEST_SEED, _seed),
    "n": (names.REQUEST_CHOICE_COUNT, _choices),
    "stream": (names.REQUEST_STREAM, _streams),
    "reasoning_effort": (names.REQUEST_REASONING_LEVEL, label),
    "reasoning": (names.REQUEST_REASONING_LEVEL, _effort),
    "response_format": (names.OUTPUT_TYPE, _form),
}
"""By a provider's name of a parameter: its attribute, and how a value is read."""

"""What is known of a model call, as attributes of its span."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from opentelemetry.util.types import AttributeValue

from tidegauge.tracer import conventions as names
from tidegauge.tracer.span_texts import plain_name

Attributes: TypeAlias = dict[str, AttributeValue]

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

    def attributes(self) -> Attributes:
        """The attributes that the span gets at its end."""
        found: Attributes = {}
        for name, value in zip(_RESPONSE, self, strict=True):
            if type(value) is int:  # nearly always
                found[name] = value
            elif value is not None and value != ():
                found[name] = _writable(value)
        return found


def _writable(value: Any) -> AttributeValue:
    if type(value) is str:
        return plain_name(value)
    return tuple(map(plain_name, value)) if type(value) is tuple else value


_RESPONSE: Final = (
    names.RESPONSE_ID,
    names.RESPONSE_MODEL,
    names.RESPONSE_FINISH_REASONS,
    names.USAGE_INPUT_TOKENS,
    names.USAGE_OUTPUT_TOKENS,
    names.USAGE_CACHE_READ_TOKENS,
    names.USAGE_CACHE_WRITE_TOKENS,
    names.USAGE_REASONING_TOKENS,
)
"""The attributes of a response, in the order of its fields."""

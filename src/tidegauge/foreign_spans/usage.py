"""What a model call used, by its span: the tokens of all conventions, in one place."""

from __future__ import annotations

from typing import Final, TypeAlias

from tidegauge.events import ModelUsage
from tidegauge.foreign_spans.json_values import integer, text
from tidegauge.foreign_spans.span import Attributes, ModelSpan, SpanData

Parts: TypeAlias = tuple[int | None, ...]
"""Tokens read and written, and of these: from a cache, to it, of the reasoning."""

_PARTS: Final = (
    (
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.prompt_tokens",
        "llm.token_count.prompt",
    ),
    (
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
    ),
    (
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "llm.token_count.prompt_details.cache_read",
    ),
    (
        "gen_ai.usage.cache_creation.input_tokens",
        "gen_ai.usage.cache_creation_input_tokens",
        "llm.token_count.prompt_details.cache_write",
    ),
    (
        "gen_ai.usage.reasoning.output_tokens",
        "gen_ai.usage.reasoning_tokens",
        "llm.token_count.completion_details.reasoning",
    ),
)


PARTS: Final = len(_PARTS)


def parts_of(attributes: Attributes, tokens: int | None) -> Parts:
    """The tokens apart; empty, where they are not known to be those of the span.

    Args:
        attributes: of its span.
        tokens: of both directions together, as the span was read.

    >>> parts_of({"llm.token_count.prompt": 7, "llm.token_count.completion": 3}, 10)
    (7, 3, None, None, None)
    >>> parts_of({"llm.token_count.prompt": 7, "llm.token_count.completion": 3}, 99)
    ()
    """
    parts = tuple([_first(attributes, names) for names in _PARTS])
    return parts if tokens is not None and (parts[0] or 0) + (parts[1] or 0) == tokens else ()


def usage_of(span: SpanData, model: ModelSpan) -> ModelUsage:
    """What a model call used."""
    attributes = span.attributes
    parts = model.parts or parts_of(attributes, model.tokens) or (None,) * PARTS
    read, written, cached, stored, reasoned = parts
    return ModelUsage(
        model.tokens,
        read,
        written,
        cached,
        stored,
        reasoned,
        text(attributes.get("gen_ai.response.model")),
        model.model,
        began=span.start / 1e9,
        ended=span.end / 1e9,
    )


def _first(attributes: Attributes, names: tuple[str, ...]) -> int | None:
    for name in names:
        given = attributes.get(name)
        if given is not None:
            return integer(given)
    return None

"""LiteLLM's spans of the raw request to a provider, with contents as Python literals.

The span around it uses the GenAI conventions, or is the user's own.
"""

from __future__ import annotations

from typing import Any, Final

from tidegauge.foreign_spans.chat_messages import answers_in, calls_in, messages, task_in
from tidegauge.foreign_spans.conventions import Convention
from tidegauge.foreign_spans.json_values import (
    integer,
    mapping,
    parsed,
    python_value,
    text,
)
from tidegauge.foreign_spans.span import (
    Attributes,
    KnownSpan,
    ModelSpan,
    RunInfo,
    SpanData,
)

_PROVIDERS: Final = (
    *("anthropic", "azure", "azure_ai", "bedrock", "deepseek", "gemini", "groq", "hosted_vllm"),
    *("mistral", "ollama", "openai", "openrouter", "together_ai", "vertex_ai", "xai"),
)
_SHOWN: Final = ("messages", "input", "contents")
_SAID: Final = ("choices", "content", "output", "candidates")
_MARKERS: Final = frozenset(f"llm.{provider}.{name}" for provider in _PROVIDERS for name in _SHOWN)


def _read(span: SpanData) -> KnownSpan | None:
    attributes = span.attributes
    marker = max(_MARKERS.intersection(attributes))  # of several, messages come before an input
    prefix = marker.rpartition(".")[0]
    shown = messages(_value(attributes[marker])) or []
    said = next((attributes[f"{prefix}.{n}"] for n in _SAID if f"{prefix}.{n}" in attributes), None)
    return ModelSpan(
        RunInfo(task=task_in(shown)),
        None if said is None else tuple(calls_in(messages(_message(_value(said))) or [])),
        _tokens(attributes, prefix),
        tuple(answers_in(shown)),
        text(attributes.get(f"{prefix}.model")),
        span.failed,
    )


def _message(said: object) -> object:
    """What was said as messages: blocks and items of an answer are one message."""
    if not isinstance(said, list) or not said:
        return said
    fields = {name for one in said if type(one) is dict for name in one}
    if fields.isdisjoint({"message", "role", "content"}):
        return {"role": "assistant", "content": said}
    return said


def _value(attribute: object) -> Any:
    """The value of an attribute: a Python literal, or JSON."""
    value = parsed(attribute)
    return python_value(value) if isinstance(value, str) else value


def _tokens(attributes: Attributes, prefix: str) -> int | None:
    usage = mapping(_value(attributes.get(f"{prefix}.usage")))
    total = integer(usage.get("total_tokens"))
    sides = [integer(usage.get(side)) for side in ("input_tokens", "output_tokens")]
    counted = [number for number in sides if number is not None]
    return total if total is not None else sum(counted) if counted else None


def _encloses(attributes: Attributes) -> bool:
    return False


CONVENTION: Final = Convention(
    name="LiteLLM",
    markers=_MARKERS,
    encloses=_encloses,
    read=_read,
    contents=("llm.",),
    looks_alike=("llm.",),
    announces={},
    hints={},
    shown="`llm.PROVIDER.messages`",
    written_by="its callback `otel`",
    scope="litellm",
    content_markers=_MARKERS,
)

"""The parameters of a model call, as every framework hands them over: by the providers' names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from opentelemetry.util.types import AttributeValue

from tidegauge.instrumentation.values import count, entry, is_a, label, number, part
from tidegauge.tracer import conventions as names

__all__ = ["request_parameters"]

_MAX_PARAMETERS: Final = 1_000
_MAX_SEQUENCES: Final = 100
_JSON: Final = ("json_object", "json_schema", "json")


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

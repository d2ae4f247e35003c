"""What is given with an invocation or a model call: labels, and parameters by providers' names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from opentelemetry.util.types import AttributeValue

from tidegauge.tracer import RequestLabels
from tidegauge.tracer import conventions as names
from tidegauge.values.safe_reading import count, entry, is_a, label, number, part, same_value

_LABEL_PREFIX: Final = "tidegauge_"
_MAX_LABEL_DIGITS: Final = 16
_MAX_PARAMETERS: Final = 1_000
_MAX_TAGS: Final = 100
_MAX_SEQUENCES: Final = 100
_JSON: Final = ("json_object", "json_schema", "json")


class RunLabels(NamedTuple):
    """Labels of a run; ``None``: not given."""

    agent: str | None = None
    task: str | None = None
    task_group: str | None = None
    t_max: int | None = None
    memory: str | None = None


def run_labels(
    metadata: Mapping[str, Any], inherited: Mapping[str, Any] | None = None
) -> RunLabels:
    """The ``tidegauge_`` keys of the metadata of an invocation or a trace.

    Args:
        metadata: of the invocation or trace.
        inherited: metadata of the run around it: its labels are not this run's.

    >>> run_labels({"tidegauge_agent": "a", "tidegauge_t_max": "30"})
    RunLabels(agent='a', task=None, task_group=None, t_max=30, memory=None)
    """
    labels: dict[str, Any] = {}
    for name in RunLabels._fields:
        value = metadata.get(_LABEL_PREFIX + name)
        text = label(value)
        if text is None:
            continue
        if inherited is not None and same_value(inherited.get(_LABEL_PREFIX + name), value):
            continue
        if name != "t_max":
            labels[name] = text
        elif text.isdecimal() and len(text) < _MAX_LABEL_DIGITS and int(text) > 0:
            labels[name] = int(text)
    return RunLabels(**labels)


def request_labels(metadata: Mapping[str, Any], tags: object) -> RequestLabels:
    """User, session and tags, as the metadata of an invocation or a trace name them.

    >>> request_labels({"user_id": "u1"}, ["nightly"])
    RequestLabels(user='u1', session=None, tags=('nightly',))
    """
    given = [label(tag) for tag in part(tags, slice(_MAX_TAGS))]
    user, session = label(metadata.get("user_id")), label(metadata.get("session_id"))
    return RequestLabels(user, session, tuple([tag for tag in given if tag]))


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

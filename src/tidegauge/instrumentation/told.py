"""What each framework tells in its own way: calls that a model chose, what a run is known by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tidegauge.instrumentation.values import label, same_value

__all__ = ["ChosenCall", "RunLabels", "added", "run_labels"]

_PREFIX: Final = "tidegauge_"
_MAX_DIGITS: Final = 16


class ChosenCall(NamedTuple):
    """A tool call that the model chose."""

    name: str
    arguments: object
    id: str | None = None


class RunLabels(NamedTuple):
    """What a run is known by; ``None``: not said."""

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
        metadata: what came with it.
        inherited: metadata of the run around it: what is the same there was said about that run.

    >>> run_labels({"tidegauge_agent": "a", "tidegauge_t_max": "30"})
    RunLabels(agent='a', task=None, task_group=None, t_max=30, memory=None)
    """
    told: dict[str, Any] = {}
    for name in RunLabels._fields:
        value = metadata.get(_PREFIX + name)
        text = label(value)
        if text is None:
            continue
        if inherited is not None and same_value(inherited.get(_PREFIX + name), value):
            continue
        if name != "t_max":
            told[name] = text
        elif text.isdecimal() and len(text) < _MAX_DIGITS and int(text) > 0:
            told[name] = int(text)
    return RunLabels(**told)


def added(left: int | None, right: int | None) -> int | None:
    """The tokens of both directions together; ``None``, neither was told.

    >>> added(10, None), added(None, None)
    (10, None)
    """
    return None if left is None and right is None else (left or 0) + (right or 0)

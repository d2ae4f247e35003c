"""What is given with an invocation: labels of the run, and whose request it serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tidegauge.tracer import RequestLabels
from tidegauge.values.safe_reading import label, part, same_value

_LABEL_PREFIX: Final = "tidegauge_"
_MAX_LABEL_DIGITS: Final = 16
_MAX_TAGS: Final = 100


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

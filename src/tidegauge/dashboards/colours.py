"""Colours: what each means, the same in every panel.

Green is well, orange wants a look, red wants somebody now; blue and purple are things that are
neither good nor bad, grey is what nobody told. What has a name of its own keeps its colour from
panel to panel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

__all__ = ["BAD", "GOOD", "NEUTRAL", "UNTOLD", "WATCH", "Steps", "named_colours"]

Steps: TypeAlias = Sequence[tuple[float, str]]
"""From which value on a colour holds; below the first one it is :data:`GOOD`."""

GOOD: Final = "green"
WATCH: Final = "orange"
BAD: Final = "red"
NEUTRAL: Final = "blue"
UNTOLD: Final = "#808080"
_OTHER: Final = "purple"

_BY_NAME: Final[Mapping[str, str]] = {
    "running": NEUTRAL,
    "looping": BAD,
    "stale": WATCH,
    "success rate": GOOD,
    "AUV": GOOD,
    "at least": GOOD,
    "at most": GOOD,
    "frontier": NEUTRAL,
    "pending": _OTHER,
    "progress": NEUTRAL,
    "loop repeats": BAD,
    "stale score": WATCH,
    "steps": NEUTRAL,
    "lead age": NEUTRAL,
    "recall lag": _OTHER,
    "mean": NEUTRAL,
    "worst": WATCH,
    "half": NEUTRAL,
    "all but 5 %": WATCH,
    "dropped events": NEUTRAL,
    "evicted runs": _OTHER,
    "written": NEUTRAL,
    "taken": NEUTRAL,
    "passed on": GOOD,
    "delivered": GOOD,
    "twice": _OTHER,
    "late": WATCH,
    "summaries": NEUTRAL,
    "decisions": _OTHER,
    "read": NEUTRAL,
    "forgotten": BAD,
}
"""By what the legend says."""

_BY_VALUE: Final[Mapping[str, Mapping[str, str]]] = {
    "{{outcome}}": {
        "success": GOOD,
        "failure": WATCH,
        "stopped": _OTHER,
        "error": BAD,
        "unknown": UNTOLD,
    },
    "{{kind}}": {
        "exploration": NEUTRAL,
        "exploitation": _OTHER,
        "cycle": BAD,
        "result_streak": WATCH,
        "failed_rounds": _OTHER,
    },
    "{{action}}": {"would_stop": NEUTRAL, "nudge": "yellow", "block": WATCH, "stop": _OTHER},
    "{{answer}}": {
        "told": GOOD,
        "unchanged": NEUTRAL,
        "not_ready": WATCH,
        "unauthorized": _OTHER,
        "refused": "yellow",
        "busy": BAD,
    },
}
"""By the value of a label that is the whole legend."""


def named_colours(legend: str) -> Mapping[str, str]:
    """The colours of the series that a legend stands for, by their names.

    >>> named_colours("looping"), named_colours("{{agent}}")
    ({'looping': 'red'}, {})
    """
    if legend in _BY_VALUE:
        return _BY_VALUE[legend]
    return {legend: _BY_NAME[legend]} if legend in _BY_NAME else {}

"""Scores: numbers that judge an active run, up to date at each step.

A score is read when an action is issued and again when its result is observed; the score of a
whole run is its highest. Every score grows with trouble. :data:`SCORES` lists them.

**Stagnation** combines them. It is a clock that runs faster while an agent makes no progress: each
completed step counts one, and up to three more if its action is similar to an earlier one; current
loop repeats, result streak and failed rounds are added. The weights are round numbers, the same
for every agent. They were evaluated on recordings of families of tasks other than those they were
chosen on (``docs/stop-rules.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tidegauge.errors import ConfigurationError
from tidegauge.policies.rule import AnySignals
from tidegauge.streaming_metrics.registry import SIGNALS

__all__ = ["SCORES", "STAGNATION_WEIGHTS", "Score", "score_named", "stagnation_parts"]


@dataclass(frozen=True, slots=True)
class Score:
    """A number that is higher for a run in trouble.

    Args:
        name: its name in policies and reports.
        read: reads it from a run's signals; ``None``, not measured.
        reads_words: whether it depends on the words of actions, which are read only when needed.
        version: increased when the computation changes: earlier thresholds are then rejected.
    """

    name: str
    read: Callable[[AnySignals], float | None]
    reads_words: bool = False
    version: int = 1

    def explain(self, signals: AnySignals) -> str:
        """The score's parts in words, such as ``12 steps + 3 x 4.1 repetition``; or nothing."""
        if self.name != _STAGNATION:
            return ""
        parts = stagnation_parts(signals) or {}
        return " + ".join(
            f"{value:g} {_WORDS[name]}"
            if weight == 1
            else f"{weight:g} x {round(value, 2):g} {_WORDS[name]}"
            for name, weight in STAGNATION_WEIGHTS.items()
            if (value := parts.get(name, 0))
        )


_STAGNATION: Final = "stagnation"

STAGNATION_WEIGHTS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "completed_steps": 1.0,
        "repetition": 3.0,
        "similarity": 3.0,
        "loop_repeats": 1.0,
        "result_streak": 0.5,
        "failed_rounds": 0.5,
    }
)
"""The weight of each part of the stagnation."""

_WORDS: Final = {
    "completed_steps": "steps",
    "repetition": "repetition",
    "similarity": "similarity of the last action",
    "loop_repeats": "loop repeats",
    "result_streak": "steps with the same result",
    "failed_rounds": "failed rounds",
}


def stagnation_parts(signals: AnySignals) -> Mapping[str, float] | None:
    """The parts of a run's stagnation before they are weighted; ``None``, it is not measured.

    Repeats of exempt steps only (a declared poller that waits) do not count.

    >>> from tidegauge.events import Signals
    >>> signals = Signals("r", 4, 5, b"", b"", completed_steps=4, repetition=2.0, similarity=1.0)
    >>> SCORES["stagnation"].read(signals)
    13.0
    >>> SCORES["stagnation"].explain(signals)
    '4 steps + 3 x 2 repetition + 3 x 1 similarity of the last action'
    """
    if signals.repetition is None:
        return None
    exempt = signals.exempt_steps
    streak = signals.result_streak or 0
    return {
        "completed_steps": signals.completed_steps,
        "repetition": signals.repetition,
        "similarity": signals.similarity or 0.0,
        "loop_repeats": 0 if exempt and exempt >= signals.loop_period else signals.loop_repeats,
        "result_streak": 0 if exempt and exempt >= streak else streak,
        "failed_rounds": signals.failed_rounds or 0,
    }


def _stagnation(signals: AnySignals) -> float | None:
    parts = stagnation_parts(signals)
    if parts is None:
        return None
    return sum(STAGNATION_WEIGHTS[name] * value for name, value in parts.items())


def _signal(name: str) -> Score:
    def read(signals: AnySignals) -> float | None:
        value: float | None = getattr(signals, name)
        return value

    return Score(name, read)


def _staleness(signals: AnySignals) -> float | None:
    return None if signals.novelty is None else 1 - signals.novelty


SCORES: Final[Mapping[str, Score]] = MappingProxyType(
    {
        score.name: score
        for score in (
            Score(_STAGNATION, _stagnation, reads_words=True),
            Score("steps", lambda signals: signals.completed_steps),
            Score("steps_begun", lambda signals: signals.steps),
            Score("repetition", lambda signals: signals.repetition, reads_words=True),
            *(_signal(name) for name, signal in SIGNALS.items() if signal.score),
            Score("staleness", _staleness),
        )
    }
)
"""Every score by its name.

``steps`` counts completed steps, ``steps_begun`` also the one that was just issued. ``staleness``
is 1 - novelty.
"""


def score_named(name: str) -> Score:
    """The score of that name.

    Raises:
        ConfigurationError: there is none.
    """
    score = SCORES.get(name)
    if score is None:
        raise ConfigurationError(f"unknown score {name!r}; use one of {', '.join(SCORES)}")
    return score

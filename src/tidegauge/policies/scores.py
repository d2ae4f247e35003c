"""Scores: what a run can be judged by while it goes on, one number that is up to date at each step.

A score is read when an action is issued and again when its outcome is observed; the score of a
whole run is its highest. Every score grows with trouble. :data:`SCORES` lists them.

**Stagnation** is the one that puts them together. It is a clock that runs faster while an agent
gets nowhere: each completed step counts one, and up to three more the more its action is like one
before it; the loop, the streak of one outcome and the failed rounds it is in are added as they
stand. The weights are round numbers, the same for every agent: what they are good for was measured
on recordings of families of tasks that they were not chosen on (``docs/stop-rules.md``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tidegauge.errors import ConfigurationError
from tidegauge.events import Signals

__all__ = ["SCORES", "STAGNATION_WEIGHTS", "Score", "score_named", "stagnation_parts"]


@dataclass(frozen=True, slots=True)
class Score:
    """A number that grows with trouble.

    Args:
        name: what policies and reports call it.
        read: takes it from a run's signals; ``None``, not measured.
        reads_words: whether it goes by the words of actions, which are read only when needed.
        version: raised when the same run gets another score: a line drawn before is outdated.
    """

    name: str
    read: Callable[[Signals], float | None]
    reads_words: bool = False
    version: int = 1

    def explain(self, signals: Signals) -> str:
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
"""What each part of the stagnation counts."""

_WORDS: Final = {
    "completed_steps": "steps",
    "repetition": "repetition",
    "similarity": "similarity of the last action",
    "loop_repeats": "loop repeats",
    "result_streak": "steps with the same outcome",
    "failed_rounds": "failed rounds",
}


def stagnation_parts(signals: Signals) -> Mapping[str, float] | None:
    """The parts of a run's stagnation before they are weighted; ``None``, it is not measured.

    What only excused steps repeat (a declared poller that waits) is no part of it.

    >>> signals = Signals("r", 4, 5, b"", b"", completed_steps=4, repetition=2.0, similarity=1.0)
    >>> SCORES["stagnation"].read(signals)
    13.0
    >>> SCORES["stagnation"].explain(signals)
    '4 steps + 3 x 2 repetition + 3 x 1 similarity of the last action'
    """
    if signals.repetition is None:
        return None
    excused = signals.excused_steps
    streak = signals.result_streak or 0
    return {
        "completed_steps": signals.completed_steps,
        "repetition": signals.repetition,
        "similarity": signals.similarity or 0.0,
        "loop_repeats": 0 if excused and excused >= signals.loop_period else signals.loop_repeats,
        "result_streak": 0 if excused and excused >= streak else streak,
        "failed_rounds": signals.failed_rounds or 0,
    }


def _stagnation(signals: Signals) -> float | None:
    parts = stagnation_parts(signals)
    if parts is None:
        return None
    return sum(STAGNATION_WEIGHTS[name] * value for name, value in parts.items())


def _signal(name: str) -> Score:
    def read(signals: Signals) -> float | None:
        value: float | None = getattr(signals, name)
        return value

    return Score(name, read)


def _staleness(signals: Signals) -> float | None:
    return None if signals.novelty is None else 1 - signals.novelty


SCORES: Final[Mapping[str, Score]] = MappingProxyType(
    {
        score.name: score
        for score in (
            Score(_STAGNATION, _stagnation, reads_words=True),
            Score("steps", lambda signals: signals.completed_steps),
            Score("repetition", lambda signals: signals.repetition, reads_words=True),
            *map(
                _signal,
                (
                    "loop_repeats",
                    "loop_cost_steps",
                    "loop_cost_tokens",
                    "loop_cost_seconds",
                    "result_streak",
                    "failed_rounds",
                    "recurrence",
                    "stale_score",
                    "stale_rises",
                    "oldest_lead_age",
                    "tokens",
                ),
            ),
            Score("staleness", _staleness),
        )
    }
)
"""Every score by its name. ``steps`` counts completed steps; ``staleness`` is 1 - novelty."""


def score_named(name: str) -> Score:
    """The score of that name.

    Raises:
        ConfigurationError: there is none.
    """
    score = SCORES.get(name)
    if score is None:
        raise ConfigurationError(f"unknown score {name!r}: choose from {', '.join(SCORES)}")
    return score

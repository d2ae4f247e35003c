"""Scores: numbers that judge an active run, up to date at each step.

A score is read when an action is issued and again when its result is observed; the score of a
whole run is its highest. Every score grows with trouble. :data:`SCORES` lists them.

:mod:`~tidegauge.streaming_metrics.stagnation` combines them. A score that was learned from
recorded runs is read from its file: :func:`score_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tidegauge.errors import ConfigurationError
from tidegauge.policies.learned_score import LEARNED, LearnedScore
from tidegauge.policies.rule import AnySignals
from tidegauge.streaming_metrics.declaration import Signal, StopKind
from tidegauge.streaming_metrics.registry import SIGNALS
from tidegauge.streaming_metrics.stagnation import stagnation_in_words, stagnation_of


@dataclass(frozen=True, slots=True)
class Score:
    """A number that is higher for a run in trouble.

    Args:
        name: its name in policies and reports.
        read: reads it from a run's signals; ``None``, not measured.
        reads_words: whether it depends on the words of actions, which are read only when needed.
        version: changes when the computation does: earlier thresholds are then rejected.
        stop: why a run above the threshold should end.
        explain: gives its parts in words, such as ``12 steps + 3 x 4.1 repetition``; or nothing.
        learned: what it reads, if it was learned from recorded runs.
    """

    name: str
    read: Callable[[AnySignals], float | None]
    reads_words: bool = False
    version: int | str = 1
    stop: StopKind = "lost cause"
    explain: Callable[[AnySignals], str] = lambda signals: ""
    learned: LearnedScore | None = None


_STAGNATION: Final = "stagnation"


def _of_signal(signal: Signal) -> Score:
    def read(signals: AnySignals) -> float | None:
        value: float | None = getattr(signals, signal.name)
        return value

    return Score(signal.name, read, signal.reads_words, stop=signal.stop)


def _staleness(signals: AnySignals) -> float | None:
    return None if signals.novelty is None else 1 - signals.novelty


SCORES: Final[Mapping[str, Score]] = MappingProxyType(
    {
        score.name: score
        for score in (
            Score(_STAGNATION, stagnation_of, reads_words=True, explain=stagnation_in_words),
            Score("steps", lambda signals: signals.completed_steps),
            Score("steps_begun", lambda signals: signals.steps),
            *(
                _of_signal(signal)
                for name, signal in SIGNALS.items()
                if signal.score and name != _STAGNATION
            ),
            Score("staleness", _staleness, stop="waste"),
        )
    }
)
"""Every score by its name.

``steps`` counts completed steps, ``steps_begun`` also the one that was just issued. ``staleness``
is 1 - novelty.
"""


def score_of(learned: LearnedScore) -> Score:
    """A learned score, for thresholds."""
    return Score(
        LEARNED,
        learned.read,
        reads_words=True,
        version=learned.version,
        explain=learned.explain,
        learned=learned,
    )


def score_named(name: str) -> Score:
    """The score of that name.

    Raises:
        ConfigurationError: there is none.
    """
    score = SCORES.get(name)
    if score is None:
        raise ConfigurationError(f"unknown score {name!r}; use one of {', '.join(SCORES)}")
    return score

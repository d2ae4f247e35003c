"""A line: how high a score may go in one group of runs, learned from runs that went well."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final

from tidegauge.errors import ConfigurationError
from tidegauge.events import Signals
from tidegauge.policies.rule import Rung
from tidegauge.policies.scores import Score, score_named

__all__ = ["Line"]

_RUNGS: Final = ("observe", "nudge", "stop")


@dataclass(frozen=True, slots=True)
class Line:
    """What follows when a run's score goes beyond what good runs had.

    Args:
        score: its name, one of :data:`~tidegauge.policies.SCORES`.
        above: a run crosses when its score is more than this.
        rung: what follows: ``observe`` (counted), ``nudge`` or ``stop``.
        agent: the agent whose runs it is for; ``None``, any.
        task_group: the task group whose runs it is for; ``None``, any.
        runs: how many good runs it was learned from.
        alpha: the share of good runs that may cross it, at most, as it was asked for.
        calibrated: when it was learned, seconds since the epoch; ``None``, not known.

    Raises:
        ConfigurationError: unknown score or rung, or numbers that cannot be.
    """

    score: str
    above: float
    rung: Rung = "observe"
    agent: str | None = None
    task_group: str | None = None
    runs: int = 0
    alpha: float | None = None
    calibrated: float | None = None
    _score: Score = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_score", score_named(self.score))
        if self.rung not in _RUNGS:
            raise ConfigurationError(
                f"unknown rung {self.rung!r} of a line: choose from {', '.join(_RUNGS)}"
            )
        if isinstance(self.above, bool) or not isinstance(self.above, int | float):
            raise ConfigurationError(f"the line of {self.score} is to be a number")
        if math.isnan(self.above) or self.above == -math.inf:
            raise ConfigurationError(f"the line of {self.score} cannot be {self.above}")
        if self.alpha is not None and not 0 < self.alpha < 1:
            raise ConfigurationError(f"alpha is to be between 0 and 1, not {self.alpha:g}")

    @property
    def name(self) -> str:
        """What decides: the score."""
        return self.score

    @property
    def again(self) -> float:
        """By how much its score is to have grown before the model is nudged again."""
        return self.above

    @property
    def reads_words(self) -> bool:
        """Whether its score goes by the words of actions."""
        return self._score.reads_words

    def value(self, signals: Signals) -> float | None:
        """The run's score now; ``None``, not measured."""
        return self._score.read(signals)

    def crossed(self, signals: Signals) -> bool:
        """Whether the run's score is beyond the line now."""
        value = self._score.read(signals)
        return value is not None and value > self.above

    def message(self, signals: Signals) -> str:
        """What happened, in a sentence: the score, the line, and what the score is made of."""
        value = self._score.read(signals) or 0.0
        told = f"{self.score} {value:.4g} is above {self.above:.4g}"
        if self.runs:
            told += f", the line of {self.runs} good runs"
        parts = self._score.explain(signals)
        return f"{told} ({parts})" if parts else told

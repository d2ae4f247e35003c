"""Scores, and thresholds on them: how high a score may go in a group of runs.

A score is a number that judges an active run and grows with trouble. It is read when an action is
issued and again when its result is observed; the score of a whole run is its highest.
:data:`SCORES` lists them; :func:`score_of` makes one of a file that was learned from recorded runs.
Thresholds are learned from successful runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Final, TypeAlias

from tidegauge.errors import ConfigurationError
from tidegauge.policies.learned_score import LEARNED, LearnedScore
from tidegauge.policies.rule import AnySignals, PolicyAction, is_drawn
from tidegauge.streaming_metrics.declaration import Signal, StopKind
from tidegauge.streaming_metrics.registry import SIGNALS
from tidegauge.streaming_metrics.stagnation import stagnation_in_words, stagnation_of


@dataclass(frozen=True, slots=True)
class Score:
    """A number that is higher for a run in trouble.

    Args:
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


_ACTIONS: Final = ("observe", "nudge", "stop")


@dataclass(frozen=True, slots=True)
class Threshold:
    """The action when a run's score exceeds what successful runs had.

    Args:
        score: the name of the score, one of :data:`~tidegauge.policies.SCORES`, or ``learned``.
        threshold: a run exceeds it when its score is more than this.
        action: ``observe`` (only counted), ``nudge`` or ``stop``.
        agent: the agent whose runs it applies to; ``None``, any.
        task_group: the task group whose runs it applies to; ``None``, any.
        runs: number of successful runs it was learned from.
        alpha: the requested bound on the share of successful runs that exceed it.
        calibrated: when it was learned, seconds since the epoch; ``None``, not known.
        agents: the agents that it was learned on; in runs of others, it is only observed. Empty:
            any.
        task_groups: the same for task groups.
        scores: the scores that it was learned from, at or below it, sorted; of many, a sample. See
            :mod:`~tidegauge.policies.shift`.
        learned: the score itself, if it was learned from recorded runs.

    Raises:
        ConfigurationError: an unknown score or action, or a number out of range.
    """

    score: str
    threshold: float
    action: PolicyAction = "observe"
    agent: str | None = None
    task_group: str | None = None
    runs: int = 0
    alpha: float | None = None
    calibrated: float | None = None
    agents: tuple[str, ...] = ()
    task_groups: tuple[str, ...] = ()
    scores: tuple[float, ...] = field(default=(), repr=False, compare=False)
    learned: LearnedScore | None = None
    _score: Score = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        learned = self.learned
        if (self.score == LEARNED) != (learned is not None):
            raise ConfigurationError(
                f"a threshold of the score {self.score!r} "
                + ("needs its file" if learned is None else "has no file")
            )
        found = score_named(self.score) if learned is None else score_of(learned)
        object.__setattr__(self, "_score", found)
        if self.action not in _ACTIONS:
            raise ConfigurationError(
                f"a threshold has no action {self.action!r}; use one of {', '.join(_ACTIONS)}"
            )
        if isinstance(self.threshold, bool) or not isinstance(self.threshold, int | float):
            raise ConfigurationError(f"the threshold of {self.score} must be a number")
        if math.isnan(self.threshold) or self.threshold == -math.inf:
            raise ConfigurationError(
                f"the threshold of {self.score} is {self.threshold}; use a number"
            )
        if self.alpha is not None and not 0 < self.alpha < 1:
            raise ConfigurationError(f"alpha is {self.alpha:g}; use more than 0 and less than 1")

    @property
    def name(self) -> str:
        """The score, as the reason of a decision."""
        return self.score

    @property
    def again(self) -> float:
        """By how much its score must grow before the model is nudged again."""
        return self.threshold

    @property
    def reads_words(self) -> bool:
        """Whether its score depends on the words of actions."""
        return self._score.reads_words

    @property
    def measures(self) -> Score:
        """Its score."""
        return self._score

    def acts_on(self, agent: str, task_group: str) -> bool:
        """Whether it intervenes in such runs; else it is only observed."""
        return (
            self.action != "observe"
            and (not self.agents or agent in self.agents)
            and (not self.task_groups or task_group in self.task_groups)
        )

    def value(self, signals: AnySignals) -> float | None:
        """The run's score now; ``None``, not measured."""
        return self._score.read(signals)

    def message(self, signals: AnySignals) -> str:
        """What happened, in a sentence: the score, the threshold and the score's parts."""
        value = self._score.read(signals) or 0.0
        text = f"{self.score} {value:.4g} is above {self.threshold:.4g}"
        if self.runs:
            text += f", the threshold of {self.runs} successful runs"
        parts = self._score.explain(signals)
        return f"{text} ({parts})" if parts else text


_Place: TypeAlias = tuple[str | None, str | None]
"""The agent and the task group of a threshold."""

_MAX_KEPT: Final = 1_000


class Thresholds:
    """Thresholds by the runs they apply to. Of those for one score, the most specific applies.

    Args:
        thresholds: at most one for each score, agent and task group.
        holdout: share of the runs, from 0 to 1, in which every threshold is only observed.

    Raises:
        ConfigurationError: two thresholds for one score, agent and task group, or a holdout out of
            range.

    >>> thresholds = Thresholds([Threshold("steps", 30), Threshold("steps", 12, agent="browser")])
    >>> [threshold.threshold for threshold in thresholds.of("browser", "shopping")]
    [12]
    """

    def __init__(self, thresholds: Iterable[Threshold] = (), *, holdout: float = 0.0) -> None:
        if not 0 <= holdout <= 1:
            raise ConfigurationError(f"holdout is {holdout:g}; use 0 to 1")
        self.holdout = holdout
        self._by_place: dict[_Place, dict[str, Threshold]] = {}
        self._of = lru_cache(_MAX_KEPT)(self._found)  # read twice at every step
        for threshold in thresholds:
            own = self._by_place.setdefault((threshold.agent, threshold.task_group), {})
            if own.setdefault(threshold.score, threshold) is not threshold:
                raise ConfigurationError(
                    "two thresholds have the same score, agent and task group; remove one"
                )

    def __iter__(self) -> Iterator[Threshold]:
        return (threshold for own in self._by_place.values() for threshold in own.values())

    def __bool__(self) -> bool:
        return bool(self._by_place)

    @property
    def reads_words(self) -> bool:
        """Whether a score depends on the words of actions."""
        return any(threshold.reads_words for threshold in self)

    @property
    def reads_features(self) -> bool:
        """Whether a score was learned, and so depends on the features of runs."""
        return any(threshold.learned is not None for threshold in self)

    def of(self, agent: str, task_group: str) -> tuple[Threshold, ...]:
        """The thresholds that apply to the runs of an agent in a task group."""
        return self._of(agent, task_group)

    def _found(self, agent: str, task_group: str) -> tuple[Threshold, ...]:
        found: dict[str, Threshold] = {}
        for place in ((None, None), (None, task_group), (agent, None), (agent, task_group)):
            found.update(self._by_place.get(place, {}))
        return tuple(found.values())

    def values(self, signals: AnySignals) -> list[tuple[Threshold, float]]:
        """The thresholds that apply to a run, each with its score now, where it was measured."""
        return [
            (threshold, value)
            for threshold in self.of(signals.agent, signals.task_group)
            if (value := threshold.value(signals)) is not None
        ]

    def exceeded(
        self, signals: AnySignals, values: Sequence[tuple[Threshold, float]] | None = None
    ) -> list[tuple[Threshold, PolicyAction]]:
        """The thresholds that a run exceeds, each with its action for that run.

        Args:
            values: the result of :meth:`values`, if it is known.
        """
        known = self.values(signals) if values is None else values
        found = [threshold for threshold, value in known if value > threshold.threshold]
        if not found:
            return []
        observed = self.holds_out(signals.run)
        agent, task_group = signals.agent, signals.task_group
        return [
            (
                one,
                one.action if not observed and one.acts_on(agent, task_group) else "observe",
            )
            for one in found
        ]

    def holds_out(self, run: str) -> bool:
        """Whether every threshold is only observed in this run; its id decides."""
        return is_drawn(run, self.holdout)

"""Thresholds: how high a score may go in a group of runs, learned from successful runs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, TypeAlias

from tidegauge.errors import ConfigurationError
from tidegauge.policies.learned_score import LEARNED, LearnedScore
from tidegauge.policies.rule import AnySignals, PolicyAction, is_drawn
from tidegauge.policies.scores import Score, score_named, score_of

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

"""A learned score: how much a run looks like those that failed, in the user's own recordings.

``tidegauge learn`` (:mod:`~tidegauge.policies.learning`) writes it as a JSON file, which is read
here: for each task group, and for each of its agents, a weight for every feature of a run
(:data:`~tidegauge.streaming_metrics.features.FEATURES`), and for the words of the task, of the last
action and of the last result. The score is the sum of what they add. Words are known by checksums,
in buckets.

In runs of other task groups, or if too few runs were recorded, the score is the stagnation.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson
import xxhash

from tidegauge.errors import ConfigurationError
from tidegauge.fields import content_of
from tidegauge.policies.rule import AnySignals
from tidegauge.settings import shown
from tidegauge.streaming_metrics.features import FEATURES, RunFeatures
from tidegauge.streaming_metrics.stagnation import stagnation_in_words, stagnation_of

LEARNED: Final = "learned"
"""The name of every learned score, in policies and metrics."""

FORMAT: Final = 2
"""Format of the file; others are rejected."""

WORDS: Final = ("task", "action", "result")
"""Where the words come from, in the order of :class:`RunFeatures`."""

_IN_WORDS: Final = {
    **{feature.name: feature.help for feature in FEATURES},
    "task": "words of the task",
    "action": "words of the last action",
    "result": "words of the last result",
}
_NAMES: Final = tuple(feature.name for feature in FEATURES)
_MAX_MEGABYTES: Final = 64
_MAX_BUCKETS: Final = 1 << 16
_LARGEST: Final = 1e12
_SHOWN: Final = 4


class Number(NamedTuple):
    """What one number adds: weight x (value - mean) / scale, the quotient from -limit to limit.

    Attributes:
        weight: of the quotient.
        mean: of the runs that it was learned from.
        scale: their standard deviation.
        limit: so that a value that was never seen does not decide alone.
    """

    weight: float
    mean: float
    scale: float
    limit: float

    def adds(self, value: float) -> float:
        """What the value adds to the score."""
        return self.weight * min(max((value - self.mean) / self.scale, -self.limit), self.limit)


class LearnedWeights(NamedTuple):
    """The weights for the runs of a task group, or of one of its agents.

    Attributes:
        intercept: what every run starts with.
        numbers: of each number, by its name; the others add nothing.
        words: of each bucket, by where the words come from; all of them of the same length.
    """

    intercept: float
    numbers: Mapping[str, Number]
    words: Mapping[str, Sequence[float]]

    def largest(self, count: int = 8) -> list[str]:
        """The numbers with the largest weights, in words, such as ``failed steps +0.8``."""
        ordered = sorted(self.numbers.items(), key=lambda item: -abs(item[1].weight))
        return [f"{_IN_WORDS[name]} {number.weight:+.2g}" for name, number in ordered[:count]]

    def parts(self, features: RunFeatures) -> dict[str, float]:
        """What each part adds to the score."""
        numbers = self.numbers
        found = {
            name: numbers[name].adds(value)
            for name, value in zip(_NAMES, features.values, strict=True)
            if name in numbers
        }
        for name, words in zip(WORDS, features[1:], strict=True):
            weights = self.words.get(name)
            if weights and words:
                size = len(weights)
                buckets = {word % size for word in words}
                found[name] = sum([weights[one] for one in buckets]) / math.sqrt(len(buckets))
        return found


class LearnedScore:
    """A learned score, with what it was learned from.

    Attributes:
        weights: by task group and agent; without an agent (``None``), for its other agents.
        tasks: marks of the tasks that it was learned from, see :func:`task_mark`.
        version: the same for equal files.
        path: the file; empty, none.
    """

    def __init__(
        self,
        weights: Mapping[tuple[str, str | None], LearnedWeights],
        tasks: frozenset[str] = frozenset(),
        *,
        version: str = "",
        path: str = "",
    ) -> None:
        self.weights = dict(weights)
        self.tasks = tasks
        self.version = version
        self.path = path

    def __repr__(self) -> str:
        return f"LearnedScore(version={self.version!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LearnedScore) and self.version == other.version

    def __hash__(self) -> int:
        return hash(self.version)

    def of(self, agent: str, task_group: str) -> LearnedWeights | None:
        """The weights for the runs of an agent in a task group; ``None``: their stagnation."""
        return self.weights.get((task_group, agent)) or self.weights.get((task_group, None))

    def read(self, signals: AnySignals) -> float | None:
        """The score of a run now; ``None``, not measured, or no action was issued yet."""
        weights = self.of(signals.agent, signals.task_group)
        if weights is None:
            return stagnation_of(signals)
        features: RunFeatures | None = signals.features
        if features is None:
            return None
        return weights.intercept + sum(weights.parts(features).values())

    def explain(self, signals: AnySignals) -> str:
        """What raised the score most, in words, such as ``failed steps +0.8, repetition +0.3``."""
        weights = self.of(signals.agent, signals.task_group)
        features: RunFeatures | None = None if weights is None else signals.features
        if weights is None or features is None:
            return stagnation_in_words(signals)
        parts = weights.parts(features)
        raised = sorted(parts.items(), key=lambda part: -part[1])[:_SHOWN]
        return ", ".join(f"{_IN_WORDS[name]} {added:+.2g}" for name, added in raised if added > 0)

    def learned_from(self, run: str, task: str | None) -> bool:
        """Whether it was learned from that task, or, if that is not known, from that run."""
        return task_mark(run, task) in self.tasks


def task_mark(run: str, task: str | None) -> str:
    """The mark of a run's task in the list of tasks that a score was learned from.

    >>> task_mark("r1", "find the key") == task_mark("r2", "find the key")
    True
    """
    name = f"run {run}" if task is None else f"task {task}"
    return f"{xxhash.xxh3_64_intdigest(name.encode('utf-8', 'surrogatepass')):016x}"


def read_score(path: str | os.PathLike[str]) -> LearnedScore:
    """Read the file of a learned score.

    Raises:
        ConfigurationError: the file cannot be read, is not a learned score, or has another format
            or other features.
    """
    name = os.fspath(path)
    content = content_of(path, "score", megabytes=_MAX_MEGABYTES)
    try:
        return _score(orjson.loads(content), xxhash.xxh3_64_hexdigest(content), name)
    except ConfigurationError as error:
        raise ConfigurationError(f"score {name}: {error}") from error
    except orjson.JSONDecodeError as error:
        raise ConfigurationError(f"score {name}: not valid JSON: {error}") from error
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError(
            f"score {name}: not a learned score; write one with tidegauge learn"
        ) from error


def _score(data: Any, version: str, path: str) -> LearnedScore:
    if data["format"] != FORMAT or isinstance(data["format"], bool):
        raise ConfigurationError(
            f"format {shown(data['format'])} is not supported; use format {FORMAT}, or learn again"
        )
    weights: dict[tuple[str, str | None], LearnedWeights] = {}
    for item in data["weights"]:
        place = item["task_group"], item.get("agent")
        if not isinstance(place[0], str) or not isinstance(place[1], str | None):
            raise TypeError("a task group and an agent are strings")
        if place in weights:
            raise ConfigurationError(f"two weights for {shown(place)}; remove one")
        weights[place] = _weights(item)
    tasks = data["tasks"]
    if not isinstance(tasks, list) or not all(isinstance(task, str) for task in tasks):
        raise TypeError("tasks are a list of checksums")
    return LearnedScore(weights, frozenset(tasks), version=version, path=path)


def _weights(item: Mapping[str, Any]) -> LearnedWeights:
    numbers = {name: _number(one) for name, one in item["numbers"].items()}
    unknown = sorted(set(numbers) - set(_NAMES))
    if unknown:
        raise ConfigurationError(f"this tidegauge has no feature {shown(unknown[0])}; learn again")
    words = {name: item["words"].get(name, []) for name in WORDS}
    if any(len(one) > _MAX_BUCKETS for one in words.values()):
        raise ConfigurationError(f"more than {_MAX_BUCKETS} buckets of words")
    return LearnedWeights(
        _bounded(item["intercept"]),
        numbers,
        {name: [_bounded(one) for one in weights] for name, weights in words.items()},
    )


def _number(item: Mapping[str, Any]) -> Number:
    found = Number(*(_bounded(item[name]) for name in Number._fields))
    if found.scale < 1 / _LARGEST or found.limit < 0:
        raise ValueError("a scale is more than 0")
    return found


def _bounded(value: Any) -> float:
    """A number that is not so large that sums of them are infinite or none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    if not abs(value) <= _LARGEST:
        raise ConfigurationError(f"{value:g} is no weight of a score; learn again")
    return float(value)

"""Features: the running numbers from which a learned score judges a run.

They are read when an action is issued: then the run is known to continue, and what the agent chose
is known, too. Some come from the other metrics, some are counted here from the clues in the texts
of a step (:mod:`~tidegauge.streaming_metrics.clues`). Each is a number; what was not measured is 0.

A run has them if its policy has a threshold of a learned score.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from tidegauge.events import Identity
from tidegauge.streaming_metrics.clues import CallClues, ResultClues, text_words
from tidegauge.streaming_metrics.declaration import Declaration, RunView
from tidegauge.streaming_metrics.evicting_dict import EvictingDict
from tidegauge.streaming_metrics.failed_rounds import FailedRounds
from tidegauge.streaming_metrics.fingerprint import task_digest
from tidegauge.streaming_metrics.loops import Loops
from tidegauge.streaming_metrics.metric import Stateful
from tidegauge.streaming_metrics.novelty import Novelty
from tidegauge.streaming_metrics.records import IssuedStep, ObservedStep
from tidegauge.streaming_metrics.recurrence import Recurrence
from tidegauge.streaming_metrics.repetition import Repetition
from tidegauge.streaming_metrics.result_streak import ResultStreak
from tidegauge.streaming_metrics.stagnation import stagnation_of_run
from tidegauge.streaming_metrics.stale_score import StaleScore

_NO_CALLS: Final = CallClues()
_NO_RESULTS: Final = ResultClues()
_NO_WORDS: Final[frozenset[int]] = frozenset()


class RunFeatures(NamedTuple):
    """The features of a run at its last issued action.

    Attributes:
        values: the numbers, in the order of :data:`FEATURES`.
        task: checksums of the words of the task.
        action: of the last action.
        result: of the last result.
    """

    values: tuple[float, ...]
    task: frozenset[int] = _NO_WORDS
    action: frozenset[int] = _NO_WORDS
    result: frozenset[int] = _NO_WORDS


class Features(Stateful):
    """Counts what the clues say, and keeps all features of the last issued action.

    O(1) a step. Memory: checksums of paths, pages, edits, errors and failing tests, up to
    ``max_seen`` of each, and the words of the task and of the last action and result.

    Args:
        task: checksums of the words of the task.
        max_seen: how many of each are remembered.
    """

    __slots__ = (
        "_edited",
        "_errors",
        "_failing",
        "_paths",
        "_places",
        "_result",
        "_tools",
        "_words",
        "counts",
        "max_seen",
        "now",
        "task",
    )

    def __init__(self, *, task: frozenset[int] = _NO_WORDS, max_seen: int = 1_000) -> None:
        self.task = task
        self.max_seen = max_seen
        self.counts: dict[str, float] = dict.fromkeys(_COUNTED, 0.0)
        self.now: tuple[Any, ...] | None = None  # RunFeatures of the last issued action
        self._paths: EvictingDict[int, int] = EvictingDict()
        self._places: EvictingDict[Identity, int] = EvictingDict()
        self._edited: EvictingDict[int, int] = EvictingDict()
        self._errors: EvictingDict[int, int] = EvictingDict()
        self._failing: EvictingDict[int, int] = EvictingDict()
        self._tools: EvictingDict[str, int] = EvictingDict()
        self._words: EvictingDict[int, int] = EvictingDict()
        self._result: frozenset[int] = _NO_WORDS

    def issue(self, step: IssuedStep) -> None:
        """Count an issued action."""
        clues = step.clues or _NO_CALLS
        counts = self.counts
        counts["looks"] += clues.looks
        counts["look_streak"] = counts["look_streak"] + 1 if clues.looks else 0
        counts["edits"] += clues.edits
        counts["since_edit"] = 0 if clues.edits else counts["since_edit"] + 1
        counts["tests"] += clues.tests
        counts["undone"] += clues.undoes
        counts["ends"] += clues.ends
        counts["doubts"] += clues.doubts
        counts["doubts_now"] = clues.doubts
        counts["hopes"] += clues.hopes
        counts["hopes_now"] = clues.hopes
        counts["action_size"] = math.log1p(clues.size)
        counts["named"] += len(clues.paths)
        for path in clues.paths:
            again = self._seen(self._paths, path)
            counts["named_again"] += again > 0
            if clues.edits:
                most = self._seen(self._edited, path)
                counts["edited_again"] += most > 0
                counts["most_edits"] = max(counts["most_edits"], most + 1)
        if clues.open_tasks is not None:
            counts["plan_grew"] += counts["has_plan"] and clues.open_tasks >= counts["open_tasks"]
            counts["open_tasks"] = clues.open_tasks
            counts["has_plan"] = 1
        counts["tool_again"] = self._seen(self._tools, step.name)
        counts["tools"] = len(self._tools)
        words = step.words
        new = sum([self._seen(self._words, word) == 0 for word in words])
        counts["new_words"] = new / len(words) if words else 0.0
        counts["task_words"] = len(words & self.task) / len(self.task) if self.task else 0.0

    def observe(self, step: ObservedStep) -> None:
        """Count an observed result."""
        clues = step.clues or _NO_RESULTS
        counts = self.counts
        if step.failed is not None:
            counts["known"] += 1
            counts["failed"] += step.failed
        counts["failed_now"] = bool(step.failed)
        counts["errors"] += clues.errors > 0
        counts["errors_now"] = clues.errors
        counts["successes"] += clues.successes > 0
        counts["successes_now"] = clues.successes
        counts["returned"] += bool(clues.returned)
        counts["returned_now"] = bool(clues.returned)
        if clues.error is not None:
            counts["same_error"] += self._seen(self._errors, clues.error) > 0
        if clues.failing is not None:
            counts["failing"] += 1
            counts["same_failing"] += self._seen(self._failing, clues.failing) > 0
        counts["failing_now"] = clues.failing is not None
        counts["result_size"] = math.log1p(clues.size)
        counts["sizes"] += counts["result_size"]
        counts["empty"] += clues.size < _EMPTY
        counts["results"] += 1
        if step.place is not None:
            counts["moves"] += 1
            counts["place_again"] = self._seen(self._places, step.place)
            counts["places_again"] += counts["place_again"] > 0
        if self.task:
            found = len(clues.words & self.task) / len(self.task)
            counts["task_found"] = found
            counts["task_found_most"] = max(counts["task_found_most"], found)
        self._result = clues.words

    def _seen(self, seen: EvictingDict[Any, int], key: Any) -> int:
        """How often it occurred before; counts it."""
        count = seen.get(key, 0)
        if count:
            seen.renew(key, count + 1)
        else:
            if len(seen) >= self.max_seen:
                seen.evict()
            seen[key] = 1
        return count

    def keep(self, values: Iterable[float], action: frozenset[int]) -> None:
        """Keep the features of the action that was just issued."""
        self.now = (tuple(values), self.task, action, self._result)

    @property
    def value(self) -> RunFeatures | None:
        """The features of the last issued action; ``None`` before the first."""
        return None if self.now is None else RunFeatures(*self.now)


_MAX_TASK: Final = 4_096
_EMPTY: Final = 8
"""Bytes of a result that says nothing."""


def _names(names: str) -> tuple[str, ...]:
    return tuple(names.split())


_COUNTED: Final = _names(
    """
    looks look_streak edits since_edit tests undone ends doubts doubts_now hopes hopes_now
    action_size named named_again edited_again most_edits plan_grew open_tasks has_plan
    tool_again tools new_words task_words known failed failed_now errors errors_now
    successes successes_now returned returned_now same_error failing same_failing
    failing_now result_size sizes empty results moves place_again places_again task_found
    task_found_most
    """
)


class Feature(NamedTuple):
    """One of the running numbers.

    Attributes:
        name: its name in the file of a score.
        help: what it is, in words, as the message of a stop has it.
        read: reads it from a run.
    """

    name: str
    help: str
    read: Callable[[RunView, Features], float]


def _count(name: str, help: str) -> Feature:
    return Feature(name, help, lambda run, features: features.counts[name])


def _log(name: str, help: str, of: str | None = None) -> Feature:
    counted = of or name
    return Feature(name, help, lambda run, features: math.log1p(features.counts[counted]))


def _share(name: str, part: str, whole: str, help: str) -> Feature:
    def read(run: RunView, features: Features) -> float:
        counts = features.counts
        return counts[part] / counts[whole] if counts[whole] else 0.0

    return Feature(name, help, read)


def _of_steps(name: str, part: str, help: str) -> Feature:
    return Feature(name, help, lambda run, features: features.counts[part] / run.steps)


def _repetition(run: RunView) -> Repetition:
    found: Repetition = run.of(Repetition)
    return found


def _stagnation(run: RunView) -> float:
    # The action that is just being issued does not count as open yet.
    return (stagnation_of_run(run) or 1.0) - 1.0


FEATURES: Final[tuple[Feature, ...]] = (
    Feature("stagnation", "stagnation", lambda run, _: _stagnation(run)),
    Feature("steps", "steps begun", lambda run, _: run.steps),
    Feature("log_steps", "logarithm of the steps begun", lambda run, _: math.log1p(run.steps)),
    Feature(
        "turns_used",
        "share of the turns that are used",
        lambda run, _: min(run.steps / run.t_max, 2.0) if run.t_max else 0.0,
    ),
    Feature("repetition", "repetition", lambda run, _: _repetition(run).total),
    Feature("similarity", "similarity of the last action", lambda run, _: _repetition(run).current),
    Feature(
        "repeated", "share of repeated steps", lambda run, _: _repetition(run).total / run.steps
    ),
    Feature("loop_repeats", "loop repeats", lambda run, _: math.log1p(run.of(Loops).repeats)),
    Feature(
        "result_streak",
        "steps with the same result",
        lambda run, _: math.log1p(run.of(ResultStreak).current or 0),
    ),
    Feature(
        "failed_rounds",
        "failed rounds in a row",
        lambda run, _: math.log1p(run.of(FailedRounds).current or 0),
    ),
    Feature(
        "recurrence",
        "recurrences of an action and its result",
        lambda run, _: math.log1p(run.of(Recurrence).value or 0),
    ),
    Feature(
        "staleness",
        "share of results that are not new",
        lambda run, _: 0.0 if (new := run.of(Novelty).current) is None else 1 - new,
    ),
    Feature("stale_score", "stale score", lambda run, _: math.log1p(run.of(StaleScore).value or 0)),
    _share("failed", "failed", "known", "share of failed steps"),
    _log("failures", "failed steps", of="failed"),
    _count("failed_now", "the last step failed"),
    _of_steps("looks", "looks", "share of steps that only look"),
    _log("look_streak", "steps in a row that only look"),
    _of_steps("edits", "edits", "share of steps that edit"),
    _log("since_edit", "steps since the last edit"),
    _log("edited_again", "files edited again"),
    _log("most_edits", "edits of one file"),
    _log("undone", "edits undone"),
    _log("tests", "test runs"),
    _log("failing", "test runs with failing tests"),
    _log("same_failing", "the same failing tests again"),
    _count("failing_now", "tests fail now"),
    _log("ends", "results handed in"),
    _share("named_again", "named_again", "named", "share of files and pages named before"),
    _log("named", "files and pages named"),
    _share("places_again", "places_again", "moves", "share of places visited before"),
    _log("place_again", "visits of this place"),
    _count("has_plan", "a plan"),
    _log("open_tasks", "open tasks of the plan"),
    _log("plan_grew", "times that the plan did not shrink"),
    _share("errors", "errors", "results", "share of results with an error"),
    _log("errors_now", "words of errors in the last result"),
    _log("same_error", "the same error again"),
    _share("successes", "successes", "results", "share of results with words of success"),
    _log("successes_now", "words of success in the last result"),
    _share("returned", "returned", "results", "share of return codes other than 0"),
    _count("returned_now", "the last return code is not 0"),
    _of_steps("doubts", "doubts", "words of doubt a step"),
    _log("doubts_now", "words of doubt in the last action"),
    _of_steps("hopes", "hopes", "words of success a step"),
    _log("hopes_now", "words of success in the last action"),
    _count("action_size", "size of the last action"),
    _count("result_size", "size of the last result"),
    _share("sizes", "sizes", "results", "mean size of results"),
    _share("empty", "empty", "results", "share of empty results"),
    _log("tools", "different tools"),
    _log("tool_again", "earlier uses of the tool"),
    _count("new_words", "share of new words in the last action"),
    _count("task_words", "share of the task's words in the last action"),
    _count("task_found", "share of the task's words in the last result"),
    _count("task_found_most", "most of the task's words in a result"),
)
"""Every feature, in the order of :attr:`RunFeatures.values`."""


def _task_words(task: str | None) -> frozenset[int]:
    """The words of a task; none if only its digest is known."""
    if task is None or task_digest(task) == task:
        return _NO_WORDS
    return text_words(task.encode("utf-8", "surrogatepass")[:_MAX_TASK])


def _issued(run: RunView, features: Features, step: IssuedStep) -> None:
    features.issue(step)
    features.keep([feature.read(run, features) for feature in FEATURES], step.words)


def _observed(run: RunView, features: Features, step: ObservedStep) -> None:
    features.observe(step)


def _read(run: RunView) -> RunFeatures | None:
    features = run.find(Features)
    return None if features is None else features.value


DECLARATION: Final = Declaration(
    name="features",
    kind=Features,
    make=lambda run: Features(task=_task_words(run.started.task)),
    issued=_issued,
    observed=_observed,
    brought_by_start=lambda started, settings: settings.features,
    details={"features": _read},
)

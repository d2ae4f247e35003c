"""Learning a score from recorded runs: what distinguishes those that fail, step by step.

One logistic regression over the moments at which the runs issued an action, each with its features
and whether its run failed in the end. The moments of a failed run weigh by what a stop there saves:
the steps that are left. Those of a successful run weigh the same: a stop costs it, whenever it
comes. Own runs of an agent weigh most, runs of the other agents of its task group a tenth.

The stagnation is hardly penalised, and a half of it is added, so that with few runs the score is
close to it. The threshold must come from tasks that the score has not seen: :func:`learn` leaves
out half of them.

Needs ``pip install '.[learn]'``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import orjson
import xxhash

from tidegauge.errors import ConfigurationError, MissingExtraError
from tidegauge.events import Answer, Decision, Outcome, RunEnded, RunStarted, RunSummary, Step
from tidegauge.policies.learned_score import FORMAT, WORDS, LearnedWeights, Number, task_mark
from tidegauge.streaming_metrics.features import FEATURES, RunFeatures
from tidegauge.streaming_metrics.packed_runs import PackedEngine

try:
    import numpy as np
    from numpy.typing import NDArray
except ModuleNotFoundError as error:
    raise MissingExtraError("numpy", extra="learn") from error

BUCKETS: Final = 256
"""Into how many buckets the words of each kind go."""

OTHERS: Final = 0.1
"""How much a run of another agent of the task group weighs, beside 1."""

_FREEDOM: Final = 5.0
"""How many times larger a standard deviation of the stagnation is, so that it is penalised less."""

_WORDS: Final = 3.0
"""The same of the words."""

_ADDED: Final = 0.5
"""How many standard deviations of the stagnation are added, for one of the score."""

_STRENGTH: Final = 0.001
"""Inverse of the penalty (``C`` of scikit-learn), at a mean weight of 1."""

_STAGNATION: Final = [feature.name for feature in FEATURES].index("stagnation")
_LIMIT: Final = 5.0
_NO_LIMIT: Final = 1e6
LEAST: Final = 10
"""How many successful and how many failed runs weights need."""

_PARTS: Final = 1 << 32

_Floats: TypeAlias = NDArray[np.float64]
_Whole: TypeAlias = NDArray[np.int64]


class Example(NamedTuple):
    """A recorded run, by the features at each of its actions.

    Attributes:
        moments: its features, one for each action.
    """

    run: str
    agent: str
    task_group: str
    task: str | None
    success: bool
    moments: list[RunFeatures]


class ExampleSink:
    """A step sink that keeps the features of every run whose success is known.

    Runs without a step, and runs that a threshold could end when they were recorded, are left out:
    of those that it ended, it is not known whether they would have failed.

    Attributes:
        could_be_ended: how many runs were left out because a threshold could end them.
    """

    def __init__(
        self,
        on_example: Callable[[Example], None],
        *,
        exact: bool = False,
        detect_polls: bool | None = None,
    ) -> None:
        self._on_example = on_example
        self._open: dict[str, tuple[RunStarted, list[RunFeatures]]] = {}
        self.could_be_ended = 0
        self._engine = PackedEngine(
            normaliser=None if exact else "volatile",
            detect_polls=detect_polls,
            max_groups=1,
            max_actions=1,
            features=True,
        )

    def run_started(self, event: RunStarted) -> None:
        """A run began."""
        self._engine.run_started(event)
        self._open[event.run] = event, []

    def step_issued(self, event: Step) -> Decision:
        """An action was issued."""
        signals = self._engine.step_issued(event)
        opened = self._open.get(event.run)
        if signals is not None and opened is not None and signals.features is not None:
            opened[1].append(signals.features)
        return Decision(signals=signals)

    def step_observed(self, event: Outcome) -> Decision:
        """A result was observed."""
        return Decision(signals=self._engine.step_observed(event))

    def answered(self, event: Answer) -> Decision:
        """The model answered without a call."""
        return self._engine.answered(self._engine.digester.answer(event))

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        """A run ended."""
        report = self._engine.run_ended(event)
        started, moments = self._open.pop(event.run, (None, []))
        if started is None or report is None or report.success is None or not moments:
            return None
        if event.policy is not None and event.policy.acts:
            self.could_be_ended += 1
            return None
        self._on_example(
            Example(
                *(started.run, started.agent, started.task_group, started.task),
                report.success,
                moments,
            )
        )
        return None


class FeatureTable:
    """The features of many runs as arrays, made once.

    Attributes:
        numbers: the features, by moment and feature.
        words: a sparse matrix, by moment and bucket: those of the task, of the action and of the
            result, each with a length of 1.
        run: index of each moment's run.
        step: number of its step, from 1.
    """

    def __init__(self, examples: Sequence[Example]) -> None:
        from scipy import sparse

        self.examples = examples
        moments = [moment for example in examples for moment in example.moments]
        self.numbers: _Floats = np.array([moment.values for moment in moments], dtype=float)
        self.steps: _Whole = np.array([len(example.moments) for example in examples])
        self.run: _Whole = np.repeat(np.arange(len(examples)), self.steps)
        self.step: _Whole = np.concatenate([np.arange(1, steps + 1) for steps in self.steps])
        self.failed = np.array([not example.success for example in examples])
        places: list[int] = []
        values: list[float] = []
        ends = [0]
        for moment in moments:
            for kind, words in enumerate(moment[1:]):
                if not words:
                    continue
                buckets = sorted({word % BUCKETS for word in words})
                places += [kind * BUCKETS + one for one in buckets]
                values += [1 / math.sqrt(len(buckets))] * len(buckets)
            ends.append(len(places))
        shape = (len(moments), len(WORDS) * BUCKETS)
        self.words: Any = sparse.csr_matrix((values, places, ends), shape=shape)

    def highest(self, scores: _Floats) -> _Floats:
        """The highest score of each run."""
        found = np.full(len(self.examples), -np.inf)
        np.maximum.at(found, self.run, scores)
        return found


class Fitted(NamedTuple):
    """A fitted score.

    Attributes:
        intercept: what every run starts with.
        numbers: weight, mean, scale and limit of each feature, by row.
        words: weight of each bucket.
    """

    intercept: float
    numbers: _Floats
    words: _Floats

    def scores(self, table: FeatureTable) -> _Floats:
        """The score of every moment of a table."""
        weight, mean, scale, limit = self.numbers
        numbers = np.clip((table.numbers - mean) / scale, -limit, limit) @ weight
        found: _Floats = numbers + table.words @ self.words + self.intercept
        return found

    def weights(self) -> LearnedWeights:
        """The same, as a live policy reads it."""
        return LearnedWeights(
            self.intercept,
            {
                feature.name: Number(*map(float, column))
                for feature, column in zip(FEATURES, self.numbers.T, strict=True)
                if column[0]
            },
            {
                name: [float(one) for one in words]
                for name, words in zip(WORDS, np.split(self.words, len(WORDS)), strict=True)
                if words.any()
            },
        )


def fit(
    table: FeatureTable, runs: _Floats, *, added: float = _ADDED, by_left: bool = True
) -> Fitted:
    """Fit a score to the runs of a table.

    Args:
        runs: the weight of each run; 0 leaves it out.
        added: how many standard deviations of the stagnation are added, for one of the score.
        by_left: whether a moment of a failed run weighs by the steps that are left.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    try:
        from scipy import sparse
        from sklearn.linear_model import LogisticRegression
    except ImportError as error:
        raise MissingExtraError("scikit-learn", extra="learn") from error
    of_moments = (runs / table.steps)[table.run]
    rows = np.flatnonzero(of_moments)
    failed, weights = table.failed[table.run][rows], of_moments[rows]
    if by_left:
        left = weights * (table.steps[table.run] - table.step + 1)[rows]
        weights = np.where(failed, left * weights[failed].sum() / left[failed].sum(), weights)
    values = table.numbers[rows]
    mean = np.average(values, axis=0, weights=weights)
    scale = np.sqrt(np.average((values - mean) ** 2, axis=0, weights=weights))
    varies = scale > 1e-9
    scale[~varies] = 1.0
    limit, freedom = np.full(len(FEATURES), _LIMIT), np.ones(len(FEATURES))
    limit[_STAGNATION], freedom[_STAGNATION] = _NO_LIMIT, _FREEDOM
    standard = np.clip((values - mean) / scale, -limit, limit) * freedom * varies
    inputs = sparse.csr_matrix(
        sparse.hstack([sparse.csr_matrix(standard), table.words[rows] * _WORDS])
    )
    model = LogisticRegression(C=_STRENGTH, max_iter=200, tol=1e-3)
    model.fit(inputs, failed, sample_weight=weights / weights.mean())
    found = model.coef_[0]
    weight = found[: len(FEATURES)] * freedom * varies
    of_words = found[len(FEATURES) :] * _WORDS
    fitted = Fitted(float(model.intercept_[0]), np.array([weight, mean, scale, limit]), of_words)
    own = (runs == runs.max())[table.run]
    spread = table.numbers[own, _STAGNATION].std() / scale[_STAGNATION]
    if spread:
        weight[_STAGNATION] += added * fitted.scores(table)[own].std() / spread
    return fitted._replace(numbers=np.array([weight, mean, scale, limit]))


class LearnedGroup(NamedTuple):
    """What was learned of a task group, or of one of its agents.

    Attributes:
        agent: the agent; ``None``, the others.
        runs: runs of the agent that it was learned from; without an agent, of all.
        left: successful runs of it that are left to calibrate on.
        weights: the weights; ``None``, too few runs: the score is the stagnation.
    """

    task_group: str
    agent: str | None
    runs: int
    failed: int
    left: int
    weights: LearnedWeights | None


def learn(
    examples: Iterable[Example],
    *,
    share: float = 0.5,
    seed: int = 0,
    advance: Callable[[int], None] = lambda done: None,
) -> tuple[list[LearnedGroup], frozenset[str]]:
    """Learn a score for every task group, and for every agent with enough runs.

    Args:
        share: of the tasks, that it is learned from; the others are left to calibrate on.
        advance: called after each fit with the number of its runs.

    Returns:
        The groups, and the marks of the tasks that the score was learned from.

    Raises:
        ConfigurationError: the share is out of range.
        MissingExtraError: scikit-learn is not installed.
    """
    if not 0 < share <= 1:
        raise ConfigurationError(f"share is {share:g}; use more than 0 and at most 1")
    by_group: dict[str, list[Example]] = {}
    for example in examples:
        by_group.setdefault(example.task_group, []).append(example)
    groups: list[LearnedGroup] = []
    marks: set[str] = set()
    for task_group, own in by_group.items():
        drawn = [_is_drawn(example, share, seed) for example in own]
        chosen = [example for example, is_drawn in zip(own, drawn, strict=True) if is_drawn]
        marks.update(task_mark(example.run, example.task) for example in chosen)
        table = FeatureTable(chosen) if _enough(chosen) else None
        agents = list(dict.fromkeys(example.agent for example in own))
        for agent in (None, *(agents if len(agents) > 1 else ())):
            of_agent = [one for one in chosen if agent in (None, one.agent)]
            weights = None
            if table is not None and (agent is None or _enough(of_agent)):
                runs = np.array([1.0 if agent in (None, one.agent) else OTHERS for one in chosen])
                weights = fit(table, runs).weights()
            advance(len(of_agent))
            groups.append(
                LearnedGroup(
                    task_group,
                    agent,
                    len(of_agent),
                    sum(not one.success for one in of_agent),
                    sum(
                        one.success and not is_drawn and agent in (None, one.agent)
                        for one, is_drawn in zip(own, drawn, strict=True)
                    ),
                    weights,
                )
            )
    return groups, frozenset(marks)


def _is_drawn(example: Example, share: float, seed: int) -> bool:
    mark = f"{seed} {task_mark(example.run, example.task)}".encode()
    return xxhash.xxh3_64_intdigest(mark) % _PARTS < share * _PARTS


def _enough(examples: Sequence[Example]) -> bool:
    failed = sum(not one.success for one in examples)
    return failed >= LEAST and len(examples) - failed >= LEAST


def score_document(groups: Iterable[LearnedGroup], tasks: Iterable[str]) -> bytes:
    """The text of a score's file, for :func:`~tidegauge.policies.learned_score.read_score`."""
    document = {
        "format": FORMAT,
        "learned": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "weights": [
            {
                "task_group": group.task_group,
                **({} if group.agent is None else {"agent": group.agent}),
                "runs": group.runs,
                "failed": group.failed,
                "intercept": group.weights.intercept,
                "numbers": {
                    name: number._asdict() for name, number in group.weights.numbers.items()
                },
                "words": dict(group.weights.words),
            }
            for group in groups
            if group.weights is not None
        ],
        "tasks": sorted(tasks),
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

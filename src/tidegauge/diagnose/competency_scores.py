"""Scores of runs by judges, and how far they agree with the labels of people.

A file has one JSON object per line, with ``run``, ``competency`` and ``score``. The agreement is
three correlations per competency (AgentDiagnose, table 1).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import orjson

from tidegauge.errors import ConfigurationError, MissingExtraError
from tidegauge.fields import FieldError, number, text


class CompetencyScore(NamedTuple):
    """One competency of one run.

    Attributes:
        competency: its name, such as ``self_verification``.
        score: 1 to 4; ``None``: not applicable or not judged.
        steps: the steps on which it is based.
    """

    run: str
    competency: str
    score: float | None = None
    reason: str = ""
    steps: tuple[int, ...] = ()


def read_scores(lines: Iterable[bytes], source: str = "scores") -> list[CompetencyScore]:
    """The scores of a file, in its order; the last score of a run and competency counts.

    Raises:
        ConfigurationError: a line is invalid.

    >>> read_scores([b'{"run": "r1", "competency": "objective_quality", "score": 3}'])
    [CompetencyScore(run='r1', competency='objective_quality', score=3, reason='', steps=())]
    """
    scores: dict[tuple[str, str], CompetencyScore] = {}
    for at, line in enumerate(lines, start=1):
        if line.isspace() or not line:
            continue
        score = _score(line, f"{source}:{at}")
        scores[score.run, score.competency] = score
    return list(scores.values())


def _score(line: bytes, where: str) -> CompetencyScore:
    try:
        data = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise ConfigurationError(f"{where}: invalid JSON: {error}") from None
    if not isinstance(data, dict):
        raise ConfigurationError(f"{where}: not a JSON object")
    steps = data.get("steps")
    try:
        run, competency = text(data, "run"), text(data, "competency")
        score = number(data, "score")
    except FieldError as error:
        raise ConfigurationError(f"{where}: {error}") from None
    return CompetencyScore(
        run=run,
        competency=competency,
        score=score,
        reason=data["reason"] if isinstance(data.get("reason"), str) else "",
        steps=tuple(step for step in steps if type(step) is int) if isinstance(steps, list) else (),
    )


def overall_scores(scores: Iterable[CompetencyScore]) -> dict[str, float]:
    """The overall score of each run: the mean of its competencies.

    AgentDiagnose selects runs for training by such scores. Competencies without a score do not
    count, and runs without any have no overall score.

    >>> overall_scores([CompetencyScore("r1", "planning", 4), CompetencyScore("r1", "reading", 1)])
    {'r1': 2.5}
    """
    found: dict[str, list[float]] = {}
    for score in scores:
        if score.score is not None:
            found.setdefault(score.run, []).append(score.score)
    return {run: sum(values) / len(values) for run, values in found.items()}


class Agreement(NamedTuple):
    """The agreement of the scores of one competency with the labels of people.

    A correlation is ``None`` if it is undefined: fewer than two runs, or the same value for all
    scores or all labels.

    Attributes:
        n: number of runs with both a score and a label.
        kendall: tau-b, which allows ties.
    """

    n: int
    pearson: float | None = None
    spearman: float | None = None
    kendall: float | None = None


def agreement(pairs: Iterable[tuple[float | None, float | None]]) -> Agreement:
    """The agreement of (score, label) pairs; pairs with a missing value do not count.

    Raises:
        MissingExtraError: SciPy is not installed.

    >>> round(agreement([(1, 1), (2, 3), (3, 2), (4, 4)]).spearman, 3)
    0.8
    >>> agreement([(1, 2), (3, 2), (None, 4)])
    Agreement(n=2, pearson=None, spearman=None, kendall=None)
    """
    try:
        from scipy import stats
    except ModuleNotFoundError as error:
        raise MissingExtraError("scipy", extra="judge") from error
    known = [
        (score, label)
        for score, label in pairs
        if score is not None and label is not None and math.isfinite(score + label)
    ]
    scores, labels = [score for score, _ in known], [label for _, label in known]
    if len(set(scores)) < 2 or len(set(labels)) < 2:
        return Agreement(len(known))
    return Agreement(
        len(known),
        *(
            float(correlation(scores, labels).statistic)
            for correlation in (stats.pearsonr, stats.spearmanr, stats.kendalltau)
        ),
    )


def agreements(
    scores: Iterable[CompetencyScore], labels: Iterable[CompetencyScore]
) -> Mapping[str, Agreement]:
    """The agreement of scores with labels, by competency, in the order of the labels."""
    judged = {(score.run, score.competency): score.score for score in scores}
    pairs: dict[str, list[tuple[float | None, float | None]]] = {}
    for label in labels:
        pair = (judged.get((label.run, label.competency)), label.score)
        pairs.setdefault(label.competency, []).append(pair)
    return {competency: agreement(found) for competency, found in pairs.items()}

"""How far judges agree with people: three correlations a competency (AgentDiagnose, table 1)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidegauge.diagnose.scores import Score
from tidegauge.errors import MissingExtraError

__all__ = ["Agreement", "agreement", "agreements"]


class Agreement(NamedTuple):
    """Of the scores of one competency with the labels of people.

    A correlation is ``None`` where it is not defined: fewer than two runs, or one and the same
    score for all of them on either side.

    Attributes:
        n: runs that have both a score and a label.
        pearson: r.
        spearman: rho.
        kendall: tau-b, which allows for ties.
    """

    n: int
    pearson: float | None = None
    spearman: float | None = None
    kendall: float | None = None


def agreement(pairs: Iterable[tuple[float | None, float | None]]) -> Agreement:
    """The agreement of (score, label) pairs; one of which either is missing does not count.

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


def agreements(scores: Iterable[Score], labels: Iterable[Score]) -> Mapping[str, Agreement]:
    """The agreement of scores with labels, by competency, in the order of the labels.

    Args:
        scores: what judges said.
        labels: what people said, of some or all of the runs.
    """
    said = {(score.run, score.competency): score.score for score in scores}
    pairs: dict[str, list[tuple[float | None, float | None]]] = {}
    for label in labels:
        pair = (said.get((label.run, label.competency)), label.score)
        pairs.setdefault(label.competency, []).append(pair)
    return {competency: agreement(found) for competency, found in pairs.items()}

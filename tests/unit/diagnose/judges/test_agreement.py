"""Agreement with people is what SciPy says of the same numbers, and absent where that is none."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from tidegauge.diagnose.competency_scores import Agreement, CompetencyScore, agreement, agreements

SCORES = [1, 2, 2, 3, 4, 4, 1, 3]
LABELS = [1, 1, 3, 3, 4, 3, 2, 4]


def test_the_correlations_are_those_of_scipy() -> None:
    found = agreement(zip(SCORES, LABELS, strict=True))
    assert found.n == 8
    assert found.pearson == pytest.approx(stats.pearsonr(SCORES, LABELS).statistic)
    assert found.spearman == pytest.approx(stats.spearmanr(SCORES, LABELS).statistic)
    assert found.kendall == pytest.approx(stats.kendalltau(SCORES, LABELS).statistic)


def test_a_small_example_by_hand() -> None:
    # deviations (-1, 0, 1) and (-1, 1, 0): r = 1 / 2; of 3 pairs 2 agree: tau = (2 - 1) / 3
    found = agreement([(1, 1), (2, 3), (3, 2)])
    assert found.pearson == pytest.approx(0.5)
    assert found.spearman == pytest.approx(0.5)
    assert found.kendall == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("pairs", "n"),
    [
        ([], 0),
        ([(3, 4)], 1),
        ([(1, 2), (2, 2), (3, 2)], 3),  # people said one thing of all of them
        ([(2, 1), (2, 2), (2, 3)], 3),  # the judge did
        ([(None, 1), (2, None), (3, 3)], 1),
        ([(1, math.nan), (math.nan, 2), (3, 3)], 1),
        ([(math.inf, 1), (2, 2)], 1),
    ],
)
def test_where_it_is_not_defined_it_is_absent_and_not_0(pairs, n) -> None:
    assert agreement(pairs) == Agreement(n, None, None, None)


def test_missing_scores_change_nothing() -> None:
    pairs = list(zip(SCORES, LABELS, strict=True))
    holes = [(None, 2), (3, None), (math.nan, 1)]
    assert agreement([*pairs, *holes]) == agreement(pairs)


def test_scores_meet_the_labels_of_their_run_and_competency() -> None:
    scores = [CompetencyScore(f"r{n}", "care", score) for n, score in enumerate(SCORES)]
    scores += [CompetencyScore(f"r{n}", "wit", 2) for n in range(8)]
    labels = [CompetencyScore(f"r{n}", "care", label) for n, label in enumerate(LABELS)]
    labels += [CompetencyScore(f"r{n}", "wit", n % 4 + 1) for n in range(4)]
    labels += [CompetencyScore("another run", "care", 4), CompetencyScore("r1", "unjudged", 3)]
    found = agreements(reversed(scores), labels)
    assert found == {
        "care": agreement(zip(SCORES, LABELS, strict=True)),
        "wit": Agreement(4),
        "unjudged": Agreement(0),
    }

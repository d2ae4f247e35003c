"""Calibration: which score is the line, what it promises, and when there is none."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.traces import counting, trace
from tidegauge.errors import ConfigurationError
from tidegauge.events import PolicyInForce
from tidegauge.policies import (
    CalibratedGroup,
    Guarantee,
    Threshold,
    calibrate,
)

ALPHAS = [
    *("0.001", "0.01", "0.025", "0.05", "0.1", "0.15", "0.2", "0.25", "0.3", "0.5", "0.7"),
    *("0.9", "0.95", "0.99", "0.999", "1e-05", "0.0625", "0.3333333333333333"),
]


def rank_by_definition(runs: int, alpha: str) -> int | None:
    """The smallest k at which at most alpha of the n + 1 gaps are beyond it."""
    for rank in range(1, runs + 1):
        if Fraction(runs + 1 - rank, runs + 1) <= Fraction(alpha):
            return rank
    return None


@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_rank_is_exact_for_every_number_of_runs(alpha: str) -> None:
    for runs in [*range(130), 199, 200, 399, 999, 1_000]:
        rank = rank_by_definition(runs, alpha)
        assert Guarantee(float(alpha)).rank(runs) == rank
        share = Guarantee(float(alpha)).share_above([[0.0]] * runs)
        if rank is None:
            assert share is None
        else:
            assert share == float(Fraction(runs + 1 - rank, runs + 1))
            assert Fraction(alpha) - Fraction(1, runs + 1) < Fraction(runs + 1 - rank, runs + 1)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_so_many_runs_are_needed_and_no_fewer(alpha: str) -> None:
    guarantee = Guarantee(float(alpha))
    least = guarantee.least_runs()
    assert guarantee.rank(least) is not None
    assert guarantee.rank(least - 1) is None


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 1.5, math.nan, math.inf])
def test_an_alpha_that_is_no_share_is_rejected(alpha: float) -> None:
    with pytest.raises(ConfigurationError, match=r"alpha is .*; use more than 0 and less than 1"):
        Guarantee(alpha)
    with pytest.raises(ConfigurationError, match=r"confidence is .*; use more than 0"):
        Guarantee(0.05, "pac", confidence=alpha)


def threshold_of(found, alpha: float) -> float | None:
    """The threshold for independent runs."""
    return Guarantee(alpha).threshold([[score] for score in found])


scores = st.lists(st.sampled_from([-math.inf, 0.0, 1.0, 1.5, 2.0, 7.0]), max_size=60)


@given(scores, st.sampled_from(["0.05", "0.1", "0.25", "0.5"]))
def test_at_most_alpha_of_the_runs_and_a_new_one_are_beyond_the_line(found, alpha):
    """The count behind the promise, ties included: any of the n + 1 may be the new one."""
    line = threshold_of(found, float(alpha))
    rank = rank_by_definition(len(found), alpha)
    if line is None:
        assert rank is None or sorted(found)[rank - 1] == -math.inf
        return
    assert line == sorted(found)[rank - 1]
    beyond = sum(score > line for score in found)
    assert beyond + 1 <= Fraction(alpha) * (len(found) + 1) + 1
    assert beyond <= Fraction(alpha) * (len(found) + 1)


@given(scores, st.randoms())
def test_the_order_of_the_runs_means_nothing(found, random):
    mixed = list(found)
    random.shuffle(mixed)
    assert threshold_of(mixed, 0.1) == threshold_of(found, 0.1)


def test_too_few_runs_give_no_line() -> None:
    assert threshold_of(range(18), 0.05) is None
    assert threshold_of(range(19), 0.05) == 18
    assert threshold_of(range(39), 0.05) == 37


def test_ties_are_on_the_line_and_not_beyond_it() -> None:
    assert threshold_of([3.0] * 19, 0.05) == 3.0
    assert threshold_of([1.0] * 10 + [9.0] * 10, 0.5) == 9.0


def test_runs_in_which_it_was_not_measured_are_below_all_others() -> None:
    assert threshold_of([-math.inf] * 18 + [4.0], 0.05) == 4.0
    assert threshold_of([-math.inf] * 19, 0.05) is None
    assert threshold_of([-math.inf] * 38 + [4.0], 0.05) is None  # its line would be -inf


class TestCalibrate:
    RUNS = (
        *(counting(f"a{n}", True, n + 1, agent="a") for n in range(9)),
        *(counting(f"a bad {n}", False, 50, agent="a") for n in range(5)),
        counting("a unknown", None, 60, agent="a"),
        *(counting(f"b{n}", True, 2 * n + 2, agent="b") for n in range(8)),
        *(counting(f"a mail {n}", True, n + 1, agent="a", task_group="mail") for n in range(19)),
    )

    def test_every_group_has_the_line_of_its_good_runs(self) -> None:
        found = calibrate(
            self.RUNS, score="steps", guarantee=Guarantee(0.1), action="stop", calibrated=7.0
        )
        drawn: dict[str, Any] = {"alpha": 0.1, "calibrated": 7.0}
        assert found == [
            CalibratedGroup(
                *("a", "g", "steps", 9, 9, 0),
                Threshold("steps", 9, "stop", "a", "g", runs=9, **drawn),
                0.1,
            ),
            CalibratedGroup("b", "g", "steps", 8, 8, 0, None, None),
            CalibratedGroup(
                *("a", "mail", "steps", 19, 19, 0),
                Threshold("steps", 18, "stop", "a", "mail", runs=19, **drawn),
                0.1,
            ),
        ]

    @pytest.mark.parametrize(
        ("by", "groups"),
        [
            (("agent",), [("a", None, 28), ("b", None, 8)]),
            (("task_group",), [(None, "g", 17), (None, "mail", 19)]),
            ((), [(None, None, 36)]),
        ],
    )
    def test_groups_are_distinguished_by_what_is_asked_for(self, by, groups) -> None:
        found = calibrate(self.RUNS, score="stagnation", guarantee=Guarantee(0.1), by=by)
        assert [(group.agent, group.task_group, group.runs) for group in found] == groups
        for group in found:
            if group.threshold is not None:
                assert (group.threshold.agent, group.threshold.task_group) == group[:2]
                assert group.threshold.action == "observe"

    def test_a_group_without_any_good_run_is_reported(self) -> None:
        [found] = calibrate([counting("r", False, 3)], score="steps", guarantee=Guarantee(0.5))
        assert found == CalibratedGroup("a", "g", "steps", 0, 0, 0, None, None)

    def test_a_score_that_was_never_measured_has_no_line(self) -> None:
        runs = [trace(f"r{n}", True, {"tokens": []}) for n in range(30)]
        [found] = calibrate(runs, score="tokens", guarantee=Guarantee(0.05))
        assert (found.runs, found.threshold) == (30, None)

    def test_an_unknown_score_is_rejected(self) -> None:
        runs = [trace("r", True, {"stps": []})]
        with pytest.raises(ConfigurationError, match="unknown score"):
            calibrate(runs, score="stps", guarantee=Guarantee(0.5))


class TestPac:
    """With the confidence, the threshold that was learned is exceeded by at most alpha."""

    @pytest.mark.parametrize("alpha", ["0.01", "0.05", "0.1", "0.3", "0.5"])
    @pytest.mark.parametrize("confidence", ["0.5", "0.9", "0.99"])
    def test_the_rank_is_exact_for_every_number_of_runs(self, alpha: str, confidence: str) -> None:
        guarantee = Guarantee(float(alpha), "pac", confidence=float(confidence))
        share, most = Fraction(alpha), 1 - Fraction(confidence)
        for runs in [*range(1, 80), 131, 298, 299, 300]:
            tail, rank = Fraction(0), runs + 1
            while rank > 0:  # P(exactly rank - 1 of the runs are at or below the true quantile)
                below = rank - 1
                tail += math.comb(runs, below) * (1 - share) ** below * share ** (runs - below)
                if tail > most:
                    break
                rank -= 1
            assert guarantee.rank(runs) == (rank if rank <= runs else None), runs

    def test_so_many_runs_are_needed(self) -> None:
        """The tables of nonparametric tolerance limits."""
        ninety, ninety_five = (Guarantee(0.05, "pac", confidence=c) for c in (0.9, 0.95))
        assert (ninety.least_runs(), ninety_five.least_runs()) == (45, 59)
        assert (ninety.next_runs(44), ninety.next_runs(45), ninety.next_runs(77)) == (45, 77, 105)
        assert ninety_five.next_runs(59) == 93

    @pytest.mark.parametrize(("runs", "alpha", "confidence"), [(45, 0.05, 0.9), (100, 0.1, 0.8)])
    def test_of_1000_thresholds_few_are_exceeded_too_often(self, runs, alpha, confidence) -> None:
        guarantee = Guarantee(alpha, "pac", confidence=confidence)
        rng = np.random.default_rng(runs)
        draws = rng.random((1_000, runs, 1)).tolist()
        exceeded = sum(1 - (guarantee.threshold(draw) or 0.0) > alpha for draw in draws)
        deviation = math.sqrt(1_000 * confidence * (1 - confidence))
        assert exceeded <= 1_000 * (1 - confidence) + 3 * deviation
        one_fewer = [
            sorted(draw)[guarantee.rank(runs) - 2][0] for draw in draws
        ]  # no more than needed
        assert sum(1 - low > alpha for low in one_fewer) > 1_000 * (1 - confidence)

    def test_a_task_counts_by_its_highest_score(self) -> None:
        guarantee = Guarantee(0.5, "pac", confidence=0.5)
        assert guarantee.threshold([[1.0, 9.0], [2.0]]) == 9.0
        assert guarantee.threshold([[9.0], [2.0, 1.0], [3.0], []]) == 3.0  # the second of three


class TestTasks:
    @given(
        st.lists(
            st.lists(st.sampled_from([-math.inf, 0.0, 1.0, 2.0, 7.0]), max_size=4), max_size=30
        )
    )
    def test_each_task_has_the_same_weight(self, tasks) -> None:
        known = [scores for scores in tasks if scores]
        found = Guarantee(0.25).threshold(tasks)
        ordered = sorted({score for scores in known for score in scores})
        expected = next(
            (
                value
                for value in ordered
                if sum(
                    (
                        Fraction(sum(score <= value for score in scores), len(scores))
                        for scores in known
                    ),
                    Fraction(0),
                )
                >= Fraction(3, 4) * (len(known) + 1)
            ),
            None,
        )
        assert found == (None if expected == -math.inf else expected)

    def test_a_new_task_is_above_it_with_a_chance_of_at_most_alpha(self) -> None:
        """Attempts at a task are nearly alike; with each as a run of its own, the bound breaks."""
        rng = np.random.default_rng(3)
        alpha, by_task, by_run = 0.1, 0, 0
        for _ in range(2_000):
            means = rng.random(21)
            tasks = [
                (mean + rng.normal(0, 0.001, 1 + 19 * (mean < 0.5))).tolist() for mean in means
            ]
            new = tasks.pop()[0]
            by_task += new > Guarantee(alpha).threshold(tasks)
            by_run += new > threshold_of([score for scores in tasks for score in scores], alpha)
        deviation = math.sqrt(alpha * (1 - alpha) / 2_000)
        assert by_task / 2_000 == pytest.approx(2 / 21, abs=3 * deviation)
        assert by_run / 2_000 > 0.3


def test_runs_that_a_policy_could_end_are_not_learned_from() -> None:
    runs = [counting(f"r{n}", True, n + 1) for n in range(30)]
    for number, run in enumerate(runs):
        run.policy = PolicyInForce("a", acts=number >= 20, held_out=number < 10)
    [found] = calibrate(runs, score="steps", guarantee=Guarantee(0.1))
    assert (found.runs, found.could_be_ended) == (20, 10)
    assert found.threshold == Threshold("steps", 19, agent="a", task_group="g", runs=20, alpha=0.1)

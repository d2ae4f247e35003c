"""Calibration: which score is the line, what it promises, and when there is none."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.traces import counting, trace
from tidegauge.errors import ConfigurationError
from tidegauge.policies import (
    CalibratedGroup,
    Threshold,
    calibrate,
    conformal_rank,
    conformal_threshold,
    false_stop_bound,
    least_runs,
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
        assert conformal_rank(runs, float(alpha)) == rank
        share = false_stop_bound(runs, float(alpha))
        if rank is None:
            assert share is None
        else:
            assert share == float(Fraction(runs + 1 - rank, runs + 1))
            assert Fraction(alpha) - Fraction(1, runs + 1) < Fraction(runs + 1 - rank, runs + 1)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_so_many_runs_are_needed_and_no_fewer(alpha: str) -> None:
    least = least_runs(float(alpha))
    assert conformal_rank(least, float(alpha)) is not None
    assert conformal_rank(least - 1, float(alpha)) is None


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 1.5, math.nan, math.inf])
def test_an_alpha_that_is_no_share_is_rejected(alpha: float) -> None:
    for of in (lambda: conformal_rank(20, alpha), lambda: least_runs(alpha)):
        with pytest.raises(ConfigurationError, match="use more than 0 and less than 1"):
            of()
    with pytest.raises(ConfigurationError, match="alpha"):
        calibrate([], score="steps", alpha=alpha)


scores = st.lists(st.sampled_from([-math.inf, 0.0, 1.0, 1.5, 2.0, 7.0]), max_size=60)


@given(scores, st.sampled_from(["0.05", "0.1", "0.25", "0.5"]))
def test_at_most_alpha_of_the_runs_and_a_new_one_are_beyond_the_line(found, alpha):
    """The count behind the promise, ties included: any of the n + 1 may be the new one."""
    line = conformal_threshold(found, float(alpha))
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
    assert conformal_threshold(mixed, 0.1) == conformal_threshold(found, 0.1)


def test_too_few_runs_give_no_line() -> None:
    assert conformal_threshold(range(18), 0.05) is None
    assert conformal_threshold(range(19), 0.05) == 18
    assert conformal_threshold(range(39), 0.05) == 37


def test_ties_are_on_the_line_and_not_beyond_it() -> None:
    assert conformal_threshold([3.0] * 19, 0.05) == 3.0
    assert conformal_threshold([1.0] * 10 + [9.0] * 10, 0.5) == 9.0


def test_runs_in_which_it_was_not_measured_are_below_all_others() -> None:
    assert conformal_threshold([-math.inf] * 18 + [4.0], 0.05) == 4.0
    assert conformal_threshold([-math.inf] * 19, 0.05) is None
    assert conformal_threshold([-math.inf] * 38 + [4.0], 0.05) is None  # its line would be -inf


class TestCalibrate:
    RUNS = (
        *(counting(f"a{n}", True, n + 1, agent="a") for n in range(9)),
        *(counting(f"a bad {n}", False, 50, agent="a") for n in range(5)),
        counting("a unknown", None, 60, agent="a"),
        *(counting(f"b{n}", True, 2 * n + 2, agent="b") for n in range(8)),
        *(counting(f"a mail {n}", True, n + 1, agent="a", task_group="mail") for n in range(19)),
    )

    def test_every_group_has_the_line_of_its_good_runs(self) -> None:
        found = calibrate(self.RUNS, score="steps", alpha=0.1, action="stop", calibrated=7.0)
        drawn = {"alpha": 0.1, "calibrated": 7.0}
        assert found == [
            CalibratedGroup(
                "a", "g", "steps", 9, Threshold("steps", 9, "stop", "a", "g", runs=9, **drawn)
            ),
            CalibratedGroup("b", "g", "steps", 8, None),
            CalibratedGroup(
                "a",
                "mail",
                "steps",
                19,
                Threshold("steps", 18, "stop", "a", "mail", runs=19, **drawn),
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
        found = calibrate(self.RUNS, score="stagnation", alpha=0.1, by=by)
        assert [(group.agent, group.task_group, group.runs) for group in found] == groups
        for group in found:
            if group.threshold is not None:
                assert (group.threshold.agent, group.threshold.task_group) == group[:2]
                assert group.threshold.action == "observe"

    def test_a_group_without_any_good_run_is_reported(self) -> None:
        [found] = calibrate([counting("r", False, 3)], score="steps", alpha=0.5)
        assert found == CalibratedGroup("a", "g", "steps", 0, None)

    def test_a_score_that_was_never_measured_has_no_line(self) -> None:
        runs = [trace(f"r{n}", True, {"tokens": []}) for n in range(30)]
        [found] = calibrate(runs, score="tokens", alpha=0.05)
        assert (found.runs, found.threshold) == (30, None)

    def test_an_unknown_score_is_rejected(self) -> None:
        runs = [trace("r", True, {"stps": []})]
        with pytest.raises(ConfigurationError, match="unknown score"):
            calibrate(runs, score="stps", alpha=0.5)

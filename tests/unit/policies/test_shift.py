"""Shift: false alarms are as rare as they are said to be, and a change is seen."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from support.traces import counting
from tidegauge.catalog import POLICY_SHIFT
from tidegauge.policies import Crossings, Guarantee, Threshold, Thresholds, calibrate
from tidegauge.policies.shift import LEAST_RUNS, SHIFTED, ShiftCheck, kolmogorov_smirnov, spread

VALUES = st.lists(st.floats(0, 10) | st.sampled_from([0.0, 1.0, 2.0]), min_size=1, max_size=60)


@given(VALUES, VALUES)
def test_the_p_value_is_that_of_the_asymptotic_test(first, second) -> None:
    n, m = len(first), len(second)
    distance = max(
        abs(np.mean(np.array(first) <= value) - np.mean(np.array(second) <= value))
        for value in (*first, *second)
    )
    root = math.sqrt(n * m / (n + m))
    expected = stats.kstwobign.sf((root + 0.12 + 0.11 / root) * distance)
    assert kolmogorov_smirnov(sorted(first), sorted(second)) == pytest.approx(expected, abs=1e-9)


def test_without_values_there_is_no_shift() -> None:
    assert kolmogorov_smirnov([], [1.0]) == kolmogorov_smirnov([1.0], []) == 1.0


@pytest.mark.parametrize("known", [50, 200])
def test_false_alarms_are_at_most_as_frequent_as_said(known: int) -> None:
    rng = np.random.default_rng(known)
    draws = 4_000
    alarms = sum(
        kolmogorov_smirnov(sorted(rng.random(known)), sorted(rng.random(LEAST_RUNS))) < SHIFTED
        for _ in range(draws)
    )
    deviation = math.sqrt(SHIFTED * (1 - SHIFTED) / draws)
    assert SHIFTED / 4 < alarms / draws <= SHIFTED + 3 * deviation


def test_scores_above_the_threshold_and_those_not_measured_are_left_out() -> None:
    assert spread([3.0, -math.inf, 9.0, 1.0, 5.0], 5.0) == (1.0, 3.0, 5.0)
    many = spread(list(map(float, range(10_000))), 9_000.0)
    assert len(many) == 200
    assert kolmogorov_smirnov(many, [float(n) for n in range(9_001)]) > 0.999


class TestShiftCheck:
    def test_each_block_is_compared_once(self) -> None:
        check = ShiftCheck(tuple(map(float, range(100))), 100.0)
        for score in range(LEAST_RUNS - 1):
            check.update(2.0 * score)
        assert check.p_value is None
        check.update(math.inf)  # above the threshold: not compared
        assert check.p_value is None
        check.update(99.0)
        assert check.p_value is not None
        assert check.p_value > 0.5
        for _ in range(LEAST_RUNS):
            check.update(1.0)
        assert check.p_value < 1e-6

    def test_there_must_be_enough_to_compare_with(self) -> None:
        check = ShiftCheck((1.0, 2.0), 5.0)
        for _ in range(2 * LEAST_RUNS):
            check.update(4.0)
        assert check.p_value is None


def test_calibration_keeps_the_scores_and_crossings_compare_with_them() -> None:
    runs = [counting(f"r{n}", True, n % 20 + 1) for n in range(60)]
    [group] = calibrate(runs, score="steps", guarantee=Guarantee(0.1))
    threshold = group.threshold
    assert threshold is not None
    assert threshold.scores == spread([n % 20 + 1 for n in range(60)], threshold.threshold)
    crossings = Crossings(Thresholds([threshold]))
    labels = ("a", "g", "steps")
    for n in range(LEAST_RUNS):
        crossings.run_ended("a", "g", "failure", (), {"steps": 1.0})
        crossings.run_ended("a", "g", "success", (), {"steps": n % 18 + 1.0})
    assert crossings.metrics()[POLICY_SHIFT][labels] > 0.5
    for _ in range(LEAST_RUNS):
        crossings.run_ended("a", "g", "success", (), {"steps": 2.0})
    assert crossings.metrics()[POLICY_SHIFT][labels] < SHIFTED


def test_threshold_without_scores_has_no_p_value() -> None:
    crossings = Crossings(Thresholds([Threshold("steps", 9)]))
    for _ in range(2 * LEAST_RUNS):
        crossings.run_ended("a", "g", "success", (), {"steps": 2.0})
    assert crossings.metrics()[POLICY_SHIFT] == {}

"""Welch's interval: a worked example, the edges, and how often it holds the truth."""

from __future__ import annotations

import random

import pytest

from tidegauge.streaming_metrics.auv import AUV
from tidegauge.streaming_metrics.contrast import Contrast, contrast
from tidegauge.streaming_metrics.records import FinishedRun


def auv_of(turns, t_max=20):
    auv = AUV()
    for turn in turns:
        auv.update(FinishedRun(turn is not None, steps=turn or t_max, t_max=t_max))
    return auv


def test_worked_example():
    # areas .975 .925 .875 .825 and .775 .525 .275 .025 0; the numbers are those of
    # scipy.stats.ttest_ind(left, right, equal_var=False)
    left, right = auv_of([1, 2, 3, 4]), auv_of([5, 10, 15, 20, None])
    found = contrast(left, right)
    assert found.value == pytest.approx(0.58)
    assert found.standard_error == pytest.approx(0.58 / 3.8188761473634787)
    assert found.degrees == pytest.approx(4.374259349240233)
    assert (found.low, found.high) == pytest.approx((0.17217603969050566, 0.987823960309494))
    narrower = contrast(left, right, confidence=0.9)
    assert (narrower.low, narrower.high) == pytest.approx((0.2640190166341617, 0.8959809833658376))


def test_sides_change_sign():
    left, right = auv_of([1, 2, 9]), auv_of([5, 10, None])
    there, back = contrast(left, right), contrast(right, left)
    assert (there.value, there.low, there.high) == (-back.value, -back.high, -back.low)


def test_more_confidence_reaches_farther():
    left, right = auv_of([1, 2, 9]), auv_of([5, 10, None])
    reaches = [contrast(left, right, confidence=c) for c in (0.0, 0.5, 0.95, 0.99)]
    widths = [found.high - found.low for found in reaches]
    assert widths == sorted(widths)
    assert widths[0] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("confidence", [1.0, -0.1, float("nan")])
def test_no_such_confidence(confidence):
    with pytest.raises(ValueError, match="probability"):
        contrast(auv_of([1, 2]), auv_of([3, 5]), confidence=confidence)


def test_absent_is_not_zero():
    assert contrast(AUV(), auv_of([3])) is None
    assert contrast(auv_of([3]), AUV()) is None
    assert contrast(auv_of([3]), auv_of([3, 4])) == Contrast(auv_of([3]).value - 0.85)


def test_no_spread_is_a_point():
    found = contrast(auv_of([3, 3, 3]), auv_of([3, 3]))
    assert found == Contrast(0.0, 0.0, 3.0, 0.0, 0.0)


def test_a_hair_of_spread():
    left, right = AUV(), AUV()
    for side, spread in ((left, 1e-100), (right, 2e-100)):
        for area in (0.0, spread):
            side.runs += 1
            away = area - side._mean
            side._mean += away / side.runs
            side._second_moment += away * (area - side._mean)
    assert 1 <= contrast(left, right).degrees <= 2


def test_the_interval_holds_the_true_difference_as_often_as_it_says():
    drawn = random.Random(7)
    turns = range(1, 21)
    held = 0
    for _ in range(400):
        left = auv_of(drawn.choices(turns, k=6))
        right = auv_of(drawn.choices([*turns, None, None, None], k=25))
        found = contrast(left, right)
        truth = 0.5 - 0.5 * 20 / 23
        held += found.low <= truth <= found.high
    assert 0.92 <= held / 400 <= 0.98

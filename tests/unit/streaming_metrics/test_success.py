"""Success over turns: golden values, bounds with runs in flight, and what counts as known."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tidegauge.streaming_metrics.auv import AUV, auv_contribution
from tidegauge.streaming_metrics.progress_auv import ProgressAUV
from tidegauge.streaming_metrics.records import FinishedRun, ObservedStep
from tidegauge.streaming_metrics.success import SuccessCurve

GOLDEN = Path(__file__).parents[2] / "golden" / "auv.jsonl"
CASES = [json.loads(line) for line in GOLDEN.read_text().splitlines()]


def solved(turn, t_max=None):
    return FinishedRun(success=turn is not None, steps=turn or 99, t_max=t_max)


def test_golden_auv():
    for case in CASES:
        auv = AUV()
        for turn in case["success_turns"]:
            auv.update(solved(turn, case["t_max"]))
        assert auv.value == pytest.approx(case["auv"], rel=1e-12)
        assert auv.runs == len(case["success_turns"])
    assert len(CASES) > 20


def test_golden_progress_auv():
    for case in CASES:
        auv = ProgressAUV(t_max=case["t_max"])
        for t, progress in enumerate(case["progress"]):
            auv.update(ObservedStep(t, progress=progress))
        if case["progress"]:
            assert auv.value == pytest.approx(case["progress_auv"], rel=1e-12)
        else:  # a run of no turn has the area 0 and has reported nothing: absent is not zero
            assert (auv.value, case["progress_auv"]) == (None, 0.0)


def test_a_run_of_no_step_that_is_solved_counts_as_solved_at_the_first_turn():
    assert auv_contribution(0, 5) == auv_contribution(1, 5) == 0.9


def test_the_area_needs_a_known_success_and_a_t_max():
    auv = AUV()
    auv.update(FinishedRun(success=None, steps=1, t_max=5))
    auv.update(FinishedRun(success=True, steps=1))
    assert (auv.runs, auv.value, auv.standard_error, auv.bounds([])) == (0, None, None, None)


def test_bounds_hold_whatever_becomes_of_the_runs_in_flight():
    auv = AUV()
    for turn in (1, 4, None):
        auv.update(solved(turn, 5))
    lower, upper = auv.bounds([(2, 5), (5, 5)])
    assert lower == pytest.approx((0.9 + 0.3) / 5)
    assert upper == pytest.approx((0.9 + 0.3 + auv_contribution(3, 5)) / 5)
    assert auv.bounds([]) == (auv.value, auv.value)


@pytest.mark.parametrize(("given", "taken"), [(7.0, 1.0), (-3.0, 0.0), (1.0, 1.0)])
def test_progress_beyond_its_range_is_taken_for_its_end(given, taken):
    auv = ProgressAUV(t_max=2)
    auv.update(ObservedStep(0, progress=given))
    assert auv.best == taken
    assert auv.value == taken * 0.75


def test_progress_that_is_no_number_is_not_reported():
    auv = ProgressAUV(t_max=2)
    auv.update(ObservedStep(0, progress=math.nan))
    assert auv.value is None
    auv.update(ObservedStep(1, progress=0.5))
    assert auv.value == 0.5 * 0.25


def test_the_curve_says_nothing_past_its_last_turn():
    curve = SuccessCurve(max_turns=3)
    for turn in (1, 3, 9):
        curve.update(solved(turn))
    assert curve.at(3) == pytest.approx(2 / 3)
    assert curve.at(9) is None
    assert curve.late_runs == 1


def test_curves_of_different_lengths_add_up():
    short, long = SuccessCurve(max_turns=3), SuccessCurve(max_turns=10)
    for turn in (2, 9, 12):
        long.update(solved(turn))
    short.merge(long)
    assert (short.runs, short.late_runs, short.solved_at) == (3, 2, {2: 1})

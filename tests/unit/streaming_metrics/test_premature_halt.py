"""Premature halts: what counts as one, and what was left."""

from __future__ import annotations

import pytest

from tidegauge.streaming_metrics.premature_halt import PrematureHalts, cut_short, premature_halt
from tidegauge.streaming_metrics.records import FinishedRun


@pytest.mark.parametrize(
    ("success", "frontier", "pending", "halted"),
    [
        (False, 1, 0, True),
        (False, 0, 1, True),
        (False, None, 1, True),
        (False, 1, None, True),
        (False, 0, 0, False),
        (False, 0, None, False),
        (True, 5, 5, False),
        (None, 5, 5, None),
        (False, None, None, None),
        (True, None, None, None),
    ],
)
def test_what_is_one(success, frontier, pending, halted):
    run = FinishedRun(success, steps=3, frontier=frontier, pending=pending)
    assert premature_halt(run) is halted
    halts = PrematureHalts()
    halts.update(run)
    assert (halts.runs, halts.halts) == (halted is not None, halted is True)


def test_only_halts_add_to_what_was_left():
    halts = PrematureHalts()
    halts.update(FinishedRun(True, 3, frontier=9, pending=9, displaced_leads=9))
    halts.update(FinishedRun(False, 3, frontier=2, pending=1, displaced_leads=1))
    halts.update(FinishedRun(False, 3, frontier=3))
    assert (halts.frontier_left, halts.pending_left, halts.displaced_leads) == (5, 1, 1)
    assert halts.value == pytest.approx(2 / 3)


def test_absent_is_not_zero():
    assert PrematureHalts().value is None


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({}, None),
        ({"t_max": 4}, None),
        ({"t_max": 3}, "budget"),
        ({"outcome": "stopped"}, "policy"),
        ({"outcome": "stopped", "t_max": 3}, "policy"),
        ({"outcome": "error", "reason": "ValueError"}, "error"),
        ({"outcome": "error", "reason": "GraphRecursionError"}, "budget"),
        ({"outcome": "error", "reason": "MaxTurnsExceeded"}, "budget"),
        *(
            ({"reason": reason}, "budget")
            for reason in ("max_steps", "token limit", "time_out", "length", "out of time")
        ),
        *(({"reason": reason}, None) for reason in ("gave up", "maximum effort", "about time")),
    ],
)
def test_a_run_that_is_cut_short_did_not_give_up(fields, what) -> None:
    run = FinishedRun(False, steps=3, frontier=2, **fields)
    assert cut_short(run) == what
    assert premature_halt(run) is (what is None)
    halts = PrematureHalts()
    halts.update(run)
    assert (halts.runs, halts.halts) == (1, int(what is None))
    assert halts.cut_short == ({} if what is None else {what: 1})


@pytest.mark.parametrize("fields", [{"success": True}, {"frontier": 0}, {"frontier": None}])
def test_a_run_that_left_nothing_was_not_cut_short(fields) -> None:
    run = FinishedRun(**{"success": False, "steps": 3, "t_max": 3, "frontier": 2, **fields})
    assert cut_short(run) is None

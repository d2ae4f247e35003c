"""Loop split and the shares of actions: what the paper's table says of such runs."""

from __future__ import annotations

import pytest

from tidegauge.streaming_metrics.loop_split import LoopActionShare, LoopSplit
from tidegauge.streaming_metrics.records import FinishedRun


def test_one_kind_alone_has_no_difference():
    split = LoopSplit()
    split.update(FinishedRun(True, steps=2, t_max=10, loop_steps=1))
    assert (split.value, split.contrast(), split.straight.value) == (None, None, None)
    assert split.looping.value == pytest.approx(0.85)


def test_the_interval_goes_with_the_value():
    split = LoopSplit()
    for turn in (1, 2, 3):
        split.update(FinishedRun(True, steps=turn, t_max=10))
        split.update(FinishedRun(turn == 1, steps=9, t_max=10, loop_steps=turn))
    found = split.contrast(confidence=0.9)
    assert found.value == split.value < 0
    assert found.low < found.value < found.high < 0


def test_runs_that_nobody_judged_are_in_neither():
    split = LoopSplit()
    split.update(FinishedRun(None, steps=2, t_max=10, loop_steps=1))
    assert split.looping.runs == split.straight.runs == 0


def test_click_ratio():
    shares = LoopActionShare()
    assert (shares.value, shares.share("click")) == (None, None)
    shares.update(FinishedRun(False, 9, loop_actions=(("click", 3), ("type", 1))))
    shares.update(FinishedRun(False, 9))
    assert (shares.share("click"), shares.share("type"), shares.share("go")) == (0.75, 0.25, 0.0)
    assert shares.value == 0.75


def test_names_are_bounded_and_no_step_is_lost():
    shares = LoopActionShare(max_names=3)
    for n in range(10):
        shares.update(FinishedRun(False, 9, loop_actions=((f"tool-{n}", n + 1),)))
    assert shares.counts == {"tool-0": 1, "tool-1": 2, "tool-2": 3, "other": 49}
    assert shares.loop_steps == 55
    more = LoopActionShare(max_names=3)
    more.update(FinishedRun(False, 9, loop_actions=(("another", 1),)))
    more.merge(shares)
    assert more.counts == {"another": 1, "tool-0": 1, "tool-1": 2, "other": 52}


def test_an_action_that_is_called_other_takes_no_place():
    shares = LoopActionShare(max_names=1)
    shares.update(FinishedRun(False, 9, loop_actions=(("other", 1), ("click", 1), ("go", 1))))
    assert shares.counts == {"other": 2, "click": 1}

"""Memory index: arms, their cap, and the runs that belong to none."""

from __future__ import annotations

import pytest

from tidegauge.streaming_metrics.auv import AUV
from tidegauge.streaming_metrics.memory_index import MemoryIndex
from tidegauge.streaming_metrics.records import FinishedRun


def run(arm, turn, t_max=10):
    return FinishedRun(turn is not None, steps=turn or 10, t_max=t_max, memory=arm)


def index_of(*runs, **parameters):
    index = MemoryIndex(**parameters)
    for finished in runs:
        index.update(finished)
    return index


def test_one_arm_alone_is_no_index():
    index = index_of(run("on", 2), run("on", 3))
    assert (index.value, index.standard_error, index.contrast("on", "off")) == (None, None, None)


def test_negative_where_memory_is_a_burden():
    assert index_of(run("on", None), run("off", 1)).value == pytest.approx(-0.95)


def test_the_error_needs_two_runs_in_either_arm():
    index = index_of(run("on", 1), run("on", 3), run("off", 5))
    assert index.value == pytest.approx(0.3)
    assert index.standard_error is None


def test_runs_of_no_arm_and_without_t_max_are_left_out():
    index = index_of(run(None, 1), run("on", 1, t_max=None), run("off", 2))
    assert index.value is None
    assert {arm: auv.runs for arm, auv in index.arms.items()} == {"on": 0, "off": 1}


def test_any_two_arms():
    windows = index_of(run("5", 2), run("5", 3), run("20", 6), run("20", 6), on="5", off="20")
    assert windows.value == windows.contrast("5", "20").value == pytest.approx(0.35)
    assert windows.contrast("20", "5").value == pytest.approx(-0.35)
    assert windows.contrast("5", "unknown") is None


def test_further_arms_share_one():
    index = index_of(*(run(f"window {n}", 1) for n in range(30)))
    assert len(index.arms) == 11
    assert index.arms["other"].runs == 20
    assert index.max_arms == 10


def test_arms_added_up_elsewhere():
    whole, parts = index_of(run("on", 1), run("off", 5)), MemoryIndex()
    for arm, turn in (("on", 1), ("off", 5)):
        auv = AUV()
        auv.update(run(None, turn))
        parts.add(arm, auv)
    assert parts.state() == whole.state()

"""Profiles of agents and pairs of memory arms, as TIDE compares them."""

from __future__ import annotations

import pytest

from tidegauge.diagnose.report.page_data import memory_pairs, profiles
from tidegauge.events import Call, CallResult, Outcome, RunEnded, RunStarted, Step
from tidegauge.streaming_metrics import Engine, GroupSnapshot


def snapshots(*runs: tuple[str, str, str | None, str, bool]) -> list[GroupSnapshot]:
    """Runs as (task group, agent, arm, states, success), with a t_max of 10."""
    engine = Engine(clock=None)
    for number, (task_group, agent, arm, states, success) in enumerate(runs):
        run = f"r{number}"
        engine.run_started(
            RunStarted(run=run, agent=agent, task_group=task_group, memory=arm, t_max=10)
        )
        for state in states:
            engine.step_issued(Step(run, (Call("go"),), state))
            engine.step_observed(Outcome(run, (CallResult("there"),)))
        engine.run_ended(RunEnded(run=run, success=success))
    return engine.snapshot().groups


def test_an_axis_goes_from_the_lowest_agent_to_the_highest() -> None:
    rows = profiles(
        snapshots(
            ("maze", "quick", None, "AB", True),
            ("maze", "slow", None, "ABCDEFGH", True),
            ("maze", "stuck", None, "AAAAA", False),
            ("alone", "quick", None, "AB", True),
        )
    )
    assert [(row["task_group"], row["agent"]) for row in rows] == [
        *(("maze", "quick"), ("maze", "slow"), ("maze", "stuck"))
    ]
    assert [row["auv"] for row in rows] == pytest.approx([0.85, 0.25, 0])
    assert [row["auv_scaled"] for row in rows] == pytest.approx([1, 0.25 / 0.85, 0])
    assert [row["no_loops"] for row in rows] == pytest.approx([1, 1, 1 / 5])
    assert [row["no_loops_scaled"] for row in rows] == [1, 1, 0]
    assert {row["memory_index"] for row in rows} == {row["memory_index_scaled"] for row in rows}
    assert {row["memory_index"] for row in rows} == {None}  # there are no arms


def test_where_all_agents_are_equal_there_is_no_scale() -> None:
    rows = profiles(snapshots(("m", "a", None, "AB", True), ("m", "b", None, "CD", True)))
    assert [(row["auv"], row["auv_scaled"]) for row in rows] == [(0.85, None)] * 2


def test_any_two_arms_are_a_pair() -> None:
    runs = [
        ("maze", "a", arm, "ABCDEFGH"[:steps], True)
        for arm, lengths in (("off", (6, 8)), ("on", (2, 3)), ("window 5", (4,)))
        for steps in lengths
    ]
    rows = memory_pairs(snapshots(*runs, ("maze", "b", "on", "AB", True)))
    assert [(row["agent"], row["arm"], row["against"]) for row in rows] == [
        ("a", "on", "window 5"),
        ("a", "on", "off"),
        ("a", "window 5", "off"),
    ]
    index = rows[1]
    assert (index["auv"], index["auv_against"]) == pytest.approx((0.8, 0.35))
    assert index["value"] == pytest.approx(0.45)
    assert index["low"] < 0.45 < index["high"]
    assert (rows[0]["low"], rows[2]["high"]) == (None, None)  # one run has no interval


def test_an_agent_with_both_arms_has_a_memory_index() -> None:
    rows = profiles(
        snapshots(
            ("maze", "a", "on", "AB", True),
            ("maze", "a", "off", "ABCD", True),
            ("maze", "b", None, "AB", True),
        )
    )
    assert [row["memory_index"] for row in rows] == [pytest.approx(0.2), None]
    assert rows[0]["auv"] == pytest.approx((0.85 + 0.65) / 2)

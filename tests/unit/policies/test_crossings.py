"""Crossings: which runs are counted for which line, so that a promise is seen to hold."""

from __future__ import annotations

import pytest

from tidegauge.catalog import (
    POLICY,
    POLICY_ALPHA,
    POLICY_CALIBRATED,
    POLICY_CROSSED_RUNS,
    POLICY_RUNS,
    POLICY_SHIFT,
)
from tidegauge.events import Call, CallResult, Outcome, RunEnded, RunStarted, Step
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Crossings, Policy, Threshold, Thresholds
from tidegauge.safety.guard import internal_errors
from tidegauge.streaming_metrics import Engine

AGENT = Threshold("steps", 2, agent="a", alpha=0.05, calibrated=7.0)
ALL = Threshold("steps", 4)
STREAK = Threshold("result_streak", 1, task_group="g", alpha=0.1)


def test_without_lines_nothing_is_measured() -> None:
    crossings = Crossings(Thresholds())
    crossings.run_ended("a", "g", "success", {"steps"}, {})
    assert crossings.metrics() == {}


def test_what_is_known_of_the_lines_is_reported_before_any_run_ends() -> None:
    assert Crossings(Thresholds([AGENT, ALL, STREAK])).metrics() == {
        POLICY_RUNS: {},
        POLICY_CROSSED_RUNS: {},
        POLICY_ALPHA: {("a", "", "steps"): 0.05, ("", "g", "result_streak"): 0.1},
        POLICY_CALIBRATED: {("a", "", "steps"): 7.0},
        POLICY_SHIFT: {},
    }
    assert set(POLICY) == set(Crossings(Thresholds([AGENT])).metrics())


def test_a_run_counts_for_the_lines_that_hold_for_it() -> None:
    crossings = Crossings(Thresholds([AGENT, ALL, STREAK]))
    crossings.run_ended("a", "g", "success", (), {})
    crossings.run_ended("a", "other", "success", {"steps"}, {})
    crossings.run_ended("b", "other", "failure", {"steps"}, {})
    crossings.run_ended("b", "other", "failure", {"steps", "result_streak"}, {})
    found = crossings.metrics()
    assert found[POLICY_RUNS] == {
        ("a", "", "steps", "success"): 2,
        ("", "g", "result_streak", "success"): 1,
        ("", "", "steps", "failure"): 2,
    }
    assert found[POLICY_CROSSED_RUNS] == {
        ("a", "", "steps", "success"): 1,
        ("", "g", "result_streak", "success"): 0,  # there, so that a rate is 0 and not missing
        ("", "", "steps", "failure"): 2,
    }


@pytest.mark.parametrize("action", ["observe", "nudge", "stop"])
@pytest.mark.parametrize(
    ("success", "outcome"), [(True, "success"), (False, "failure"), (None, "unknown")]
)
def test_live_runs_are_counted_by_how_they_ended(action, success, outcome) -> None:
    sink = EngineSink(Engine(clock=None), Policy((), thresholds=[Threshold("steps", 2, action)]))
    for run, steps in (("short", 2), ("long", 3)):
        sink.run_started(RunStarted(run=run))
        for _ in range(steps):
            sink.step_issued(Step(run, (Call("look"),)))
            sink.step_observed(Outcome(run, (CallResult("x"),)))
        stopped = action == "stop" and run == "long"
        sink.run_ended(RunEnded(run=run, success=None if stopped else success))
    sink.run_ended(RunEnded(run="never there"))
    exceeded = "stopped" if action == "stop" else outcome
    found = sink.crossings.metrics()
    totals = {("", "", "steps", outcome): 0, ("", "", "steps", exceeded): 1}
    assert found[POLICY_CROSSED_RUNS] == totals
    assert sum(found[POLICY_RUNS].values()) == 2


@pytest.mark.usefixtures("faults_are_swallowed")
def test_a_run_whose_saved_policy_cannot_be_read_ends_and_is_not_counted():
    sink = EngineSink(Engine(clock=None), Policy((), thresholds=[Threshold("steps", 2, "observe")]))
    sink.run_started(RunStarted(run="r"))
    run = sink.engine.get("r")
    run.saved_policy = {"unknown": 1}
    summary = sink.run_ended(RunEnded(run="r", success=True))
    assert (summary.steps, summary.outcome) == (0, "success")
    assert run.policy is None
    assert not any(sink.crossings.metrics().get(POLICY_RUNS, {}).values())
    assert internal_errors.counts()["policy"] == 1

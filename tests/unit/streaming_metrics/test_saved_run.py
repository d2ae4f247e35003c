"""States of runs that the release before has written are continued."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tidegauge.events import Call, CallResult, Outcome, RunEnded, RunStarted, Step
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.digested import DigestedOutcome
from tidegauge.streaming_metrics.saved_run import load_run, save_run, saved_start

BEFORE = Path(__file__).parents[2] / "golden" / "run_state_5.json"


def continued(state: dict[str, Any]) -> Engine:
    engine = Engine(clock=None, repetition=True)
    assert engine.restore(saved_start(state))
    run = engine.get("r")
    assert run is not None
    load_run(run, state)
    return engine


def test_the_live_loop_begins_anew_and_all_else_goes_on() -> None:
    engine = continued(json.loads(BEFORE.read_text()))
    run = engine.get("r")
    assert run is not None
    report = run.report()
    assert (report.steps, report.tokens, report.agent) == (10, 68, "a")
    assert (report.loop_steps, report.loops, report.recurrence) == (0, [], None)
    engine.step_observed(Outcome("r", (CallResult("same", False),)))
    for _ in range(4):
        engine.step_issued(Step("r", (Call("look"),)))
        engine.step_observed(Outcome("r", (CallResult("same", False),)))
    report = run.report()
    assert (report.steps, report.loop_repeats) == (14, 3)
    # What the last 16 actions counted was not kept: absent until all of them are of this release.
    assert report.repetition > 2.6
    assert report.repetition_recent is None
    for _ in range(11):
        engine.step_issued(Step("r", (Call("look"),)))
    assert run.report().repetition_recent is None
    engine.step_issued(Step("r", (Call("look"),)))
    assert run.report().repetition_recent == 16
    state = save_run(run)
    assert continued(state).get("r") is not None
    assert engine.run_ended(RunEnded(run="r")) is not None


def test_decisions_of_a_run_that_goes_on_say_what_they_said_before() -> None:
    """Also before its next step is issued: a result of an earlier one comes first."""
    engines = Engine(clock=None), Engine(clock=None)
    first, second = engines
    first.run_started(RunStarted(run="r"))
    for _ in range(6):
        first.step_issued(Step("r", (Call("look"),), "hall"))
    run = first.get("r")
    assert run is not None
    state = save_run(run)
    second.restore(saved_start(state))
    moved = second.get("r")
    assert moved is not None
    load_run(moved, state)
    result = DigestedOutcome("r", ((b"other", None),), step=0)
    expected, found = (one.observe(result) for one in engines)
    assert found == expected
    assert found.signals is not None
    assert found.signals.loop_repeats == 5


def test_states_of_other_versions_are_refused() -> None:
    state = json.loads(BEFORE.read_text())
    for version in (4, 6, 8, 10):
        with pytest.raises(ValueError, match=f"version {version}; only 5 and 9 can be read"):
            saved_start({**state, "version": version})

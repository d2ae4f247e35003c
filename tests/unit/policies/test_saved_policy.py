"""What a policy keeps of a run survives in the run's saved state."""

from __future__ import annotations

from collections.abc import Callable

import orjson
import pytest

from tidegauge.catalog import POLICY_CROSSED_RUNS
from tidegauge.events import Call, CallResult, Outcome, RunEnded, RunStarted, Step
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy, Rule, Threshold
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.saved_run import load_run, save_run, saved_start

NUDGE = Policy([Rule("result_streak", 3, "nudge")])


def opened(policy: Policy) -> EngineSink:
    sink = EngineSink(Engine(clock=None), policy)
    sink.run_started(RunStarted(run="r"))
    return sink


def stay(sink: EngineSink) -> EngineSink:
    return sink


def move(sink: EngineSink) -> EngineSink:
    """Another process with the same policy continues the run, from JSON."""
    state = orjson.loads(orjson.dumps(save_run(sink.engine.get("r"))))
    other = EngineSink(Engine(clock=None), sink.policy)
    other.run_started(saved_start(state))
    load_run(other.engine.get("r"), state)
    return other


def steps(sink: EngineSink, results: str) -> list[str]:
    """A step for each letter, which is its result; gives what was decided once it was known."""
    decided: list[str] = []
    for result in results:
        sink.step_issued(Step("r", (Call("look"),)))
        decided.append(sink.step_observed(Outcome("r", (CallResult(result),))).action)
    return decided


@pytest.mark.parametrize("go", [stay, move])
def test_a_model_that_was_nudged_is_nudged_again_only_when_the_signal_has_grown_by_as_much(
    go: Callable[[EngineSink], EngineSink],
) -> None:
    sink = opened(NUDGE)
    assert steps(sink, "xxx") == ["go_on", "go_on", "nudge"]
    assert steps(go(sink), "xxx") == ["go_on", "go_on", "nudge"]


@pytest.mark.parametrize("go", [stay, move])
def test_a_nudge_is_due_again_after_the_signal_cleared(
    go: Callable[[EngineSink], EngineSink],
) -> None:
    sink = opened(NUDGE)
    steps(sink, "xxx")
    assert steps(go(sink), "yyy") == ["go_on", "go_on", "nudge"]


@pytest.mark.parametrize("go", [stay, move])
def test_a_stopped_run_stays_stopped_and_is_counted_once(
    go: Callable[[EngineSink], EngineSink],
) -> None:
    sink = opened(Policy([Rule("result_streak", 3, "stop")]))
    assert steps(sink, "xxx")[-1] == "stop"
    sink = go(sink)
    decision = sink.step_issued(Step("r", (Call("look"),)))
    assert (decision.action, decision.reason) == ("stop", "result_streak")
    assert decision.message == "the run was stopped at step 2"
    run = sink.engine.get("r")
    assert run.totals.interventions == {("stop", "result_streak"): 1}
    report = run.report()
    assert (report.intervention, report.intervention_step) == ("stop", 2)


@pytest.mark.parametrize("go", [stay, move])
def test_a_run_that_is_only_watched_after_an_internal_error_stays_so(
    go: Callable[[EngineSink], EngineSink],
) -> None:
    sink = opened(Policy([Rule("result_streak", 3, "stop")]))
    steps(sink, "x")
    sink.engine.get("r").unguarded = True
    assert steps(go(sink), "xxx") == ["go_on"] * 3


@pytest.mark.parametrize("go", [stay, move])
def test_an_observed_rule_counts_once(go: Callable[[EngineSink], EngineSink]) -> None:
    sink = opened(Policy([Rule("result_streak", 3)]))
    steps(sink, "xxx")
    sink = go(sink)
    counted = sink.engine.get("r").totals.interventions
    assert counted == {("would_stop", "result_streak"): 1}
    assert steps(sink, "xx") == ["go_on"] * 2
    assert counted == {("would_stop", "result_streak"): 1}


@pytest.mark.parametrize("go", [stay, move])
def test_a_threshold_that_was_exceeded_is_counted_where_the_run_ends(
    go: Callable[[EngineSink], EngineSink],
) -> None:
    sink = opened(Policy((), thresholds=[Threshold("result_streak", 2)]))
    steps(sink, "xxx")
    sink = go(sink)
    steps(sink, "y")  # below its threshold again
    sink.run_ended(RunEnded(run="r", success=True))
    assert sink.crossings.metrics()[POLICY_CROSSED_RUNS] == {
        ("", "", "result_streak", "success"): 1
    }

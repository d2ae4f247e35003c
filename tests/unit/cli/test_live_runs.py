"""The runs that a command shows: bounded, with what the policy did or would have done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidegauge.cli.live_runs import LiveRuns
from tidegauge.events import Call, CallResult, Outcome, RunEnded, RunStarted, Step
from tidegauge.pipeline import Pipeline
from tidegauge.pipeline.settings import Settings
from tidegauge.policies import Policy, Rule

RULES = (Rule("loop_repeats", 1, "nudge"), Rule("loop_repeats", 2, "block"))


@pytest.fixture
def pipeline() -> Iterator[Pipeline]:
    made = Pipeline(Settings(rules=RULES, observe_only=True), serve=False)
    yield made
    made.shutdown()


def work(pipeline: Pipeline, run: str, steps: int) -> None:
    sink = pipeline.recorder.sink
    sink.run_started(RunStarted(run=run, agent="a", task="t"))
    for _ in range(steps):
        sink.step_issued(Step(run, (Call("look"),)))
        sink.step_observed(Outcome(run, (CallResult("none"),)))


def test_what_a_policy_would_do_is_counted_and_said_once(pipeline: Pipeline) -> None:
    live = LiveRuns(pipeline.engine, planned=lambda _: Policy(RULES))
    pipeline.observe(live)
    work(pipeline, "r1", 5)
    (run,) = live.runs
    assert run.interventions == {"nudge": 1, "block": 2}
    news = [line for line in live.news() if "would" in line]
    assert [line.partition(":")[2].partition(":")[0] for line in news] == [
        " would have been nudged at step 2",
        " would have been refused at step 3",
    ]
    pipeline.recorder.sink.run_ended(RunEnded(run="r1"))
    assert list(live.news()) == ["a / t: ended after 5 steps"]
    assert live.totals == {"runs": 1, "steps": 5}
    assert live.planned_totals == {"nudge": 1, "block": 2}


def test_nothing_more_is_planned_for_a_run_that_would_have_been_stopped(
    pipeline: Pipeline,
) -> None:
    rules = [Rule("steps", 3, "nudge"), Rule("steps", 4, "stop")]
    live = LiveRuns(pipeline.engine, planned=lambda _: Policy(rules))
    pipeline.observe(live)
    work(pipeline, "r1", 7)
    assert live.planned_totals == {"nudge": 1, "stop": 1}


def test_runs_are_bounded_and_totals_count_all(pipeline: Pipeline) -> None:
    live = LiveRuns(pipeline.engine, most=2)
    pipeline.observe(live)
    work(pipeline, "open", 1)
    for number in range(3):
        work(pipeline, f"r{number}", 1)
        pipeline.recorder.sink.run_ended(RunEnded(run=f"r{number}"))
    assert [run.ended is None for run in live.runs] == [True, False]
    assert all(run.state is None for run in live.runs[1:])
    assert (live.totals["runs"], live.totals["steps"]) == (4, 4)
    work(pipeline, "other", 0)
    work(pipeline, "more", 0)
    assert len(live.runs) == 2
    pipeline.recorder.sink.step_issued(Step("open", (Call("look"),)))

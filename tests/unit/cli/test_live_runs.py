"""The runs that a command shows: bounded, with what the policy did or would have done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tidegauge.cli.live_runs import LiveRunSink
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


def work(sink: LiveRunSink, run: str, steps: int) -> None:
    sink.run_started(RunStarted(run=run, agent="a", task="t"))
    for _ in range(steps):
        sink.step_issued(Step(run, (Call("look"),)))
        sink.step_observed(Outcome(run, (CallResult("none"),)))


def test_what_a_policy_would_do_is_counted_and_said_once(pipeline: Pipeline) -> None:
    sink = LiveRunSink(pipeline.recorder.sink, pipeline.engine, planned=lambda _: Policy(RULES))
    work(sink, "r1", 5)
    (run,) = sink.runs
    assert run.interventions == {"nudge": 1, "block": 2}
    news = [line for line in sink.news() if "would" in line]
    assert [line.partition(":")[2].partition(":")[0] for line in news] == [
        " would have been nudged at step 2",
        " would have been refused at step 3",
    ]
    sink.run_ended(RunEnded(run="r1"))
    assert list(sink.news()) == ["a / t: ended after 5 steps"]
    assert sink.totals == {"runs": 1, "steps": 5}
    assert sink.planned_totals == {"nudge": 1, "block": 2}


def test_nothing_more_is_planned_for_a_run_that_would_have_been_stopped(
    pipeline: Pipeline,
) -> None:
    rules = [Rule("steps", 3, "nudge"), Rule("steps", 4, "stop")]
    sink = LiveRunSink(pipeline.recorder.sink, pipeline.engine, planned=lambda _: Policy(rules))
    work(sink, "r1", 7)
    assert sink.planned_totals == {"nudge": 1, "stop": 1}


def test_runs_are_bounded_and_totals_count_all(pipeline: Pipeline) -> None:
    sink = LiveRunSink(pipeline.recorder.sink, pipeline.engine, most=2)
    work(sink, "open", 1)
    for number in range(3):
        work(sink, f"r{number}", 1)
        sink.run_ended(RunEnded(run=f"r{number}"))
    assert [run.ended is None for run in sink.runs] == [True, False]
    assert all(run.state is None for run in sink.runs[1:])
    assert (sink.totals["runs"], sink.totals["steps"]) == (4, 4)
    work(sink, "other", 0)
    work(sink, "more", 0)
    assert len(sink.runs) == 2
    sink.step_issued(Step("open", (Call("look"),)))

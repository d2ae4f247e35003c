"""The recorder: spans and sink joined, with a sink that answers as the test sets it."""

from __future__ import annotations

import pytest
from opentelemetry.trace import SpanContext

import tidegauge
from support.span_story import events, story
from tidegauge import RunStopped
from tidegauge.events import (
    GO_ON,
    Call,
    CallResult,
    Decision,
    Outcome,
    RunStarted,
    RunSummary,
    Signals,
    Step,
    StepSink,
)
from tidegauge.runs.extraction import Observation
from tidegauge.runs.recorder import RecordedRun, Recorder, new_run_id
from tidegauge.runs.turn_calls import ChosenCall
from tidegauge.runs.turns import TurnTracker
from tidegauge.safety.guard import internal_errors
from tidegauge.streaming_metrics import RecallLag
from tidegauge.testing import capture
from tidegauge.tracer import ModelRequest


class ScriptedSink(StepSink):
    """Answers with the decisions it was given, in order, then with the last of them."""

    def __init__(self, *decisions, summary=None):
        self.decisions = list(decisions) or [GO_ON]
        self.summary = summary
        self.taken = []

    def run_started(self, event):
        self.taken.append(event)

    def step_issued(self, event):
        self.taken.append(event)
        return self.decisions.pop(0) if len(self.decisions) > 1 else self.decisions[0]

    step_observed = step_issued

    def run_ended(self, event):
        self.taken.append(event)
        return self.summary


@pytest.fixture
def seen():
    with capture(digest_key=b"key") as seen:
        yield seen


@pytest.fixture
def started(seen):
    """Starts a run with a scripted sink."""

    def start(*decisions, summary=None, **fields):
        sink = ScriptedSink(*decisions, summary=summary)
        recorder = Recorder(sink, seen.pipeline.recorder.spans)
        return recorder.start_run(RunStarted(run="r1", **fields)), sink

    return start


LOOK = Step(run="r1", calls=(Call("look"),))


def test_what_adapters_make_of_tuples_has_all_its_fields(monkeypatch):
    taken = []
    for name in ("issue", "observe"):
        report = getattr(RecordedRun, name)

        def take(self, event, report=report):
            taken.append(event)
            return report(self, event)

        monkeypatch.setattr(RecordedRun, name, take)
    with capture() as seen:
        with tidegauge.run(agent="a"):
            tidegauge.tool(len)("four")
        turns = TurnTracker(seen.pipeline.recorder.start_run(RunStarted(run="r1")))
        turns.choose([ChosenCall("len", {"of": "four"}, "id")], tokens=7)
        turns.end(turns.begin("len", {"of": "four"}, "id"), CallResult(4, False))

    assert [type(event) for event in taken] == [Step, Outcome] * 2
    for event in taken:
        assert len(event) == len(type(event)._fields)
        for part in event[1]:  # calls, results
            assert len(part) == len(type(part)._fields)
    assert (taken[0].calls[0].action, taken[0].blockable) == ("len", True)
    assert (taken[1].results, taken[1].seconds) == ((CallResult(4, False),), None)
    assert (taken[2].tokens, taken[3].results) == (7, (CallResult(4, False),))


def signals(step=0, **fields):
    return Signals("r1", step, step + 1, b"action", b"state", **fields)


def stop(step, reason="steps"):
    return Decision("stop", reason, f"too many at {step}", signals(step))


def test_ids_are_32_digits_and_new():
    ids = {new_run_id() for _ in range(100)}
    assert len(ids) == 100
    assert {len(run) for run in ids} == {32}


def test_the_sink_takes_what_happens_in_order(started):
    run, sink = started()
    outcome = Outcome(run="r1", results=(CallResult("x"),))
    run.issue(LOOK)
    run.observe(outcome)
    run.end(success=True, reason="done")
    assert sink.taken[1:3] == [LOOK, outcome]
    begin, end = sink.taken[0], sink.taken[3]
    assert (begin.run, end.run, end.success, end.outcome, end.reason) == (
        "r1",
        "r1",
        True,
        None,
        "done",
    )


def test_the_sink_gets_the_trace(seen, started):
    run, sink = started()
    assert sink.taken[0].trace_id == run.event.trace_id
    assert run.event.trace_id == f"{run.span.get_span_context().trace_id:032x}"
    run.end()


def test_the_summary_goes_to_the_span(seen, started):
    run, _ = started(summary=RunSummary(7, "failure", loop_ratio=0.5, stale_score_max=3))
    run.end()
    assert story(seen)[0][3] == {
        "tidegauge.run.id": "r1",
        "tidegauge.steps": 7,
        "tidegauge.outcome": "failure",
        "tidegauge.loop.ratio": 0.5,
        "tidegauge.stale_score.max": 3,
    }


def test_what_was_not_measured_is_absent(seen, started):
    run, _ = started(summary=RunSummary(0, "unknown"))
    run.end()
    assert "tidegauge.loop.ratio" not in story(seen)[0][3]


def test_a_run_ends_once(seen, started):
    run, sink = started()
    run.end(success=True)
    run.end(success=False, error=ValueError())
    assert run.ended
    assert len(sink.taken) == 2
    assert len(seen.spans) == 1
    assert story(seen)[0][2] == ""


class TestDecisions:
    def test_going_on_is_no_decision_to_keep(self, started):
        run, _ = started(GO_ON, Decision(signals=signals()))
        run.issue(LOOK)
        run.issue(LOOK)
        assert run.decision is GO_ON
        assert run.stop_error() is None
        run.enforce()

    def test_the_first_stop_stays(self, seen, started):
        run, _ = started(stop(3), stop(4), GO_ON, Decision("nudge", "stale", "?", signals(6)))
        for _ in range(4):
            run.issue(LOOK)
            with pytest.raises(RunStopped) as caught:
                run.enforce()
            assert caught.value.step == 3
            assert caught.value.message == "too many at 3"
        run.end()
        assert story(seen)[0][3]["tidegauge.stopped.reason"] == "steps"
        assert [event["tidegauge.step.index"] for _, event in events(seen)] == [3]

    def test_every_intervention_is_an_event_and_a_stop_is_one_only(self, seen, started):
        nudge = Decision("nudge", "loop_repeats", "again", signals(1))
        block = Decision("block", "loop_repeats", "again", signals(3))
        end = stop(5, "loop_repeats")
        run, _ = started(nudge, block, block, end, end)
        for _ in range(5):
            run.issue(LOOK)
            run.take_nudge()
        assert [event["tidegauge.intervention.action"] for _, event in events(seen)] == [
            "nudge",
            "block",
            "block",
            "stop",
        ]

    def test_a_nudge_counts_when_it_is_delivered_and_once(self, seen, started):
        nudge = Decision("nudge", "loop_repeats", "again", signals(1))
        run, _ = started(nudge)
        run.issue(LOOK)
        assert events(seen) == []
        run.give_back_nudge(run.take_nudge())  # the model call failed
        assert run.take_nudge() is nudge
        assert [event["tidegauge.intervention.action"] for _, event in events(seen)] == ["nudge"]

    def test_a_nudge_is_given_once(self, started):
        nudge = Decision("nudge", "loop_repeats", "again", signals(1), "try the attic")
        run, _ = started(nudge)
        assert run.take_nudge() is None
        run.issue(LOOK)
        assert run.take_nudge().advice == "try the attic"
        assert run.take_nudge() is None

    def test_a_nudge_that_was_not_given_after_all_is_due_again(self, started):
        first = Decision("nudge", "loop_repeats", "again", signals(1))
        second = Decision("nudge", "result_streak", "still", signals(2))
        run, _ = started(first, second)
        run.issue(LOOK)
        run.give_back_nudge(run.take_nudge())
        assert run.take_nudge() is first
        run.issue(LOOK)
        run.give_back_nudge(first)
        assert run.take_nudge() is second, "a newer one stands in its place"

    def test_the_stop_carries_what_was_measured_and_no_digest(self, started):
        measured = signals(4, loop_repeats=2, loop_period=3, novelty=0.5)
        run, _ = started(Decision("stop", "loop_repeats", "again", measured))
        run.issue(LOOK)
        metrics = run.stop_error().metrics
        assert (metrics["loop_repeats"], metrics["novelty"], metrics["steps"]) == (2, 0.5, 5)
        assert not [value for value in metrics.values() if isinstance(value, bytes)]

    def test_a_stop_of_another_kind(self, started):
        class Kind(RunStopped):
            pass

        run, _ = started(stop(1))
        run.issue(LOOK)
        with pytest.raises(Kind):
            run.enforce(Kind)

    def test_a_stop_without_signals(self, started):
        run, _ = started(Decision("stop"))
        run.issue(LOOK)
        error = run.stop_error()
        assert (error.step, error.reason, error.message, error.metrics) == (0, "", "", {})


def test_an_onset_is_reported_once_however_often_it_is_heard_of(seen, started):
    looping = Decision(signals=signals(5, loop_repeats=1, loop_period=2, loop_first_step=4))
    later = Decision(signals=signals(9, loop_repeats=1, loop_period=1, loop_first_step=9))
    run, _ = started(looping, looping, GO_ON, looping, later)
    for _ in range(5):
        run.issue(LOOK)
    assert [(event["tidegauge.step.index"]) for _, event in events(seen)] == [5, 9]


@pytest.mark.usefixtures("faults_are_swallowed")
class TestFaults:
    def test_the_sink_hears_of_a_run_whose_span_could_not_be_opened(self, monkeypatch, seen):
        monkeypatch.setattr(seen.pipeline.recorder.spans, "start_run", broken)
        sink = ScriptedSink()
        run = Recorder(sink, seen.pipeline.recorder.spans).start_run(RunStarted(run="r1"))
        assert run.context is None
        for span in (run.span, run.spans.start_tool("look"), run.spans.start_chat(ModelRequest())):
            assert not span.get_span_context().is_valid
        run.spans.end_tool(run.span)
        run.spans.end_chat(run.span)
        run.end()
        assert len(sink.taken) == 2
        assert internal_errors.counts() == {"recorder.start_span": 1}

    def test_the_span_ends_when_the_sink_cannot_end_the_run(self, monkeypatch, seen, started):
        run, sink = started()
        monkeypatch.setattr(sink, "run_ended", broken)
        run.end()
        assert seen.tree() == ["invoke_agent"]

    def test_a_stop_is_kept_when_it_cannot_be_reported(self, monkeypatch, seen, started):
        run, _ = started(stop(3))
        monkeypatch.setattr(type(run.spans), "intervention", broken)
        assert run.issue(LOOK)[0].stop
        with pytest.raises(RunStopped):
            run.enforce()
        assert internal_errors.counts() == {"recorder.event": 1}

    def test_a_step_that_the_sink_did_not_take_is_not_counted(self, monkeypatch, started):
        run, sink = started()
        monkeypatch.setattr(sink, "step_issued", broken)
        assert run.issue(LOOK) == (GO_ON, None)
        assert run.steps == 0


def broken(*args, **kwargs):
    raise ZeroDivisionError("a fault of ours")


def test_with_an_external_span_there_are_events_and_no_spans(seen):
    theirs = SpanContext(trace_id=0xABC, span_id=0xDEF, is_remote=True)
    recorder = Recorder(
        ScriptedSink(Decision("go_on", signals=signals(1, loop_repeats=1, loop_first_step=1))),
        seen.pipeline.recorder.spans,
    )
    run = recorder.start_run(RunStarted(run="r1"), external=theirs)
    run.issue(LOOK)
    run.resume()
    run.end()
    assert seen.spans == []
    [onset] = seen.events
    assert onset.event_name == "tidegauge.loop.onset"
    assert (onset.trace_id, onset.span_id) == (theirs.trace_id, theirs.span_id)
    assert seen.pipeline.recorder.spans.open_runs == 0


def test_entities_of_steps_observed_in_parallel_are_all_mentioned_next(seen):
    class Entities:
        reach = None

        def uses(self, call):
            return ()

        def observe(self, call, result):
            return Observation(mentions=(result.outcome,))

    sink = seen.pipeline.recorder.sink
    recorder = Recorder(sink, seen.pipeline.recorder.spans, extractors=[Entities()])
    run = recorder.start_run(RunStarted(run="r1"))
    first, second = (run.issue(LOOK)[1] for _ in range(2))
    run.observe(Outcome("r1", (CallResult("lamp"),), second))
    run.observe(Outcome("r1", (CallResult("key"),), first))
    run.issue(LOOK._replace(uses=("lamp", "key")))
    # seen with this step, not recalled
    assert seen.pipeline.engine.get("r1").find(RecallLag).lags == 0
    run.issue(LOOK._replace(uses=("lamp", "key")))
    assert seen.pipeline.engine.get("r1").find(RecallLag).lags == 2
    run.end()

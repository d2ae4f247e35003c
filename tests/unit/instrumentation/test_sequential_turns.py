"""Turns of a framework that gives no call ids and runs all calls before it asks again."""

from __future__ import annotations

from typing import Any

import pytest

from tidegauge.events import (
    ABSENT,
    Call,
    CallResult,
    Decision,
    Outcome,
    RunEnded,
    RunStarted,
    RunSummary,
    Step,
    StepSink,
)
from tidegauge.runs.recorder import RecordedRun, Recorder
from tidegauge.runs.turn_calls import ChosenCall
from tidegauge.runs.turns import TurnTracker
from tidegauge.tracer import SpanFactory


class Sink(StepSink):
    """Keeps its events; answers with ``decision``."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.decision = Decision()

    def run_started(self, event: RunStarted) -> None: ...

    def step_issued(self, event: Step) -> Decision:
        self.events.append(("issued", event.calls, event.tokens, event.blockable))
        return self.decision

    def step_observed(self, event: Outcome) -> Decision:
        self.events.append(("observed", event.step, event.results, event.tokens))
        return Decision()

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        return None


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def turns(sink: Sink) -> TurnTracker:
    from opentelemetry._logs import NoOpLogger
    from opentelemetry.trace import NoOpTracer

    recorder = Recorder(sink, SpanFactory(NoOpTracer(), NoOpLogger("none")))
    return TurnTracker(RecordedRun(recorder, RunStarted(run="r")), sequential=True)


def result(text: str) -> CallResult:
    return CallResult(text, False)


RED = ChosenCall("push", {"door": "red"}, "1")
BLUE = ChosenCall("push", {"door": "blue"}, "2")
LOOK = ChosenCall("look", {}, "3")


def as_calls(*chosen: ChosenCall) -> tuple[Call, ...]:
    return tuple(Call(call.name, call.arguments) for call in chosen)


def test_a_turn_is_issued_at_once_and_observed_when_all_have_ended(
    turns: TurnTracker, sink: Sink
) -> None:
    turns.add_tokens(12)
    turns.add_tokens(None)
    turns.choose([RED, LOOK, BLUE])
    assert sink.events == [("issued", as_calls(RED, LOOK, BLUE), 12, False)]
    look, red, blue = turns.begin("look"), turns.begin("push"), turns.begin("push")
    assert [look.id, red.id, blue.id] == ["3", "1", "2"]
    turns.add_tokens(5, red)
    turns.end(blue, result("b"))
    turns.end(look, result("l"))
    assert len(sink.events) == 1
    turns.end(red, result("r"))
    assert sink.events[1:] == [("observed", 0, (result("r"), result("l"), result("b")), 5)]
    turns.next_turn()
    assert len(sink.events) == 2


def test_calls_that_never_run_are_unknown_at_the_next_turn(turns: TurnTracker, sink: Sink) -> None:
    turns.choose([RED, BLUE])
    turns.end(turns.begin("push"), result("r"))
    turns.next_turn()
    assert sink.events[1:] == [("observed", 0, (result("r"), CallResult()), None)]


def test_a_hand_off_is_the_next_call_that_has_not_begun(turns: TurnTracker, sink: Sink) -> None:
    transfer = ChosenCall("transfer_to_expert", {}, "4")
    turns.choose([transfer, LOOK])
    turns.end(turns.begin("look"), result("l"))
    handed = turns.begin("handoff")
    assert handed.id == "4"
    turns.end(handed, result("expert"))
    assert sink.events[1][2] == (result("expert"), result("l"))


def test_calls_that_no_answer_chose_are_one_step_when_the_turn_is_over(
    turns: TurnTracker, sink: Sink
) -> None:
    red, look = turns.begin("push"), turns.begin("look")
    turns.end(red, result("r"), arguments={"door": "red"})
    turns.end(look, result("l"), arguments={})
    assert sink.events == []
    turns.next_turn()
    assert sink.events == [
        ("issued", as_calls(RED, LOOK), None, False),
        ("observed", 0, (result("r"), result("l")), None),
    ]


def test_without_their_arguments_calls_that_no_answer_chose_are_no_step(
    turns: TurnTracker, sink: Sink
) -> None:
    turns.end(turns.begin("push"), CallResult(ABSENT, False))
    turns.next_turn()
    assert sink.events == []


def test_a_blocked_turn_is_not_observed(turns: TurnTracker, sink: Sink) -> None:
    sink.decision = Decision("block", "loop_repeats", advice="try the window")
    turns.choose([RED], blockable=True)
    call = turns.begin("push")
    assert call.turn.blocked
    turns.end(call, result("try the window"))
    turns.next_turn()
    assert sink.events == [("issued", as_calls(RED), None, True)]


def test_what_is_late_does_no_harm(turns: TurnTracker, sink: Sink) -> None:
    turns.choose([RED])
    late = turns.begin("push")
    turns.choose([BLUE])
    turns.end(late, result("r"))
    assert [events[0] for events in sink.events] == ["issued", "observed", "issued"]
    assert sink.events[1][2] == (CallResult(),)

"""Rounds: all calls of one response are one step, whoever told of them."""

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
)
from tidegauge.instrumentation.openai_agents.rounds import Rounds
from tidegauge.instrumentation.recorder import RecordedRun, Recorder
from tidegauge.instrumentation.told import ChosenCall
from tidegauge.tracer import SpanFactory


class Sink:
    """Keeps what it is told; answers with ``decision``."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.decision = Decision()

    def run_started(self, event: RunStarted) -> None: ...

    def step_issued(self, event: Step) -> Decision:
        self.told.append(("issued", event.calls, event.tokens, event.blockable))
        return self.decision

    def step_observed(self, event: Outcome) -> Decision:
        self.told.append(("observed", event.step, event.results, event.tokens))
        return Decision()

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        return None


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def rounds(sink: Sink) -> Rounds:
    from opentelemetry._logs import NoOpLogger
    from opentelemetry.trace import NoOpTracer

    recorder = Recorder(sink, SpanFactory(NoOpTracer(), NoOpLogger("none")))
    return Rounds(RecordedRun(recorder, RunStarted(run="r")))


def result(text: str) -> CallResult:
    return CallResult(text, False)


RED = ChosenCall("push", {"door": "red"}, "1")
BLUE = ChosenCall("push", {"door": "blue"}, "2")
LOOK = ChosenCall("look", {}, "3")


def as_calls(*chosen: ChosenCall) -> tuple[Call, ...]:
    return tuple(Call(call.name, call.arguments) for call in chosen)


def test_a_round_is_issued_at_once_and_observed_when_all_have_ended(
    rounds: Rounds, sink: Sink
) -> None:
    rounds.add_tokens(12, None)
    rounds.add_tokens(None, None)
    rounds.issue([RED, LOOK, BLUE])
    assert sink.told == [("issued", as_calls(RED, LOOK, BLUE), 12, False)]
    look, red, blue = rounds.begin("look"), rounds.begin("push"), rounds.begin("push")
    assert [look.id, red.id, blue.id] == ["3", "1", "2"]
    rounds.add_tokens(5, red)
    rounds.end(blue, result("b"))
    rounds.end(look, result("l"))
    assert len(sink.told) == 1
    rounds.end(red, result("r"))
    assert sink.told[1:] == [("observed", 0, (result("r"), result("l"), result("b")), 5)]
    rounds.turn()
    assert len(sink.told) == 2


def test_calls_that_never_run_are_unknown_at_the_next_turn(rounds: Rounds, sink: Sink) -> None:
    rounds.issue([RED, BLUE])
    rounds.end(rounds.begin("push"), result("r"))
    rounds.turn()
    assert sink.told[1:] == [("observed", 0, (result("r"), CallResult()), None)]


def test_a_hand_off_is_the_next_call_that_has_not_begun(rounds: Rounds, sink: Sink) -> None:
    transfer = ChosenCall("transfer_to_expert", {}, "4")
    rounds.issue([transfer, LOOK])
    rounds.end(rounds.begin("look"), result("l"))
    handed = rounds.begin()
    assert handed.id == "4"
    rounds.end(handed, result("expert"))
    assert sink.told[1][2] == (result("expert"), result("l"))


def test_calls_that_nobody_chose_are_one_step_when_the_turn_is_over(
    rounds: Rounds, sink: Sink
) -> None:
    red, look = rounds.begin("push"), rounds.begin("look")
    rounds.end(red, result("r"), {"door": "red"})
    rounds.end(look, result("l"), {})
    assert sink.told == []
    rounds.turn()
    assert sink.told == [
        ("issued", as_calls(RED, LOOK), None, False),
        ("observed", 0, (result("r"), result("l")), None),
    ]


def test_without_their_arguments_calls_that_nobody_chose_are_no_step(
    rounds: Rounds, sink: Sink
) -> None:
    rounds.end(rounds.begin("push"), CallResult(ABSENT, False))
    rounds.turn()
    assert sink.told == []


def test_a_blocked_round_is_not_observed(rounds: Rounds, sink: Sink) -> None:
    sink.decision = Decision("block", "loop_repeats", advice="try the window")
    rounds.issue([RED], blockable=True)
    call = rounds.begin("push")
    assert call.round.blocked
    rounds.end(call, result("try the window"))
    rounds.turn()
    assert sink.told == [("issued", as_calls(RED), None, True)]


def test_what_is_late_does_no_harm(rounds: Rounds, sink: Sink) -> None:
    rounds.issue([RED])
    late = rounds.begin("push")
    rounds.issue([BLUE])
    rounds.end(late, result("r"))
    assert [told[0] for told in sink.told] == ["issued", "observed", "issued"]
    assert sink.told[1][2] == (CallResult(),)

"""Turns: chosen together, ended one by one, reported as one step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from langchain_core.messages import AIMessage, ToolMessage

from tidegauge.events import (
    GO_ON,
    Call,
    CallResult,
    Decision,
    Outcome,
    RunEnded,
    RunStarted,
    Step,
    StepSink,
)
from tidegauge.instrumentation.langchain.parsing import tool_answers
from tidegauge.runs import call_groups, turn_calls
from tidegauge.runs.call_groups import CallGroup
from tidegauge.runs.recorder import Recorder
from tidegauge.runs.turn_calls import ChosenCall, OpenTurns
from tidegauge.runs.turns import TurnTracker
from tidegauge.tracer import SpanFactory, open_telemetry

DONE, LOCKED = CallResult("done", False), CallResult("locked", True)


class Log(StepSink):
    """A step sink that keeps its events."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.outcomes: list[Outcome] = []
        self.decision = GO_ON

    def run_started(self, event: RunStarted) -> None:
        pass

    def step_issued(self, event: Step) -> Decision:
        self.steps.append(event)
        return self.decision if event.blockable else GO_ON

    def step_observed(self, event: Outcome) -> Decision:
        self.outcomes.append(event)
        return GO_ON

    def run_ended(self, event: RunEnded) -> None:
        pass

    @property
    def observed(self) -> list[tuple[int | None, tuple[CallResult, ...]]]:
        return [(outcome.step, outcome.results) for outcome in self.outcomes]


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def turns(log: Log) -> Iterator[TurnTracker]:
    telemetry = open_telemetry()
    recorder = Recorder(log, SpanFactory(telemetry.tracer, telemetry.logger))
    recorded = recorder.start_run(RunStarted(run="r1"))
    yield TurnTracker(recorded)
    recorded.end()


def ids(turns: OpenTurns) -> list[str | None]:
    return [call.id for turn in turns for call in turn.calls]


def test_a_turn_is_observed_when_its_last_call_has_ended(log: Log, turns: TurnTracker) -> None:
    turns.add_tokens(12)
    turns.choose([ChosenCall("look", {"at": 1}, "a"), ChosenCall("look", {"at": 2}, "b")])
    assert log.steps[0].calls == (Call("look", {"at": 1}), Call("look", {"at": 2}))
    assert log.steps[0].tokens == 12
    second = turns.begin("look", {"at": 2}, "b")
    first = turns.begin("look", {"at": 1}, "a")
    turns.add_tokens(5, first)
    turns.end(second, CallResult("two", False))
    assert not log.outcomes
    turns.end(first, CallResult("one", False))
    assert log.observed == [(0, (CallResult("one", False), CallResult("two", False)))]
    assert log.outcomes[0].tokens == 5
    assert len(log.steps) == 1


def test_a_call_that_no_answer_chose_is_a_turn_by_itself(log: Log, turns: TurnTracker) -> None:
    call = turns.begin("look", {"at": 1}, None)
    turns.end(call, DONE)
    turns.end(turns.begin("look", {"at": 2}, "unknown"), DONE)
    assert [step.calls for step in log.steps] == [
        (Call("look", {"at": 1}),),
        (Call("look", {"at": 2}),),
    ]
    assert [step for step, _ in log.observed] == [0, 1]


def test_without_an_id_a_call_is_known_by_its_arguments(log: Log, turns: TurnTracker) -> None:
    turns.choose([ChosenCall("look", {"at": at}, id) for at, id in ((1, "a"), (2, "b"), (2, "c"))])
    begun = [turns.begin("look", {"at": at}, None) for at in (2, 2, 7)]
    for call, result in zip(begun, ("two", "two again", "changed by hand"), strict=True):
        turns.end(call, CallResult(result, False))
    assert len(log.steps) == 1
    (_, results), *_ = log.observed
    assert [result.outcome for result in results] == ["changed by hand", "two", "two again"]


def test_a_call_that_raised_may_be_tried_again_until_the_next_turn(
    log: Log, turns: TurnTracker
) -> None:
    turns.choose([ChosenCall("open", {}, "a")])
    for result in (LOCKED, LOCKED):
        turns.end(turns.begin("open", {}, "a"), result, raised=True)
        assert not log.outcomes
    turns.end(turns.begin("open", {}, "a"), DONE)
    assert log.observed == [(0, (DONE,))]

    turns.choose([ChosenCall("open", {}, "b")])
    turns.end(turns.begin("open", {}, "b"), LOCKED, raised=True)
    turns.next_turn()
    turns.next_turn()
    assert log.observed[1:] == [(1, (LOCKED,))]
    assert len(log.steps) == 2


def test_a_turn_in_which_one_call_raised_waits_for_its_retry(log: Log, turns: TurnTracker) -> None:
    turns.choose([ChosenCall("open", {}, "a"), ChosenCall("look", {}, "b")])
    turns.end(turns.begin("open", {}, "a"), LOCKED, raised=True)
    turns.end(turns.begin("look", {}, "b"), DONE)
    assert not log.outcomes
    turns.end(turns.begin("open", {}, "a"), DONE)
    assert log.observed == [(0, (DONE, DONE))]


def test_calls_that_never_ran_are_taken_from_their_answers(log: Log, turns: TurnTracker) -> None:
    turns.choose([ChosenCall("fly", {}, "a"), ChosenCall("look", {}, "b")])
    turns.end(turns.begin("look", {}, "b"), DONE)
    answer = ToolMessage("no such tool", tool_call_id="a", status="error")
    turns.next_turn(tool_answers([AIMessage(""), answer]))
    assert log.observed == [(0, (CallResult("no such tool", True), DONE))]


def test_turns_that_are_never_answered_are_bounded(
    log: Log, turns: TurnTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_calls, "MAX_CALLS", 2)
    for number in range(5):
        turns.choose([ChosenCall("answer", {}, f"c{number}")])
    assert ids(turns._open) == ["c3", "c4"]
    turns.end(turns.begin("answer", {}, "c3"), DONE)
    assert log.observed == [(3, (DONE,))]


@pytest.mark.usefixtures("faults_are_swallowed")
def test_a_step_that_could_not_be_reported_is_not_observed(log: Log, turns: TurnTracker) -> None:
    def broken(event: Step) -> Decision:
        raise RuntimeError("broken")

    log.step_issued = broken  # type: ignore[method-assign]
    turns.end(turns.begin("look", {}, None), DONE)
    del log.step_issued
    assert not log.outcomes
    turns.end(turns.begin("look", {}, None), DONE)
    assert [step for step, _ in log.observed] == [0]


BLOCK = Decision("block", "loop_repeats", advice="try another door")


def test_the_calls_of_a_blocked_turn_are_answered_and_not_waited_for(
    log: Log, turns: TurnTracker
) -> None:
    chosen = [ChosenCall("push", {"door": "red"}, "a"), ChosenCall("push", {"door": "blue"}, "b")]
    log.decision = BLOCK
    turns.choose(chosen, blockable=True)
    assert turns.blocked("a") == turns.blocked("b") == BLOCK
    assert turns.blocked("c") is None
    answers = [ToolMessage("try another door", tool_call_id=id) for id in "ab"]
    turns.next_turn(tool_answers([AIMessage(""), *answers]))
    turns.next_turn()
    assert not turns._open
    assert not log.outcomes
    assert [step.blockable for step in log.steps] == [True]


def test_without_an_adapter_that_answers_nothing_is_blocked(log: Log, turns: TurnTracker) -> None:
    log.decision = BLOCK
    turns.choose([ChosenCall("push", {}, "a")])
    assert turns.blocked("a") is None
    turns.end(turns.begin("push", {}, "a"), DONE)
    assert log.observed == [(0, (DONE,))]


def test_a_blocked_call_that_is_run_all_the_same_is_no_step_of_its_own(
    log: Log, turns: TurnTracker
) -> None:
    log.decision = BLOCK
    turns.choose([ChosenCall("push", {}, "a")], blockable=True)
    turns.end(turns.begin("push", {}, "a"), DONE)
    turns.next_turn()
    assert len(log.steps) == 1
    assert not log.outcomes


def test_an_id_that_is_used_again_is_not_blocked_for_ever(log: Log, turns: TurnTracker) -> None:
    log.decision = BLOCK
    turns.choose([ChosenCall("push", {}, "a")], blockable=True)
    log.decision = GO_ON
    turns.choose([ChosenCall("pull", {}, "a")], blockable=True)
    assert turns.blocked("a") is None
    turns.end(turns.begin("pull", {}, "a"), DONE)
    assert log.observed == [(1, (DONE,))]
    log.decision = BLOCK
    turns.choose([ChosenCall("push", {}, "a")], blockable=True)
    assert turns.blocked("a") == BLOCK
    assert not turns._open


def test_blocked_calls_are_bounded(
    log: Log, turns: TurnTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turn_calls, "MAX_CALLS", 2)
    log.decision = BLOCK
    for number in range(5):
        turns.choose([ChosenCall("push", {}, f"c{number}")], blockable=True)
    assert ids(turns._blocked) == ["c3", "c4"]


def test_a_model_that_is_asked_again_and_says_the_same_chose_once(
    log: Log, turns: TurnTracker
) -> None:
    for id in "ab":
        turns.choose([ChosenCall("look", {"at": 1}, id)], node="model:1")
    assert len(log.steps) == 1
    assert ids(turns._open) == ["b"]
    turns.end(turns.begin("look", {"at": 1}, "b"), DONE)
    assert log.observed == [(0, (DONE,))]
    turns.choose([ChosenCall("look", {"at": 1}, "c")], node="model:1")
    assert len(log.steps) == 2, "its calls were run: this is another step"


@pytest.mark.parametrize(
    ("again", "node"),
    [
        ([ChosenCall("look", {"at": 2}, "b")], "model:1"),
        ([ChosenCall("push", {"at": 1}, "b")], "model:1"),
        ([ChosenCall("look", {"at": 1}, "b"), ChosenCall("look", {"at": 1}, "c")], "model:1"),
        ([ChosenCall("look", {"at": 1}, "b")], "model:2"),
        ([ChosenCall("look", {"at": 1}, "b")], None),
    ],
)
def test_a_model_that_says_something_else_chose_again(
    log: Log, turns: TurnTracker, again: list[ChosenCall], node: str | None
) -> None:
    turns.choose([ChosenCall("look", {"at": 1}, "a")], node="model:1" if node else None)
    turns.choose(again, node=node)
    assert len(log.steps) == 2


def test_a_blocked_turn_that_is_chosen_again_is_blocked_under_its_new_ids(
    log: Log, turns: TurnTracker
) -> None:
    log.decision = BLOCK
    for id in "ab":
        turns.choose([ChosenCall("look", {}, id)], node="model:1", blockable=True)
    assert (turns.blocked("a"), turns.blocked("b")) == (None, BLOCK)
    assert len(log.steps) == 1
    assert not turns._open


def test_the_entropy_of_a_choice_goes_with_its_step(log: Log, turns: TurnTracker) -> None:
    turns.choose([ChosenCall("look", {}, "a")], entropy=0.5)
    turns.choose([ChosenCall("look", {}, "b")])
    assert [step.entropy for step in log.steps] == [0.5, None]


def test_calls_of_one_group_are_one_step(log: Log, turns: TurnTracker) -> None:
    left, right = turns.gather("grade", "n1", 1), turns.gather("grade", "n2", 1)
    turns.end(left, LOCKED, raised=True)
    turns.end(right, LOCKED)
    assert turns.gather("grade", "n1", 1) is left, "it is tried again"
    turns.end(left, DONE)
    assert not log.steps
    turns.add_tokens(7, left)
    last = turns.gather("report", "n3", 2)
    assert [[call.action for call in step.calls] for step in log.steps] == [["grade", "grade"]]
    (outcome,) = log.outcomes
    assert (outcome.results, outcome.tokens) == ((DONE, LOCKED), 7)
    assert outcome.seconds is not None, "it took as long as its calls, not as long as the report"
    turns.withdraw(last)
    turns.next_turn()
    assert len(log.steps) == 1


def test_calls_without_a_group_are_one_step_while_one_of_them_runs(
    log: Log, turns: TurnTracker
) -> None:
    first, beside = turns.gather("write", "n1"), turns.gather("write", "n2", arguments={"n": 2})
    turns.end(first, DONE)
    turns.end(beside, DONE)
    turns.end(turns.gather("write", "n3"), DONE)
    turns.next_turn()
    assert [[call.arguments for call in step.calls] for step in log.steps] == [
        [None, {"n": 2}],
        [None],
    ]


def test_a_call_by_hand_is_the_chosen_one_once(log: Log, turns: TurnTracker) -> None:
    turns.choose([ChosenCall("look", {"n": 1}, "c1"), ChosenCall("look", {"n": 2}, "c2")])
    look = Call("look", {"n": 2})
    (second,) = turns.take(Step("r1", (look,)), [None])
    assert second.id == "c2"
    turns.end(second, LOCKED, raised=True)
    assert turns.take(Step("r1", (look,)), [None]) == [second], "it is tried again"
    turns.end(second, DONE, outcome=Outcome("r1", (), progress=0.5, tokens=3))
    (first,) = turns.take(Step("r1", (Call("look", {"n": 1}),)), ["c1"])
    assert first.id == "c1"
    turns.end(first, DONE)
    assert (len(log.steps), log.observed) == (1, [(0, (DONE, DONE))])
    assert (log.outcomes[0].progress, log.outcomes[0].tokens) == (0.5, 3)
    turns.take(Step("r1", (look,), tokens=5), [None])
    assert [step.tokens for step in log.steps] == [None, 5], "all that was chosen has ended"


def test_a_round_by_hand_is_another_step_unless_all_of_it_was_chosen(
    log: Log, turns: TurnTracker
) -> None:
    turns.choose([ChosenCall("look", {"n": 1}, "c1")])
    round_calls = (Call("look", {"n": 1}), Call("open", {"n": 1}))
    assert len(turns.take(Step("r1", round_calls), [None, None])) == 2
    assert len(log.steps) == 2
    (chosen,) = turns.take(Step("r1", round_calls[:1]), [None])
    assert chosen.id == "c1", "it was not taken by the round"


def test_calls_that_run_beside_one_another_are_one_step(log: Log, turns: TurnTracker) -> None:
    turn = CallGroup()
    last = turns.join(turn, "grade", "task 1", "b", (1, "", ""))
    first = turns.join(turn, "grade", "task 0", "a", (0, "", ""))
    turns.end(first, LOCKED, raised=True)
    assert turns.join(turn, "grade", "task 0", "a", (0, "", "")) is first, "it is tried again"
    turns.end(first, DONE)
    turns.end(last, DONE)
    assert turns.join(turn, "grade", "task 0", "a", (0, "", "")) is not first, "it had ended"
    turns.choose([ChosenCall("look", "here", "call-1")])
    turns.next_turn()
    assert [step.calls for step in log.steps] == [(Call("look", "here"),)], "nor is it over by that"
    turns.report_group(turn)
    turns.report_group(turn)
    assert [step.calls for step in log.steps[1:]] == [
        (Call("grade", "a"), Call("grade", "a"), Call("grade", "b"))
    ]
    assert log.observed == [(1, (DONE, CallResult(), DONE))]


def test_calls_that_run_beside_one_another_are_bounded(
    log: Log, turns: TurnTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_groups, "MAX_CALLS", 3)
    turn = CallGroup()
    for number in range(5):
        turns.end(turns.join(turn, "grade", None, number, (number, "", "")), DONE)
    turns.report_group(turn)
    assert [len(step.calls) for step in log.steps] == [3]


def test_a_call_is_awaited_while_it_has_not_begun(turns: TurnTracker) -> None:
    turns.choose([ChosenCall("look", "here", "call-1")])
    assert turns.awaits("look", "here", None)
    assert turns.awaits("look", "there", "call-1")
    assert not turns.awaits("look", "here", "call-2")
    call = turns.begin("look", "here")
    assert not turns.awaits("look", "here", None)
    turns.end(call, LOCKED, raised=True)
    assert turns.awaits("look", "here", None), "it may be tried again"


def test_a_group_can_be_issued_before_its_calls_run(log: Log, turns: TurnTracker) -> None:
    turns.issue_group()
    assert not log.steps
    second, first = turns.gather("write", "n2", arguments=2), turns.gather("write", "n1")
    second.order, first.order = (0, "b", ""), (0, "a", "")
    turns.issue_group(blockable=True)
    (step,) = log.steps
    assert [call.arguments for call in step.calls] == [None, 2], "sorted"
    late = turns.gather("write", "n3")
    turns.end(first, DONE)
    turns.end(second, LOCKED)
    assert log.observed == [(0, (DONE, LOCKED))]
    turns.end(late, DONE)
    turns.next_turn()
    assert len(log.steps) == 2


def test_a_group_that_is_blocked_has_no_result(log: Log, turns: TurnTracker) -> None:
    log.decision = Decision("block", "loop_repeats", "again")
    call = turns.gather("write", "n1")
    turns.issue_group(blockable=True)
    assert call.turn.blocked
    turns.end(call, DONE)
    turns.next_turn()
    assert not log.outcomes

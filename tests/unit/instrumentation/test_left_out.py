"""What remains of a recording when its thoughts are left out."""

from __future__ import annotations

from tidegauge.events import ABSENT, Call, CallResult, Outcome, Step
from tidegauge.instrumentation.left_out import LeaveOut
from tidegauge.instrumentation.step_events import RecordedStep


def step(
    *actions: str, state: object = ABSENT, outcome: object = ABSENT, run: str = "r"
) -> RecordedStep:
    results = tuple([CallResult(outcome)] * len(actions))
    calls = tuple([Call(action) for action in actions])
    return RecordedStep(Step(run=run, calls=calls, state=state), Outcome(run=run, results=results))


def states(*steps: RecordedStep) -> list[object]:
    leave_out = LeaveOut({"think"})
    return [left.issued.state for s in steps if (left := leave_out(s)) is not None]


def test_nothing_else_is_touched() -> None:
    kept = step("go", state="s", outcome="o")
    assert LeaveOut({"think"})(kept) == kept


def test_a_thought_is_left_out() -> None:
    assert LeaveOut({"think", "plan"})(step("plan")) is None


def test_a_state_that_only_echoes_the_thought_is_what_was_seen_before_it() -> None:
    assert states(
        step("go", state="hall", outcome="kitchen"),
        step("think", state="kitchen", outcome="OK."),
        step("go", state="OK.", outcome="hall"),
    ) == ["hall", "kitchen"]


def test_a_state_told_after_the_thought_is_kept() -> None:
    assert states(
        step("think", state="hall", outcome="OK."), step("go", state="the lights went out")
    ) == ["the lights went out"]


def test_an_absent_state_is_what_was_seen_before_the_thought() -> None:
    assert states(step("think", state="hall", outcome="OK."), step("go")) == ["hall"]


def test_where_no_state_is_told_the_outcome_before_the_thought_stands() -> None:
    # ABSENT: whoever measures takes the last outcome that it was told, the thought's not among them
    assert states(
        step("go", outcome="kitchen"),
        step("think", outcome="OK."),
        step("go", outcome="hall"),
        step("think", outcome="OK."),
        step("go", state="OK."),
    ) == [ABSENT, ABSENT, ABSENT]


def test_several_thoughts_in_a_row_are_as_one() -> None:
    assert states(
        step("think", state="hall", outcome="OK."),
        step("think", state="OK.", outcome="Fine."),
        step("think", outcome="Good."),
        step("go", state="Good."),
        step("go", state="Good."),
    ) == ["hall", "Good."]


def test_runs_do_not_mix_and_can_be_forgotten() -> None:
    leave_out = LeaveOut({"think"})
    assert leave_out(step("think", state="hall", outcome="OK.")) is None
    other = leave_out(step("go", state="OK.", run="other"))
    leave_out.forget("r")
    again = leave_out(step("go", state="OK."))
    assert other is not None
    assert again is not None
    assert other.issued.state == again.issued.state == "OK."


def test_a_round_loses_the_thought_only() -> None:
    thinking = RecordedStep(
        Step(run="r", calls=(Call("think", "a"), Call("read", "f"))),
        Outcome(run="r", results=(CallResult("OK."), CallResult("text", False)), progress=0.5),
    )
    assert LeaveOut({"think"})(thinking) == RecordedStep(
        Step(run="r", calls=(Call("read", "f"),)),
        Outcome(run="r", results=(CallResult("text", False),), progress=0.5),
    )


def test_a_round_without_calls_is_no_thought() -> None:
    empty = step()
    assert LeaveOut({"think"})(empty) == empty

"""Answers without calls: turns beside steps, in one run."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from properties.compare_answers import answers as batch_answers
from tidegauge.events import (
    Answer,
    Call,
    CallResult,
    Outcome,
    RunEnded,
    RunStarted,
    Step,
    ToolDeclaration,
)
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy, Rule
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.records import Answered

THANKS = ("Thank you!", "You are welcome.")


def opened(*rules: Rule) -> EngineSink:
    sink = EngineSink(Engine(clock=None), Policy(rules))
    sink.run_started(RunStarted(run="r"))
    return sink


def talk(sink: EngineSink, turns: int, *, since: int = 0, tokens: int | None = None) -> list[str]:
    """Two agents thank each other. Returns the actions."""
    return [
        sink.answered(
            Answer("r", THANKS[n % 2], THANKS[(n + 1) % 2], messages=n + 1, tokens=tokens)
        ).action
        for n in range(since, since + turns)
    ]


def step(sink: EngineSink, action: str, outcome: object) -> str:
    issued = sink.step_issued(Step("r", (Call(action),)))
    sink.step_observed(Outcome("r", (CallResult(outcome),)))
    return issued.action


def test_agents_that_thank_each_other_loop_from_the_fourth_turn_on():
    sink = opened(Rule("turn_loop_repeats", 2, "stop"))
    assert talk(sink, 3) == ["go_on"] * 3
    run = sink.engine.get("r")
    assert not run.report().looping
    talk(sink, 1, since=3)
    assert run.report().troubles == ("loop",)
    assert run.totals.onsets == {"loop": 1}


def test_a_run_that_only_talks_is_stopped():
    sink = opened(Rule("turn_loop_repeats", 2, "stop"))
    assert talk(sink, 6) == [*["go_on"] * 5, "stop"]


def test_white_space_means_nothing():
    sink = opened(Rule("answer_streak", 3, "stop"))
    said = [sink.answered(Answer("r", text)).action for text in ("I will  go", "I will\ngo\n")]
    assert [*said, sink.answered(Answer("r", " I will go")).action] == ["go_on", "go_on", "stop"]


def test_samples_of_one_prompt_are_no_loop():
    sink = opened(Rule("turn_loop_repeats", 1, "stop"))
    for _ in range(9):
        assert sink.answered(Answer("r", "42", "6 * 7?", messages=1)).action == "go_on"
    assert sink.engine.get("r").report().answer_streak == 9


def test_votes_of_two_judges_in_turn_are_no_loop():
    sink = opened(Rule("turn_loop_repeats", 1, "stop"))
    for n in range(12):
        answer = Answer("r", "yes", f"judge {n % 2}", messages=2 + n % 2)
        assert sink.answered(answer).action == "go_on"


def test_a_rate_of_tokens_is_asked_at_answers_and_counts_them_once():
    engine = Engine(clock=None, token_rate=True)
    sink = EngineSink(engine, Policy([Rule("tokens_per_minute", 100, "stop")]))
    sink.run_started(RunStarted(run="r"))
    assert sink.answered(Answer("r", tokens=60, time=1.0)).action == "go_on"
    sink.step_issued(Step("r", (Call("look"),), tokens=30, time=2.0))
    assert sink.answered(Answer("r", tokens=9, time=3.0)).action == "go_on"
    assert sink.answered(Answer("r", tokens=1, time=4.0)).action == "stop"


def test_one_answer_to_different_prompts_is_no_loop():
    sink = opened(Rule("turn_loop_repeats", 1, "stop"))
    for n in range(20):
        assert sink.answered(Answer("r", "relevant", f"document {n}", messages=1)).action == "go_on"


def test_a_rule_on_tokens_is_asked_at_answers_and_no_token_counts_twice():
    sink = opened(Rule("tokens", 50_000, "stop"))
    assert talk(sink, 6, tokens=8_000) == ["go_on"] * 6
    run = sink.engine.get("r")
    assert run.tokens == 48_000
    sink.step_issued(Step("r", (Call("read"),), tokens=500))
    assert run.tokens == 48_500
    assert talk(sink, 1, tokens=2_000) == ["stop"]


def test_a_loop_of_steps_with_words_between_is_counted_once():
    sink = opened()
    for n in range(6):
        sink.answered(Answer("r", "I look again.", "nothing", messages=2 * n))
        step(sink, "look", "nothing")
    run = sink.engine.get("r")
    assert run.totals.onsets["loop"] == 1
    assert run.totals.lasting_loops == 1
    assert run.report().turn_loop_period == 2


def test_words_between_do_not_hide_a_loop_of_steps():
    sink = opened(Rule("loop_repeats", 3, "stop"))
    actions = []
    for n in range(5):
        sink.answered(Answer("r", f"Attempt {chr(97 + n)}", "nothing", messages=n))
        actions.append(step(sink, "look", "nothing"))
    assert "stop" in actions


def test_a_turn_that_changed_something_is_part_of_no_loop():
    engine = Engine(clock=None, declarations={"next": ToolDeclaration(mutates=True)})
    sink = EngineSink(engine, Policy([Rule("turn_loop_repeats", 1, "stop")]))
    sink.run_started(RunStarted(run="r"))
    sink.answered(Answer("r", "first", "go", messages=0))
    for _ in range(6):
        assert step(sink, "next", "ok") == "go_on"
    assert engine.get("r").report().turn_loop_period == 0


def test_an_answer_after_the_end_is_dropped_and_counted():
    sink = opened()
    sink.run_ended(RunEnded(run="r"))
    assert sink.answered(Answer("r", "late")).signals is None
    assert sink.engine.snapshot().dropped_events == 1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from("ab"), st.sampled_from("pq")),
            st.sampled_from(["look", "open"]),
        ),
        max_size=20,
    )
)
def test_turns_of_both_kinds_at_every_prefix(drawn):
    """From its first answer on, a run has the loop of all its turns."""
    sink, begun = opened(), False
    turns: list[Any] = []
    previous = b"start"
    for n, turn in enumerate(drawn):
        if isinstance(turn, tuple):
            begun = True
            text, shown = turn
            sink.answered(Answer("r", text, shown, messages=n))
            turns.append(Answered(text.encode(), shown.encode(), n))
        else:
            step(sink, turn, "seen")
            if begun:
                turns.append((previous, turn))
            previous = b"seen"
        report = sink.engine.get("r").report()
        if not begun:
            assert report.answers == 0
            continue
        expected = batch_answers(turns)
        assert report.answers == expected["answers"]
        assert report.answer_streak == expected["streak"]
        assert report.turns_without_calls == expected["without_calls"]
        assert report.turn_loop_period == expected["period"]
        assert report.turn_loop_repeats == expected["repeats"]

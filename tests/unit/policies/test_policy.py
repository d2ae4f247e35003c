"""Policies: where each line is, what follows from it, and whose line it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegauge.errors import ConfigurationError
from tidegauge.events import Call, CallResult, Outcome, RunStarted, Signals, Step
from tidegauge.pipeline import EngineSink
from tidegauge.policies import DEFAULT_RULES, Policy, Rule, parse_rules
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.declaration import Attribute
from tidegauge.streaming_metrics.registry import RUNS, SIGNAL_READERS, SIGNALS, signals_table

DOCS = Path(__file__).parents[3] / "docs" / "interventions.md"


def signals(**known: Any) -> Signals:
    more = {name: known.pop(name, None) for name in SIGNALS if name not in Signals._fields}
    fields: dict[str, Any] = {"run": "r1", "step": 9, "steps": 10, **known}
    return Signals(**fields, action_digest=b"", state_digest=b"", more=more)


def with_the_table(page: str) -> str:
    """The page with the table of the signals as it must be."""
    begin = page.index("| signal | value | a stop is for |")
    return page[:begin] + signals_table() + page[page.index("\n\n", begin) + 1 :]


def test_the_table_in_the_docs_is_the_registry() -> None:
    page = DOCS.read_text()
    assert page == with_the_table(page), (
        "docs/interventions.md is out of date. "
        "Run: .venv/bin/python tests/unit/policies/test_policy.py"
    )


LOOP = {"loop_period": 3, "loop_first_step": 4}


@pytest.mark.parametrize(
    ("rule", "below", "at", "message"),
    [
        (
            Rule("loop_repeats", 2, "stop"),
            {**LOOP, "loop_repeats": 1},
            {**LOOP, "loop_repeats": 2},
            "3 steps, repeated twice, since step 4",
        ),
        (
            Rule("result_streak", 5, "stop"),
            {"result_streak": 4},
            {"result_streak": 5},
            "5 steps in a row with the same result",
        ),
        (
            Rule("failed_rounds", 3, "stop"),
            {"failed_rounds": 2},
            {"failed_rounds": 3},
            "3 rounds in a row failed",
        ),
        (
            Rule("loop_cost_steps", 7, "stop"),
            {**LOOP, "loop_repeats": 2, "loop_cost_steps": 6},
            {**LOOP, "loop_repeats": 2, "loop_cost_steps": 7},
            "3 steps, repeated twice, since step 4: 7 steps lost",
        ),
        (
            Rule("loop_cost_tokens", 2_000, "stop"),
            {**LOOP, "loop_repeats": 1, "loop_cost_tokens": 1_999.0},
            {**LOOP, "loop_repeats": 1, "loop_cost_tokens": 2_000.0},
            "3 steps, repeated once, since step 4: 2,000 tokens lost",
        ),
        (
            Rule("loop_cost_seconds", 0.5, "stop"),
            {**LOOP, "loop_repeats": 1, "loop_cost_seconds": 0.4},
            {**LOOP, "loop_repeats": 1, "loop_cost_seconds": 0.5},
            "3 steps, repeated once, since step 4: 0.5 seconds lost",
        ),
        (
            Rule("recurrence", 3, "stop"),
            {"recurrence": 2},
            {"recurrence": 3},
            "an action has had the same result 3 times before",
        ),
        (
            Rule("stale_score", 10, "stop"),
            {"stale_score": 9},
            {"stale_score": 10},
            "known places and actions again and again, stale score 10",
        ),
        (
            Rule("stale_rises", 2, "stop"),
            {"stale_rises": 1},
            {"stale_rises": 2},
            "the stale score rose twice without progress",
        ),
        (
            Rule("oldest_lead_age", 20, "stop"),
            {"oldest_lead_age": 19},
            {"oldest_lead_age": 20},
            "a place was seen 20 steps ago and not visited yet",
        ),
        (
            Rule("tokens", 100_000, "stop"),
            {"tokens": 99_999.0},
            {"tokens": 100_000.0},
            "100,000 tokens were spent",
        ),
        (
            Rule("similarity", 0.8, "stop"),
            {"similarity": 0.79},
            {"similarity": 0.8},
            "80% of the last action repeats an earlier one",
        ),
        (
            Rule("repetition", 4, "stop"),
            {"repetition": 3.9},
            {"repetition": 4.25},
            "4.25 steps repeated earlier ones",
        ),
        (
            Rule("stagnation", 20, "stop"),
            {"completed_steps": 8, "repetition": 3.0, "stagnation": 17.0},
            {"completed_steps": 8, "repetition": 4.0, "stagnation": 20.0},
            "stagnation 20 (8 steps + 3 x 4 repetition)",
        ),
        (
            Rule("calls_per_step", 100, "stop"),
            {"calls_per_step": 99},
            {"calls_per_step": 100},
            "100 calls in one step",
        ),
        (
            Rule("duplicate_calls", 5, "stop"),
            {"calls_per_step": 12, "duplicate_calls": 4},
            {"calls_per_step": 12, "duplicate_calls": 5},
            "12 calls in one step, 7 of them distinct",
        ),
        # the tenth step may be taken, the eleventh may not
        (Rule("steps", 10, "stop"), {"steps": 10}, {"steps": 11}, "more than 10 steps"),
    ],
    ids=lambda value: value.signal if isinstance(value, Rule) else "",
)
def test_a_run_is_stopped_from_the_line_on(
    rule: Rule, below: dict[str, int], at: dict[str, int], message: str
) -> None:
    policy = Policy([rule])
    assert policy.decide(signals(**below)).action == "go_on"
    decision = policy.decide(signals(**at))
    assert decision.stop
    assert (decision.reason, decision.message) == (rule.signal, message)
    assert decision.signals == signals(**at)
    past = {name: value + 1 for name, value in at.items()}
    assert policy.decide(signals(**past)).stop
    assert policy.would_stop(signals(**past)) == []


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Rule("novelty", 0.25, "stop"), "25% of the last results were new"),
        (
            Rule("action_entropy", 0.25, "stop"),
            "the last action has an entropy of 0.25 nats per token",
        ),
        (
            Rule("progress_auv_upper", 0.25, "stop"),
            "the run can reach a progress AUV of 25% at most",
        ),
    ],
    ids=lambda value: value.signal if isinstance(value, Rule) else "",
)
def test_some_hold_from_above(rule: Rule, message: str) -> None:
    policy = Policy([rule])
    assert not policy.decide(signals(**{rule.signal: None})).stop
    assert not policy.decide(signals(**{rule.signal: 0.26})).stop
    assert policy.decide(signals(**{rule.signal: 0.25})).message == message
    assert policy.decide(signals(**{rule.signal: 0.0})).stop


@pytest.mark.parametrize(
    "signal",
    [
        "result_streak",
        "failed_rounds",
        "recurrence",
        "stale_score",
        "oldest_lead_age",
        "tokens",
        "loop_cost_tokens",
        "loop_cost_seconds",
    ],
)
def test_what_was_not_observed_stops_nothing(signal: Any) -> None:
    assert Policy([Rule(signal, 1)]).would_stop(signals(**{signal: None})) == []


@pytest.mark.parametrize(
    ("period", "repeats", "message"),
    [
        (1, 1, "1 step, repeated once, since step 4"),
        (1, 2, "1 step, repeated twice, since step 4"),
        (2, 3, "2 steps, repeated 3 times, since step 4"),
    ],
)
def test_the_message_counts_in_words(period: int, repeats: int, message: str) -> None:
    known = signals(loop_period=period, loop_repeats=repeats, loop_first_step=4)
    assert Rule("loop_repeats", 1).message(known) == message


def test_an_observing_rule_stops_nothing_and_is_reported() -> None:
    policy = Policy([Rule("loop_repeats", 1), Rule("failed_rounds", 2)])
    known = signals(**LOOP, loop_repeats=1, failed_rounds=1)
    assert policy.decide(known).action == "go_on"
    assert policy.would_stop(known) == ["loop_repeats"]
    assert policy.would_stop(known._replace(failed_rounds=2)) == ["loop_repeats", "failed_rounds"]


def test_by_default_nothing_is_stopped() -> None:
    policy = Policy()
    known = signals(**LOOP, failed_rounds=99)._replace(
        more={
            "loop_evidence": 9.0,
            "turn_loop_evidence": None,
            "stuck_streak": 9,
            "near_streak": None,
            "duplicate_calls": None,
        }
    )
    assert policy.decide(known).action == "go_on"
    assert policy.would_stop(known) == ["loop_evidence", "stuck_streak", "failed_rounds"]
    assert {rule.action for rule in DEFAULT_RULES} == {"observe"}


def test_a_run_that_nothing_can_be_done_about_is_only_observed() -> None:
    sink = EngineSink(Engine(), Policy([Rule("steps", 2, "nudge"), Rule("steps", 4, "stop")]))
    decided: dict[str, list[str]] = {}
    for run, observed in (("seen", True), ("held", False)):
        sink.run_started(RunStarted(run=run, agent=run, observe_only=observed))
        decided[run] = [
            sink.step_issued(Step(run=run, calls=(Call("look", step),))).action for step in range(6)
        ]
    assert decided["seen"] == ["go_on"] * 6
    assert set(decided["held"]) == {"go_on", "nudge", "stop"}
    seen = sink.engine.get("seen")
    assert seen is not None
    report = seen.report()
    assert (report.intervention, report.intervention_reason) == ("would_stop", "steps")


def test_a_rule_that_stops_wins_over_one_that_observes() -> None:
    policy = Policy([Rule("loop_repeats", 1), Rule("failed_rounds", 3, "stop")])
    assert policy.decide(signals(loop_repeats=9, failed_rounds=3)).reason == "failed_rounds"


class TestRulesOfAnAgent:
    policy = Policy(
        [
            Rule("loop_repeats", 3),
            Rule("failed_rounds", 3, "stop"),
            Rule("loop_repeats", 1, "stop", agent="looper"),
            Rule("failed_rounds", 9, "stop", agent="patient"),
        ]
    )

    def test_hold_for_its_runs_only(self) -> None:
        known = signals(**LOOP, loop_repeats=1)
        assert self.policy.decide(known._replace(agent="looper")).stop
        assert not self.policy.decide(known._replace(agent="other")).stop
        assert not self.policy.decide(known).stop

    def test_take_the_place_of_the_general_rule_for_their_signal(self) -> None:
        looping = signals(**LOOP, loop_repeats=3)
        assert self.policy.would_stop(looping._replace(agent="other")) == ["loop_repeats"]
        assert self.policy.would_stop(looping._replace(agent="looper")) == []
        # also where they are the more patient ones
        failing = signals(failed_rounds=3)
        assert self.policy.decide(failing).stop
        assert not self.policy.decide(failing._replace(agent="patient")).stop
        assert self.policy.decide(failing._replace(agent="patient", failed_rounds=9)).stop

    def test_leave_the_general_rules_for_the_other_signals(self) -> None:
        failing = signals(failed_rounds=3, agent="looper")
        assert self.policy.decide(failing).reason == "failed_rounds"

    def test_reach_the_runs_through_the_engine(self) -> None:
        """The same calls of two agents: one run is stopped at its loop's onset, one goes on."""
        policy = Policy([Rule("loop_repeats", 1, "stop", agent="looper")])
        sink = EngineSink(Engine(), policy)
        stopped_at = {}
        for agent in ("looper", "twin"):
            sink.run_started(RunStarted(run=agent, agent=agent, task="t"))
            for t in range(4):
                if sink.step_issued(Step(run=agent, calls=(Call("look"),))).stop:
                    stopped_at[agent] = t
                    break
                sink.step_observed(Outcome(run=agent, results=(CallResult("dark"),)))
        assert stopped_at == {"looper": 2}

    def test_are_one_for_each_signal_action_and_agent(self) -> None:
        Policy([Rule("steps", 9), Rule("steps", 9, agent="a"), Rule("steps", 9, agent="b")])
        for agent in (None, "a"):
            with pytest.raises(
                ConfigurationError, match="two rules have the same signal, action, agent"
            ):
                Policy([Rule("steps", 9, agent=agent), Rule("steps", 8, agent=agent)])


class TestRulesOfATool:
    policy = Policy(
        [
            Rule("loop_repeats", 3, "stop"),
            Rule("loop_repeats", 9, "stop", tool="poll"),
            Rule("loop_repeats", 5, "stop", agent="patient"),
            Rule("loop_repeats", 20, "stop", agent="patient", tool="poll"),
        ]
    )

    @pytest.mark.parametrize(
        ("agent", "tool", "least"),
        [
            ("", "look", 3),
            ("", "poll", 9),
            ("patient", "look", 5),
            ("patient", "poll", 20),
            ("", "look+poll", 3),  # a round of several is another tool
        ],
    )
    def test_go_before_those_of_the_agent_and_both_before_the_general(
        self, agent: str, tool: str, least: int
    ) -> None:
        known = signals(**LOOP, agent=agent, tool=tool)
        for repeats in range(1, 22):
            stops = self.policy.decide(known._replace(loop_repeats=repeats)).stop
            assert stops == (repeats >= least)

    def test_a_tool_s_rule_takes_the_place_of_an_agent_s(self) -> None:
        policy = Policy(
            [
                Rule("failed_rounds", 2, "stop", agent="a"),
                Rule("failed_rounds", 4, "stop", tool="shell"),
            ]
        )
        known = signals(failed_rounds=3, agent="a")
        assert policy.decide(known).stop
        assert not policy.decide(known._replace(tool="shell")).stop


class TestTheLadder:
    policy = Policy(
        [
            Rule("loop_repeats", 2, "nudge"),
            Rule("loop_repeats", 3, "block"),
            Rule("loop_repeats", 5, "stop"),
            Rule("result_streak", 4, "stop"),
        ]
    )

    @pytest.mark.parametrize(
        ("repeats", "action"),
        [(1, "go_on"), (2, "nudge"), (3, "block"), (4, "block"), (5, "stop")],
    )
    def test_the_highest_action_that_holds_decides(self, repeats: int, action: str) -> None:
        known = signals(**LOOP, loop_repeats=repeats)
        assert self.policy.decide(known, blockable=True).action == action

    def test_a_call_that_cannot_be_answered_is_nudged(self) -> None:
        known = signals(**LOOP, loop_repeats=4)
        assert self.policy.decide(known).action == "nudge"

    def test_the_action_of_another_signal_counts(self) -> None:
        known = signals(**LOOP, loop_repeats=3, result_streak=4)
        assert self.policy.decide(known, blockable=True).reason == "result_streak"

    def test_the_rules_to_nudge_that_hold(self) -> None:
        assert self.policy.nudges(signals(**LOOP, loop_repeats=9)) == [self.policy.rules[0]]
        assert self.policy.nudges(signals()) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("novelty", 1), "the threshold of novelty is 1; use 0 or more, but less than 1"),
        (("novelty", -0.1), "the threshold of novelty is -0.1; use 0 or more"),
        (("loop_cost_seconds", 0), "the threshold of loop_cost_seconds is 0; use more than 0"),
        (
            ("result_streak", 3, "block"),
            "result_streak cannot block, because it names no repeated call; use nudge",
        ),
        (("loops", 3), "unknown signal 'loops'; use one of "),
        (("steps", 0), "the threshold of steps is 0; use at least 1"),
        (("steps", -1), "the threshold of steps is -1; use at least 1"),
        (("steps", True), "the threshold of steps must be a number"),
        (("steps", 2.5), "the threshold of steps is 2.5; use a whole number"),
        (("steps", 3, "halt"), "unknown action 'halt'; use one of observe, nudge, block, stop"),
    ],
)
def test_a_rule_that_cannot_work_is_refused(given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{message}"):
        Rule(*given)


class TestParseRules:
    def test_every_signal_and_blanks(self) -> None:
        rules = parse_rules("loop_repeats=2, result_streak=5 ,failed_rounds = 3,steps=30")
        assert rules == (
            Rule("loop_repeats", 2, "stop"),
            Rule("result_streak", 5, "stop"),
            Rule("failed_rounds", 3, "stop"),
            Rule("steps", 30, "stop"),
        )

    def test_every_action_and_shares(self) -> None:
        text = "loop_repeats=2:nudge,loop_repeats=3:block,loop_repeats=5,novelty=0.1:observe"
        assert parse_rules(text) == (
            Rule("loop_repeats", 2, "nudge"),
            Rule("loop_repeats", 3, "block"),
            Rule("loop_repeats", 5, "stop"),
            Rule("novelty", 0.1, "observe"),
        )

    def test_an_unknown_action_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="unknown action 'halt'"):
            parse_rules("steps=3:halt")

    @pytest.mark.parametrize(
        "text", ["", "steps", "steps=", "steps=-1", "steps=many", "steps=3,", "steps=3;loops=1"]
    )
    def test_another_form_is_refused_with_the_right_one(self, text: str) -> None:
        with pytest.raises(ConfigurationError, match="SIGNAL=NUMBER"):
            parse_rules(text)

    @pytest.mark.parametrize(
        ("text", "message"),
        [("loops=1", "unknown signal 'loops'"), ("steps=0", "at least 1")],
    )
    def test_a_rule_that_cannot_work_is_refused(self, text: str, message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            parse_rules(text)


@pytest.mark.parametrize("name", SIGNAL_READERS)
def test_a_signal_reads_what_its_metric_has(name: str) -> None:
    """A policy asks for the attribute itself: one that is not there would never reach a rule."""
    read = SIGNAL_READERS[name]
    if isinstance(read, Attribute):
        assert hasattr(read.kind, read.name)
        assert read.kind in {one.kind for one in RUNS}


if __name__ == "__main__":
    DOCS.write_text(with_the_table(DOCS.read_text()))

"""Thresholds: which one holds for a run, what follows where it is exceeded, who is held out."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tidegauge.errors import ConfigurationError
from tidegauge.events import Call, CallResult, Decision, Outcome, RunStarted, Signals, Step
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy, Rule, RunPolicy, Threshold, Thresholds
from tidegauge.streaming_metrics import Engine


def signals(run: str = "r1", **fields: Any) -> Signals:
    return Signals(run, 9, 10, b"", b"")._replace(**fields)


class TestLine:
    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"score": "stps"}, "unknown score 'stps'"),
            (
                {"action": "block"},
                "a threshold has no action 'block'; use one of observe, nudge, stop",
            ),
            ({"threshold": math.nan}, "the threshold of steps is nan"),
            ({"threshold": -math.inf}, "the threshold of steps is -inf"),
            ({"threshold": True}, "the threshold of steps must be a number"),
            ({"threshold": "30"}, "the threshold of steps must be a number"),
            ({"alpha": 0}, "alpha is 0; use more than 0 and less than 1"),
            ({"alpha": 1.5}, "alpha is 1.5; use more than 0 and less than 1"),
        ],
    )
    def test_what_cannot_work_is_rejected(self, given: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            Threshold(**{"score": "steps", "threshold": 30, **given})

    def test_a_run_crosses_when_it_has_more(self) -> None:
        line = Threshold("steps", 30)
        assert not Thresholds([line]).exceeded(signals(completed_steps=30))
        assert Thresholds([line]).exceeded(signals(completed_steps=31)) == [(line, "observe")]

    def test_what_was_not_measured_crosses_nothing(self) -> None:
        assert not Thresholds([Threshold("tokens", -1)]).exceeded(signals())
        assert not Thresholds([Threshold("stagnation", -1)]).exceeded(signals())
        never = Thresholds([Threshold("steps", math.inf)])
        assert not never.exceeded(signals(completed_steps=10**9))

    def test_its_message_names_the_threshold_and_the_parts(self) -> None:
        known = signals(completed_steps=12, repetition=2.5, similarity=0.75, failed_rounds=2)
        assert Threshold("stagnation", 20.5, runs=120).message(known) == (
            "stagnation 22.75 is above 20.5, the threshold of 120 successful runs "
            "(12 steps + 3 x 2.5 repetition + 3 x 0.75 similarity of the last action "
            "+ 0.5 x 2 failed rounds)"
        )
        assert Threshold("steps", 11).message(known) == "steps 12 is above 11"


class TestLines:
    ALL = Threshold("steps", 40)
    GROUP = Threshold("steps", 30, task_group="shop")
    AGENT = Threshold("steps", 20, agent="a")
    BOTH = Threshold("steps", 10, agent="a", task_group="shop")
    TOKENS = Threshold("tokens", 5)
    LINES = (BOTH, ALL, TOKENS, AGENT, GROUP)

    @pytest.mark.parametrize("order", [1, -1])
    @pytest.mark.parametrize(
        ("agent", "task_group", "holds"),
        [("a", "shop", BOTH), ("a", "mail", AGENT), ("b", "shop", GROUP), ("b", "", ALL)],
    )
    def test_the_most_particular_holds(
        self, order: int, agent: str, task_group: str, holds: Threshold
    ) -> None:
        lines = Thresholds(self.LINES[::order])
        assert set(lines.of(agent, task_group)) == {holds, self.TOKENS}

    def test_the_line_of_the_agent_goes_before_that_of_the_task_group(self) -> None:
        assert Thresholds([self.AGENT, self.GROUP]).of("a", "shop") == (self.AGENT,)
        assert Thresholds([self.GROUP, self.AGENT]).of("a", "shop") == (self.AGENT,)

    def test_where_none_was_drawn_none_holds(self) -> None:
        lines = Thresholds([self.BOTH, self.GROUP])
        assert lines.of("a", "mail") == ()
        assert lines.exceeded(signals(agent="a", task_group="mail", completed_steps=99)) == []
        assert not Thresholds()

    def test_an_agent_without_a_name_is_not_any_agent(self) -> None:
        unnamed = Threshold("steps", 3, agent="", task_group="")
        assert Thresholds([unnamed, self.ALL]).of("", "") == (unnamed,)
        assert Thresholds([unnamed, self.ALL]).of("b", "") == (self.ALL,)

    def test_two_for_one_place_are_reported(self) -> None:
        with pytest.raises(
            ConfigurationError, match="two thresholds have the same score, agent and task"
        ):
            Thresholds([Threshold("steps", 3, agent="a"), Threshold("steps", 4, agent="a")])

    @pytest.mark.parametrize("holdout", [-0.1, 1.1, math.nan])
    def test_a_holdout_that_is_no_share_is_rejected(self, holdout: float) -> None:
        with pytest.raises(ConfigurationError, match=r"holdout is .*; use 0 to 1"):
            Thresholds(holdout=holdout)

    def test_words_are_read_only_where_a_line_goes_by_them(self) -> None:
        assert not Thresholds(self.LINES).reads_words
        assert Thresholds([*self.LINES, Threshold("stagnation", 9, agent="z")]).reads_words


class TestHoldout:
    RUNS = tuple(f"run-{n}" for n in range(4_000))

    def watched(self, holdout: float) -> set[str]:
        lines = Thresholds([Threshold("steps", 3, "stop")], holdout=holdout)
        reported = [(run, lines.exceeded(signals(run, completed_steps=4))) for run in self.RUNS]
        assert {action for _, [(_, action)] in reported} <= {"observe", "stop"}
        return {run for run, [(_, action)] in reported if action == "observe"}

    @pytest.mark.parametrize("holdout", [0.05, 0.1, 0.5])
    def test_about_that_share_of_the_runs_is_only_watched(self, holdout: float) -> None:
        share = len(self.watched(holdout)) / len(self.RUNS)
        deviation = math.sqrt(holdout * (1 - holdout) / len(self.RUNS))
        assert share == pytest.approx(holdout, abs=4 * deviation)

    def test_none_and_all(self) -> None:
        assert self.watched(0) == set()
        assert self.watched(1) == set(self.RUNS)

    def test_the_id_decides_and_more_of_it_holds_out_the_same_runs_too(self) -> None:
        assert self.watched(0.1) == self.watched(0.1)
        assert self.watched(0.1) < self.watched(0.2)

    def test_rules_are_held_to_in_every_run(self) -> None:
        policy = Policy(
            [Rule("steps", 3, "stop")], thresholds=[Threshold("steps", 2, "stop")], holdout=1
        )
        assert not policy.decide(signals(completed_steps=3, steps=3)).stop
        assert policy.would_stop(signals(completed_steps=3, steps=3)) == ["steps"]
        assert policy.decide(signals(completed_steps=3, steps=4)).stop


class TestPolicy:
    @pytest.mark.parametrize(
        ("action", "decided", "would_stop"),
        [("observe", "go_on", ["steps"]), ("nudge", "nudge", []), ("stop", "stop", [])],
    )
    def test_its_action_says_what_follows(
        self, action: Any, decided: str, would_stop: list[str]
    ) -> None:
        policy = Policy((), thresholds=[Threshold("steps", 3, action)])
        below, beyond = signals(completed_steps=3), signals(completed_steps=4)
        assert policy.decide(below).action == "go_on"
        assert policy.decide(beyond).action == decided
        assert policy.would_stop(below) == []
        assert policy.would_stop(beyond) == would_stop

    def test_of_one_action_a_rule_goes_before_a_line(self) -> None:
        known = signals(completed_steps=9, failed_rounds=3)
        for action in ("nudge", "stop"):
            policy = Policy(
                [Rule("failed_rounds", 3, action)], thresholds=[Threshold("steps", 3, action)]
            )
            assert (policy.decide(known).action, policy.decide(known).reason) == (
                action,
                "failed_rounds",
            )

    def test_a_line_to_stop_goes_before_rules_that_do_less(self) -> None:
        loop: dict[str, Any] = {"loop_period": 1, "loop_repeats": 5, "loop_first_step": 3}
        known = signals(completed_steps=9, failed_rounds=3, **loop)
        rules = [Rule("failed_rounds", 3, "nudge"), Rule("loop_repeats", 3, "block")]
        policy = Policy(rules, thresholds=[Threshold("steps", 3, "stop")])
        assert policy.decide(known, blockable=True).reason == "steps"
        assert policy.decide(known, blockable=True).message == "steps 9 is above 3"

    def test_observed_lines_and_rules_are_all_reported(self) -> None:
        lines = [
            Threshold("steps", 3),
            Threshold("tokens", 5),
            Threshold("recurrence", 5),
        ]
        policy = Policy([Rule("failed_rounds", 3)], thresholds=lines)
        known = signals(completed_steps=9, failed_rounds=3, tokens=6.0)
        assert policy.would_stop(known) == ["failed_rounds", "steps", "tokens"]


class TestObserving:
    """Where nobody can step in, what would have been stopped is counted."""

    RULES = (
        Rule("loop_repeats", 2, "nudge"),
        Rule("loop_repeats", 5, "stop"),
        Rule("loop_repeats", 3, "block"),
        Rule("loop_repeats", 9, "stop", tool="wait"),
        Rule("steps", 6, "nudge"),
    )

    @pytest.mark.parametrize("order", [1, -1])
    def test_of_the_rules_for_one_signal_the_highest_action_counts(self, order: int) -> None:
        assert set(Policy(self.RULES[::order]).observing().rules) == {
            Rule("loop_repeats", 5),
            Rule("loop_repeats", 9, tool="wait"),
            Rule("steps", 6),
        }

    def test_lines_are_only_observed(self) -> None:
        lines = [
            Threshold("steps", 3, "stop", agent="a"),
            Threshold("tokens", 3, "nudge", alpha=0.1),
        ]
        observing = Policy((), thresholds=lines).observing()
        assert list(observing.thresholds) == [
            Threshold("steps", 3, agent="a"),
            Threshold("tokens", 3, alpha=0.1),
        ]
        known = signals(agent="a", completed_steps=9, tokens=9.0)
        assert observing.decide(known).action == "go_on"
        assert observing.would_stop(known) == ["tokens", "steps"]


class Run:
    """One live run under a policy of lines."""

    def __init__(self, *lines: Threshold, rules: Any = (), **engine: Any) -> None:
        policy = Policy(rules, thresholds=lines)
        self.sink = EngineSink(
            Engine(clock=None, repetition=policy.thresholds.reads_words, **engine), policy
        )
        self.sink.run_started(RunStarted(run="r1", agent="a", task_group="g"))

    @property
    def interventions(self) -> dict[tuple[str, str], int]:
        run = self.sink.engine.get("r1")
        assert run is not None
        return run.totals.interventions

    def step(self, action: str = "look", outcome: object = "nothing") -> list[Decision]:
        issued = self.sink.step_issued(Step("r1", (Call(action),)))
        return [issued, self.sink.step_observed(Outcome("r1", (CallResult(outcome),)))]


class TestLive:
    def test_a_nudge_is_repeated_when_the_score_has_grown_by_as_much_again(self) -> None:
        run = Run(Threshold("steps", 3, "nudge"))
        nudged = [step for step in range(1, 13) if any(one.nudge for one in run.step(f"go {step}"))]
        assert nudged == [4, 7, 10]  # at 4 steps completed, then at 7, then at 10
        assert run.interventions == {("nudge", "steps"): 3}

    @pytest.mark.parametrize("threshold", [0, -1.5])
    def test_a_line_at_nothing_nudges_once(self, threshold: float) -> None:
        run = Run(Threshold("steps", threshold, "nudge"))
        assert sum(one.nudge for n in range(9) for one in run.step(f"go {n}")) == 1

    def test_a_nudge_says_what_the_score_is_made_of(self) -> None:
        run = Run(Threshold("stagnation", 4, "nudge", runs=50))
        [nudge] = [one for _ in range(3) for one in run.step() if one.nudge][:1]
        assert nudge.reason == "stagnation"
        assert nudge.advice is not None
        assert "the threshold of 50 successful runs (1 steps + " in nudge.advice
        assert "similarity of the last action" in nudge.advice

    def test_a_score_that_falls_again_clears_its_nudge(self) -> None:
        run = Run(Threshold("result_streak", 2, "nudge"))
        same = [one.nudge for _ in range(3) for one in run.step(outcome="same")]
        assert same == [False] * 5 + [True]
        assert not any(one.nudge for one in run.step(outcome="other"))
        assert [one.nudge for _ in range(3) for one in run.step(outcome="same")][-1]

    def test_a_crossing_is_kept_though_the_score_falls_again(self) -> None:
        run = Run(Threshold("result_streak", 2))
        for outcome in ("same", "same", "same", "other"):
            run.step(outcome=outcome)
        state = run.sink.engine.get("r1")
        assert state is not None
        assert state.policy_state(RunPolicy).exceeded == {"result_streak": 2}
        assert run.interventions == {("would_stop", "result_streak"): 1}

    def test_who_is_stopped_stays_stopped(self) -> None:
        run = Run(Threshold("steps", 2, "stop"))
        decisions = [one for _ in range(4) for one in run.step()]
        assert [one.action for one in decisions] == ["go_on"] * 5 + ["stop"] * 3
        assert decisions[5].message == "steps 3 is above 2"
        assert run.interventions == {("stop", "steps"): 1}


@pytest.mark.parametrize(
    ("fields", "agent", "task_group", "acts"),
    [
        ({}, "x", "y", True),
        ({"agents": ("a", "b")}, "b", "y", True),
        ({"agents": ("a", "b")}, "c", "y", False),
        ({"task_groups": ("g",)}, "c", "g", True),
        ({"task_groups": ("g",)}, "c", "h", False),
        ({"agents": ("a",), "task_groups": ("g",)}, "a", "h", False),
        ({"action": "observe"}, "x", "y", False),
    ],
)
def test_in_runs_that_it_was_not_learned_on_it_is_only_observed(fields, agent, task_group, acts):
    threshold = Threshold("steps", 3, **{"action": "stop", **fields})
    assert threshold.acts_on(agent, task_group) == acts
    signals = Signals("r", 4, 5, b"", b"", completed_steps=4, agent=agent, task_group=task_group)
    [(found, action)] = Thresholds([threshold]).exceeded(signals)
    assert (found, action) == (threshold, "stop" if acts else "observe")
    assert Policy([], thresholds=[threshold]).decide(signals).stop == acts

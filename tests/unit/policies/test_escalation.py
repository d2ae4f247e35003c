"""Escalation on live runs: when a model is nudged, what is blocked, and when it is left again."""

from __future__ import annotations

from typing import Any

import pytest

from tidegauge.events import Call, CallResult, Decision, Outcome, RunStarted, Step
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy, Rule
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.interventions import Interventions

ESCALATION = [
    Rule("loop_repeats", 2, "nudge"),
    Rule("loop_repeats", 3, "block"),
    Rule("loop_repeats", 5, "stop"),
]


class Agent:
    """One run; it answers blocked calls as an adapter does: by not observing them."""

    def __init__(self, *rules: Rule, blockable: bool = True, **started: Any) -> None:
        self.sink = EngineSink(Engine(clock=None), Policy(rules))
        self.sink.run_started(RunStarted(run="r1", task="t", **started))
        self.blockable = blockable

    @property
    def interventions(self) -> dict[tuple[str, str], int]:
        run = self.sink.engine.get("r1")
        assert run is not None
        return run.totals.interventions

    def issue(self, action: str = "look", **fields: Any) -> Decision:
        step = Step("r1", (Call(action),), blockable=self.blockable, **fields)
        return self.sink.step_issued(step)

    def observe(self, outcome: object = "nothing", error: bool = False, **fields: Any) -> Decision:
        return self.sink.step_observed(Outcome("r1", (CallResult(outcome, error),), **fields))

    def step(self, action: str = "look", outcome: object = "nothing", **fields: Any) -> str:
        decision = self.issue(action)
        if not decision.block and not decision.stop:
            self.observe(outcome, **fields)
        return decision.action

    def steps(self, times: int) -> list[str]:
        return [self.step() for _ in range(times)]


class TestBlock:
    def test_a_model_that_insists_escalates(self) -> None:
        assert Agent(*ESCALATION).steps(8) == [
            "go_on",
            "go_on",
            "go_on",  # repeated once
            "nudge",
            "block",
            "block",
            "stop",
            "stop",
        ]

    def test_who_cannot_block_goes_on_to_the_stop(self) -> None:
        agent = Agent(*ESCALATION, blockable=False)
        # at the fifth repetition it is stopped: the nudge at the second is due again at the fourth
        assert agent.steps(7) == ["go_on"] * 3 + ["nudge", "go_on", "nudge", "stop"]

    @pytest.mark.parametrize("period", [2, 3, 8])
    def test_a_longer_loop_is_blocked_where_it_would_be_repeated(self, period: int) -> None:
        agent = Agent(Rule("loop_repeats", 1, "block"), Rule("loop_repeats", 3, "stop"))
        reported = [
            agent.step(f"go {n % period}", f"room {n % period}") for n in range(4 * period + 1)
        ]
        # Its first state is the task, so that the loop begins one step later. Once it is blocked
        # every step of it is, until its third repetition.
        assert reported == ["go_on"] * 2 * period + ["block"] * 2 * period + ["stop"]

    @pytest.mark.parametrize("period", [2, 3, 8])
    @pytest.mark.parametrize("given", [True, False])
    def test_asking_again_for_the_blocked_call_is_going_on(self, period: int, given: bool) -> None:
        """What most models do: they stand where they stood, and try the same once more."""
        agent = Agent(Rule("loop_repeats", 1, "block"), Rule("loop_repeats", 3, "stop"))
        at, actions = 0, []
        for _ in range(4 * period + 1):
            state = {"state": f"room {at % period}"} if given else {}
            decision = agent.issue(f"go {at % period}", **state)
            actions.append(decision.action)
            if decision.action == "go_on":
                agent.observe(f"room {(at + 1) % period}")
                at += 1
        first = actions.index("block")
        stop = actions.index("stop")
        assert actions[first:stop] == ["block"] * 2 * period
        assert set(actions[stop:]) == {"stop"}

    def test_the_same_call_where_something_has_changed_is_another(self) -> None:
        agent = Agent(Rule("loop_repeats", 1, "block"))
        for n in range(4):
            agent.issue(f"go {n % 2}", state=f"room {n % 2}")
            agent.observe(f"room {(n + 1) % 2}")
        assert agent.issue("go 0", state="room 0").block
        assert agent.issue("go 0", state="room 0, the door is open").action == "go_on"

    def test_leaving_the_loop_clears_it(self) -> None:
        agent = Agent(*ESCALATION)
        assert agent.steps(5)[-1] == "block"
        assert agent.step("open", "a door") == "go_on"
        assert agent.steps(3) == ["go_on"] * 3
        assert agent.sink.engine.get("r1").find(Interventions).stopped is None

    def test_a_blocked_step_is_a_step_of_the_loop_that_brought_nothing(self) -> None:
        agent = Agent(Rule("loop_repeats", 2, "block"))
        agent.steps(3)
        before = agent.sink.engine.snapshot().active[0]
        decision = agent.issue()
        report = agent.sink.engine.snapshot().active[0]
        assert decision.block
        assert (before.steps, report.steps) == (3, 4)
        assert report.loop_repeats == 2
        # nothing waits for its outcome any more
        assert agent.observe("late") == Decision()
        assert agent.sink.engine.snapshot().dropped_events == 1

    def test_its_advice_is_in_place_of_a_result(self) -> None:
        agent = Agent(Rule("loop_repeats", 1, "block"), place="hall", exits=("cellar",))
        agent.steps(2)
        decision = agent.issue()
        assert decision.advice.startswith("This call was not run")
        assert "(look)" in decision.advice
        assert "Not visited yet: cellar" in decision.advice
        assert decision.situation.unexplored == ("cellar",)

    def test_an_outcome_is_too_late_to_block(self) -> None:
        agent = Agent(Rule("loop_repeats", 2, "block"))
        agent.blockable = False
        for _ in range(6):
            assert agent.issue().action == "go_on"
            assert agent.observe().action == "go_on"


class TestNudge:
    def test_once_and_again_after_as_much_again(self) -> None:
        agent = Agent(Rule("loop_repeats", 2, "nudge"))
        reported = agent.steps(12)
        assert [n for n, action in enumerate(reported) if action == "nudge"] == [3, 5, 7, 9, 11]
        assert agent.interventions == {("nudge", "loop_repeats"): 5}

    def test_a_loop_that_was_left_is_nudged_anew(self) -> None:
        agent = Agent(Rule("loop_repeats", 2, "nudge"))
        assert agent.steps(4)[-1] == "nudge"
        assert agent.step("open", "a door") == "go_on"
        assert agent.steps(4) == ["go_on"] * 3 + ["nudge"]

    def test_each_signal_by_itself(self) -> None:
        agent = Agent(Rule("loop_repeats", 3, "nudge"), Rule("failed_rounds", 2, "nudge"))
        received = []
        for _ in range(6):
            received.append(agent.issue().reason)
            received.append(agent.observe(error=True).reason)
        # Given at the second failure; at the fourth the loop is reported when its step is issued,
        # the failures once more when it is observed.
        assert received == [
            None, None,
            None, "failed_rounds",
            None, None,
            None, "failed_rounds",
            "loop_repeats", None,
            None, "failed_rounds",
        ]  # fmt: skip

    def test_a_nudge_that_a_stronger_action_kept_from_the_model_stays_due(self) -> None:
        agent = Agent(Rule("steps", 4, "nudge"), *ESCALATION)
        assert agent.steps(5) == ["go_on"] * 3 + ["nudge", "block"]  # the fifth is one too many
        decision = agent.issue("find")
        assert (decision.action, decision.reason) == ("nudge", "steps")

    def test_what_falls_is_nudged_once_until_it_has_risen(self) -> None:
        agent = Agent(Rule("novelty", 0.2, "nudge"))
        reported = [agent.issue() and agent.observe().action for _ in range(24)]
        assert reported.count("nudge") == 1

    def test_it_names_what_is_open(self) -> None:
        agent = Agent(Rule("result_streak", 2, "nudge"), place="hall", exits=("cellar",))
        agent.step()
        agent.issue()
        decision = agent.observe()
        assert decision.nudge
        assert decision.message == "2 steps in a row with the same result"
        assert decision.situation.unexplored == ("cellar",)
        assert "Not visited yet: cellar." in decision.advice

    def test_a_fault_of_ours_ends_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from tidegauge import testing

        agent = Agent(Rule("loop_repeats", 1, "nudge"))
        monkeypatch.setattr("tidegauge.policies.live_policy.advise", None)
        with testing.raise_internal_errors(False):
            assert agent.steps(9) == ["go_on"] * 9
        assert agent.sink.engine.get("r1").unguarded


class TestObserve:
    def test_what_would_have_been_stopped_is_counted_beside_a_nudge(self) -> None:
        agent = Agent(Rule("loop_repeats", 2, "nudge"), Rule("loop_repeats", 3))
        assert agent.steps(6).count("nudge") == 2
        assert agent.interventions == {
            ("nudge", "loop_repeats"): 2,
            ("would_stop", "loop_repeats"): 1,
        }

    def test_what_was_said_in_vain_is_no_more_than_a_message(self) -> None:
        agent = Agent(Rule("loop_repeats", 1, "stop", tool="search"))
        assert agent.steps(9) == ["go_on"] * 9

"""A breaker: a tool that fails in whatever run is left alone for a while, then tried once."""

from __future__ import annotations

from typing import Any

import pytest

import tidegauge
from tidegauge.errors import ConfigurationError
from tidegauge.events import Call, CallResult, Decision, Outcome, RunStarted, Step
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Breaker, Policy, Rule
from tidegauge.streaming_metrics import Engine


class Tools:
    """Calls in two runs, with a clock that the test sets."""

    def __init__(self, *breakers: Breaker, rules: Any = ()) -> None:
        self.now = 1_000.0
        policy = Policy(rules, breakers=breakers)
        self.sink = EngineSink(Engine(clock=None), policy, clock=lambda: self.now)
        for run in ("a", "b"):
            self.sink.run_started(RunStarted(run=run))
        self.steps = {"a": -1, "b": -1}

    def issue(self, *tools: str, run: str = "a", blockable: bool = True) -> Decision:
        self.steps[run] += 1
        calls = tuple(Call(tool, self.steps[run]) for tool in tools)
        return self.sink.step_issued(Step(run, calls, blockable=blockable))

    def observe(self, *failed: bool | None, run: str = "a", step: int | None = None) -> None:
        at = self.steps[run] if step is None else step
        results = tuple(CallResult(f"{run}{at}", one) for one in failed)
        self.sink.step_observed(Outcome(run, results, at))

    def call(self, tool: str, failed: bool, run: str = "a") -> str:
        decision = self.issue(tool, run=run)
        if not decision.block:
            self.observe(failed, run=run)
        return decision.action

    def open(self) -> dict[str, float]:
        assert self.sink.limits is not None
        [found] = [
            values
            for metric, values in self.sink.limits.metrics().items()
            if metric.name == "tidegauge_breaker_open"
        ]
        return {tool: value for (tool,), value in found.items()}


def test_failures_in_all_runs_open_it_and_one_trial_closes_it() -> None:
    tools = Tools(Breaker("search", failures=3, calls=4, seconds=60))
    for run, failed in [("a", True), ("b", False), ("a", True)]:
        assert tools.call("search", failed, run) == "go_on"
    assert tools.open() == {"search": 0.0}
    assert tools.call("search", True, "b") == "go_on"
    assert tools.open() == {"search": 1.0}
    refused = tools.issue("search")
    assert (refused.action, refused.reason) == ("block", "breaker")
    assert refused.message == ("search failed in 3 of its last 4 calls, and is tried again in 60 s")
    assert (
        refused.advice == f"This call was not run: {refused.message}. Do something else meanwhile."
    )
    assert tools.call("look", True) == "go_on"
    tools.now += 60
    assert tools.issue("search", run="b").action == "go_on"  # the trial
    assert tools.issue("search").message == (
        "search failed in 3 of its last 4 calls, and is being tried again"
    )
    tools.observe(False, run="b")
    assert tools.open() == {"search": 0.0}
    assert [tools.call("search", True) for _ in range(3)] == ["go_on"] * 3
    assert tools.issue("search").block  # it had forgotten what was before


def test_a_trial_that_fails_opens_it_for_as_long_again() -> None:
    tools = Tools(Breaker("search", failures=1, calls=1, seconds=60))
    tools.call("search", True)
    tools.now += 61
    assert tools.call("search", True) == "go_on"
    tools.now += 59
    assert tools.issue("search").message == (
        "search failed again when it was tried, and is tried again in 1 s"
    )
    tools.now += 1
    assert tools.call("search", False) == "go_on"
    assert tools.call("search", False) == "go_on"


def test_a_trial_without_a_result_is_followed_by_another() -> None:
    tools = Tools(Breaker("search", failures=1, calls=1, seconds=60))
    tools.call("search", True)
    tools.now += 60
    assert tools.issue("search").action == "go_on"  # its run is gone
    tools.now += 59
    assert tools.issue("search", run="b").block
    tools.now += 1
    assert tools.issue("search", run="b").action == "go_on"


def test_a_call_that_began_before_it_was_open_says_nothing_of_the_trial() -> None:
    tools = Tools(Breaker("search", failures=2, calls=2, seconds=60))
    tools.issue("search", run="b")
    tools.call("search", True)
    tools.call("search", True)
    tools.now += 60
    tools.issue("search")
    tools.observe(False, run="b")  # the one from before
    assert tools.open() == {"search": 1.0}
    tools.observe(False)
    assert tools.open() == {"search": 0.0}


def test_the_calls_of_a_turn_are_refused_together_and_counted_each() -> None:
    tools = Tools(Breaker("search", failures=2, calls=2, seconds=60))
    assert tools.issue("search", "look", "search").action == "go_on"
    tools.observe(True, False, True)
    assert tools.issue("look", "search").block
    assert tools.issue("look", "search", blockable=False).action == "go_on"


def test_a_trial_that_a_rule_blocks_is_left_to_the_next_call() -> None:
    tools = Tools(
        Breaker("search", failures=1, calls=1, seconds=1),
        rules=[
            Rule("steps", 2, "stop"),
        ],
    )
    tools.call("search", True)
    tools.call("look", False)
    tools.now += 1
    assert tools.issue("search").stop
    assert tools.issue("search", run="b").action == "go_on"


def test_without_a_name_every_tool_has_a_breaker() -> None:
    tools = Tools(Breaker(failures=1, calls=1), Breaker("patient", failures=3, calls=3))
    for tool in ("search", "patient"):
        tools.call(tool, True)
    assert tools.open() == {"search": 1.0, "patient": 0.0}
    for number in range(300):
        tools.call(f"tool {number}", False)
    assert len(tools.open()) <= 201
    assert tools.open()["search"] == 1.0


def test_a_result_that_may_be_a_failure_or_not_is_left_out() -> None:
    tools = Tools(Breaker("search", failures=1, calls=1))
    tools.issue("search")
    tools.observe(None)
    assert tools.open() == {"search": 0.0}


def test_a_decorated_tool_is_answered_instead_of_run() -> None:
    ran: list[int] = []

    @tidegauge.tool(on_block=lambda decision: decision.message)
    def flaky(number: int) -> str:
        ran.append(number)
        raise TimeoutError("no answer")

    pipeline = tidegauge.configure(
        serve_metrics=False, breakers=[Breaker("flaky", failures=2, calls=2)]
    )
    answers = []
    for run in range(3):
        with tidegauge.run(agent=f"agent {run}"):
            try:
                answers.append(flaky(run))
            except TimeoutError as error:
                answers.append(str(error))
    assert answers[:2] == ["no answer"] * 2
    assert answers[2].startswith("flaky failed in 2 of its last 2 calls")
    assert ran == [0, 1]
    pipeline.shutdown()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"failures": 0}, "failures of a breaker is 0; use a whole number from 1 to 10000"),
        ({"calls": 1.5}, "calls of a breaker is 1.5; use a whole number from 1 to 10000"),
        ({"failures": 9, "calls": 8}, "a breaker opens at 9 failures of 8 calls; use as many"),
        ({"seconds": 0}, "seconds of a breaker is 0; use a number above 0"),
    ],
)
def test_what_is_no_breaker_is_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Breaker("search", **given)

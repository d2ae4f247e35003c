"""Traces: when trouble set in, how a run ended, and what is said of runs that did not."""

from __future__ import annotations

import math

import pytest

from tidegauge.errors import ConfigurationError
from tidegauge.events import Call, CallResult, Outcome, RunEnded, RunStarted, Step
from tidegauge.policies import RunTrace, TraceSink


class Runs(TraceSink):
    """Traces what it receives, and keeps it."""

    def __init__(self, *scores: str) -> None:
        self.traces: list[RunTrace] = []
        super().__init__(scores, on_trace=self.traces.append)

    def step(self, outcome: object, error: bool = False, run: str = "r", **fields: float) -> None:
        self.step_issued(Step(run, (Call("look"),), tokens=fields.get("tokens")))
        results = (CallResult(outcome, error),)
        self.step_observed(Outcome(run, results, seconds=fields.get("seconds")))

    def run(self, *outcomes: object, error: bool = False) -> RunTrace:
        self.run_started(RunStarted(run="r"))
        for outcome in outcomes:
            self.step(outcome, error)
        self.run_ended(RunEnded(run="r", success=True))
        return self.traces[-1]


class TestOnset:
    def test_of_a_loop_when_the_step_that_closes_it_is_issued(self) -> None:
        # The third step is known to repeat the second before it is run: two had been taken.
        assert Runs().run("nothing", "nothing", "nothing").onset == 2

    def test_of_failed_rounds_when_the_third_has_failed(self) -> None:
        assert Runs().run("no", "never", "not at all", "no way", error=True).onset == 3

    def test_of_the_first_trouble_alone(self) -> None:
        # the loop first, then the streak, then the failed rounds
        assert Runs().run(*["nothing"] * 9, error=True).onset == 2

    def test_without_trouble_there_is_none(self) -> None:
        assert Runs().run("a", "b", "c").onset is None


class TestEnds:
    def test_a_run_without_an_end_is_reported_when_it_is_closed(self) -> None:
        runs = Runs("steps")
        runs.run_started(RunStarted(run="r", agent="a", task_group="g"))
        runs.step("x")
        assert runs.traces == []
        runs.close()
        runs.close()
        [trace] = runs.traces
        assert (trace.run, trace.agent, trace.task_group) == ("r", "a", "g")
        assert (trace.success, trace.finished, trace.steps) == (None, False, 1)

    def test_a_run_that_starts_again_had_no_end(self) -> None:
        runs = Runs("steps")
        for steps in (1, 2):
            runs.run_started(RunStarted(run="r"))
            for _ in range(steps):
                runs.step("x")
        runs.run_ended(RunEnded(run="r", success=True))
        reported = [(trace.finished, trace.steps, trace.highest("steps")) for trace in runs.traces]
        assert reported == [(False, 1, 1), (True, 2, 2)]

    @pytest.mark.parametrize("outcome", ["stopped", "error"])
    def test_a_run_that_was_stopped_or_broke_off_is_no_good_one(self, outcome) -> None:
        runs = Runs()
        runs.run_started(RunStarted(run="r"))
        runs.run_ended(RunEnded(run="r", outcome=outcome))
        assert runs.traces[0].success is False

    def test_what_belongs_to_no_run_is_nothing(self) -> None:
        runs = Runs("steps")
        runs.step("x", run="never started")
        runs.run_ended(RunEnded(run="never started", success=True))
        runs.close()
        assert runs.traces == []


class TestScores:
    def test_what_was_never_measured_is_below_everything(self) -> None:
        trace = Runs("tokens").run("x")
        assert trace.highest("tokens") == -math.inf
        assert trace.crossing("tokens", -1e9) is None
        assert (trace.tokens, trace.seconds) == (None, None)

    def test_what_had_been_spent_is_reported_of_every_rise(self) -> None:
        runs = Runs("steps")
        runs.run_started(RunStarted(run="r"))
        for _ in range(2):
            runs.step("x", tokens=100.0, seconds=0.5)
        runs.close()
        [trace] = runs.traces
        assert [tuple(rise) for rise in trace.rises["steps"]] == [
            (0, 0, 100, None),  # chosen, and not run yet
            (1, 1, 100, 0.5),
            (2, 2, 200, 1.0),
        ]
        assert trace.crossing("steps", 0) == trace.rises["steps"][1]
        assert trace.crossing("steps", 2) is None

    def test_each_is_followed_once(self) -> None:
        assert list(Runs("steps", "tokens", "steps").run().rises) == ["steps", "tokens"]

    def test_an_unknown_one_is_reported(self) -> None:
        with pytest.raises(ConfigurationError, match="unknown score 'stps'"):
            Runs("stps")

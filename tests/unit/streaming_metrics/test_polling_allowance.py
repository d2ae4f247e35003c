"""PollingAllowance: which steps only wait or think, and for how long."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step, ToolDeclaration
from tidegauge.streaming_metrics.engine import Engine
from tidegauge.streaming_metrics.polling_allowance import POLL_STEPS, PollingAllowance
from tidegauge.testing import SteppedClock

POLLER = ToolDeclaration(poll=3)
MUTATING = ToolDeclaration(mutates=True)
THINKING = ToolDeclaration(thinks=True)


def skips(
    allowance: PollingAllowance,
    declared: Sequence[ToolDeclaration | None],
    *,
    result: bytes = b"running",
    now: float | None = None,
) -> bool:
    found = allowance.skips(declared, now)
    if found:
        allowance.observe(b"poll", result)
    return found


def known() -> PollingAllowance:
    """One that knows the result of the poller, so that it is not new."""
    allowance = PollingAllowance()
    allowance.observe(b"poll", b"running")
    return allowance


class TestPollers:
    @pytest.mark.parametrize(("poll", "steps"), [(True, POLL_STEPS), (1, 1), (7, 7)])
    def test_are_skipped_for_so_many_steps_in_a_row(self, poll: bool | int, steps: int) -> None:
        allowance = known()
        found = [skips(allowance, [ToolDeclaration(poll=poll)]) for _ in range(steps + 3)]
        assert found == [True] * steps + [False] * 3
        assert allowance.skipped == steps

    def test_something_new_begins_their_allowance_anew(self) -> None:
        allowance = known()
        for _ in range(2):
            assert skips(allowance, [POLLER])
        assert skips(allowance, [POLLER], result=b"half done")
        assert [skips(allowance, [POLLER]) for _ in range(4)] == [True, True, True, False]

    def test_another_tool_between_ends_the_waiting(self) -> None:
        allowance = known()
        for _ in range(3):
            skips(allowance, [POLLER])
        assert not skips(allowance, [None])
        assert [skips(allowance, [POLLER]) for _ in range(4)] == [True, True, True, False]

    def test_a_thought_between_does_not(self) -> None:
        allowance = known()
        for _ in range(3):
            assert skips(allowance, [POLLER])
            assert skips(allowance, [THINKING])
        assert not skips(allowance, [POLLER])

    def test_in_time(self) -> None:
        allowance, clock = known(), SteppedClock(100.0)
        declared = [ToolDeclaration(poll=timedelta(seconds=10))]
        found = []
        for _ in range(4):
            found.append(skips(allowance, declared, now=clock()))
            clock.advance(5)
        assert found == [True, True, True, False]
        skips(allowance, [None], now=clock())
        clock.advance(1_000)
        assert skips(allowance, declared, now=clock())

    def test_in_time_without_a_clock_is_never_used_up(self) -> None:
        allowance = known()
        declared = [ToolDeclaration(poll=timedelta(seconds=1))]
        assert [skips(allowance, declared) for _ in range(3)] == [True] * 3

    def test_results_that_are_remembered_are_bounded(self) -> None:
        allowance = PollingAllowance()
        for n in range(10_000):
            allowance.observe(b"poll", b"%d" % n)
        assert len(allowance._seen) <= 256


class TestRounds:
    @pytest.mark.parametrize(
        ("declared", "skipped"),
        [
            ([POLLER, POLLER], True),
            ([POLLER, THINKING], True),
            ([THINKING], True),
            ([POLLER, MUTATING], False),
            ([MUTATING], False),
            ([POLLER, None], False),
            ([None, THINKING], False),
            ([ToolDeclaration(key=str)], False),
        ],
    )
    def test_every_call_must_wait_or_think(
        self, declared: list[ToolDeclaration | None], skipped: bool
    ) -> None:
        assert skips(known(), declared) is skipped

    def test_the_shortest_allowance_counts(self) -> None:
        allowance = known()
        declared = [ToolDeclaration(poll=1), ToolDeclaration(poll=9)]
        assert [skips(allowance, declared) for _ in range(2)] == [True, False]


def test_it_goes_on_in_another_process() -> None:
    allowance = known()
    for _ in range(2):
        skips(allowance, [POLLER], now=5.0)
    again = PollingAllowance()
    again.load(allowance.state())
    assert [skips(one, [POLLER]) for one in (allowance, again)] == [True, True]
    assert [skips(one, [POLLER]) for one in (allowance, again)] == [False, False]


def skipped_steps(engine: Engine) -> int:
    run = engine.get("r1")
    assert run is not None
    found = run.report().skipped_steps
    assert isinstance(found, int)
    return found


class TestInARun:
    @pytest.mark.parametrize("by_name", [False, True])
    def test_a_declaration_of_the_call_or_of_the_name(self, by_name: bool) -> None:
        declared = ToolDeclaration(poll=True)
        engine = Engine(declarations={"state_of": declared} if by_name else {}, clock=None)
        engine.run_started(RunStarted(run="r1"))
        for _ in range(4):
            engine.step_issued(Step("r1", (Call("state_of", 1, None if by_name else declared),)))
            engine.step_observed(Outcome("r1", (CallResult("running"),)))
        assert skipped_steps(engine) == 4

    def test_the_call_s_own_declaration_wins(self) -> None:
        engine = Engine(declarations={"state_of": ToolDeclaration(poll=True)}, clock=None)
        engine.run_started(RunStarted(run="r1"))
        call = Call("state_of", 1, ToolDeclaration(key=lambda arguments: 0))
        engine.step_issued(Step("r1", (call,)))
        assert skipped_steps(engine) == 0

    def test_a_step_that_waits_and_reports_where_it_is_does_more_than_wait(self) -> None:
        engine = Engine(declarations={"look": ToolDeclaration(poll=True)}, clock=None)
        engine.run_started(RunStarted(run="r1", place="hall"))
        engine.step_issued(Step("r1", (Call("look"),)))
        engine.step_observed(Outcome("r1", (CallResult("a door"),), place="hall", exits=("attic",)))
        run = engine.get("r1")
        assert run is not None
        assert run.report().frontier == 1

    @pytest.mark.parametrize("reported", [False, True])
    def test_time_is_the_engine_s_or_the_step_s(self, reported: bool) -> None:
        clock = SteppedClock()
        declaration = {"state_of": ToolDeclaration(poll=timedelta(minutes=1))}
        engine = Engine(declarations=declaration, clock=None if reported else clock)
        engine.run_started(RunStarted(run="r1"))
        for n in range(5):
            time = 100.0 + 25 * n if reported else None
            engine.step_issued(Step("r1", (Call("state_of"),), time=time))
            engine.step_observed(Outcome("r1", (CallResult("running"),)))
            clock.advance(25)
        # the first one brought something new: the waiting begins with the second
        assert skipped_steps(engine) == 4

    def test_a_key_that_fails_leaves_the_arguments_as_they_are(self):
        from tidegauge import testing
        from tidegauge.safety.guard import internal_errors

        def key(arguments):
            raise KeyError("mine")

        engine = Engine(clock=None)
        engine.run_started(RunStarted(run="r1"))
        digests = set()
        with testing.raise_internal_errors(False):
            for n in (1, 1, 2):
                call = Call("look", n, ToolDeclaration(key=key))
                digests.add(engine.step_issued(Step("r1", (call,))).action_digest)
        assert len(digests) == 2
        assert internal_errors.counts() == {"tool.key": 3}

    def test_a_round_is_compared_by_the_keys_of_its_calls(self):
        key = ToolDeclaration(key=lambda arguments: arguments["q"])
        digests = set()
        engine = Engine(clock=None)
        engine.run_started(RunStarted(run="r1"))
        for n in range(3):
            calls = (Call("a", {"q": 1, "n": n}, key), Call("b", {"q": 2}))
            digests.add(engine.step_issued(Step("r1", calls)).action_digest)
        assert len(digests) == 1


class TestThoughts:
    def play(self, rounds: Sequence[tuple[str, object, str]]) -> list[int]:
        """Loop repeats at each step, of a poller that may wait for three steps."""
        engine = Engine(declarations={"job": POLLER}, clock=None)
        engine.run_started(RunStarted(run="r1"))
        found = []
        for tool, arguments, result in rounds:
            issued = engine.step_issued(Step("r1", (Call(tool, arguments),)))
            engine.step_observed(Outcome("r1", (CallResult(result),)))
            assert issued is not None
            found.append(issued.loop_repeats)
        return found

    def test_new_ones_between_looks_do_not_prolong_the_waiting(self) -> None:
        looks = [[("job", 1, "dead"), ("think", f"reason {n}", "ok")] for n in range(20)]
        assert max(self.play([step for look in looks for step in look])) >= 10

    def test_a_result_that_is_new_after_the_allowance_begins_another(self) -> None:
        rounds = [("job", 1, "queued")] * 6 + [("job", 1, "running")] * 4
        assert self.play(rounds)[6:] == [1] * 4  # that of the step before: the others wait

    def test_one_again_and_again_is_a_loop_in_the_end(self) -> None:
        found = self.play([("think", "what now?", "ok")] * (POLL_STEPS + 5))
        assert found[:POLL_STEPS] == [0] * POLL_STEPS
        assert found[-1] >= 3

"""PollingAllowance: whose repeated calls are exempt, and for how long."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step, ToolDeclaration
from tidegauge.streaming_metrics.engine import Engine
from tidegauge.streaming_metrics.polling_allowance import POLL_STEPS, PollingAllowance
from tidegauge.testing import SteppedClock

POLLER = ToolDeclaration(poll=3)
MUTATING = ToolDeclaration(mutates=True)


def exempt(allowance, declared, *, new=False, failed=False, now=None):
    allowance.issue(declared, now)
    at_issue = allowance.exempt
    allowance.observe(new=new, failed=failed)
    return at_issue, allowance.exempt


class TestPollers:
    @pytest.mark.parametrize(("poll", "steps"), [(True, POLL_STEPS), (1, 1), (7, 7)])
    def test_are_exempt_for_so_many_steps_in_a_row(self, poll, steps):
        allowance = PollingAllowance()
        exempted = [exempt(allowance, [ToolDeclaration(poll=poll)])[0] for _ in range(steps + 3)]
        assert exempted == [*range(1, steps + 1), 0, 0, 0]

    def test_something_new_begins_their_allowance_anew(self):
        allowance = PollingAllowance()
        for _ in range(3):
            exempt(allowance, [POLLER])
        exempt(allowance, [POLLER], new=True)
        # used up at its fourth step, whose outcome gives three more
        exempted = [exempt(allowance, [POLLER])[0] for _ in range(4)]
        assert exempted == [1, 2, 3, 0]

    def test_another_tool_between_ends_the_waiting(self):
        allowance = PollingAllowance()
        for _ in range(3):
            exempt(allowance, [POLLER])
        assert exempt(allowance, [None]) == (0, 0)
        assert [exempt(allowance, [POLLER])[0] for _ in range(4)] == [1, 2, 3, 0]

    def test_in_time(self):
        allowance, clock = PollingAllowance(), SteppedClock(100.0)
        declared = [ToolDeclaration(poll=timedelta(seconds=10))]
        exempted = []
        for _ in range(4):
            exempted.append(exempt(allowance, declared, now=clock())[0])
            clock.advance(5)
        assert exempted == [1, 2, 3, 0]
        exempt(allowance, declared, new=True, now=clock())
        clock.advance(1_000)
        assert exempt(allowance, declared, now=clock())[0] == 1

    def test_in_time_without_a_clock_is_never_used_up(self):
        allowance = PollingAllowance()
        declared = [ToolDeclaration(poll=timedelta(seconds=1))]
        assert [exempt(allowance, declared)[0] for _ in range(3)] == [1, 2, 3]


class TestMutations:
    def test_are_exempt_while_they_succeed(self):
        allowance = PollingAllowance()
        assert [exempt(allowance, [MUTATING])[1] for _ in range(100)][-1] == 100
        assert exempt(allowance, [MUTATING], failed=True) == (101, 0)
        assert exempt(allowance, [MUTATING], failed=None) == (1, 1)

    def test_a_failed_poll_still_waits(self):
        assert exempt(PollingAllowance(), [POLLER], failed=True) == (1, 1)


class TestRounds:
    @pytest.mark.parametrize(
        ("declared", "excuses"),
        [
            ([POLLER, POLLER], True),
            ([POLLER, MUTATING], True),
            ([MUTATING, MUTATING], True),
            ([POLLER, None], False),
            ([None, MUTATING], False),
            ([ToolDeclaration(key=str)], False),
        ],
    )
    def test_every_call_is_to_be_excused(self, declared, excuses):
        assert exempt(PollingAllowance(), declared) == (int(excuses),) * 2

    def test_the_shortest_allowance_counts(self):
        allowance = PollingAllowance()
        declared = [ToolDeclaration(poll=1), ToolDeclaration(poll=9)]
        assert [exempt(allowance, declared)[0] for _ in range(2)] == [1, 0]


def test_it_goes_on_in_another_process():
    allowance = PollingAllowance()
    for _ in range(2):
        exempt(allowance, [POLLER], now=5.0)
    again = PollingAllowance()
    again.load(allowance.state())
    assert [exempt(one, [POLLER])[0] for one in (allowance, again)] == [3, 3]
    assert [exempt(one, [POLLER])[0] for one in (allowance, again)] == [0, 0]


class TestInARun:
    def signals(self, calls, *, engine=None, outcome="running", times=4, clock=None):
        engine = engine or Engine(clock=clock)
        engine.run_started(RunStarted(run="r1"))
        for _ in range(times):
            engine.step_issued(Step("r1", calls))
            results = tuple(CallResult(outcome, False) for _ in calls)
            signals = engine.step_observed(Outcome("r1", results))
        return signals

    def test_a_declaration_of_the_call_or_of_the_name(self):
        call = Call("state_of", 1, ToolDeclaration(poll=True))
        engine = Engine(declarations={"state_of": ToolDeclaration(poll=True)}, clock=None)
        for known in (
            self.signals((call,)),
            self.signals((call._replace(declared=None),), engine=engine),
        ):
            assert (known.loop_repeats, known.exempt_steps) == (2, 4)

    def test_a_call_of_another_tool_ends_it_wherever_the_declaration_came_from(self):
        for declared, call in (({"wait": POLLER}, Call("wait")), ({}, Call("wait", None, POLLER))):
            engine = Engine(clock=None, declarations=declared)
            engine.run_started(RunStarted(run="r1"))
            exempted = []
            for one in (call, call, Call("look"), call):
                exempted.append(engine.step_issued(Step("r1", (one,))).exempt_steps)
                engine.step_observed(Outcome("r1", (CallResult("pending"),)))
            assert exempted == [1, 2, 0, 1]

    def test_the_call_s_own_declaration_wins(self):
        engine = Engine(declarations={"state_of": ToolDeclaration(poll=True)}, clock=None)
        call = Call("state_of", 1, ToolDeclaration(key=lambda arguments: 0))
        assert self.signals((call,), engine=engine).exempt_steps == 0

    def test_time_is_the_engine_s_or_the_step_s(self):
        clock = SteppedClock()
        declaration = {"state_of": ToolDeclaration(poll=timedelta(minutes=1))}
        for exempted in (False, True):
            engine = Engine(declarations=declaration, clock=None if exempted else clock)
            engine.run_started(RunStarted(run="r1"))
            exempt = []
            for n in range(4):
                step = Step("r1", (Call("state_of"),), time=100.0 + 25 * n if exempted else None)
                exempt.append(engine.step_issued(step).exempt_steps)
                clock.advance(25)
                engine.step_observed(Outcome("r1", (CallResult("running"),)))
            # the first brought something new: the waiting begins with the second
            assert exempt == [1, 2, 3, 4]
            clock.advance(60)
            step = Step("r1", (Call("state_of"),), time=300.0 if exempted else None)
            assert engine.step_issued(step).exempt_steps == 0

    def test_a_key_that_fails_leaves_the_arguments_as_they_are(self):
        from tidegauge import testing
        from tidegauge._guard import internal_errors

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

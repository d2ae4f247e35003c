"""Patience: whose repeated calls are excused, and for how long."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tidegauge.events import Call, CallResult, Outcome, RunStarted, Step, ToolDeclaration
from tidegauge.streaming_metrics.engine import Engine
from tidegauge.streaming_metrics.patience import POLL_STEPS, Patience
from tidegauge.testing import SteppedClock

POLLER = ToolDeclaration(poll=3)
MUTATING = ToolDeclaration(mutates=True)


def excused(patience, declared, *, new=False, failed=False, now=None):
    patience.issue(declared, now)
    at_issue = patience.excused
    patience.observe(new=new, failed=failed)
    return at_issue, patience.excused


class TestPollers:
    @pytest.mark.parametrize(("poll", "steps"), [(True, POLL_STEPS), (1, 1), (7, 7)])
    def test_are_excused_for_so_many_steps_in_a_row(self, poll, steps):
        patience = Patience()
        told = [excused(patience, [ToolDeclaration(poll=poll)])[0] for _ in range(steps + 3)]
        assert told == [*range(1, steps + 1), 0, 0, 0]

    def test_something_new_begins_their_patience_anew(self):
        patience = Patience()
        for _ in range(3):
            excused(patience, [POLLER])
        excused(patience, [POLLER], new=True)
        # used up at its fourth step, whose outcome gives three more
        told = [excused(patience, [POLLER])[0] for _ in range(4)]
        assert told == [1, 2, 3, 0]

    def test_another_tool_between_ends_the_waiting(self):
        patience = Patience()
        for _ in range(3):
            excused(patience, [POLLER])
        assert excused(patience, [None]) == (0, 0)
        assert [excused(patience, [POLLER])[0] for _ in range(4)] == [1, 2, 3, 0]

    def test_in_time(self):
        patience, clock = Patience(), SteppedClock(100.0)
        declared = [ToolDeclaration(poll=timedelta(seconds=10))]
        told = []
        for _ in range(4):
            told.append(excused(patience, declared, now=clock())[0])
            clock.advance(5)
        assert told == [1, 2, 3, 0]
        excused(patience, declared, new=True, now=clock())
        clock.advance(1_000)
        assert excused(patience, declared, now=clock())[0] == 1

    def test_in_time_without_a_clock_is_never_used_up(self):
        patience = Patience()
        declared = [ToolDeclaration(poll=timedelta(seconds=1))]
        assert [excused(patience, declared)[0] for _ in range(3)] == [1, 2, 3]


class TestMutations:
    def test_are_excused_while_they_succeed(self):
        patience = Patience()
        assert [excused(patience, [MUTATING])[1] for _ in range(100)][-1] == 100
        assert excused(patience, [MUTATING], failed=True) == (101, 0)
        assert excused(patience, [MUTATING], failed=None) == (1, 1)

    def test_a_failed_poll_still_waits(self):
        assert excused(Patience(), [POLLER], failed=True) == (1, 1)


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
        assert excused(Patience(), declared) == (int(excuses),) * 2

    def test_the_shortest_patience_counts(self):
        patience = Patience()
        declared = [ToolDeclaration(poll=1), ToolDeclaration(poll=9)]
        assert [excused(patience, declared)[0] for _ in range(2)] == [1, 0]


def test_it_goes_on_in_another_process():
    patience = Patience()
    for _ in range(2):
        excused(patience, [POLLER], now=5.0)
    again = Patience()
    again.load(patience.state())
    assert [excused(one, [POLLER])[0] for one in (patience, again)] == [3, 3]
    assert [excused(one, [POLLER])[0] for one in (patience, again)] == [0, 0]


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
            assert (known.loop_repeats, known.excused_steps) == (2, 4)

    def test_a_call_of_another_tool_ends_it_wherever_the_declaration_came_from(self):
        for declared, call in (({"wait": POLLER}, Call("wait")), ({}, Call("wait", None, POLLER))):
            engine = Engine(clock=None, declarations=declared)
            engine.run_started(RunStarted(run="r1"))
            told = []
            for one in (call, call, Call("look"), call):
                told.append(engine.step_issued(Step("r1", (one,))).excused_steps)
                engine.step_observed(Outcome("r1", (CallResult("pending"),)))
            assert told == [1, 2, 0, 1]

    def test_the_call_s_own_declaration_wins(self):
        engine = Engine(declarations={"state_of": ToolDeclaration(poll=True)}, clock=None)
        call = Call("state_of", 1, ToolDeclaration(key=lambda arguments: 0))
        assert self.signals((call,), engine=engine).excused_steps == 0

    def test_time_is_the_engine_s_or_the_step_s(self):
        clock = SteppedClock()
        declaration = {"state_of": ToolDeclaration(poll=timedelta(minutes=1))}
        for told in (False, True):
            engine = Engine(declarations=declaration, clock=None if told else clock)
            engine.run_started(RunStarted(run="r1"))
            excused = []
            for n in range(4):
                step = Step("r1", (Call("state_of"),), time=100.0 + 25 * n if told else None)
                excused.append(engine.step_issued(step).excused_steps)
                clock.advance(25)
                engine.step_observed(Outcome("r1", (CallResult("running"),)))
            # the first brought something new: the waiting begins with the second
            assert excused == [1, 2, 3, 4]
            clock.advance(60)
            step = Step("r1", (Call("state_of"),), time=300.0 if told else None)
            assert engine.step_issued(step).excused_steps == 0

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

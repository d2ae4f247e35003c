"""Loops: golden vectors, and what the definition says in words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tidegauge.events import Call, CallResult, Outcome, RunStarted, Signals, Step, ToolDeclaration
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.loops import MAX_PERIOD, Loops
from tidegauge.streaming_metrics.records import IssuedStep

GOLDEN = Path(__file__).parents[2] / "golden" / "live_loops.jsonl"


def taken(loops: Loops, states: Sequence[str | None], actions: Sequence[str] | None = None) -> None:
    for t, state in enumerate(states):
        action = actions[t] if actions else "go"
        known = b"unknown %d" % t if state is None else state.encode()
        loops.update(IssuedStep(t, known, action.encode(), action))


def walked(states: Sequence[str | None], actions: Sequence[str] | None = None) -> Loops:
    loops = Loops()
    taken(loops, states, actions)
    return loops


def test_golden() -> None:
    runs = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    for number, run in enumerate(runs):
        loops, looped = Loops(), [0] * len(run["states"])
        for t, (state, action) in enumerate(zip(run["states"], run["actions"], strict=True)):
            known = b"unknown %d" % t if state is None else state.encode()
            loops.update(IssuedStep(t, known, action.encode()))
            for settled in loops.settled:
                looped[settled] = 1
            assert (loops.period, loops.repeats) == (run["period"][t], run["repeats"][t])
            assert loops.evidence == pytest.approx(run["evidence"][t], abs=1e-5)
        assert looped == run["loop"], f"run {number}"
        assert loops.loop_steps == sum(run["loop"])
        assert [loop._asdict() for loop in loops.loops] == run["loops"]
    assert len(runs) > 300


@pytest.mark.parametrize(
    ("states", "loops", "loop_steps"),
    [
        ("", [], 0),
        ("A", [], 0),
        ("ABC", [], 0),
        ("AAAA", [(1, 1, 3, 3)], 3),
        ("ABCABCABCABC", [(3, 3, 3, 9)], 9),
        ("ABCABCABCABCAB", [(3, 3, 3, 11)], 11),  # with the steps of the fifth round
        ("AABAABAAB", [(1, 1, 1, 1), (3, 3, 2, 6)], 7),  # a state twice in the cycle
        ("ABAB" + "XYXYXY", [(2, 2, 1, 2), (6, 2, 2, 4)], 6),
        ("AABB", [(1, 1, 1, 1), (3, 1, 1, 1)], 2),
    ],
)
def test_loops_of(states: str, loops: list[Any], loop_steps: int) -> None:
    found = walked(states)
    assert found.loops == loops
    assert found.loop_steps == loop_steps
    assert found.onsets == len(loops)


def test_the_action_is_part_of_what_repeats() -> None:
    assert walked("ABABAB", "xyxzxz").loops == [(4, 2, 1, 2)]


def test_a_loop_is_known_when_its_last_action_is_issued() -> None:
    loops = walked("ABCAB")
    assert (loops.repeats, loops.pending, loops.pending_since) == (0, 2, 3)
    loops.update(IssuedStep(5, b"C", b"go", "go"))
    assert (loops.repeats, loops.period, loops.first_step, loops.pending) == (1, 3, 3, 0)
    loops.update(IssuedStep(6, b"D", b"go", "go"))
    assert (loops.repeats, loops.period, loops.first_step) == (0, 0, -1)


def test_a_short_cycle_inside_does_not_hide_the_long_one() -> None:
    loops = walked("AAB" * 5 + "AA")
    assert (loops.period, loops.repeats, loops.cycle_names) == (3, 4, ["go"] * 3)


@pytest.mark.parametrize("period", [1, 2, 3, 40, MAX_PERIOD - 1, MAX_PERIOD])
def test_every_period_up_to_the_longest_is_seen_exactly(period: int) -> None:
    states = [f"s{n % period}" for n in range(3 * period)]
    assert walked(states).loops == [(period, period, 2, 2 * period)]


def test_a_longer_cycle_is_not_seen() -> None:
    assert walked([f"s{n % (MAX_PERIOD + 1)}" for n in range(3 * MAX_PERIOD)]).loops == []


def test_loops_past_the_list_are_counted() -> None:
    loops = Loops(max_loops=2)
    taken(loops, "AABBCCC")
    assert loops.loops == [(1, 1, 1, 1), (3, 1, 1, 1)]
    assert (loops.onsets, loops.loop_steps, loops.dropped_loops) == (3, 4, 1)


class Played:
    """An engine with one run, whose steps are reported one by one."""

    def __init__(self, **tools: ToolDeclaration) -> None:
        self.engine = Engine(clock=None, declarations=tools)
        self.engine.run_started(RunStarted(run="r"))

    def act(self, tool: str, arguments: object = None) -> Signals:
        signals = self.engine.step_issued(Step("r", (Call(tool, arguments),)))
        assert signals is not None
        return signals

    def observe(self, result: object, *, step: int | None = None, failed: bool = False) -> Signals:
        results = (CallResult(result, failed),)
        signals = self.engine.step_observed(Outcome("r", results, step))
        assert signals is not None
        return signals

    def step(
        self, tool: str, result: object, arguments: object = None, *, failed: bool = False
    ) -> Signals:
        issued = self.act(tool, arguments)
        self.observe(result, failed=failed)
        return issued

    @property
    def report(self) -> Any:
        run = self.engine.get("r")
        assert run is not None
        return run.report()


@pytest.mark.parametrize(
    ("states", "actions", "words"),
    [
        # Before the first of equal calls, the agent saw something else: people count it, too.
        ("_AA", "aaa", (1, 2)),
        ("_AAAA", "aaaaa", (1, 4)),
        ("_ABA", "abab", (0, 0)),  # two rounds, of which the first call saw something else
        ("_ABAB", "ababa", (2, 1)),
        ("_ABABA", "ababab", (2, 2)),  # three rounds; repeats is 1
        # The call before was another one, with the same result.
        ("_AA", "baa", (1, 1)),
        ("XXX", "aaa", (1, 2)),  # it always saw the same
    ],
)
def test_people_count_the_calls(states: str, actions: str, words: tuple[int, int]) -> None:
    loops = walked([None if state == "_" else state for state in states], list(actions))
    assert (loops.period, loops.times) == words
    assert loops.longest == words
    again = Loops()
    again.load(loops.state())
    assert (again.times, again.longest) == (loops.times, loops.longest)


class TestOverlapping:
    @pytest.mark.parametrize("workers", [2, 3, 4, 8])
    def test_workers_that_repeat_one_call_loop_within_four_rounds(self, workers: int) -> None:
        played = Played()
        for _ in range(workers):
            played.act("search", {"q": "x"})
        for n in range(4 * workers):
            if n == 2 * workers:
                assert played.report.looping
            played.observe("nothing", step=n)
            signals = played.act("search", {"q": "x"})
        assert signals.loop_repeats >= 3
        assert (signals.loop_period, played.report.loop_tools) == (1, ("search",))

    def test_nearly_all_of_many_equal_steps_are_loop_steps(self) -> None:
        played = Played()
        played.act("search")
        for n in range(399):
            played.act("search")
            played.observe("nothing", step=n)
        assert played.report.loop_steps >= 396
        assert played.report.loops == [(3, 1, 397, 397)]

    def test_workers_that_do_different_things_do_not_loop(self) -> None:
        played = Played()
        for n in range(100):
            played.act("read", {"page": n})
            if n >= 4:
                played.observe(f"text {n % 3}", step=n - 4)
        assert played.report.loop_steps == 0

    def test_a_call_whose_results_change_does_not_loop(self) -> None:
        played = Played()
        for n in range(60):
            played.act("progress")
            if n >= 2:
                played.observe(f"{n} %", step=n - 2)
        assert played.report.loop_steps == 0

    def test_a_lost_result_hides_no_loop(self) -> None:
        played = Played()
        played.act("lost")
        for n in range(40):
            played.step(("edit", "test")[n % 2], ("ok", "1 failed")[n % 2])
        assert played.report.loop_repeats >= 5
        assert played.report.loop_period == 2

    def test_workers_that_take_turns_are_in_order(self) -> None:
        """A step that is issued when all others have their results is no overlap."""
        played = Played()
        for n in range(12):
            played.step("ab"[n % 2], "ok")
        assert (played.report.loop_period, played.report.loop_repeats) == (2, 4)


class TestMutations:
    def test_a_loop_of_successful_changes_is_none(self) -> None:
        played = Played(append=ToolDeclaration(mutates=True))
        for _ in range(30):
            played.step("append", "ok")
        assert played.report.loop_steps == 0

    def test_in_a_longer_cycle_they_take_part(self) -> None:
        played = Played(edit=ToolDeclaration(mutates=True))
        for n in range(12):
            played.step(("edit", "test")[n % 2], ("ok", "1 failed")[n % 2])
        assert (played.report.loop_period, played.report.loop_repeats) == (2, 4)

    def test_one_that_fails_is_a_call_like_any_other(self) -> None:
        played = Played(append=ToolDeclaration(mutates=True))
        for _ in range(8):
            played.step("append", "disk full", failed=True)
        assert played.report.loop_repeats == 6


def test_new_thoughts_between_equal_calls_hide_nothing() -> None:
    played = Played()
    for n in range(8):
        played.step("think", "noted", {"thought": n})
        played.step("mcp__reasoning__sequentialthinking", "noted", {"thought": n})
        signals = played.step("search", "nothing")
    assert (signals.loop_period, signals.loop_repeats) == (1, 6)
    declared = Played(think=ToolDeclaration())
    for n in range(8):
        declared.step("think", "noted", {"thought": n})
        signals = declared.step("search", "nothing")
    assert signals.loop_repeats == 0

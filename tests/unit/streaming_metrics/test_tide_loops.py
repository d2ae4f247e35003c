"""TIDE's loops: the released batch code's flags, and what the definition says in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidegauge.streaming_metrics.records import IssuedStep
from tidegauge.streaming_metrics.tide_loops import TideLoops

GOLDEN = Path(__file__).parents[2] / "golden" / "loops.jsonl"


def walked(states, actions=None, **parameters):
    loops = TideLoops(**parameters)
    for t, state in enumerate(states):
        action = actions[t] if actions else "go"
        loops.update(IssuedStep(t, state.encode(), action.encode(), action))
    return loops


def flags_of(states, actions):
    loops, flags = TideLoops(), []
    for t, (state, action) in enumerate(zip(states, actions, strict=True)):
        loops.update(IssuedStep(t, state.encode(), action.encode()))
        flags.append(0)
        if loops.settled:
            flags[-loops.settled :] = [1] * loops.settled
    return flags


def test_golden():
    runs = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    looping = 0
    for number, run in enumerate(runs):
        assert flags_of(run["states"], run["actions"]) == run["loop"], f"run {number}"
        loops = walked(run["states"], run["actions"])
        assert loops.loop_steps == sum(run["loop"])
        looping += loops.loop_steps > 0
    assert len(runs) > 100
    assert looping > 50


@pytest.mark.parametrize(
    ("states", "loops", "loop_steps"),
    [
        ("", [], 0),
        ("A", [], 0),
        ("ABC", [], 0),
        ("AAAA", [(1, 1, 3)], 3),
        ("ABCABCABCABC", [(3, 3, 3)], 9),
        ("ABCABCAB", [(3, 3, 1)], 3),  # the third round is not complete
        ("ABAB" + "XYXYXY", [(2, 2, 1), (6, 2, 2)], 6),
        ("ABCBCBC", [(3, 2, 2)], 4),  # the inner cycle closes first
        ("AABB", [(1, 1, 1), (3, 1, 1)], 2),
    ],
)
def test_loops_of(states, loops, loop_steps):
    found = walked(states)
    assert found.loops == loops
    assert found.loop_steps == loop_steps
    assert found.onsets == len(loops)


def test_the_action_is_part_of_what_repeats():
    assert walked("ABABAB", "xyxzxz").loops == [(4, 2, 1)]


def test_a_loop_is_known_when_its_last_action_is_issued():
    loops = walked("ABCAB")
    assert (loops.repeats, loops.pending) == (0, 2)
    loops.update(IssuedStep(5, b"C", b"go", "go"))
    assert (loops.repeats, loops.period, loops.first_step, loops.pending) == (1, 3, 3, 0)
    loops.update(IssuedStep(6, b"D", b"go", "go"))
    assert (loops.repeats, loops.period, loops.first_step) == (0, 0, -1)


def test_a_cycle_of_the_longest_period_is_seen_and_one_longer_is_not():
    assert walked("ABCD" * 2, max_period=4).loops == [(4, 4, 1)]
    longer = walked("ABCDE" * 3, max_period=4)
    assert longer.loops == []
    assert longer.dropped_starts == 11


def test_loops_past_the_list_are_counted():
    loops = walked("AABBCCC", max_loops=2)
    assert loops.loops == [(1, 1, 1), (3, 1, 1)]
    assert (loops.onsets, loops.loop_steps, loops.dropped_loops) == (3, 4, 1)

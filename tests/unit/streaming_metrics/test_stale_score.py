"""The stale score: golden paths of the paper, and the definition at every prefix."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.streaming_metrics.records import ObservedStep
from tidegauge.streaming_metrics.stale_score import StaleScore

GOLDEN = Path(__file__).parents[2] / "golden" / "stale.jsonl"
CASES = [json.loads(line) for line in GOLDEN.read_text().splitlines()]


def stale_of(path: Sequence[object]) -> int:
    """S = c + e + n, written from the definition."""
    visits = Counter(path)
    uses = Counter(frozenset(move) for move in pairwise(path) if len({*move}) > 1)
    cycles = len(uses) - len(visits) + 1
    return cycles + sum(max(n - 2, 0) for n in [*uses.values(), *visits.values()])


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
@pytest.mark.parametrize("as_states", [False, True])
def test_golden(case, as_states):
    path = [tuple(place) for place in case["path"]]
    if as_states:  # nothing supplied: what came back stands for the place
        stale = StaleScore()
        steps = [ObservedStep(t, state=repr(place).encode()) for t, place in enumerate(path)]
    else:
        stale = StaleScore(place=path[0])
        steps = [ObservedStep(t, place=place) for t, place in enumerate(path[1:])]
    values, increases = [] if as_states else [stale.value], []
    for step in steps:
        stale.update(step)
        values.append(stale.value)
        if stale.rose:
            increases.append(len(values) - 1)
    assert values == case["stale"]
    assert increases == case["increases_at"]
    assert stale.maximum == max(case["stale"])


@given(st.lists(st.tuples(st.none() | st.integers(0, 4), st.integers(0, 6).map(lambda n: n == 0))))
def test_equals_the_definition_at_every_prefix(moves):
    stale = StaleScore(place=0)
    path, values = [0], [0]
    for place, progress in moves:
        if place is None:
            stale.stay(progress=progress)
        else:
            stale.move(place, progress=progress)
            path.append(place)
        if progress:
            path = path[-1:]
        values.append(stale_of(path))
        assert stale.value == values[-1]
        assert stale.rose == (values[-1] > values[-2])
        assert stale.maximum == max(values)


def fed(places, **settings) -> StaleScore:
    stale = StaleScore(**settings)
    for t, place in enumerate(places):
        stale.update(ObservedStep(t, place=place))
    return stale


def test_staying_counts_visits_and_no_edge():
    assert fed("AA").value == 0
    assert fed("AAAA").value == 2


def test_nowhere_is_not_zero():
    stale = StaleScore()
    stale.update(ObservedStep(0))
    stale.stay(progress=True)
    assert stale.value is None
    assert stale.maximum is None


def test_the_first_place_ends_the_use_of_states():
    stale = StaleScore()
    for t, state in enumerate([b"x"] * 5):
        stale.update(ObservedStep(t, state=state))
    assert (stale.value, stale.maximum) == (3, 3)
    for t, place in enumerate("ABAB"):
        stale.update(ObservedStep(t, place=place, state=b"x"))
        stale.update(ObservedStep(t, state=b"x"))
    assert (stale.value, stale.maximum) == (1, 1)


def test_an_achieved_task_is_progress():
    stale = fed("ABABAB")
    assert stale.value > 0
    stale.update(ObservedStep(6, place="A", achieved=("T",)))
    assert stale.value == 0
    stale.update(ObservedStep(7, place="B"))
    stale.update(ObservedStep(8, achieved=("T2",)))
    assert (stale.value, stale.here) == (0, "B")


def test_caps_bound_the_path_and_leave_a_lower_bound():
    path = [n * n % 1_009 for n in range(3_000)]
    stale = fed(path, max_places=50, max_edges=60)
    assert 0 <= stale.value <= stale_of(path)
    assert stale.dropped_places > 0
    assert len(stale._origins) <= 50
    narrow = fed([0, 1, 2, 3, 0, 2, 1, 3] * 5, max_edges=1)
    assert narrow.dropped_edges > 0
    assert len(narrow._edges) <= 1
    assert 0 <= narrow.value <= stale_of([0, 1, 2, 3, 0, 2, 1, 3] * 5)


@given(st.lists(st.integers(0, 60), max_size=80), st.integers(1, 9), st.integers(1, 9))
def test_capped_is_never_more_than_exact(path, max_places, max_edges):
    capped = fed(path, max_places=max_places, max_edges=max_edges)
    assert (capped.value or 0) <= (fed(path).value or 0)
    assert (capped.value or 0) >= 0


@given(st.lists(st.sampled_from("ABCD")), st.lists(st.sampled_from("ABCD")))
def test_state_in_the_middle_changes_nothing(first, then):
    stale = fed(first)
    moved = StaleScore()
    moved.load(json.loads(json.dumps(stale.state())))
    for t, place in enumerate(then):
        for each in (stale, moved):
            each.update(ObservedStep(t, place=place))
        assert moved.state() == stale.state()


def test_reset_keeps_the_parameters_only():
    stale = fed("ABABAB", place="Z", max_places=7)
    stale.reset()
    assert stale.state() == StaleScore(place="Z", max_places=7).state()

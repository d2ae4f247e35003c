"""Navigation: counts against a plain pass over the whole walk."""

from __future__ import annotations

import json
from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.streaming_metrics.navigation import Navigation, zone_of
from tidegauge.streaming_metrics.records import ObservedStep

PLACES = st.none() | st.sampled_from(["a/1", "a/2", "b/1", "b/c/1", "top"])


def fed(places, **settings) -> Navigation:
    navigation = Navigation(**settings)
    for t, place in enumerate(places):
        navigation.update(ObservedStep(t, place=place))
    return navigation


@given(PLACES, st.lists(PLACES, max_size=30), st.integers(0, 30))
def test_equals_a_plain_pass_at_every_prefix(start, places, cut):
    navigation = Navigation(place=start)
    for t, place in enumerate(places):
        if t == cut:
            state = json.loads(json.dumps(navigation.state()))
            navigation = Navigation()
            navigation.load(state)
        navigation.update(ObservedStep(t, place=place))
        stands = [start]  # after each step
        for one in places[: t + 1]:
            stands.append(stands[-1] if one is None else one)
        known = [stand for stand in stands if stand is not None]
        route = [stand for stand, _ in groupby(known)]
        moves = list(pairwise(route))
        backtracks = sum(b in route[: i + 1] for i, (_, b) in enumerate(moves))
        # a step is an action of the place where it was issued
        acted = [list(run) for _, run in groupby(known[:-1])]
        actions = sum(map(len, acted))
        assert navigation.distinct == (len(set(known)) if known else None)
        assert navigation.moves == len(moves)
        assert navigation.backtracks == backtracks
        assert navigation.value == (backtracks / len(moves) if moves else None)
        assert navigation.zone_changes == sum(zone_of(a) != zone_of(b) for a, b in moves)
        assert navigation.actions_per_stay == (actions / len(acted) if acted else None)


@pytest.mark.parametrize(
    ("place", "zone"),
    [
        ("https://Example.org/a/b?next=http://x.y/", "example.org"),
        ("http://example.org?q=a/b", "example.org"),
        ("http://u:p@example.org:81#top", "example.org:81"),
        ("http://[broken", "[broken"),
        ("file:///etc/hosts", "/etc"),
        ("/etc/hosts", "/etc"),
        ("C:\\work\\a.txt", "C:/work"),
        ("notes.txt", ""),
        ("", ""),
        ("a/b://c", "a/b:/"),
        ((3, 4), (3,)),
        ((), ()),
        (7, None),
    ],
)
def test_zone_of(place, zone):
    assert zone_of(place) == zone


def test_a_zone_of_the_users_own_outlives_load_and_reset():
    def first_letter(place):
        return place[0]

    navigation = fed(["ax", "ay", "bx"], zone=first_letter)
    assert navigation.zone_changes == 1
    state = json.loads(json.dumps(navigation.state()))
    assert "zone" not in state[1]["Navigation.1"]
    moved = Navigation(zone=first_letter)
    moved.load(state)
    moved.update(ObservedStep(3, place="by"))
    moved.update(ObservedStep(4, place="ax"))
    assert moved.zone_changes == 2
    moved.reset()
    assert moved.zone is first_letter
    assert moved.state() == Navigation(zone=first_letter).state()


def test_a_zone_that_fails_leaves_the_count_as_it_was():
    def broken(place):
        raise LookupError(place)

    navigation = Navigation(zone=broken)
    before = navigation.state()
    with pytest.raises(LookupError):
        navigation.update(ObservedStep(0, place="a"))
    assert navigation.state() == before


def test_caps_bound_the_places_remembered():
    navigation = fed([f"p{n % 700}" for n in range(2_000)], max_places=100)
    assert navigation.distinct == 100
    assert navigation.dropped_places > 0
    assert navigation.moves == 1_999
    assert len(navigation._visited) == 100


def test_reset_keeps_the_parameters_only():
    navigation = fed(["b", "c", "b"], place="a", max_places=9)
    navigation.reset()
    assert navigation.state() == Navigation(place="a", max_places=9).state()

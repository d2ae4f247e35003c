"""The known graph, and the search that answers whether a move brought some target nearer."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Hashable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.streaming_metrics.known_graph import KnownGraph, nearer_by_distance
from tidegauge.streaming_metrics.leads import Leads

PLACES = st.integers(0, 6)
LISTINGS = st.lists(st.tuples(PLACES, st.none() | st.lists(PLACES, max_size=4)), max_size=14)


def built(listings, **settings) -> KnownGraph:
    graph = KnownGraph(**settings)
    for clock, (place, exits) in enumerate(listings):
        graph.observe(place, exits, clock)
    return graph


def distances(listings, start, directed) -> dict[int, int]:
    """Full breadth-first search over what was listed."""
    edges = {(place, exit) for place, exits in listings for exit in exits or ()}
    if not directed:
        edges |= {(b, a) for a, b in edges}
    found, queue = {start: 0}, deque([start])
    while queue:
        place = queue.popleft()
        for a, b in sorted(edges):
            if a == place and b not in found:
                found[b] = found[a] + 1
                queue.append(b)
    return found


@given(LISTINGS, st.booleans(), PLACES, PLACES, st.sets(PLACES), st.sets(PLACES))
def test_nearer_is_what_full_distances_say(listings, directed, old, new, one, other):
    graph = built(listings, directed=directed)
    other -= one
    before = distances(listings, old, directed)
    after = distances(listings, new, directed)
    expected = any(after.get(z, math.inf) < before.get(z, math.inf) for z in one | other)
    assert graph.nearer(old, new, dict.fromkeys(one), dict.fromkeys(other)) is expected
    assert (
        nearer_by_distance(
            lambda a, b: distances(listings, a, directed).get(b, math.inf),
            old,
            new,
            dict.fromkeys(one),
            dict.fromkeys(other),
            limit=100,
        )
        is expected
    )


@given(LISTINGS, st.booleans())
def test_nearer_for_every_move_and_target(listings, directed):
    graph = built(listings, directed=directed)
    known = {start: distances(listings, start, directed) for start in range(7)}
    for old, before in known.items():
        for new, after in known.items():
            for z in known:
                expected = after.get(z, math.inf) < before.get(z, math.inf)
                assert graph.nearer(old, new, {z: None}) is expected


@given(LISTINGS, st.booleans())
def test_frontier_is_what_was_listed_and_not_visited(listings, directed):
    graph = KnownGraph(directed=directed)
    for clock, (place, exits) in enumerate(listings):
        before = set(graph.frontier)
        revealed = graph.observe(place, exits, clock)
        listed = listings[: clock + 1]
        visited = {place for place, _ in listed}
        frontier = {exit for _, exits in listed for exit in exits or ()} - visited
        assert set(graph.frontier) == frontier
        assert set(graph.observed) == visited
        assert revealed == len(frontier - before)
        assert graph.mapped == any(exits is not None for _, exits in listed)
        edges = {(a, b) for a, exits in listed for b in exits or () if a != b}
        assert graph.edges == len(edges if directed else {frozenset(edge) for edge in edges})
        births = {
            z: min(t for t, (_, exits) in enumerate(listed) if z in (exits or ())) for z in frontier
        }
        assert graph.frontier == births
        assert list(graph.frontier.values()) == sorted(births.values())


def corridor(length: int, **settings) -> KnownGraph:
    return built([(place, [place + 1]) for place in range(length)], **settings)


def test_search_gives_up_past_its_cap():
    target: dict[Hashable, object] = {0: None}
    assert corridor(100, max_visited=200).nearer(89, 90, target) is False
    assert corridor(100, max_visited=20).nearer(89, 90, target) is None
    assert corridor(100, max_visited=20).nearer(89, 88, target) is None
    assert corridor(100, max_visited=20).nearer(4, 3, target) is True


def test_search_is_not_led_past_its_cap_by_a_hub():
    graph = built([("hub", [*range(100)]), ("side", ["hub", "target"])], max_visited=50)
    assert graph.nearer("hub", "side", {"target": None}) is None


def test_search_stops_at_the_first_target_and_when_no_target_is_left():
    graph = corridor(1_000, max_visited=12)
    assert graph.nearer(500, 501, {503: None, 0: None}) is True
    assert graph.nearer(500, 501, {498: None}) is False
    assert graph.nearer(500, 500, {0: None}) is False
    assert graph.nearer(500, 501) is False


def test_directed_exits_lead_one_way():
    assert corridor(5, directed=True).nearer(3, 2, {0: None}) is False
    assert corridor(5).nearer(3, 2, {0: None}) is True


def test_a_frontier_place_can_be_passed():
    graph = built([(0, [1, 5]), (1, [0]), (3, [2, 5]), (2, [3])])
    assert graph.nearer(1, 0, {3: None}) is True  # by way of 5, which nobody visited


def test_a_move_joins_its_places():
    graph = built([(0, None), (1, None), (2, [0])])
    graph.walk(0, 1)
    graph.walk(0, 1)
    graph.walk(0, 0)
    graph.walk(0, 7)
    assert graph.edges == 2
    assert graph.nearer(2, 0, {1: None}) is True


def test_caps_bound_places_and_edges():
    graph = KnownGraph(max_places=50, max_edges=120)
    for place in range(1_000):
        graph.observe(place, [place * 7 % 1_000 + i for i in range(10)])
        assert len(graph.observed) + len(graph.frontier) <= 50
        assert graph.edges <= 120
    assert graph.full
    assert graph.dropped_places > 0
    many = KnownGraph(max_edges=10)
    assert many.observe("hub", [str(i) for i in range(1_000)]) == 10
    assert many.dropped_edges == 990
    many.walk("hub", "hub")
    many.observe("1")
    many.observe("2")
    many.walk("1", "2")
    assert many.dropped_edges == 991


def test_distance_function_is_asked_of_a_bounded_number_of_targets():
    asked = []

    def distance(a, b):
        asked.append(b)
        return 1.0

    targets: dict[Hashable, object] = dict.fromkeys(range(100))
    assert nearer_by_distance(distance, -1, -2, targets, limit=10) is None
    assert len(asked) == 20
    assert nearer_by_distance(distance, -1, -2, {}, limit=0) is False


@given(LISTINGS, LISTINGS, st.booleans())
def test_state_in_the_middle_changes_nothing(first, then, directed):
    graph, other = built(first, directed=directed), KnownGraph()
    other.load(json.loads(json.dumps(graph.state())))
    for place, exits in then:
        assert other.observe(place, exits, 99) == graph.observe(place, exits, 99)
    assert list(other.frontier.items()) == list(graph.frontier.items())
    for old in range(7):
        for new in range(7):
            assert other.nearer(old, new, other.frontier) is graph.nearer(old, new, graph.frontier)


def test_reset_keeps_the_parameters_only():
    graph = corridor(5, directed=True, max_places=99)
    graph.reset()
    assert graph.state() == KnownGraph(directed=True, max_places=99).state()


def test_load_refuses_another_state():
    state = KnownGraph().state()
    with pytest.raises(ValueError, match="state"):
        Leads().load(state)

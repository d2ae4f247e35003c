"""The walkers: each keeps to its way of going about it; and the routes that they go by."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest

from support.drawn_grid import drawn
from tidegauge.events import Identity, Task
from tidegauge.worlds import GRID_AGENTS, GridWorld, Recording, TaskGraph
from tidegauge.worlds.grid import (
    Cell,
    distances,
    exploiter,
    explorer,
    next_step,
    optimal,
    oscillator,
    shortest_route,
    wanderer,
)
from tidegauge.worlds.task_graph import is_met

SEEDS = range(60)


def world_of(seed: int, **settings: Any) -> GridWorld:
    graph = TaskGraph.sample(seed, nodes=6, option_counts={1: 0.6, 2: 0.4})
    return GridWorld(seed, graph=graph, corridor_widths=(1, 3), **settings)


class Watched(Recording):
    """Keeps, before every move, what the agent knows."""

    def __init__(self, world: GridWorld) -> None:
        super().__init__(**world.start())
        self.walk = world.walk(self)
        self.before: list[dict[str, Any]] = []

    def act(self, action: str, arguments: object = None) -> None:
        walk = self.walk
        self.before.append(
            {
                "here": walk.here,
                "known": {cell: list(beside) for cell, beside in walk.known.items()},
                "unseen": set(walk.unseen),
                "pending": dict(walk.pending),
                "found": dict(walk.found),
                "achieved": set(walk.achieved),
            }
        )
        super().act(action, arguments)

    @property
    def path(self) -> list[Cell]:
        return [event["place"] for event in self.events]

    def to_do(self, before: dict[str, Any]) -> list[Cell]:
        """Where the pending tasks were; where the goal was, if it was one of them."""
        goal = before["pending"].get(self.walk.world.graph.goal)
        return [*before["pending"].values()] if goal is None else [goal]


def watched(agent: Any, world: GridWorld, draw: int = 0, **options: Any) -> Watched:
    seen = Watched(world)
    agent(seen.walk, random.Random(draw), **options)
    return seen


def away(before: dict[str, Any], cell: Cell, targets: Any) -> int:
    """How far it is from a cell to the nearest target, over what is known."""
    found = distances(before["known"].__getitem__, cell)
    return min(found[target] for target in targets)


def fewest(world: GridWorld) -> int:
    """The fewest moves to the goal, cell by cell over every state there is."""
    start = (world.origin, frozenset[Identity]())
    moves = {start: 0}
    queue = deque([start])
    while True:
        state = queue.popleft()
        here, achieved = state
        if world.graph.goal in achieved:
            return moves[state]
        for cell in world.exits(here):
            task = world.tasks.get(cell)
            ready = task is not None and is_met(task.requires, achieved)
            after = (cell, achieved | {task.id} if ready else achieved)
            if after not in moves:
                moves[after] = moves[state] + 1
                queue.append(after)


class TestRoutes:
    def test_a_step_leads_along_a_shortest_way_to_the_nearest_target(self) -> None:
        for seed in SEEDS:
            world = world_of(seed)
            known = distances(world.exits, world.origin)
            targets = [cell for cell in world.tasks if known[cell] > 1]
            step = next_step(world.exits, world.origin, targets)
            ways = distances(world.exits, step)
            assert min(ways[cell] for cell in targets) == min(known[cell] for cell in targets) - 1

    def test_where_one_is_is_no_target(self) -> None:
        row = {(0, 0): [(1, 0)], (1, 0): [(0, 0)]}
        with pytest.raises(LookupError):
            next_step(row.__getitem__, (0, 0), {(0, 0)})

    @pytest.mark.parametrize("seed", SEEDS)
    def test_the_shortest_route_is_the_shortest_there_is(self, seed: int) -> None:
        world = world_of(seed)
        route = shortest_route(world)
        assert route.moves == fewest(world)
        assert world.tasks[route.stops[-1]].id == world.graph.goal

    def test_a_route_takes_the_cheaper_alternative(self) -> None:
        near_and = drawn("DSAB.....CG")
        assert shortest_route(near_and).stops == ((2, 0), (3, 0), (0, 0), (10, 0))
        near_or = drawn("DSC.....ABG")
        assert shortest_route(near_or).stops == ((2, 0), (0, 0), (10, 0))

    def test_a_large_graph_is_no_trouble(self) -> None:
        world = GridWorld(1, graph=TaskGraph.sample(1, nodes=30))
        assert shortest_route(world).moves <= world.budget


class TestOptimal:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_takes_the_fewest_moves(self, seed: int) -> None:
        world = world_of(seed)
        seen = watched(optimal, world)
        assert seen.walk.solved
        assert seen.walk.moves == fewest(world)

    def test_takes_a_longer_way_where_the_shortest_would_be_an_error(self) -> None:
        graph = TaskGraph.sample(1337, nodes=8, max_layer=4)
        world = GridWorld(1337, graph=graph, density=0.1)
        seen = watched(optimal, world)
        assert seen.walk.solved
        assert (shortest_route(world).moves, seen.walk.moves) == (44, 46)
        for before, after in zip(seen.before, seen.path[1:], strict=True):
            if graph.goal in before["pending"] and after not in before["unseen"]:
                goal = [before["pending"][graph.goal]]
                assert away(before, after, goal) < away(before, before["here"], goal)


class TestExplorer:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_looks_at_everything_before_it_turns_to_tasks(self, seed: int) -> None:
        seen = watched(explorer, world_of(seed, alpha=9.0))
        assert seen.walk.solved
        for before, after in zip(seen.before, seen.path[1:], strict=True):
            targets = before["unseen"] or seen.to_do(before)
            assert away(before, after, targets) < away(before, before["here"], targets)

    def test_passes_a_pending_task_by(self) -> None:
        seen = watched(explorer, drawn("BA.CSD.G"))
        columns = [x for x, _ in seen.path]
        assert columns[:8] == [4, 5, 6, 7, 6, 5, 4, 3], "found D and G, then C"
        assert columns[8:11] == [2, 1, 0], "on to what it has not seen, not back to D"
        assert seen.walk.solved


class TestExploiter:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_goes_for_pending_tasks_first(self, seed: int) -> None:
        seen = watched(exploiter, world_of(seed))
        for before, after in zip(seen.before, seen.path[1:], strict=True):
            if targets := seen.to_do(before):
                assert away(before, after, targets) < away(before, before["here"], targets)

    def test_tries_known_tasks_again_before_it_looks_for_more(self) -> None:
        graph = TaskGraph(((Task("A"), Task("B")), (Task("G", (("A", "B"),)),)))
        seen = watched(exploiter, drawn("B..AS.G", graph))
        columns = [x for x, _ in seen.path]
        assert columns[:6] == [4, 5, 6, 5, 4, 3], "found G, then A"
        assert columns[6:9] == [4, 5, 6], "back to G, which needs B as well"
        assert columns[9:15] == [5, 4, 3, 2, 1, 0]
        assert seen.walk.solved


class TestWanderer:
    def test_goes_anywhere_it_can(self) -> None:
        seen = watched(wanderer, world_of(1, alpha=50.0))
        assert not any(event.get("error") for event in seen.events)
        assert seen.walk.solved or set(seen.path) == seen.walk.world.cells

    def test_is_moved_by_chance_alone(self) -> None:
        paths = [watched(wanderer, world_of(1), draw).path for draw in (3, 3, 4)]
        assert paths[0] == paths[1] != paths[2]


class TestOscillator:
    @pytest.mark.parametrize("seed", SEEDS)
    @pytest.mark.parametrize("since", [0, 5])
    def test_goes_back_and_forth_from_a_new_cell_on(self, seed: int, since: int) -> None:
        seen = watched(oscillator, world_of(seed), since=since)
        path = seen.path
        onset = next(
            t for t in range(max(since, 1), len(path)) if path[t] in seen.before[t - 1]["unseen"]
        )
        one, other = path[onset], path[onset - 1]
        rest = path[onset + 1 :]
        assert rest == [(other, one)[index % 2] for index in range(len(rest))]
        assert path[: onset + 1] == watched(explorer, world_of(seed)).path[: onset + 1]
        assert seen.walk.moves == seen.walk.world.budget


@pytest.mark.parametrize("name", GRID_AGENTS)
def test_the_same_world_and_draw_give_the_same_moves(name: str) -> None:
    agent = GRID_AGENTS[name]
    assert watched(agent, world_of(2), 5).events == watched(agent, world_of(2), 5).events


@pytest.mark.parametrize("name", GRID_AGENTS)
@pytest.mark.parametrize("seed", range(30))
def test_no_walk_goes_on_when_it_is_over(name: str, seed: int) -> None:
    seen = watched(GRID_AGENTS[name], world_of(seed, alpha=1.0))
    assert seen.walk.over
    assert seen.walk.moves <= seen.walk.world.budget
    solved = [event.get("progress") == 1.0 for event in seen.events]
    assert sum(solved) == solved[-1], "at the last step, or at none"


def test_agents_know_no_more_than_they_were_shown() -> None:
    """All but the optimal one do the same in a world that looks the same so far."""
    short, long = drawn("BA.CSD.G"), drawn(".....BA.CSD.G")
    for name in ("explorer", "exploiter", "oscillator"):
        first, second = (watched(GRID_AGENTS[name], world).path for world in (short, long))
        assert first[:10] == [(x - 5, y) for x, y in second[:10]]

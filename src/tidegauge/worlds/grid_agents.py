"""Scripted walkers for the grid, one strategy each, and shortest routes.

An agent is a function of a walk and a random source; it moves until the walk is over. All but
:func:`optimal` use only what the walk has seen.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from tidegauge.events import Identity
from tidegauge.worlds.grid import DIRECTIONS, Cell, GridWorld, Walk
from tidegauge.worlds.task_graph import is_met

Neighbours: TypeAlias = Callable[[Cell], Iterable[Cell]]
"""The neighbors of a cell."""


class Route(NamedTuple):
    """Where to achieve which task, in order, and how many moves that takes in all."""

    moves: int
    stops: tuple[Cell, ...]


def distances(neighbours: Neighbours, origin: Cell) -> dict[Cell, int]:
    """How many moves it is from ``origin`` to each cell that can be reached.

    >>> row = {(0, 0): [(1, 0)], (1, 0): [(0, 0), (2, 0)], (2, 0): [(1, 0)]}
    >>> distances(row.__getitem__, (0, 0))
    {(0, 0): 0, (1, 0): 1, (2, 0): 2}
    """
    found = {origin: 0}
    queue = deque([origin])
    while queue:
        cell = queue.popleft()
        for other in neighbours(cell):
            if other not in found:
                found[other] = found[cell] + 1
                queue.append(other)
    return found


def next_step(neighbours: Neighbours, here: Cell, targets: Container[Cell]) -> Cell:
    """The first cell of a shortest path to the nearest target other than ``here``.

    Raises:
        LookupError: no target is reachable.
    """
    first = {here: here}
    queue = deque([here])
    while queue:
        cell = queue.popleft()
        for other in neighbours(cell):
            if other in first:
                continue
            first[other] = other if cell == here else first[cell]
            if other in targets:
                return first[other]
            queue.append(other)
    raise LookupError(f"No target is reachable from {here}.")


def shortest_route(world: GridWorld) -> Route:
    """The fewest moves in which the goal can be achieved, the whole map being known.

    A shortest path over (cell, achieved tasks), from one task to the next. Exponential in the
    width of the graph at worst: as many states as there are sets of tasks that can be achieved.

    >>> shortest_route(GridWorld(seed=6))
    Route(moves=15, stops=((3, 1), (4, 2), (1, 3), (1, 0), (4, 0), (2, 0)))
    """
    away = {site: distances(world.exits, site) for site in world.tasks}
    away[world.origin] = distances(world.exits, world.origin)
    nothing: frozenset[Identity] = frozenset()
    number = 0  # of each entry: decides between equal ones, so that sets need not be compared
    queue: list[tuple[int, int, Cell, frozenset[Identity], tuple[Cell, ...]]]
    queue = [(0, number, world.origin, nothing, ())]
    settled: set[tuple[Cell, frozenset[Identity]]] = set()
    while queue:
        moves, _, here, achieved, stops = heapq.heappop(queue)
        if world.graph.goal in achieved:
            return Route(moves, stops)
        if (here, achieved) in settled:
            continue
        settled.add((here, achieved))
        for site, task in world.tasks.items():
            if task.id not in achieved and is_met(task.requires, achieved):
                number += 1
                there = moves + away[here][site]
                heapq.heappush(queue, (there, number, site, achieved | {task.id}, (*stops, site)))
    raise LookupError("The goal of this world cannot be achieved.")


GridAgent: TypeAlias = Callable[[Walk, random.Random], None]


def optimal(walk: Walk, draw: random.Random) -> None:
    """Knows the map: goes the shortest route, and makes no step that could be called an error.

    Each of its moves brings it nearer to the next stop over the whole map. The first cell of
    that way that it has not entered is a target then, and nearer than before over what is known;
    if all are entered, the stop is a pending task and itself the target. Only when the goal is
    pending, which makes it the one target there is, may a short cut through unknown cells lead
    away from it over the known ones. There it goes the known way, if need be a longer one.
    """
    world = walk.world
    for stop in shortest_route(world).stops:
        away = distances(world.exits, stop)
        while not walk.over and world.tasks[stop].id not in walk.achieved:
            nearer = [cell for cell in world.exits(walk.here) if away[cell] < away[walk.here]]
            if world.graph.goal in walk.pending:
                known = distances(walk.known.__getitem__, stop)
                nearer = [
                    cell for cell in nearer if cell in walk.unseen or known[cell] < known[walk.here]
                ] or [cell for cell in walk.known[walk.here] if known[cell] < known[walk.here]]
            _go(walk, nearer[0])


def explorer(walk: Walk, draw: random.Random) -> None:
    """Goes to the nearest cell that it has not entered, and turns to tasks when none is left."""
    while not walk.over:
        _explore(walk)


def exploiter(walk: Walk, draw: random.Random) -> None:
    """Makes use of what it knows before it looks for more.

    It goes to the nearest pending task. With none pending, it tries the known tasks again, one
    after the other, whatever they need: once after each task found or achieved. Only then it
    enters a new cell.
    """
    known = 0
    untried: set[Cell] = set()
    while not walk.over:
        if len(walk.found) + len(walk.achieved) > known:
            known = len(walk.found) + len(walk.achieved)
            untried = {cell for task, cell in walk.found.items() if task.id not in walk.achieved}
        untried.discard(walk.here)
        _approach(walk, _to_do(walk) or untried or walk.unseen)


def wanderer(walk: Walk, draw: random.Random) -> None:
    """Goes anywhere at random."""
    while not walk.over:
        _go(walk, draw.choice(walk.world.exits(walk.here)))


def oscillator(walk: Walk, draw: random.Random, *, since: int = 8) -> None:
    """Explores, and then goes back and forth between two cells until the budget is used up.

    Args:
        walk: the walk.
        draw: unused.
        since: moves before it starts; it then continues until the next new cell.
    """
    before = walk.here
    entered = False
    while not walk.over and not (entered and walk.moves >= since):
        before = walk.here
        entered = _explore(walk)
    while not walk.over:
        here = walk.here
        _go(walk, before)
        before = here


GRID_AGENTS: Final[Mapping[str, GridAgent]] = MappingProxyType(
    {
        "optimal": optimal,
        "explorer": explorer,
        "exploiter": exploiter,
        "wanderer": wanderer,
        "oscillator": oscillator,
    }
)
"""Every walker by its name."""


def _explore(walk: Walk) -> bool:
    """One move of the explorer; returns whether it entered a new cell."""
    return _approach(walk, walk.unseen or _to_do(walk))


def _to_do(walk: Walk) -> Collection[Cell]:
    """Where the pending tasks are; where the goal is, once it is one of them."""
    pending = walk.pending
    goal = walk.world.graph.goal
    return [pending[goal]] if goal in pending else pending.values()


def _approach(walk: Walk, targets: Collection[Cell]) -> bool:
    """One move towards the nearest target; returns whether it entered a new cell."""
    cell = next_step(walk.known.__getitem__, walk.here, targets)
    entering = cell in walk.unseen
    _go(walk, cell)
    return entering


def _go(walk: Walk, cell: Cell) -> None:
    step = (cell[0] - walk.here[0], cell[1] - walk.here[1])
    walk.move(next(name for name, offset in DIRECTIONS.items() if offset == step))

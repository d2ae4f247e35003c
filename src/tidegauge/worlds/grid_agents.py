"""Scripted walkers for the grid, each with one way of going about it.

An agent is a function of a walk and a source of chance; it moves until the walk is over. All but
:func:`optimal` go by what the walk has shown them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from tidegauge.worlds.grid import DIRECTIONS, Cell, Walk
from tidegauge.worlds.grid_route import distances, next_step, shortest_route

__all__ = [
    "GRID_AGENTS",
    "GridAgent",
    "exploiter",
    "explorer",
    "optimal",
    "oscillator",
    "wanderer",
]

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
        draw: not used.
        since: moves that it makes before; it then goes on up to the next new cell.
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

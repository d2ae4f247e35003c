"""Ways through a grid: shortest ones, and the order of tasks that takes the fewest moves."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Container, Iterable
from typing import NamedTuple, TypeAlias

from tidegauge.events import Identity
from tidegauge.worlds.grid import Cell, GridWorld
from tidegauge.worlds.task_graph import is_met

__all__ = ["Neighbours", "Route", "distances", "next_step", "shortest_route"]

Neighbours: TypeAlias = Callable[[Cell], Iterable[Cell]]
"""The cells beside a cell."""


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
    """The first cell of a shortest way to the nearest target other than ``here`` itself.

    Raises:
        LookupError: there is no way to any.
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
    raise LookupError(f"no way leads from {here} to a target")


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
    raise LookupError("the goal cannot be achieved")

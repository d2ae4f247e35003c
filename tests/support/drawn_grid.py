"""Grids as they are drawn, for walks whose every step is known."""

from __future__ import annotations

from tidegauge.events import Task
from tidegauge.worlds import GridWorld, TaskGraph

__all__ = ["GRAPH", "drawn"]

GRAPH = TaskGraph(
    (
        (Task("A"), Task("B"), Task("C")),
        (Task("D", (("A", "B"), ("C",))),),
        (Task("G", (("D",),)),),
    )
)


def drawn(picture: str, graph: TaskGraph = GRAPH, budget: int = 100) -> GridWorld:
    """A world: ``S`` the start, another letter a task of the graph, ``.`` a cell, ``#`` none."""
    world = GridWorld(graph=graph)
    rows = picture.split()
    signs = {(x, y): sign for y, row in enumerate(rows) for x, sign in enumerate(row)}
    tasks = {task.id: task for task in graph.tasks}
    world.columns, world.rows, world.budget = len(rows[0]), len(rows), budget
    world.cells = frozenset(cell for cell, sign in signs.items() if sign != "#")
    world.tasks = {cell: tasks[sign] for cell, sign in signs.items() if sign in tasks}
    (world.origin,) = (cell for cell, sign in signs.items() if sign == "S")
    return world

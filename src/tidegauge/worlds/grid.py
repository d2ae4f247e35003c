"""A grid of cells with the tasks of a graph in it, seen one cell at a time.

Source: Exploration and Exploitation Errors Are Measurable for Language Model Agents
(arXiv 2604.13151), section 3 and appendix C.1.

Its agents are scripted walkers, one strategy each: functions of a walk and a random source that
move until the walk is over. All but :func:`optimal` use only what the walk has seen.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

from tidegauge.errors import ConfigurationError
from tidegauge.events import Identity, Task
from tidegauge.worlds.task_graph import Counts, Naming, Start, Steps, TaskGraph, is_met

Cell: TypeAlias = tuple[int, int]
"""Column and row; (0, 0) is the upper left corner."""

DIRECTIONS: Final[Mapping[str, Cell]] = MappingProxyType(
    {"up": (0, -1), "right": (1, 0), "down": (0, 1), "left": (-1, 0)}
)
"""What each move adds to a cell."""

Size: TypeAlias = Literal["small", "medium", "large"]
Demand: TypeAlias = Literal["low", "medium", "high"]
Logic: TypeAlias = Literal["easy", "medium", "hard"]

_SIZES: Final[Mapping[Size, int]] = MappingProxyType({"small": 4, "medium": 6, "large": 8})
_DEMANDS: Final[Mapping[Demand, tuple[float, tuple[int, int]]]] = MappingProxyType(
    {"low": (0.1, (2, 3)), "medium": (0.25, (1, 3)), "high": (0.4, (1, 1))}
)
"""Density, and widths of corridors."""

_LOGIC: Final[Mapping[Logic, tuple[Counts, Counts]]] = MappingProxyType(
    {
        "easy": ({1: 1.0}, {1: 1.0, 2: 1.0}),
        "medium": ({1: 0.8, 2: 0.2}, {1: 1.0, 2: 1.0}),
        "hard": ({1: 0.6, 2: 0.4}, {1: 1.0, 2: 1.0, 3: 1.0}),
    }
)
"""How many alternatives a task has, and how many tasks each of these."""


class GridWorld:
    """A map of open cells, some with a task; the same for the same arguments.

    The goal can always be achieved: every task is on a corridor that leads to the start.
    The start has no task.

    Args:
        graph: its tasks; left out, ``TaskGraph.sample(seed)``.
        density: tasks for each cell of the grid: the lower, the larger it is. More than 0, and
            at most 0.5.
        corridor_widths: least and greatest width of a corridor, in cells.
        aspect_ratio: columns / rows, as near as whole numbers come.
        alpha: moves that an attempt may take, for each open cell. It changes nothing else.

    Raises:
        ConfigurationError: an argument that no map can have.

    >>> world = GridWorld(seed=6)
    >>> print(world.render())
    #TG.T
    #.#T#
    #..ST
    #T..#
    #####
    >>> len(world.cells), world.budget
    (13, 39)
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        graph: TaskGraph | None = None,
        density: float = 0.25,
        corridor_widths: tuple[int, int] = (1, 1),
        aspect_ratio: float = 1.0,
        alpha: float = 3.0,
    ) -> None:
        if not 0 < density <= 0.5:
            raise ConfigurationError(
                f"The density {density} is out of range; use more than 0 and at most 0.5."
            )
        if not 1 <= corridor_widths[0] <= corridor_widths[1]:
            raise ConfigurationError(
                f"The corridor widths {corridor_widths} are invalid; use a minimum of at least 1 "
                "and a maximum that is not smaller."
            )
        if aspect_ratio <= 0 or alpha <= 0:
            raise ConfigurationError(
                f"The aspect ratio {aspect_ratio} or alpha {alpha} is not positive; use "
                "more than 0."
            )
        self.graph = graph or TaskGraph.sample(seed)
        draw = random.Random(f"map {seed}")  # noqa: S311 -- reproducible; other draws than graph's
        tasks = self.graph.tasks
        self.columns, self.rows = _shape(math.ceil(len(tasks) / density), aspect_ratio)
        everywhere = [(x, y) for y in range(self.rows) for x in range(self.columns)]
        self.origin, *sites = draw.sample(everywhere, len(tasks) + 1)
        self.tasks: Mapping[Cell, Task] = dict(zip(sites, tasks, strict=True))
        self.cells = frozenset(self._corridors(draw, corridor_widths))
        self.budget = int(alpha * len(self.cells))

    @classmethod
    def preset(
        cls,
        seed: int = 0,
        *,
        size: Size = "medium",
        exploitation: Demand = "medium",
        logic: Logic = "medium",
        naming: Naming = "symbolic",
    ) -> GridWorld:
        """A world with the settings of the paper's appendix C.1.

        Args:
            size: of the graph: 4, 6 or 8 tasks.
            exploitation: how much exploitation the map demands; the less, the more exploration. Low
                has few tasks on a large map with wide corridors.
            logic: how many alternatives and prerequisites the tasks have.
            naming: of the tasks.

        >>> world = GridWorld.preset(seed=1, size="large", exploitation="low")
        >>> len(world.tasks), world.columns * world.rows
        (8, 81)
        """
        density, widths = _DEMANDS[exploitation]
        options, dependencies = _LOGIC[logic]
        graph = TaskGraph.sample(
            seed,
            nodes=_SIZES[size],
            option_counts=options,
            dependency_counts=dependencies,
            goal_dependency_counts=dependencies,
            naming=naming,
        )
        return cls(seed, graph=graph, density=density, corridor_widths=widths)

    def exits(self, cell: Cell) -> tuple[Cell, ...]:
        """The open neighbors of an open cell, in the order of :data:`DIRECTIONS`."""
        x, y = cell
        neighbors = [(x + dx, y + dy) for dx, dy in DIRECTIONS.values()]
        return tuple([other for other in neighbors if other in self.cells])

    def start(self) -> Start:
        """The start of an attempt, as keywords of :func:`tidegauge.run`."""
        return {
            "task": f"Achieve {self.graph.goal}.",
            "task_group": "grid",
            "t_max": self.budget,
            "place": self.origin,
            "exits": self.exits(self.origin),
            "goal": self.graph.goal,
            "reach": "adjacent",
        }

    def walk(self, steps: Steps) -> Walk:
        """A new attempt that reports its steps to ``steps``."""
        return Walk(self, steps)

    def render(self) -> str:
        """The whole map: ``S`` the start, ``T`` a task, ``G`` the goal, ``#`` no cell."""
        goal = self.graph.goal

        def sign(cell: Cell) -> str:
            if cell == self.origin:
                return "S"
            task = self.tasks.get(cell)
            if task is not None:
                return "G" if task.id == goal else "T"
            return "." if cell in self.cells else "#"

        rows, columns = range(self.rows), range(self.columns)
        return "\n".join("".join([sign((x, y)) for x in columns]) for y in rows)

    def _corridors(self, draw: random.Random, widths: tuple[int, int]) -> Iterator[Cell]:
        """Cells of corridors: from each task to the start, or to a task that has one."""
        yield self.origin
        joined = [self.origin]
        for site in self.tasks:
            width = draw.randint(*widths)
            for cell in _bend(draw, draw.choice(joined), site):
                yield from self._block(cell, width)
            joined.append(site)

    def _block(self, cell: Cell, width: int) -> Iterator[Cell]:
        """A square of cells with ``cell`` in it, as far as there is room."""
        left = max(min(cell[0], self.columns - width), 0)
        top = max(min(cell[1], self.rows - width), 0)
        for x in range(left, min(left + width, self.columns)):
            for y in range(top, min(top + width, self.rows)):
                yield x, y


class Walk:
    """One attempt: moves the agent and remembers what it has seen.

    Attributes:
        world: the world; it contains more than the agent has seen.
        here: where the agent is.
        sight: the last observation, in words.
        known: the known neighbors of each seen cell.
        unseen: cells seen from a neighbor and not entered, oldest first.
        achieved: tasks that were achieved.
        moves: moves so far, including blocked ones.

    >>> from tidegauge.worlds.task_graph import Recording
    >>> world = GridWorld(seed=6)
    >>> walk = world.walk(Recording(**world.start()))
    >>> walk.move("right")
    'You are at (4, 2). You can go left. Here is VQYX: achieved. It is needed for WGU6.'
    """

    def __init__(self, world: GridWorld, steps: Steps) -> None:
        self.world = world
        self.here = world.origin
        self.known: dict[Cell, list[Cell]] = {}
        self.unseen: dict[Cell, None] = {}
        self.found: dict[Task, Cell] = {}
        self.achieved: set[Identity] = set()
        self.moves = 0
        self._steps = steps
        self._entered: set[Cell] = set()
        self.sight = self._enter()

    @property
    def solved(self) -> bool:
        """Whether the goal is achieved."""
        return self.world.graph.goal in self.achieved

    @property
    def over(self) -> bool:
        """Whether there is nothing left to do: the goal is achieved, or the budget is used up."""
        return self.solved or self.moves >= self.world.budget

    @property
    def pending(self) -> dict[Identity, Cell]:
        """Tasks that were found, are ready and are not achieved, and where they are."""
        return {
            task.id: cell
            for task, cell in self.found.items()
            if task.id not in self.achieved and is_met(task.requires, self.achieved)
        }

    def move(self, direction: str) -> str:
        """Move by one cell; returns the observation.

        Args:
            direction: one of :data:`DIRECTIONS`. Without a cell there, the agent does not move.
        """
        self._steps.act("move", {"direction": direction})
        self.moves += 1
        (x, y), (dx, dy) = self.here, DIRECTIONS.get(direction, (0, 0))
        blocked = (x + dx, y + dy) not in self.world.exits(self.here)
        if blocked:
            self.sight = f"There is no way {direction} from {self.here}."
        else:
            self.here = (x + dx, y + dy)
            self.sight = self._enter()
        task = self.world.tasks.get(self.here)
        self._steps.observe(
            self.sight,
            error=blocked,
            place=self.here,
            exits=self.world.exits(self.here),
            tasks=() if task is None else (task,),
            progress=1.0 if self.solved else len(self.achieved) / len(self.world.tasks),
        )
        return self.sight

    def _enter(self) -> str:
        here = self.here
        exits = self.world.exits(here)
        if here not in self._entered:
            self._entered.add(here)
            self.unseen.pop(here, None)
            for cell in exits:
                self._join(here, cell)
                if cell not in self._entered:
                    self.unseen[cell] = None
        ways = [
            name for name, (dx, dy) in DIRECTIONS.items() if (here[0] + dx, here[1] + dy) in exits
        ]
        seen = f"You are at {here}. You can go {', '.join(ways)}."
        task = self.world.tasks.get(here)
        return seen if task is None else f"{seen} {self._attempt(task)}"

    def _attempt(self, task: Task) -> str:
        """The agent is where a task is: it is achieved if it is ready.

        It sees the task's parents and children in the graph, and not where they are.
        """
        self.found[task] = self.here
        met = is_met(task.requires, self.achieved)
        options = ", or ".join(" and ".join(map(str, option)) for option in task.requires)
        if met:
            self.achieved.add(task.id)
        shown = f"Here is {task.id}: {'achieved' if met else f'it needs {options}'}."
        if met and options:
            shown += f" It needed {options}."
        children = self.world.graph.children(task.id)
        return (
            f"{shown} It is needed for {' and '.join(map(str, children))}." if children else shown
        )

    def _join(self, cell: Cell, other: Cell) -> None:
        for one, two in ((cell, other), (other, cell)):
            neighbors = self.known.setdefault(one, [])
            if two not in neighbors:
                neighbors.append(two)


def _shape(cells: int, aspect_ratio: float) -> Cell:
    """Columns and rows for at least so many cells, nearest to the ratio, then with fewest cells."""
    shapes = [(columns, math.ceil(cells / columns)) for columns in range(1, cells + 1)]
    return min(
        shapes,
        key=lambda shape: (abs(math.log(shape[0] / shape[1] / aspect_ratio)), math.prod(shape)),
    )


def _bend(draw: random.Random, origin: Cell, end: Cell) -> Iterator[Cell]:
    """From one cell to another with one bend."""
    (x, y), (end_x, end_y) = origin, end
    corner = draw.choice([(x, end_y), (end_x, y)])
    yield from _straight(origin, corner)
    yield from _straight(corner, end)


def _straight(origin: Cell, end: Cell) -> Iterator[Cell]:
    (x, y), (end_x, end_y) = sorted((origin, end))
    return ((i, j) for i in range(x, end_x + 1) for j in range(y, end_y + 1))


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
    """Takes the shortest route over the whole map, and makes no step that counts as an error.

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
    """Uses what it knows before it looks for more.

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

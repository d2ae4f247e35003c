"""Task graphs: tasks that need other tasks, up to one goal, drawn at random.

Source: Exploration and Exploitation Errors Are Measurable for Language Model Agents
(arXiv 2604.13151), appendix C.1.
"""

from __future__ import annotations

import math
import random
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias, TypedDict, Unpack

import orjson

from tidegauge.errors import ConfigurationError
from tidegauge.events import ABSENT, Identity, Reach, Task

Counts: TypeAlias = Mapping[int, float]
"""A distribution of a number: how likely each value is, in any unit."""

Requires: TypeAlias = tuple[tuple[Identity, ...], ...]
"""Alternative prerequisite sets, as in :class:`~tidegauge.events.Task`."""

Naming: TypeAlias = Literal["symbolic", "semantic"]

_LETTERS: Final = "ACDEFGHJKLMNPQRTUVWXY34679"  # none that looks like another
_MATERIALS: Final = ("oak plank", "hemp rope", "canvas", "pitch", "iron rod", "wool", "brass sheet")
_WORKS: Final = ("keel", "mast", "rigging", "sail", "rudder", "hull", "anchor", "deck", "lantern")
_GOAL: Final = "ship"
_MAX_EXPONENT: Final = 600.0  # beyond it, weights would be 0 or infinite and none could be drawn
_ONE: Final[Counts] = {1: 1.0}
_ONE_OR_TWO: Final[Counts] = {1: 0.5, 2: 0.5}


@dataclass(frozen=True, slots=True)
class TaskGraph:
    """Tasks in layers: each needs tasks of earlier layers only, the last layer is the goal.

    The goal can always be achieved: a task is ready once all earlier layers are achieved. Every
    task contributes to the goal by at least one alternative.

    >>> graph = TaskGraph.sample(seed=4, nodes=5, naming="semantic")
    >>> for layer in graph.layers:
    ...     print(layer)
    (Task(id='canvas', requires=()),)
    (Task(id='keel', requires=(('canvas',),)), Task(id='sail', requires=(('canvas',),)))
    (Task(id='mast', requires=(('keel',),)),)
    (Task(id='ship', requires=(('keel', 'mast', 'sail'),)),)
    """

    layers: tuple[tuple[Task, ...], ...]

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks, none before what it needs."""
        return tuple([task for layer in self.layers for task in layer])

    @property
    def goal(self) -> Identity:
        """Id of the goal."""
        return self.layers[-1][0].id

    def children(self, task: Identity) -> tuple[Identity, ...]:
        """The tasks of which an alternative needs this one."""
        return tuple(
            [
                other.id
                for other in self.tasks
                if any(task in alternative for alternative in other.requires)
            ]
        )

    @classmethod
    def sample(
        cls,
        seed: int = 0,
        *,
        nodes: int = 6,
        max_layer: int = 3,
        option_counts: Counts = _ONE,
        dependency_counts: Counts = _ONE_OR_TWO,
        goal_dependency_counts: Counts = _ONE_OR_TWO,
        parent_depth_bias: float = 1.0,
        naming: Naming = "symbolic",
    ) -> TaskGraph:
        """Draw a graph: equal for equal arguments; ``naming`` changes only the names.

        Args:
            nodes: how many tasks, the goal included; at least 2.
            max_layer: how many tasks a layer may have.
            option_counts: how many alternative prerequisite sets a task has (OR). A set that
                another one contains is dropped, so there may be fewer.
            dependency_counts: how many tasks such a set has (AND), as far as there are so many.
            goal_dependency_counts: the same for the goal, to whose sets are added the tasks that
                no other needs.
            parent_depth_bias: beta, by which recent layers are preferred: a parent in layer d for
                a child in layer D has the weight exp(-beta * (D - 1 - d)).
            naming: ``symbolic``: four random characters; ``semantic``: the products of a shipyard.

        Raises:
            ConfigurationError: an argument that no graph can have.
        """
        if nodes < 2 or max_layer < 1:
            raise ConfigurationError(
                f"A graph of {nodes} nodes with {max_layer} per layer is too small; use at least 2 "
                "nodes and 1 per layer."
            )
        for counts in (option_counts, dependency_counts, goal_dependency_counts):
            likely = counts.values()
            if not any(likely) or min(likely) < 0 or min(counts) < 1:
                raise ConfigurationError(
                    f"The distribution {dict(counts)} is invalid; use counts of at least 1 and "
                    "weights of at least 0, not all 0."
                )
        draw = random.Random(seed)  # noqa: S311 -- to be reproducible, not to keep a secret
        sizes = [*_layer_sizes(draw, nodes - 1, max_layer), 1]
        names = _names(random.Random(f"names {seed}"), sizes, naming)  # noqa: S311 -- likewise
        layers: list[tuple[Task, ...]] = [tuple([Task(name) for name in names[0]])]
        for depth, layer in enumerate(names[1:], start=1):
            goal = depth == len(names) - 1
            counts = goal_dependency_counts if goal else dependency_counts
            weights = {
                parent.id: _weight(-parent_depth_bias * (depth - 1 - index))
                for index, parents in enumerate(layers)
                for parent in parents
            }
            layers.append(
                tuple([Task(name, _sets(draw, weights, option_counts, counts)) for name in layer])
            )
        return cls((*layers[:-1], (_repaired(layers),)))


def is_met(requires: Requires, achieved: Container[Identity]) -> bool:
    """Whether all of one of the alternative sets is achieved; with no set, nothing is required.

    >>> is_met((("a", "b"), ("d",)), {"d"}), is_met((("a", "b"),), {"b"}), is_met((), set())
    (True, False, True)
    """
    return not requires or any(all(needed in achieved for needed in option) for option in requires)


def _weight(exponent: float) -> float:
    return math.exp(min(max(exponent, -_MAX_EXPONENT), _MAX_EXPONENT))


def _layer_sizes(draw: random.Random, nodes: int, max_layer: int) -> Iterator[int]:
    while nodes:
        size = draw.randint(1, min(nodes, max_layer))
        nodes -= size
        yield size


def _sets(
    draw: random.Random, weights: Mapping[Identity, float], options: Counts, counts: Counts
) -> Requires:
    """Alternative prerequisite sets, none of which contains another."""
    chosen: list[tuple[Identity, ...]] = []
    for _ in range(_count(draw, options)):
        option = _several(draw, weights, _count(draw, counts))
        if not any(set(option) <= set(other) or set(option) >= set(other) for other in chosen):
            chosen.append(option)
    return tuple(chosen)


def _count(draw: random.Random, counts: Counts) -> int:
    return draw.choices(list(counts), list(counts.values()))[0]


def _several(
    draw: random.Random, weights: Mapping[Identity, float], count: int
) -> tuple[Identity, ...]:
    """Different ones by weight, in the order of the graph."""
    left = dict(weights)
    while left and len(weights) - len(left) < count:
        del left[draw.choices(list(left), list(left.values()))[0]]
    return tuple([name for name in weights if name not in left])


def _repaired(layers: Sequence[Sequence[Task]]) -> Task:
    """The goal, which also needs what no other task needs."""
    goal = layers[-1][0]
    tasks = [task for layer in layers for task in layer]
    needed = {name for task in tasks for option in task.requires for name in option}
    loose = [task.id for task in tasks if task.id not in needed and task is not goal]
    return Task(goal.id, tuple([(*option, *loose) for option in goal.requires]))


def _names(draw: random.Random, sizes: Sequence[int], naming: Naming) -> list[list[str]]:
    """A name for each task, by layer."""
    if naming == "symbolic":
        tokens = _tokens(draw)
        return [[next(tokens) for _ in range(size)] for size in sizes]
    materials, works = _numbered(draw, _MATERIALS), _numbered(draw, _WORKS)
    return [
        [next(materials) for _ in range(sizes[0])],
        *[[next(works) for _ in range(size)] for size in sizes[1:-1]],
        [_GOAL],
    ]


def _tokens(draw: random.Random) -> Iterator[str]:
    used: set[str] = set()
    while True:
        token = "".join(draw.choices(_LETTERS, k=4))
        if token not in used:
            used.add(token)
            yield token


def _numbered(draw: random.Random, names: Sequence[str]) -> Iterator[str]:
    """The names in any order, and then again with a number."""
    number = 1
    while True:
        for name in draw.sample(names, len(names)):
            yield name if number == 1 else f"{name} {number}"
        number += 1


class Start(TypedDict, total=False):
    """The start of an attempt: keywords of :func:`tidegauge.run`, by the same names."""

    task: str
    task_group: str
    t_max: int
    operations: int
    height: int
    place: Identity
    exits: tuple[Identity, ...]
    tasks: tuple[Task, ...]
    goal: Identity
    reach: Reach


class StepResult(TypedDict, total=False):
    """The result of an action: keywords of :meth:`tidegauge.Run.observe`, by the same names."""

    error: bool
    place: Identity | None
    exits: Iterable[Identity] | None
    tasks: Iterable[Task]
    achieved: Iterable[Identity]
    progress: float | None


class Steps(Protocol):
    """Receives the steps of an attempt: a :class:`tidegauge.Run`, or an object like it.

    An exception that it raises, such as :class:`~tidegauge.RunStopped`, ends the attempt.
    """

    def act(self, action: str, arguments: object = None) -> object:
        """The agent chose an action and has not executed it yet."""

    def observe(self, outcome: object = ..., **result: Unpack[StepResult]) -> object:
        """The outcome of the action, as for :meth:`tidegauge.Run.observe`."""


class Recording:
    """Keeps the steps of an attempt as events that ``tidegauge replay`` reads.

    Attributes:
        events: the events so far: the start, the steps, the end.

    >>> from tidegauge.worlds.grid import GridWorld
    >>> world = GridWorld(seed=3)
    >>> recording = Recording("r1", agent="walker", **world.start())
    >>> _ = world.walk(recording).move("right")
    >>> recording.finish(success=False)
    >>> [event["type"] for event in recording.events]
    ['start', 'step', 'end']
    """

    def __init__(self, run: str = "run", *, agent: str = "", **start: Unpack[Start]) -> None:
        self.run = run
        self.events: list[dict[str, Any]] = [
            {"type": "start", "run": run, "agent": agent, **_plain(start)}
        ]
        self._call: dict[str, Any] = {}

    def act(self, action: str, arguments: object = None) -> None:
        """The agent chose an action; its event is added with its outcome."""
        self._call = {"type": "step", "run": self.run, "action": action, "args": arguments}

    def observe(self, outcome: object = ABSENT, **result: Unpack[StepResult]) -> None:
        """The outcome of the action."""
        fields = _plain({"error": False, "achieved": (), **result, "outcome": outcome})
        self.events.append({**self._call, **fields})

    def finish(self, *, success: bool | None = None, reason: str | None = None) -> None:
        """End the attempt."""
        end = {"type": "end", "run": self.run, "success": success}
        self.events.append(end if reason is None else {**end, "reason": reason})

    def lines(self) -> bytes:
        """The events as JSONL, for a file."""
        option = orjson.OPT_APPEND_NEWLINE
        return b"".join([orjson.dumps(event, option=option) for event in self.events])


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have a value, with lists for JSON and tasks as objects."""
    plain = {
        key: list(value) if key in ("exits", "achieved") else value
        for key, value in fields.items()
        if value is not None and value is not ABSENT
    }
    plain["tasks"] = [{"id": task, "requires": needed} for task, needed in fields.get("tasks", ())]
    return plain

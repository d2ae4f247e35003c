"""Extraction: reading places, exits, tasks and entities out of the calls of an agent.

Most agents don't report where they are: their calls and results show it. An :class:`Extractor`
reads one call and its result. The recorder calls every extractor for every call whose reporter
gave no place, tasks or entities, and joins their answers. Ready extractors are in
:mod:`tidegauge.instrumentation.extractors`.

An extractor may be yours: whatever it raises is counted as an internal error ``extractor``
and costs that one answer, and of each kind at most :data:`MAX_ITEMS` things are taken a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from tidegauge.events import Call, CallResult, Identity, Reach, Task
from tidegauge.safety.guard import guarded
from tidegauge.values import Identities, type_name
from tidegauge.values.safe_reading import collected, is_a

MAX_ITEMS: Final = 1_000
"""Exits, tasks, achieved tasks and entities taken from one step, of each kind."""


class Observation(NamedTuple):
    """What one call showed, as far as an extractor can read it. All parts are optional.

    Args:
        place: where the agent is after the call; ``None``, the call does not show it.
        exits: places that can be reached from there; ``None``, not known.
        tasks: tasks found there.
        achieved: tasks that the call achieved.
        progress: how much of the task is done, from 0 to 1.
        mentions: entities that occur in the result, which the agent sees next.
    """

    place: Identity | None = None
    exits: tuple[Identity, ...] | None = None
    tasks: tuple[Task, ...] = ()
    achieved: tuple[Identity, ...] = ()
    progress: float | None = None
    mentions: tuple[Identity, ...] = ()


class Extractor(Protocol):
    """Reads calls. Called for every call of every run, from any thread: it keeps no state.

    Attributes:
        reach: how runs whose reach was not given move between its places; ``None``, no opinion.
    """

    @property
    def reach(self) -> Reach | None: ...

    def uses(self, call: Call, /) -> Iterable[Identity]:
        """Entities that the call uses, before it is run."""

    def observe(self, call: Call, result: CallResult, /) -> Observation | None:
        """What the call showed; ``None``, nothing that this extractor can read."""


def extractor(
    observe: Callable[[Call, CallResult], Observation | None] | None = None,
    *,
    uses: Callable[[Call], Iterable[Identity]] | None = None,
    reach: Reach | None = None,
) -> Extractor:
    """Make an extractor of plain functions.

    Args:
        observe: gives what a call showed, or ``None``.
        uses: gives the entities that a call uses.
        reach: how runs whose reach was not given move between its places.

    >>> def room(call, result):
    ...     return Observation(place=call.arguments["to"]) if call.action == "go" else None
    >>> rooms = extractor(room)
    >>> rooms.observe(Call("go", {"to": "hall"}), CallResult("a hall")).place
    'hall'
    """
    return _FunctionExtractor(observe, uses, reach)


def extract_reach(extractors: Iterable[Extractor]) -> Reach | None:
    """The reach of the first extractor that has an opinion."""
    return next(filter(None, map(_reach, extractors)), None)


def extract_uses(extractors: Iterable[Extractor], calls: Iterable[Call]) -> tuple[Identity, ...]:
    """Entities that the calls of a round use, each once."""
    extractors = tuple(extractors)
    found: dict[Identity, None] = {}
    for call in calls:
        for each in extractors:
            found.update(dict.fromkeys(_uses(each, call)))
    return tuple(islice(found, MAX_ITEMS))


def extract_observation(
    extractors: Iterable[Extractor], calls: Sequence[Call], results: Sequence[CallResult]
) -> Observation:
    """What the calls of a round showed, joined.

    The agent stands where the last call led that led anywhere, and sees the exits of that place;
    if several extractors know where one call led, the first is used. Tasks, achieved
    tasks and entities are those of all calls, each once. Progress is the last one.

    Tasks of a call without a place (a to-do list) are left out when another call of the round has
    one: they would be taken for tasks of that place, done by being there.

    Args:
        extractors: asked in their order.
    """
    extractors = tuple(extractors)
    place: Identity | None = None
    exits: tuple[Identity, ...] | None = None
    progress: float | None = None
    tasks: dict[Identity, Task] = {}
    loose_tasks: dict[Identity, Task] = {}
    achieved: dict[Identity, None] = {}
    mentions: dict[Identity, None] = {}
    for call, result in zip(calls, results, strict=False):
        moved = False
        for each in extractors:
            seen = _observe(each, call, result)
            if seen is None:
                continue
            if seen.place is not None and not moved:
                moved = True
                place, exits = seen.place, seen.exits
            if seen.progress is not None:
                progress = seen.progress
            found = loose_tasks if seen.place is None else tasks
            for task in seen.tasks:
                found.setdefault(task.id, task)
            achieved.update(dict.fromkeys(seen.achieved))
            mentions.update(dict.fromkeys(seen.mentions))
    return Observation(
        place,
        exits,
        tuple(islice((loose_tasks if place is None else tasks).values(), MAX_ITEMS)),
        tuple(islice(achieved, MAX_ITEMS)),
        progress,
        tuple(islice(mentions, MAX_ITEMS)),
    )


class _FunctionExtractor:
    """The extractor that :func:`extractor` makes."""

    __slots__ = ("_observe", "_uses", "reach")

    def __init__(
        self,
        observe: Callable[[Call, CallResult], Observation | None] | None,
        uses: Callable[[Call], Iterable[Identity]] | None,
        reach: Reach | None,
    ) -> None:
        self._observe = observe
        self._uses = uses
        self.reach = reach

    def uses(self, call: Call) -> Iterable[Identity]:
        return () if self._uses is None else self._uses(call)

    def observe(self, call: Call, result: CallResult) -> Observation | None:
        return None if self._observe is None else self._observe(call, result)


@guarded("extractor", default=None, interrupting="run")
def _reach(each: Extractor) -> Reach | None:
    reach = each.reach
    if reach not in (None, "adjacent", "anywhere"):
        raise ValueError(f"reach={reach!r} is unknown; use 'adjacent' or 'anywhere'")
    return reach


@guarded("extractor", default=(), interrupting="run")
def _uses(each: Extractor, call: Call) -> tuple[Identity, ...]:
    return _identities(each.uses(call), Identities())


@guarded("extractor", default=None, interrupting="run")
def _observe(each: Extractor, call: Call, result: CallResult) -> Observation | None:
    """One extractor's answer, bounded; a faulty one is no answer."""
    seen = each.observe(call, result)
    if seen is None:
        return None
    if not is_a(seen, Observation):
        raise TypeError(
            f"{type_name(type(seen))} is not an Observation; return an Observation or None"
        )
    parts: Iterator[Any] = tuple.__iter__(seen)
    place, exits, tasks, achieved, progress, mentions = parts
    identities = Identities()
    return Observation(
        identities.plain(place),
        None if exits is None else _identities(exits, identities),
        tuple([_task(task, identities) for task in collected(tasks, MAX_ITEMS)]),
        _identities(achieved, identities),
        None if progress is None else min(1.0, max(0.0, float(progress))),
        _identities(mentions, identities),
    )


def _task(given: object, identities: Identities) -> Task:
    """A task whose id is plain; what it requires is looked at where it is measured."""
    if not is_a(given, (tuple, list)):
        raise TypeError(f"{type_name(type(given))} is not a task")
    name, *requires = collected(given, 3)
    return Task(identities.plain(name), *requires)


def _identities(given: object, identities: Identities) -> tuple[Identity, ...]:
    """The first of them, each once; raises ``ValueError`` where one can't be an identity."""
    return tuple(dict.fromkeys([identities.plain(one) for one in collected(given, MAX_ITEMS)]))

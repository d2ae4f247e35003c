"""A small archive of documents with sections, links and facts, and tasks that it can judge.

The archive of a harbour office: every station's page names its gauge and its keeper, a gauge's
page names the workshop that built it. A task asks for one fact, some links away from a
station's page; the world knows the answer and judges the submitted one. Scripted agents play it: a
script is a generator that yields the call it chooses, is sent the result, and returns its last
words. The same task and the same draw give the same calls.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from tidegauge.events import Call

_STATIONS: Final = ("Merrow", "Skerrin", "Fenholm", "Ardmore", "Kirravik", "Wykebar")
_PLACES: Final = ("north mole", "ferry pier", "lock gate", "old breakwater", "slipway")
_KEEPERS: Final = ("Ada Thorn", "Joss Pell", "Mirren Voe", "Iven Quayle", "Tess Holm", "Rolf Unst")
_WORKSHOPS: Final = ("Low and Daughters", "Brass Court")
_FACTS: Final = (
    ("datum", ()),
    ("checked", ("gauge",)),
    ("founded", ("gauge", "workshop")),
)


class ToolFailed(Exception):  # noqa: N818 -- a failure in the world, not in this package
    """A tool of the world failed; the agent receives the message."""


class Section(NamedTuple):
    """A part of a document: prose, facts by name, and links to other documents by name."""

    heading: str
    text: str
    facts: Mapping[str, str] = MappingProxyType({})
    links: Mapping[str, str] = MappingProxyType({})


class Document(NamedTuple):
    """A document of the archive."""

    id: str
    title: str
    sections: tuple[Section, ...]

    @property
    def facts(self) -> dict[str, str]:
        """The facts of all its sections."""
        return {name: fact for section in self.sections for name, fact in section.facts.items()}

    @property
    def links(self) -> dict[str, str]:
        """The links of all its sections."""
        return {name: link for section in self.sections for name, link in section.links.items()}

    def render(self) -> str:
        """What an agent reads: facts as ``name: value``, links as ``name: -> id``."""
        lines = [f"# {self.title} ({self.id})"]
        for section in self.sections:
            lines += [f"## {section.heading}", section.text]
            lines += [f"{name}: {value}" for name, value in section.facts.items()]
            lines += [f"{name}: -> {target}" for name, target in section.links.items()]
        return "\n".join(lines)


class LookupTask(NamedTuple):
    """One fact to be found.

    Attributes:
        id: its name, such as ``merrow-checked``.
        question: what the agent is asked.
        station: name of the station to start from.
        path: names of the links that lead from the station's page to the fact.
        fact: the fact's name.
    """

    id: str
    question: str
    station: str
    path: tuple[str, ...]
    fact: str
    answer: str


class DocumentWorld:
    """The archive, the same for the same seed.

    Args:
        stations: how many stations it has, each with a gauge and a keeper; at most six.

    >>> world = DocumentWorld(seed=1)
    >>> print(world.documents["station/merrow"].render().splitlines()[0])
    # Merrow (station/merrow)
    >>> [task.id for task in world.tasks]
    ['merrow-datum', 'skerrin-checked', 'fenholm-founded', 'ardmore-datum']
    """

    def __init__(self, seed: int = 0, *, stations: int = 4) -> None:
        draw = random.Random(seed)  # noqa: S311 -- to be reproducible, not to keep a secret
        names = _STATIONS[:stations]
        self.documents: Mapping[str, Document] = {
            document.id: document for document in _documents(draw, names)
        }
        self.tasks = tuple(
            self._task(name, *_FACTS[number % len(_FACTS)]) for number, name in enumerate(names)
        )

    def _task(self, station: str, fact: str, path: tuple[str, ...]) -> LookupTask:
        questions = {
            "datum": f"What is the datum of the station {station}?",
            "checked": f"In which year was the gauge of {station} last checked?",
            "founded": f"In which year was the workshop founded that built {station}'s gauge?",
        }
        document = self.documents[_station_id(station)]
        for link in path:
            document = self.documents[document.links[link]]
        return LookupTask(
            f"{station.lower()}-{fact}", questions[fact], station, path, fact, document.facts[fact]
        )


@dataclass(slots=True)
class Desk:
    """One attempt at one task: the tools that an agent works with, and what it submitted.

    Every tool answers with text and raises :class:`ToolFailed` when it cannot.

    >>> world = DocumentWorld(seed=1)
    >>> desk = Desk(world, world.tasks[0])
    >>> desk.submit("42")
    'submitted'
    >>> desk.solved
    False
    """

    world: DocumentWorld
    task: LookupTask
    submitted: list[str] = field(default_factory=list)

    @property
    def solved(self) -> bool:
        """Whether the answer submitted last is right."""
        return bool(self.submitted) and self.submitted[-1].strip() == self.task.answer

    def list_documents(self) -> str:
        """The ids of all documents, a line each."""
        return "\n".join(self.world.documents)

    def read_document(self, document_id: str) -> str:
        """A document with its facts and links."""
        document = self.world.documents.get(document_id)
        if document is None:
            raise ToolFailed(f"no document {document_id!r}")
        return document.render()

    def search(self, query: str) -> str:
        """The documents with a word of the query; those with the most words come first."""
        words = {word for word in query.lower().split() if len(word) > 2}
        found = []
        for document in self.world.documents.values():
            text = document.render().lower()
            hits = sum(text.count(word) for word in words)
            if hits:
                found.append((-hits, document.id, document.title))
        return "\n".join(f"{name} | {title}" for _, name, title in sorted(found)) or "nothing found"

    def fetch_record(self, record_id: str) -> str:
        """The original record from the record service, which is always down."""
        raise ToolFailed("503: the record service is unavailable")

    def submit(self, answer: str) -> str:
        """Hand in an answer."""
        self.submitted.append(answer)
        return "submitted"


def _documents(draw: random.Random, stations: tuple[str, ...]) -> Iterator[Document]:
    workshops = {name: f"workshop/{name.lower().replace(' ', '-')}" for name in _WORKSHOPS}
    built_by = list(workshops.values())
    gauges = draw.sample(range(100, 1000), len(stations))
    keepers = draw.sample(_KEEPERS, len(stations))
    for station, number, keeper in zip(stations, gauges, keepers, strict=True):
        gauge_id = f"gauge/g-{number}"
        keeper_id = f"keeper/{keeper.lower().replace(' ', '-')}"
        place = draw.choice(_PLACES)
        yield Document(
            _station_id(station),
            station,
            (
                Section(
                    "Site",
                    f"A stilling well at the {place} of {station}.",
                    facts={"datum": f"{draw.uniform(1.0, 4.0):.2f} m"},
                ),
                Section(
                    "Staff and instrument",
                    "Readings are taken daily and copied into the register.",
                    links={"gauge": gauge_id, "keeper": keeper_id},
                ),
            ),
        )
        yield Document(
            gauge_id,
            f"Gauge G-{number}",
            (
                Section("Build", "A float gauge.", links={"workshop": draw.choice(built_by)}),
                Section(
                    "Upkeep",
                    f"In use at {station}.",
                    facts={"checked": str(draw.randint(1950, 2020))},
                    links={"station": _station_id(station)},
                ),
            ),
        )
        yield Document(
            keeper_id,
            keeper,
            (
                Section(
                    "Service",
                    f"Keeps the register of {station}.",
                    facts={"since": str(draw.randint(1950, 2020))},
                    links={"station": _station_id(station)},
                ),
            ),
        )
    for name, workshop_id in workshops.items():
        founded = str(draw.randint(1850, 1930))
        yield Document(
            workshop_id,
            name,
            (Section("History", f"{name} built gauges.", facts={"founded": founded}),),
        )


def _station_id(station: str) -> str:
    return f"station/{station.lower()}"


Script: TypeAlias = Generator[Call, str, str]
ScriptMaker: TypeAlias = Callable[[LookupTask, random.Random], Script]

_PATIENCE: Final = 24
_WORDINGS: Final = (
    "{station}",
    "{station}/{fact}",
    "{fact}:{station}",
    "REC-{station}",
    "register/{station}",
    "{station}?field={fact}",
    "records/{station}.{fact}",
    "{station} (original)",
)


def solver(task: LookupTask, draw: random.Random) -> Script:
    """Looks the station up, follows the links, submits the fact."""
    page = _first_id((yield Call("search", {"query": task.station})))
    for link in (*task.path, None):
        text = yield _read(page)
        if link is not None:
            page = _field(text, link)
    answer = _field(text, task.fact)
    yield Call("submit", {"answer": answer})
    return f"The answer is {answer}."


def looper(task: LookupTask, draw: random.Random) -> Script:
    """Follows the keeper's link, whatever the question, and starts over: a loop of three steps."""
    for _ in range(_PATIENCE // 3):
        found = yield Call("search", {"query": task.station})
        page = yield _read(_first_id(found))
        yield _read(_field(page, "keeper"))
    return "I could not find it."


def retrier(task: LookupTask, draw: random.Random) -> Script:
    """Calls a service that is down, with other words each time, then does as :func:`solver`."""
    for wording in _WORDINGS:
        record = wording.format(station=task.station, fact=task.fact)
        yield Call("fetch_record", {"record_id": record})
    return (yield from solver(task, draw))


def wanderer(task: LookupTask, draw: random.Random) -> Script:
    """Reads documents at random, remembers none of them, and guesses in the end."""
    pages = (yield Call("list_documents", {})).splitlines()
    page, guess = "", "unknown"
    for _ in range(_PATIENCE - 2):
        page = draw.choice([other for other in pages if other != page])
        text = yield _read(page)
        guess = _field(text, task.fact) or guess
    yield Call("submit", {"answer": guess})
    return f"It may be {guess}."


SCRIPTS: Final[dict[str, ScriptMaker]] = {
    "solver": solver,
    "looper": looper,
    "retrier": retrier,
    "wanderer": wanderer,
}
"""Every script by its name."""


def play(script: Script, desk: Desk) -> list[tuple[Call, str, bool]]:
    """Run a script at a desk.

    Returns:
        (call, what came back, whether it failed) of every step.

    >>> from tidegauge.worlds.document_world import DocumentWorld
    >>> world = DocumentWorld(seed=1)
    >>> desk = Desk(world, world.tasks[1])
    >>> [call.action for call, _, _ in play(solver(desk.task, random.Random(1)), desk)]
    ['search', 'read_document', 'read_document', 'submit']
    >>> desk.solved
    True
    """
    steps: list[tuple[Call, str, bool]] = []
    seen: str | None = None
    while True:
        try:
            call = next(script) if seen is None else script.send(seen)
        except StopIteration:
            return steps
        arguments: dict[str, str] = dict(call.arguments)  # type: ignore[call-overload]
        try:
            seen, failed = getattr(desk, call.action)(**arguments), False
        except ToolFailed as error:
            seen, failed = str(error), True
        steps.append((call, seen, failed))


def _read(page: str) -> Call:
    return Call("read_document", {"document_id": page})


def _first_id(found: str) -> str:
    return found.partition(" | ")[0]


def _field(text: str, name: str) -> str:
    """The fact or link of that name in a document's text; empty when it has none.

    >>> _field("datum: 2.31 m\\ngauge: -> gauge/g-1", "gauge")
    'gauge/g-1'
    """
    for line in text.splitlines():
        key, colon, value = line.partition(": ")
        if colon and key == name:
            return value.removeprefix("-> ")
    return ""

"""Scripted decision makers for the document world, each with one way of working.

A script is a generator: it yields the call that it chooses, is sent what came back, and returns
its last words. It knows nothing of who runs it: a loop of ten lines, or a chat model inside a
framework. The same task and the same draw give the same calls.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator
from typing import Final, TypeAlias

from tidegauge.events import Call
from tidegauge.worlds.documents import Desk, LookupTask, ToolFailed

__all__ = ["SCRIPTS", "Script", "ScriptMaker", "looper", "play", "retrier", "solver", "wanderer"]

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
    """Follows the keeper's link whatever is asked, and starts over: a loop of three steps."""
    for _ in range(_PATIENCE // 3):
        found = yield Call("search", {"query": task.station})
        page = yield _read(_first_id(found))
        yield _read(_field(page, "keeper"))
    return "I could not find it."


def retrier(task: LookupTask, draw: random.Random) -> Script:
    """Asks a service that is down, worded anew each time, before it reads what it had at hand."""
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

    >>> from tidegauge.worlds.documents import DocumentWorld
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

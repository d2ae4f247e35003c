"""Scripted readers for LORE tasks, one strategy each, and the notes they take.

A reader is a function of a reading and a random source. It knows only its start and what it read. A
known id that it has not looked up is a *lead*; the leads of one page are a *batch*.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from tidegauge.worlds.lore import LoreAttempt, LoreTask

_STATEMENT: Final = re.compile(r"(x\d+)(?: is| holds|:) (\w+)\.$")
_RULE: Final = re.compile(r"(d\d+):([NT]), where [NT] is (.+?)(?: written one after the other)?\.$")
_LISTED: Final = re.compile(r"d\d+:[-\w]+")
_TERM: Final = re.compile(r"([-+]?) ?(x\d+)")


class Notes(Protocol):
    """Notes of one reader on one task."""

    @property
    def answer(self) -> str | None:
        """The answer; ``None`` while it does not follow from what was read."""

    def take(self, page: str, text: str) -> list[str]:
        """Read a page; returns the ids that follow from it and the pages before."""


def notes_on(task: LoreTask) -> Notes:
    """An empty sheet for a task of either kind."""
    if task.kind == "code":
        return CodeNotes()
    asked = re.search(r"x\d+", task.question)
    return DocumentNotes("" if asked is None else asked[0])


class DocumentNotes:
    """Notes on documents: the values read so far, and the rules that wait for more.

    Args:
        asked: the variable whose value is the answer.

    >>> notes = DocumentNotes("x1")
    >>> notes.take("d2:ab", "The next document is d7:N, where N is x2 - x3.")
    []
    >>> notes.take("d3:cd", "x2 is 4."), notes.take("d4:ef", "x3 is 11.")
    ([], ['d7:-7'])
    """

    def __init__(self, asked: str) -> None:
        self.answer: str | None = None
        self._asked = asked
        self._values: dict[str, str] = {}
        self._rules: list[tuple[str, str, list[tuple[str, str]]]] = []

    def take(self, page: str, text: str) -> list[str]:
        """Read a document."""
        ids: list[str] = []
        for line in text.splitlines():
            if rule := _RULE.search(line):
                document, kind, terms = rule.groups()
                self._rules.append((document, kind, _TERM.findall(terms)))
            elif line.startswith("See also"):
                ids += _LISTED.findall(line)
            elif statement := _STATEMENT.search(line):
                self._values.setdefault(*statement.groups())
        self.answer = self._values.get(self._asked)
        waiting = []
        for document, kind, terms in self._rules:
            if all(name in self._values for _, name in terms):
                ids.append(f"{document}:{self._key(kind, terms)}")
            else:
                waiting.append((document, kind, terms))
        self._rules = waiting
        return ids

    def _key(self, kind: str, terms: Iterable[tuple[str, str]]) -> str:
        if kind == "T":
            return "".join([self._values[name] for _, name in terms])
        return str(sum([int(f"{sign}{self._values[name]}") for sign, name in terms]))


class CodeNotes:
    """Notes on code: what each file's ``main`` returns, as far as it follows.

    >>> notes = CodeNotes()
    >>> notes.take("main.py", "import m1\\n\\ndef main():\\n    return m1.main() + 2\\n")
    ['m1.py']
    >>> _ = notes.take("m1.py", "def main():\\n    return 40\\n")
    >>> notes.answer
    '42'
    """

    def __init__(self) -> None:
        self._bodies: dict[str, list[ast.stmt]] = {}
        self._importers: dict[str, list[str]] = {}
        self._returned: dict[str, int] = {}

    @property
    def answer(self) -> str | None:
        """What ``main.py`` returns, once that is known."""
        returned = self._returned.get("main")
        return None if returned is None else str(returned)

    def take(self, page: str, text: str) -> list[str]:
        """Read a file."""
        name = page.removesuffix(".py")
        imported: list[str] = []
        for statement in ast.parse(text).body:
            if isinstance(statement, ast.Import):
                imported += [alias.name for alias in statement.names]
            elif isinstance(statement, ast.FunctionDef):
                self._bodies[name] = statement.body
        for module in imported:
            self._importers.setdefault(module, []).append(name)
        waiting = [name]
        while waiting:
            module = waiting.pop()
            returned = self._run(self._bodies[module])
            if returned is not None and module not in self._returned:
                self._returned[module] = returned
                waiting += self._importers.get(module, ())
        return [f"{module}.py" for module in imported]

    def _run(self, body: list[ast.stmt]) -> int | None:
        """What a function returns; ``None``, it calls what is not known yet."""
        for statement in body:
            match statement:
                case ast.Return(value=ast.expr() as value):
                    return self._value(value)
                case ast.If(
                    test=ast.Compare(left=tested, ops=[ast.Gt()], comparators=[limit]), body=then
                ):
                    left, right = self._value(tested), self._value(limit)
                    if left is None or right is None:
                        return None
                    if left > right:
                        return self._run(then)
        return None

    def _value(self, expression: ast.expr) -> int | None:
        match expression:
            case ast.Constant(value=int() as number):
                return number
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module))):
                return self._returned.get(module)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as operator, right=right):
                one, other = self._value(left), self._value(right)
                if one is None or other is None:
                    return None
                return one + other if isinstance(operator, ast.Add) else one - other
        return None


LoreAgent: TypeAlias = Callable[[LoreAttempt, random.Random], None]


def solver(reading: LoreAttempt, draw: random.Random, *, at_once: int = 1) -> None:
    """Follows the oldest leads first and hands in the answer as soon as it follows.

    Args:
        reading: the reading.
        draw: unused.
        at_once: how many pages it reads in one round.
    """
    reader = _Reader(reading)
    while reader.batches and reader.notes.answer is None:
        reader.look_up(at_once)
    reader.hand_in()


def halter(reading: LoreAttempt, draw: random.Random, *, after: int = 3) -> None:
    """Halts with leads left.

    It reads the oldest leads first and halts as soon as the remaining leads are of one batch, so
    that none is displaced. It hands in no answer.

    Args:
        reading: the reading.
        draw: unused.
        after: how many pages it reads at least.
    """
    reader = _Reader(reading)
    while reader.batches and not (len(reading.read) >= after and len(reader.batches) == 1):
        reader.look_up()


def loser(reading: LoreAttempt, draw: random.Random) -> None:
    """Follows the newest batch of leads and never comes back to an older one."""
    reader = _Reader(reading)
    while reader.batches and reader.notes.answer is None:
        del reader.batches[:-1]
        reader.look_up()
    reader.hand_in()


def stumbler(reading: LoreAttempt, draw: random.Random, *, failures: int = 3) -> None:
    """Asks for pages that do not exist, then recovers and does as :func:`solver` does.

    Args:
        reading: the reading.
        draw: what it asks for.
        failures: how many rounds in a row fail; LORE ends a run at the third.
    """
    for number in draw.sample(range(100_000, 1_000_000), failures):
        reading.look_up([f"page {number}"])
    solver(reading, draw)


LORE_AGENTS: Final[Mapping[str, LoreAgent]] = MappingProxyType(
    {"solver": solver, "halter": halter, "loser": loser, "stumbler": stumbler}
)
"""Every reader by its name."""


class _Reader:
    """Notes, and the leads that are left: batches of ids, oldest first, none of them empty."""

    def __init__(self, reading: LoreAttempt) -> None:
        self.notes = notes_on(reading.task)
        self.batches = [list(reading.task.first)]
        self._reading = reading
        self._known = set(reading.task.first)

    def look_up(self, amount: int = 1) -> None:
        """Follow the oldest leads, so many at once."""
        asked: list[str] = []
        while self.batches and len(asked) < amount:
            asked.append(self.batches[0].pop(0))
            if not self.batches[0]:
                del self.batches[0]
        batch: list[str] = []
        for page, text in self._reading.look_up(asked).items():
            batch += [one for one in self.notes.take(page, text) if one not in self._known]
            self._known.update(batch)
        if batch:
            self.batches.append(batch)

    def hand_in(self) -> None:
        """Hand in the answer, if there is one."""
        if self.notes.answer is not None:
            self._reading.hand_in(self.notes.answer)

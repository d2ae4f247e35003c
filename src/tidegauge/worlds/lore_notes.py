"""What a reader makes of LORE pages: which ids they tell, and when the answer follows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Final, Protocol

from tidegauge.worlds.lore_task import LoreTask

__all__ = ["CodeNotes", "DocumentNotes", "Notes", "notes_on"]

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
        """Read a page; returns the ids that it tells, together with what was read before."""


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
        told: list[str] = []
        for line in text.splitlines():
            if rule := _RULE.search(line):
                document, kind, terms = rule.groups()
                self._rules.append((document, kind, _TERM.findall(terms)))
            elif line.startswith("See also"):
                told += _LISTED.findall(line)
            elif statement := _STATEMENT.search(line):
                self._values.setdefault(*statement.groups())
        self.answer = self._values.get(self._asked)
        waiting = []
        for document, kind, terms in self._rules:
            if all(name in self._values for _, name in terms):
                told.append(f"{document}:{self._key(kind, terms)}")
            else:
                waiting.append((document, kind, terms))
        self._rules = waiting
        return told

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

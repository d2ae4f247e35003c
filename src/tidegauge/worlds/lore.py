"""LORE tasks: pages that lead to other pages, and one answer that follows from them.

Source: The Agent's Marathon: Probing the Limits of Endurance in Long-Horizon Tasks, sections 3
and 4.

Its agents are scripted readers, one strategy each: functions of a reading and a random source. A
reader knows only its start and what it read. A known id that it has not looked up is a *lead*; the
leads of one page are a *batch*.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias, TypeVar

from tidegauge.errors import ConfigurationError
from tidegauge.events import Identity, Task
from tidegauge.worlds.task_graph import Requires, Start, Steps

LoreKind: TypeAlias = Literal["documents", "code"]

DESK: Final = "desk"
"""The place where an attempt starts and where the answer is handed in."""

GOAL: Final = "answer"
"""The task to hand in the answer: ready once all pages that it follows from are read."""


class LorePage(NamedTuple):
    """Something to be read.

    Attributes:
        id: the id of the page.
        text: its text.
        known_by: sets of pages; an agent that has read all pages of one set knows the id. Without
            a set, the id is known from the start.
    """

    id: str
    text: str
    known_by: Requires = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoreTask:
    """Pages, a question, and its answer.

    Attributes:
        kind: ``documents`` or ``code``.
        question: what the agent is asked.
        pages: the pages, by id.
        needed: ids of the pages that the answer follows from.
        operations: operations the task was grown by.
        height: pages on the longest chain of dependent pages, the first one not counted.
    """

    kind: LoreKind
    question: str
    pages: Mapping[str, LorePage]
    needed: frozenset[str]
    answer: str
    operations: int
    height: int

    @property
    def first(self) -> tuple[str, ...]:
        """Ids of the pages known from the start."""
        return tuple([page.id for page in self.pages.values() if not page.known_by])

    def start(self) -> Start:
        """The start of an attempt, as keywords of :func:`tidegauge.run`."""
        return {
            "task": self.question,
            "task_group": f"lore-{self.kind}",
            "operations": self.operations,
            "height": self.height,
            "place": DESK,
            "exits": self.first,
            "tasks": (Task(GOAL, (tuple(sorted(self.needed)),)),),
            "goal": GOAL,
            "reach": "anywhere",
        }

    def reading(self, steps: Steps) -> LoreAttempt:
        """A new attempt that reports its steps to ``steps``."""
        return LoreAttempt(self, steps)


class LoreAttempt:
    """One attempt: hands out pages, and judges the answer.

    A round reports one place: its last page. Measurements of places are exact for an agent that
    reads one page per round; of pages read together, all but the last one still count as leads.

    Attributes:
        task: the task; it contains more than the agent has read.
        read: ids of the pages read so far, in order.
        solved: whether the right answer was handed in.

    >>> from tidegauge.worlds.lore_tasks import code_task
    >>> from tidegauge.worlds.task_graph import Recording
    >>> task = code_task(seed=1, operations=1)
    >>> reading = task.reading(Recording(**task.start()))
    >>> list(reading.look_up(["main.py", "m99.py"]))
    ['main.py']
    >>> reading.hand_in("7")
    False
    """

    def __init__(self, task: LoreTask, steps: Steps) -> None:
        self.task = task
        self.read: dict[str, None] = {}
        self.solved = False
        self._steps = steps

    def look_up(self, ids: Iterable[str]) -> dict[str, str]:
        """Read pages in one round, which fails when none of them exists; returns their texts."""
        asked = list(ids)
        self._steps.act("read_document", {"ids": asked})
        pages = self.task.pages
        texts = {page: pages[page].text for page in asked if page in pages}
        self.read.update(dict.fromkeys(texts))
        self._steps.observe(
            "\n\n".join([f"{page}:\n{texts.get(page, 'there is none')}" for page in asked]),
            error=not texts,
            place=next(reversed(texts), None),
            exits=self._exits(texts) if texts else None,
            achieved=tuple(texts),
            progress=self._progress,
        )
        return texts

    def hand_in(self, answer: str) -> bool:
        """Hand in an answer; returns whether it is right. A wrong one does not lead to the desk."""
        self._steps.act("answer", {"value": answer})
        right = answer.strip() == self.task.answer
        self.solved = self.solved or right
        self._steps.observe(
            "right" if right else "wrong",
            place=DESK if right else None,
            achieved=(GOAL,) if right else (),
            progress=self._progress,
        )
        return right

    @property
    def _progress(self) -> float:
        needed = self.task.needed
        return 1.0 if self.solved else len(needed & self.read.keys()) / (len(needed) + 1)

    def _exits(self, texts: Mapping[str, str]) -> tuple[str, ...]:
        """Ids that follow from these pages, together with those read before."""
        read, just_read = self.read.keys(), texts.keys()

        def follows(ids: Iterable[Identity]) -> bool:
            return not just_read.isdisjoint(ids) and read >= {*ids}

        pages = self.task.pages.values()
        return tuple([page.id for page in pages if any(map(follows, page.known_by))])


LoreLeaf = TypeVar("LoreLeaf")


def grow(
    root: LoreLeaf,
    draw: random.Random,
    *,
    operations: int,
    max_leaves: int,
    consolidation: float,
    expand: Callable[[LoreLeaf], list[LoreLeaf]],
    consolidate: Callable[[list[LoreLeaf]], LoreLeaf],
) -> list[LoreLeaf]:
    """Expand random leaves; returns those that are left.

    When there are too many, some of them may become children of one new leaf, which keeps the tree
    narrow and deep.

    Args:
        root: the only leaf there is at first.
        draw: random source.
        operations: how many leaves to expand.
        max_leaves: number of leaves above which some may be consolidated.
        consolidation: the probability that they then are, after each operation.
        expand: makes a leaf an inner node; returns its children.
        consolidate: makes several leaves inner nodes; returns the leaf they have in common.

    Raises:
        ConfigurationError: a number is out of range.

    >>> grow(
    ...     "a",
    ...     random.Random(1),
    ...     operations=2,
    ...     max_leaves=9,
    ...     consolidation=0.0,
    ...     expand=lambda leaf: [leaf + "l", leaf + "r"],
    ...     consolidate="".join,
    ... )
    ['ar', 'all', 'alr']
    """
    if operations < 0 or max_leaves < 2 or not 0 <= consolidation <= 1:
        raise ConfigurationError(
            f"One of operations={operations}, max_leaves={max_leaves}, consolidation="
            f"{consolidation} is out of range; use at least 0, at least 2, and 0 to 1."
        )
    leaves = [root]
    for _ in range(operations):
        leaves += expand(leaves.pop(draw.randrange(len(leaves))))
        if len(leaves) > max_leaves and draw.random() < consolidation:
            draw.shuffle(leaves)
            count = draw.randint(2, len(leaves))
            leaves = [*leaves[count:], consolidate(leaves[:count])]
    return leaves


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

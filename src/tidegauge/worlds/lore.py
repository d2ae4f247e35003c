"""LORE documents: an archive whose documents tell, put together, the ids of further ones.

Source: The Agent's Marathon: Probing the Limits of Endurance in Long-Horizon Tasks, section 3.3
and appendix B.1, the bottom-up mode.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from string import ascii_lowercase
from typing import Final

from tidegauge.worlds.lore_growth import grow
from tidegauge.worlds.lore_task import LoreTask, Page

__all__ = ["document_task"]

_WORDINGS: Final = ("{} is {}.", "Register {} holds {}.", "Recorded as {}: {}.")
_SUM: Final = "The next document is d{}:N, where N is {}."
_JOINED: Final = "The next document is d{}:T, where T is {} written one after the other."
_LIST: Final = "See also {}."


def document_task(
    seed: int = 0,
    *,
    operations: int = 6,
    max_leaves: int = 12,
    consolidation: float = 0.5,
    distractors: int = 4,
) -> LoreTask:
    """Draw a task: the same one for the same arguments.

    It grows from the document with the answer towards those whose ids are told at the start. An
    operation makes a document's id depend on what others say: a sum of numbers, or texts put
    together. Consolidated documents have their ids listed in a new one.

    Args:
        seed: what it is drawn from.
        operations: how many documents have an id that is to be worked out.
        max_leaves: from how many documents on, that number excluded, whose ids would be told at
            the start, some may be consolidated.
        consolidation: the probability that they then are, after each operation.
        distractors: values that nothing needs; every other one has a document of its own, the
            rest are found beside what is needed.

    Raises:
        ConfigurationError: numbers that no task can have.

    >>> task = document_task(seed=3, operations=1, distractors=0)
    >>> for page in task.pages.values():
    ...     print(page.id, "|", page.text)
    d0:ookwqw | Register x1 holds gojpqbav.
    d1:r | The next document is d0:T, where T is x2, x3 written one after the other.
    d2:e | Recorded as x2: ookw.
    d3:h | Register x3 holds qw.
    >>> task.question
    'What is the value of x1? Begin with the documents d1:r, d2:e, d3:h.'
    """
    archive = _Archive(random.Random(seed))  # noqa: S311 -- to be reproducible, not a secret
    answer = archive.letters(8)
    variable, line = archive.statement(answer)
    root = archive.add(line, depth=0)
    leaves = grow(
        root,
        archive.draw,
        operations=operations,
        max_leaves=max_leaves,
        consolidation=consolidation,
        expand=archive.expand,
        consolidate=archive.consolidate,
    )
    needed = list(archive.documents)
    archive.distract(distractors)
    for document in (*leaves, *archive.documents[len(needed) :]):
        document.key = archive.letters()
    pages = archive.pages()
    first = ", ".join([page.id for page in pages if not page.known_by])
    return LoreTask(
        kind="documents",
        question=f"What is the value of {variable}? Begin with the documents {first}.",
        pages={page.id: page for page in pages},
        needed=frozenset([document.id for document in needed]),
        answer=answer,
        operations=operations,
        height=max(document.depth for document in needed),
    )


@dataclass(slots=True, eq=False)
class _Document:
    number: int
    depth: int
    lines: list[str]
    key: str = ""  # completes the id; not known while the document is a leaf
    sources: list[_Document] = field(default_factory=list)  # together they tell the id

    @property
    def id(self) -> str:
        return f"d{self.number}:{self.key}"


class _Archive:
    """The documents so far, and how more of them are made."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.documents: list[_Document] = []
        self._variables = 0

    def add(self, line: str, depth: int) -> _Document:
        document = _Document(len(self.documents), depth, [line])
        self.documents.append(document)
        return document

    def letters(self, amount: int | None = None) -> str:
        return "".join(self.draw.choices(ascii_lowercase, k=amount or self.draw.randint(1, 4)))

    def statement(self, value: object) -> tuple[str, str]:
        """A new variable, and a line that tells its value."""
        self._variables += 1
        name = f"x{self._variables}"
        return name, self.draw.choice(_WORDINGS).format(name, value)

    def expand(self, target: _Document) -> list[_Document]:
        """The target's key follows from values, each in a document, and a rule in one more."""
        amount = self.draw.randint(2, 4)
        if self.draw.random() < 0.5:
            numbers = self.draw.sample(range(1, 100), amount)
            signs = [1, *self.draw.choices((1, -1), k=amount - 1)]
            target.key = str(sum(map(int.__mul__, signs, numbers)))
            statements = [self.statement(number) for number in numbers]
            terms = statements[0][0]
            for sign, (name, _) in zip(signs[1:], statements[1:], strict=True):
                terms += f" + {name}" if sign > 0 else f" - {name}"
            rule = _SUM.format(target.number, terms)
        else:
            texts = [self.letters() for _ in range(amount)]
            target.key = "".join(texts)
            statements = [self.statement(text) for text in texts]
            rule = _JOINED.format(target.number, ", ".join([name for name, _ in statements]))
        lines = [rule, *[line for _, line in statements]]
        target.sources = [self.add(line, target.depth + 1) for line in lines]
        return target.sources

    def consolidate(self, several: list[_Document]) -> _Document:
        """Their ids are listed in one new document."""
        for document in several:
            document.key = self.letters()
        listed = _LIST.format(", ".join([document.id for document in several]))
        source = self.add(listed, max(document.depth for document in several) + 1)
        for document in several:
            document.sources = [source]
        return source

    def distract(self, amount: int) -> None:
        """Add values that nothing needs: beside what is needed, and in documents of their own."""
        needed = list(self.documents)
        for number in range(amount):
            value = self.letters() if self.draw.random() < 0.5 else self.draw.randint(1, 99)
            _, line = self.statement(value)
            if number % 2:
                self.add(line, depth=0)
            else:
                self.draw.choice(needed).lines.append(line)

    def pages(self) -> list[Page]:
        """All documents in any order, and the lines of each."""
        documents = self.draw.sample(self.documents, len(self.documents))
        return [
            Page(
                document.id,
                "\n".join(self.draw.sample(document.lines, len(document.lines))),
                (tuple([source.id for source in document.sources]),) if document.sources else (),
            )
            for document in documents
        ]

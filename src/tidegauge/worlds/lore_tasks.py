"""Random LORE tasks: an archive of documents, and a program in many files.

In the archive, documents together contain the ids of further documents. In the program, the
question is what the first file returns.

Source: The Agent's Marathon: Probing the Limits of Endurance in Long-Horizon Tasks, section 3.3
and appendices B.1 (bottom-up mode) and B.3 (top-down mode).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase
from typing import Final

from tidegauge.worlds.lore import LorePage, LoreTask, grow

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

    It grows from the document with the answer towards those whose ids are known at the start. An
    operation makes a document's id depend on other documents: a sum of numbers, or a concatenation
    of texts. The ids of consolidated documents are listed in a new one.

    Args:
        operations: how many documents have an id that must be computed.
        max_leaves: number of documents known at the start above which some may be consolidated.
        consolidation: the probability that they then are, after each operation.
        distractors: unused values; every second one has its own document, the others are in
            needed documents.

    Raises:
        ConfigurationError: a number is out of range.

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
    sources: list[_Document] = field(default_factory=list)  # together they contain the id

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
        """A new variable, and a line with its value."""
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
        """Add unused values: in needed documents and in new ones."""
        needed = list(self.documents)
        for number in range(amount):
            value = self.letters() if self.draw.random() < 0.5 else self.draw.randint(1, 99)
            _, line = self.statement(value)
            if number % 2:
                self.add(line, depth=0)
            else:
                self.draw.choice(needed).lines.append(line)

    def pages(self) -> list[LorePage]:
        """All documents in any order, and the lines of each."""
        documents = self.draw.sample(self.documents, len(self.documents))
        return [
            LorePage(
                document.id,
                "\n".join(self.draw.sample(document.lines, len(document.lines))),
                (tuple([source.id for source in document.sources]),) if document.sources else (),
            )
            for document in documents
        ]


_INSTANT: Final = " Only sleeping takes time."
_MAIN: Final = "main"
_GUARD: Final = '\n\nif __name__ == "__main__":\n    print(main())\n'


def code_task(
    seed: int = 0,
    *,
    operations: int = 6,
    max_leaves: int = 8,
    consolidation: float = 0.5,
    conditionals: float = 0.3,
    concurrent: float = 0.0,
    distractors: int = 2,
) -> LoreTask:
    """Draw a task: the same one for the same arguments.

    It grows from ``main.py``, the one file known from the start, towards files that return a
    number. An operation makes a file return what others return: a sum, or one of two depending on
    a third. Consolidated files all return what one new file returns, each with something added.

    Args:
        operations: how many files call others.
        max_leaves: from how many files on, that number excluded, that call no other, some may be
            consolidated.
        conditionals: the share of conditionals among the operations. The branch that is not
            taken is not needed, nor are the files that only it calls.
        concurrent: the share of concurrent operations, as in LORE-Hard: several coroutines read and
            write one variable at different times, so that some of their additions are lost.
        distractors: files that are imported and not called.

    Raises:
        ConfigurationError: a number is out of range.

    >>> task = code_task(seed=1, operations=1, distractors=0)
    >>> print(task.pages["main.py"].text.partition("if")[0].strip())
    import m1
    import m2
    <BLANKLINE>
    <BLANKLINE>
    def main():
        return m1.main() + m2.main()
    >>> sorted(task.needed), task.answer
    (['m1.py', 'm2.py', 'main.py'], '162')
    """
    draw = random.Random(seed)  # noqa: S311 -- reproducible, no secret
    program = _Program(draw, conditionals, concurrent)
    leaves = grow(
        program.add(depth=0),
        program.draw,
        operations=operations,
        max_leaves=max_leaves,
        consolidation=consolidation,
        expand=program.expand,
        consolidate=program.consolidate,
    )
    for leaf in leaves:
        leaf.number = program.draw.randint(1, 99)
    answer, needed = program.run()
    height = max(module.depth for module in program.modules)
    program.distract(distractors)
    return LoreTask(
        kind="code",
        question="What does main() in main.py return? Read the files it depends on."
        + (_INSTANT if any(module.times for module in needed) else ""),
        pages={page.id: page for page in program.pages()},
        needed=frozenset([module.file for module in needed]),
        answer=str(answer),
        operations=operations,
        height=height,
    )


@dataclass(slots=True, eq=False)
class _Module:
    """Returns a number and the sum of some calls, or one of two calls."""

    name: str
    depth: int
    number: int = 0
    calls: list[_Module] = field(default_factory=list)
    signs: list[int] = field(default_factory=list)  # of the calls; the first is 1
    limit: int | None = None  # given, the first call decides between the other two
    # when the coroutine of each call reads the total, and when it writes; empty: no coroutines
    times: list[tuple[int, int]] = field(default_factory=list)
    unused: list[_Module] = field(default_factory=list)  # imported and not called

    @property
    def file(self) -> str:
        return f"{self.name}.py"

    def text(self) -> str:
        imports = [f"import {module.name}\n" for module in (*self.calls, *self.unused)]
        body = "".join([f"    {line}\n" if line else "\n" for line in self._body()])
        if self.times:
            imports.insert(0, "import asyncio\n")
        gap = "\n\n" if imports else ""
        return (
            "".join(imports) + f"{gap}def main():\n{body}" + (_GUARD if self.name == _MAIN else "")
        )

    def _body(self) -> list[str]:
        calls = [f"{module.name}.main()" for module in self.calls]
        if self.limit is not None:
            tested, yes, no = calls
            return [f"if {tested} > {self.limit}:", f"    return {yes}", f"return {no}"]
        if self.times:
            return self._coroutines(calls)
        terms = list(zip(self.signs, calls, strict=True))
        if self.number or not terms:
            terms.append((1, str(self.number)))
        (_, total), *rest = terms
        for sign, term in rest:
            total += f" + {term}" if sign > 0 else f" - {term}"
        return [f"return {total}"]

    def _coroutines(self, calls: list[str]) -> list[str]:
        names = [f"v{index}" for index in range(len(calls))]
        added = [
            f"add({name}, {read}, {write - read})"
            for name, (read, write) in zip(names, self.times, strict=True)
        ]
        return [
            f"total = {self.number}",
            f"{', '.join(names)} = {', '.join(calls)}",
            "",
            "async def add(value, before, between):",
            "    nonlocal total",
            "    await asyncio.sleep(before)",
            "    seen = total",
            "    await asyncio.sleep(between)",
            "    total = seen + value",
            "",
            "async def add_all():",
            f"    await asyncio.gather({', '.join(added)})",
            "",
            "asyncio.run(add_all())",
            "return total",
        ]

    def value(self, results: Sequence[int]) -> int:
        """What it returns if its calls return these numbers."""
        if self.limit is not None:
            tested, yes, no = results
            return yes if tested > self.limit else no
        if not self.times:
            return self.number + sum(map(int.__mul__, self.signs, results))
        total, seen = self.number, dict[int, int]()
        for _, index, writes in sorted(
            (moment, index, writes)
            for index, moments in enumerate(self.times)
            for writes, moment in enumerate(moments)
        ):
            if writes:
                total = seen[index] + results[index]
            else:
                seen[index] = total
        return total


class _Program:
    """The modules so far, each before those that it calls, and how more of them are made."""

    def __init__(self, draw: random.Random, conditionals: float, concurrent: float) -> None:
        self.draw = draw
        self.modules: list[_Module] = []
        self._conditionals = conditionals
        self._concurrent = concurrent

    def add(self, depth: int) -> _Module:
        number = len(self.modules)
        self.modules.append(_Module(f"m{number}" if number else _MAIN, depth))
        return self.modules[-1]

    def expand(self, module: _Module) -> list[_Module]:
        """It returns what new modules return."""
        draw = self.draw
        chance = draw.random()
        conditional = chance < self._conditionals
        amount = 3 if conditional else draw.randint(2, 4)
        module.calls = [self.add(module.depth + 1) for _ in range(amount)]
        module.signs = [1, *draw.choices((1, -1), k=amount - 1)]
        if conditional:
            module.limit = draw.randint(0, 99)
        elif chance < self._conditionals + self._concurrent:
            moments = draw.sample(range(1, 6 * amount), 2 * amount)  # no two at the same time
            module.times = [
                (min(pair), max(pair)) for pair in zip(moments[::2], moments[1::2], strict=True)
            ]
            module.number = draw.randint(1, 99)
        return list(module.calls)

    def consolidate(self, several: list[_Module]) -> _Module:
        """They all return what one new module returns, and a number."""
        called = self.add(max(module.depth for module in several) + 1)
        for module in several:
            module.calls, module.signs = [called], [1]
            module.number = self.draw.randint(1, 99)
        return called

    def distract(self, amount: int) -> None:
        """Add modules that are imported somewhere and not called."""
        importers = list(self.modules)
        for _ in range(amount):
            module = self.add(depth=0)
            module.number = self.draw.randint(1, 99)
            self.draw.choice(importers).unused.append(module)

    def run(self) -> tuple[int, list[_Module]]:
        """What the program returns, and the modules that were called."""
        values: dict[_Module, int] = {}
        for module in reversed(self.modules):
            values[module] = module.value([values[called] for called in module.calls])
        root = self.modules[0]
        needed = {root: None}
        for module in self.modules:
            if module not in needed:
                continue
            called = module.calls
            if module.limit is not None:
                taken = called[1] if values[called[0]] > module.limit else called[2]
                called = [called[0], taken]
            needed.update(dict.fromkeys(called))
        return values[root], list(needed)

    def pages(self) -> list[LorePage]:
        """All modules in random order; an id is known after reading a module that imports it."""
        importers: dict[_Module, list[str]] = {module: [] for module in self.modules}
        for module in self.modules:
            for imported in (*module.calls, *module.unused):
                importers[imported].append(module.file)
        return [
            LorePage(module.file, module.text(), tuple([(file,) for file in importers[module]]))
            for module in self.draw.sample(self.modules, len(self.modules))
        ]

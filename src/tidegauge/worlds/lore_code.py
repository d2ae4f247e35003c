"""LORE code: a program in many files, of which one is asked what the first returns.

Source: The Agent's Marathon: Probing the Limits of Endurance in Long-Horizon Tasks, section 3.3
and appendix B.3, the top-down mode.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

from tidegauge.worlds.lore_growth import grow
from tidegauge.worlds.lore_task import LoreTask, Page

__all__ = ["code_task"]

_MAIN: Final = "main"
_GUARD: Final = '\n\nif __name__ == "__main__":\n    print(main())\n'


def code_task(
    seed: int = 0,
    *,
    operations: int = 6,
    max_leaves: int = 8,
    consolidation: float = 0.5,
    conditionals: float = 0.3,
    distractors: int = 2,
) -> LoreTask:
    """Draw a task: the same one for the same arguments.

    It grows from ``main.py``, the one file known from the start, towards files that return a
    number. An operation makes a file return what others return: a sum, or one of two depending on
    a third. Consolidated files all return what one new file returns, each with something added.

    Args:
        seed: what it is drawn from.
        operations: how many files call others.
        max_leaves: from how many files on, that number excluded, that call no other, some may be
            consolidated.
        consolidation: the probability that they then are, after each operation.
        conditionals: the share of conditionals among the operations. The branch that is not
            taken is not needed, nor are the files that only it calls.
        distractors: files that are imported and not called.

    Raises:
        ConfigurationError: numbers that no task can have.

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
    program = _Program(random.Random(seed), conditionals)  # noqa: S311 -- reproducible, no secret
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
        question="What does main() in main.py return? Read the files it depends on.",
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
    unused: list[_Module] = field(default_factory=list)  # imported and not called

    @property
    def file(self) -> str:
        return f"{self.name}.py"

    def text(self) -> str:
        imports = [f"import {module.name}\n" for module in (*self.calls, *self.unused)]
        body = "".join([f"    {line}\n" for line in self._body()])
        gap = "\n\n" if imports else ""
        return (
            "".join(imports) + f"{gap}def main():\n{body}" + (_GUARD if self.name == _MAIN else "")
        )

    def _body(self) -> list[str]:
        calls = [f"{module.name}.main()" for module in self.calls]
        if self.limit is not None:
            tested, yes, no = calls
            return [f"if {tested} > {self.limit}:", f"    return {yes}", f"return {no}"]
        terms = list(zip(self.signs, calls, strict=True))
        if self.number or not terms:
            terms.append((1, str(self.number)))
        (_, total), *rest = terms
        for sign, term in rest:
            total += f" + {term}" if sign > 0 else f" - {term}"
        return [f"return {total}"]


class _Program:
    """The modules so far, each before those that it calls, and how more of them are made."""

    def __init__(self, draw: random.Random, conditionals: float) -> None:
        self.draw = draw
        self.modules: list[_Module] = []
        self._conditionals = conditionals

    def add(self, depth: int) -> _Module:
        number = len(self.modules)
        self.modules.append(_Module(f"m{number}" if number else _MAIN, depth))
        return self.modules[-1]

    def expand(self, module: _Module) -> list[_Module]:
        """It returns what new modules return."""
        draw = self.draw
        conditional = draw.random() < self._conditionals
        amount = 3 if conditional else draw.randint(2, 4)
        module.calls = [self.add(module.depth + 1) for _ in range(amount)]
        module.signs = [1, *draw.choices((1, -1), k=amount - 1)]
        if conditional:
            module.limit = draw.randint(0, 99)
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
            results = [values[called] for called in module.calls]
            if module.limit is not None:
                tested, yes, no = results
                values[module] = yes if tested > module.limit else no
            else:
                values[module] = module.number + sum(map(int.__mul__, module.signs, results))
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

    def pages(self) -> list[Page]:
        """All modules in any order, known to whoever has read one that imports them."""
        importers: dict[_Module, list[str]] = {module: [] for module in self.modules}
        for module in self.modules:
            for imported in (*module.calls, *module.unused):
                importers[imported].append(module.file)
        return [
            Page(module.file, module.text(), tuple([(file,) for file in importers[module]]))
            for module in self.draw.sample(self.modules, len(self.modules))
        ]

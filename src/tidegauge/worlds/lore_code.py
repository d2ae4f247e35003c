"""LORE code: a program in many files, of which one is asked what the first returns.

Source: The Agent's Marathon: Probing the Limits of Endurance in Long-Horizon Tasks, section 3.3
and appendix B.3, the top-down mode.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from tidegauge.worlds.lore_growth import grow
from tidegauge.worlds.lore_task import LoreTask, Page

__all__ = ["code_task"]

_MAIN = "main"


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
    >>> print(task.pages["main.py"].text)
    >>> task.answer
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
        leaf.added = program.draw.randint(1, 99)
    height = max(module.depth for module in program.modules)
    values, needed = program.run()
    program.distract(distractors)
    return LoreTask(
        kind="code",
        question="What does main() in main.py return? Read the files it depends on.",
        pages={page.id: page for page in program.pages()},
        needed=frozenset([module.file for module in needed]),
        answer=str(values[program.modules[0]]),
        operations=operations,
        height=height,
    )


@dataclass(slots=True, eq=False)
class _Module:
    """Returns ``added`` and the terms; with a condition, the first term if it holds, else the second."""

    name: str
    depth: int
    added: int = 0
    terms: list[tuple[int, _Module]] = field(default_factory=list)  # sign and module
    condition: tuple[_Module, int] | None = None  # module and what it is to be more than
    unused: list[_Module] = field(default_factory=list)  # imported all the same

    @property
    def file(self) -> str:
        return f"{self.name}.py"

    @property
    def imports(self) -> list[_Module]:
        tested = [] if self.condition is None else [self.condition[0]]
        return [*tested, *[module for _, module in self.terms], *self.unused]

"""LORE tasks: pages that lead to other pages, and one answer that follows from them.

Source: The Agent's Marathon: Probing the Limits of Endurance in Long-Horizon Tasks, sections 3
and 4.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias, TypeVar

from tidegauge.errors import ConfigurationError
from tidegauge.events import Identity, Task
from tidegauge.worlds.attempts import Start, Steps
from tidegauge.worlds.task_graph import Requires

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
        answer: the right answer.
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
    >>> from tidegauge.worlds.attempts import Recording
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

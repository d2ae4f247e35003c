"""How a LORE task grows: operation by operation, at a random leaf.

Source: The Agent's Marathon: Probing the Limits of Endurance in Long-Horizon Tasks, algorithm 1
(TaskWeaver).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypeVar

from tidegauge.errors import ConfigurationError

__all__ = ["grow"]

Leaf = TypeVar("Leaf")


def grow(
    root: Leaf,
    draw: random.Random,
    *,
    operations: int,
    max_leaves: int,
    consolidation: float,
    expand: Callable[[Leaf], list[Leaf]],
    consolidate: Callable[[list[Leaf]], Leaf],
) -> list[Leaf]:
    """Expand random leaves; returns those that are left.

    When there are too many, several of them may be put behind one new leaf: that keeps the tree
    narrow and makes it deep.

    Args:
        root: the only leaf there is at first.
        draw: source of chance.
        operations: how many leaves to expand.
        max_leaves: from how many leaves on, that number excluded, some may be consolidated.
        consolidation: the probability that they then are, after each operation.
        expand: makes a leaf an inner node; returns its children.
        consolidate: makes several leaves inner nodes; returns the leaf they have in common.

    Raises:
        ConfigurationError: numbers that no tree can have.

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
            "operations are to be at least 0, max_leaves at least 2, consolidation from 0 to 1"
        )
    leaves = [root]
    for _ in range(operations):
        leaves += expand(leaves.pop(draw.randrange(len(leaves))))
        if len(leaves) > max_leaves and draw.random() < consolidation:
            draw.shuffle(leaves)
            count = draw.randint(2, len(leaves))
            leaves = [*leaves[count:], consolidate(leaves[:count])]
    return leaves

"""Reads the grid's answers: where the walker is, where it can go, and what it found there."""

from __future__ import annotations

import re
from typing import Final

from tidegauge.events import Call, CallResult, Task
from tidegauge.instrumentation.extractors import Observation
from tidegauge.worlds.grid import DIRECTIONS

__all__ = ["read_sight"]

_HERE: Final = re.compile(r"(?:You are at|from) \((\d+), (\d+)\)\.")
_WAYS: Final = re.compile(r"You can go ([a-z, ]+)\.")
_FOUND: Final = re.compile(r"Here is ([^:]+): (?:(achieved)|it needs (.+?))\.(?: It |$)")


def read_sight(call: Call, result: CallResult) -> Observation | None:
    """What a move showed; ``None`` if the answer names no place.

    >>> seen = CallResult("You are at (4, 2). You can go left. Here is mast: it needs keel.")
    >>> read_sight(Call("move", {"direction": "right"}), seen)
    ... # doctest: +NORMALIZE_WHITESPACE
    Observation(place=(4, 2), exits=((3, 2),), tasks=(Task(id='mast', requires=(('keel',),)),),
                achieved=(), progress=None, mentions=())
    """
    text = str(result.outcome)
    here = _HERE.search(text)
    if here is None:
        return None
    x, y = int(here[1]), int(here[2])
    ways, found = _WAYS.search(text), _FOUND.search(text)
    steps = [DIRECTIONS[name] for name in ways[1].split(", ")] if ways else []
    exits = tuple([(x + dx, y + dy) for dx, dy in steps])
    task = Task(found[1], _options(found[3])) if found else None
    return Observation(
        place=(x, y),
        exits=exits if ways else None,
        tasks=(task,) if task else (),
        achieved=(task.id,) if task and found and found[2] else (),
    )


def _options(needs: str | None) -> tuple[tuple[str, ...], ...]:
    """Alternative sets, as in "keel and mast, or sail"."""
    return tuple([tuple(option.split(" and ")) for option in needs.split(", or ")]) if needs else ()

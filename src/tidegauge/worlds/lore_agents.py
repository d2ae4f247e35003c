"""Scripted readers for LORE tasks, each with one way of going about it.

A reader is a function of a reading and a source of chance. It knows what it was told at the start
and what it read, nothing else. An id that it knows and has not asked for is a *lead*; leads that
come together, from one page, are a *batch*.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

from tidegauge.worlds.lore_notes import notes_on
from tidegauge.worlds.lore_task import Reading

__all__ = ["LORE_AGENTS", "LoreAgent", "halter", "loser", "solver", "stumbler"]

LoreAgent: TypeAlias = Callable[[Reading, random.Random], None]


def solver(reading: Reading, draw: random.Random, *, at_once: int = 1) -> None:
    """Follows the oldest leads first and hands in the answer as soon as it follows.

    Args:
        reading: the reading.
        draw: not used.
        at_once: how many pages it reads in one round.
    """
    reader = _Reader(reading)
    while reader.batches and reader.notes.answer is None:
        reader.look_up(at_once)
    reader.hand_in()


def halter(reading: Reading, draw: random.Random, *, after: int = 3) -> None:
    """Gives up with leads left.

    It reads the oldest leads first and goes away as soon as all that are left are of one batch, so
    that none is displaced: it has not lost sight of them, it just doesn't go on. What it has found
    out by then it keeps to itself.

    Args:
        reading: the reading.
        draw: not used.
        after: how many pages it reads at least.
    """
    reader = _Reader(reading)
    while reader.batches and not (len(reading.read) >= after and len(reader.batches) == 1):
        reader.look_up()


def loser(reading: Reading, draw: random.Random) -> None:
    """Follows the newest batch of leads and never comes back to an older one."""
    reader = _Reader(reading)
    while reader.batches and reader.notes.answer is None:
        del reader.batches[:-1]
        reader.look_up()
    reader.hand_in()


def stumbler(reading: Reading, draw: random.Random, *, failures: int = 3) -> None:
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

    def __init__(self, reading: Reading) -> None:
        self.notes = notes_on(reading.task)
        self.batches = [list(reading.task.first)]
        self._reading = reading
        self._told = set(reading.task.first)

    def look_up(self, amount: int = 1) -> None:
        """Follow the oldest leads, so many at once."""
        asked: list[str] = []
        while self.batches and len(asked) < amount:
            asked.append(self.batches[0].pop(0))
            if not self.batches[0]:
                del self.batches[0]
        batch: list[str] = []
        for page, text in self._reading.look_up(asked).items():
            batch += [told for told in self.notes.take(page, text) if told not in self._told]
            self._told.update(batch)
        if batch:
            self.batches.append(batch)

    def hand_in(self) -> None:
        """Hand in the answer, if there is one."""
        if self.notes.answer is not None:
            self._reading.hand_in(self.notes.answer)

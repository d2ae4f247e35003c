"""What a world and a run say to each other: the start, and then every step twice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypedDict

from tidegauge.events import Identity, Reach, Task

__all__ = ["Start", "Steps"]


class Start(TypedDict, total=False):
    """The start of an attempt: keywords of :func:`tidegauge.run`, by the same names."""

    task: str
    task_group: str
    t_max: int
    operations: int
    height: int
    place: Identity
    exits: tuple[Identity, ...]
    tasks: tuple[Task, ...]
    goal: Identity
    reach: Reach


class Steps(Protocol):
    """Whoever is told of an attempt's steps: a :class:`tidegauge.Run`, or anything like it.

    What it raises, such as :class:`~tidegauge.RunStopped`, ends the attempt.
    """

    def act(self, action: str, arguments: object = None) -> object:
        """An action was chosen and has not been carried out."""

    def observe(
        self,
        outcome: object = ...,
        *,
        error: bool = False,
        place: Identity | None = None,
        exits: Iterable[Identity] | None = None,
        tasks: Iterable[Task] = (),
        achieved: Iterable[Identity] = (),
        progress: float | None = None,
    ) -> object:
        """What it brought back, as for :meth:`tidegauge.Run.observe`."""

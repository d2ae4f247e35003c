"""Measured: an attempt's steps go straight to the metric classes, without a pipeline."""

from __future__ import annotations

from collections.abc import Iterable

from tidegauge.events import ABSENT, Call, Identity, Task
from tidegauge.streaming_metrics.exploration import Exploration
from tidegauge.streaming_metrics.failed_rounds import FailedRounds
from tidegauge.streaming_metrics.fingerprint import call_digest, content_digest
from tidegauge.streaming_metrics.loops import Loops
from tidegauge.streaming_metrics.records import IssuedStep, ObservedStep
from tidegauge.worlds.steps import Start

__all__ = ["Measured"]


class Measured:
    """Takes an attempt's steps and feeds them to the metrics of the run.

    Args:
        start: what the world tells of the start.

    Attributes:
        steps: steps so far.
        loops: the loops of the run.
        failed_rounds: its failed rounds.
        exploration: its exploration and exploitation errors, stale score and leads.

    >>> from tidegauge.worlds.grid import GridWorld
    >>> world = GridWorld(seed=3)
    >>> measured = Measured(world.start())
    >>> walk = world.walk(measured)
    >>> for direction in ("right", "left", "right", "left"):
    ...     _ = walk.move(direction)
    >>> measured.exploration.stale, measured.exploration.exploration_error_rate
    (1, 0.25)
    """

    def __init__(self, start: Start) -> None:
        self.steps = 0
        self.loops = Loops()
        self.failed_rounds = FailedRounds()
        self.exploration = Exploration(
            place=start.get("place"),
            exits=start.get("exits"),
            tasks=start.get("tasks", ()),
            goal=start.get("goal"),
            reach=start.get("reach", "adjacent"),
        )
        self._state = content_digest(start.get("task")) or b""
        self._action = b""

    def act(self, action: str, arguments: object = None) -> None:
        """An action was chosen."""
        self._action = call_digest(Call(action, arguments)) or b""
        self.loops.update(IssuedStep(self.steps, self._state, self._action, action))

    def observe(
        self,
        outcome: object = ABSENT,
        *,
        error: bool = False,
        place: Identity | None = None,
        exits: Iterable[Identity] | None = None,
        tasks: Iterable[Task] = (),
        achieved: Iterable[Identity] = (),
        progress: float | None = None,
    ) -> None:
        """What it brought back."""
        self._state = content_digest(outcome) or b""
        step = ObservedStep(
            self.steps,
            action=self._action,
            outcome=self._state,
            failed=error,
            progress=progress,
            place=place,
            exits=None if exits is None else tuple(exits),
            tasks=tuple(tasks),
            achieved=tuple(achieved),
        )
        self.failed_rounds.update(step)
        self.exploration.update(step)
        self.steps += 1

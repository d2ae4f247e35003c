"""Recording: an attempt's steps as events that ``tidegauge replay`` reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Unpack

import orjson

from tidegauge.events import ABSENT, Identity, Task
from tidegauge.worlds.steps import Start

__all__ = ["Recording"]


class Recording:
    """Keeps every step as a dictionary that JSON has a form for.

    Args:
        run: id of the run.
        agent: name of the agent.
        **start: what the world tells of the start.

    Attributes:
        events: the events so far: the start, the steps, the end.

    >>> from tidegauge.worlds.grid import GridWorld
    >>> world = GridWorld(seed=3)
    >>> recording = Recording("r1", agent="walker", **world.start())
    >>> _ = world.walk(recording).move("right")
    >>> recording.finish(success=False)
    >>> [event["type"] for event in recording.events]
    ['start', 'step', 'end']
    """

    def __init__(self, run: str = "run", *, agent: str = "", **start: Unpack[Start]) -> None:
        self.run = run
        self.events: list[dict[str, Any]] = [
            {"type": "start", "run": run, "agent": agent, **_plain(start)}
        ]
        self._call: dict[str, Any] = {}

    def act(self, action: str, arguments: object = None) -> None:
        """An action was chosen; its event is written with its outcome."""
        self._call = {"type": "step", "run": self.run, "action": action, "args": arguments}

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
        """What the action brought back."""
        told = {
            "outcome": outcome,
            "place": place,
            "exits": None if exits is None else list(exits),
            "tasks": tasks,
            "achieved": list(achieved),
            "progress": progress,
        }
        self.events.append({**self._call, "error": error, **_plain(told)})

    def finish(self, *, success: bool | None = None, reason: str | None = None) -> None:
        """The attempt is over."""
        end = {"type": "end", "run": self.run, "success": success}
        self.events.append(end if reason is None else {**end, "reason": reason})

    def lines(self) -> bytes:
        """The events as JSONL: what to write to a file."""
        option = orjson.OPT_APPEND_NEWLINE
        return b"".join([orjson.dumps(event, option=option) for event in self.events])


def _plain(told: Mapping[str, Any]) -> dict[str, Any]:
    """What was told, with tasks as objects; what was not told is left out."""
    plain = {key: value for key, value in told.items() if value is not None and value is not ABSENT}
    plain["tasks"] = [{"id": task, "requires": needed} for task, needed in told.get("tasks", ())]
    return plain

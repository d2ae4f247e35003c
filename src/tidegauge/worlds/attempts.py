"""What a world reports of an attempt: its start, and every action with its outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol, TypedDict, Unpack

import orjson

from tidegauge.events import ABSENT, Identity, Reach, Task


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


class StepResult(TypedDict, total=False):
    """The result of an action: keywords of :meth:`tidegauge.Run.observe`, by the same names."""

    error: bool
    place: Identity | None
    exits: Iterable[Identity] | None
    tasks: Iterable[Task]
    achieved: Iterable[Identity]
    progress: float | None


class Steps(Protocol):
    """Receives the steps of an attempt: a :class:`tidegauge.Run`, or an object like it.

    An exception that it raises, such as :class:`~tidegauge.RunStopped`, ends the attempt.
    """

    def act(self, action: str, arguments: object = None) -> object:
        """The agent chose an action and has not executed it yet."""

    def observe(self, outcome: object = ..., **result: Unpack[StepResult]) -> object:
        """The outcome of the action, as for :meth:`tidegauge.Run.observe`."""


class Recording:
    """Keeps the steps of an attempt as events that ``tidegauge replay`` reads.

    Args:
        run: id of the run.
        agent: name of the agent.
        **start: the start that the world reports.

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
        """The agent chose an action; its event is added with its outcome."""
        self._call = {"type": "step", "run": self.run, "action": action, "args": arguments}

    def observe(self, outcome: object = ABSENT, **result: Unpack[StepResult]) -> None:
        """The outcome of the action."""
        fields = _plain({"error": False, "achieved": (), **result, "outcome": outcome})
        self.events.append({**self._call, **fields})

    def finish(self, *, success: bool | None = None, reason: str | None = None) -> None:
        """End the attempt."""
        end = {"type": "end", "run": self.run, "success": success}
        self.events.append(end if reason is None else {**end, "reason": reason})

    def lines(self) -> bytes:
        """The events as JSONL, for a file."""
        option = orjson.OPT_APPEND_NEWLINE
        return b"".join([orjson.dumps(event, option=option) for event in self.events])


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that have a value, with lists for JSON and tasks as objects."""
    plain = {
        key: list(value) if key in ("exits", "achieved") else value
        for key, value in fields.items()
        if value is not None and value is not ABSENT
    }
    plain["tasks"] = [{"id": task, "requires": needed} for task, needed in fields.get("tasks", ())]
    return plain

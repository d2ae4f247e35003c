"""Recorded runs as turns, to play them under any guard."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from benchmarks.guards.agents import Called, Turn
from tidegauge.events import ABSENT, RunEnded, RunStarted
from tidegauge.recordings.step_events import RecordedStep, parse_line

__all__ = ["RecordedAgent", "recorded_agents"]


class RecordedAgent(NamedTuple):
    """A recorded run.

    Attributes:
        family: its task group.
        turns: what it did.
        success: whether it succeeded.
    """

    family: str
    turns: list[Turn]
    success: bool


def recorded_agents(folder: Path) -> Iterator[RecordedAgent]:
    """Every run of the recordings (``*.events.jsonl``) of a folder."""
    for path in sorted(folder.glob("*.events.jsonl")):
        started: dict[str, RunStarted] = {}
        turns: dict[str, list[Turn]] = {}
        for line in path.read_bytes().splitlines():
            match parse_line(line):
                case RunStarted() as event:
                    started[event.run], turns[event.run] = event, []
                case RecordedStep(issued, observed):
                    calls = [
                        Called(
                            call.action,
                            _arguments(call.arguments),
                            "" if result.outcome is ABSENT else result.outcome,
                            result.error,
                        )
                        for call, result in zip(issued.calls, observed.results, strict=True)
                    ]
                    state = None if issued.state is ABSENT else issued.state
                    turns[issued.run].append(Turn(tuple(calls), state=state))
                case RunEnded() as event:
                    family = started[event.run].task_group
                    yield RecordedAgent(family, turns[event.run], bool(event.success))


def _arguments(given: Any) -> dict[str, Any]:
    """Guards take named arguments."""
    if isinstance(given, str) and given[:1] == "{":
        with contextlib.suppress(orjson.JSONDecodeError):
            given = orjson.loads(given)
    if isinstance(given, dict):
        return given
    return {} if given is None else {"input": given}

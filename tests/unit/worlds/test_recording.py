"""Recording: what is written of a step, and that it is of the form that replay reads."""

from __future__ import annotations

import json
import random

import pytest

from tidegauge.events import RunEnded, RunStarted, Task
from tidegauge.recordings.step_events import RecordedStep, parse_line
from tidegauge.worlds import (
    GRID_AGENTS,
    LORE_AGENTS,
    GridWorld,
    LoreTask,
    Recording,
    code_task,
    document_task,
)


def recorded(world: GridWorld | LoreTask, name: str) -> Recording:
    recording = Recording("r1", agent=name, **world.start())
    if isinstance(world, GridWorld):
        GRID_AGENTS[name](world.walk(recording), random.Random(1))
    else:
        LORE_AGENTS[name](world.reading(recording), random.Random(1))
    recording.finish(success=False, reason="enough")
    return recording


def test_writes_what_was_reported_and_leaves_out_what_was_not() -> None:
    recording = Recording("r7", agent="a", task="go", place=(0, 1), goal="g", tasks=(Task("g"),))
    recording.act("move", {"to": [1, 1]})
    recording.observe("a wall", error=True)
    recording.act("move", {"to": [0, 0]})
    recording.observe(
        "a door",
        place=(0, 0),
        exits=iter([(0, 1)]),
        tasks=[Task("h", (("g", "i"), ("j",)))],
        achieved=["g"],
        progress=0.0,
    )
    recording.finish(success=None)
    assert recording.events == [
        {
            "type": "start",
            "run": "r7",
            "agent": "a",
            "task": "go",
            "place": (0, 1),
            "goal": "g",
            "tasks": [{"id": "g", "requires": ()}],
        },
        {
            "type": "step",
            "run": "r7",
            "action": "move",
            "args": {"to": [1, 1]},
            "outcome": "a wall",
            "error": True,
            "tasks": [],
            "achieved": [],
        },
        {
            "type": "step",
            "run": "r7",
            "action": "move",
            "args": {"to": [0, 0]},
            "outcome": "a door",
            "error": False,
            "place": (0, 0),
            "exits": [(0, 1)],
            "tasks": [{"id": "h", "requires": (("g", "i"), ("j",))}],
            "achieved": ["g"],
            "progress": 0.0,
        },
        {"type": "end", "run": "r7", "success": None},
    ]


def test_no_exits_is_not_the_same_as_none_reported() -> None:
    recording = Recording()
    for exits in ((), None):
        recording.act("look")
        recording.observe("a cell", exits=exits)
    assert [event.get("exits") for event in recording.events[1:]] == [[], None]


@pytest.mark.parametrize(
    ("world", "name"),
    [
        (GridWorld(3), "wanderer"),
        (document_task(3), "stumbler"),
        (code_task(3), "solver"),
    ],
    ids=["grid", "documents", "code"],
)
def test_every_line_can_be_read_again(world: GridWorld | LoreTask, name: str) -> None:
    recording = recorded(world, name)
    lines = recording.lines().splitlines(keepends=True)
    assert len(lines) == len(recording.events)
    assert all(line.endswith(b"\n") for line in lines)
    start, *steps, end = map(parse_line, lines)
    assert isinstance(start, RunStarted)
    assert isinstance(end, RunEnded)
    reported = world.start()
    assert {key: getattr(start, key) for key in reported} == reported
    assert (start.run, start.agent, end.success, end.reason) == ("r1", name, False, "enough")
    for step, event in zip(steps, recording.events[1:-1], strict=True):
        assert isinstance(step, RecordedStep)
        assert step.issued.calls[0][:2] == (event["action"], event["args"])
        assert step.observed.results[0] == (event["outcome"], event["error"])
        assert step.observed.place == event.get("place")
        assert step.observed.progress == event["progress"]
        exits = event.get("exits")
        assert step.observed.exits == (None if exits is None else tuple(exits))
        tasks = [Task(task["id"], task["requires"]) for task in event["tasks"]]
        assert list(step.observed.tasks) == tasks


def test_a_line_is_plain_json() -> None:
    recording = recorded(GridWorld(3), "explorer")
    for line, event in zip(recording.lines().splitlines(), recording.events, strict=True):
        assert json.loads(line) == json.loads(json.dumps(event))

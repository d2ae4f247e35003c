"""To-do lists in the shapes that agents write them in."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass

import pytest

from tidegauge.errors import ConfigurationError
from tidegauge.events import Call, CallResult, Task
from tidegauge.instrumentation.extractors import TodoList

DONE = CallResult("Updated")


class Status(enum.Enum):
    DONE = "done"
    OPEN = "open"


@dataclass
class Item:
    title: str
    status: Status


SHAPES = {
    "LangChain": {
        "todos": [
            {"content": "pack", "status": "completed"},
            {"content": "drive", "status": "in_progress"},
        ]
    },
    "with ids and forms": {
        "todos": [
            {"id": "1", "content": "pack", "activeForm": "Packing", "status": "completed"},
            {"id": "2", "content": "drive", "activeForm": "Driving", "status": "pending"},
        ]
    },
    "plan": {
        "explanation": "...",
        "plan": [{"step": "pack", "status": "completed"}, {"step": "drive", "status": "pending"}],
    },
    "flags": {"tasks": [{"title": " pack ", "done": True}, {"title": "drive", "done": False}]},
    "objects": {"tasks": [Item("pack", Status.DONE), Item("drive", Status.OPEN)]},
    "checklist": {"checklist": "# Trip\n- [x] pack\n- [ ] drive\n"},
    "text alone": "* [X] pack\n  1. [ ] drive",
}


@pytest.mark.parametrize("arguments", SHAPES.values(), ids=SHAPES)
def test_entries_are_tasks_and_those_ticked_off_are_achieved(arguments):
    seen = TodoList(progress=True).observe(Call("write_todos", arguments), DONE)
    assert seen.tasks == (Task("pack"), Task("drive"))
    assert (seen.achieved, seen.progress, seen.place) == (("pack",), 0.5, None)


def test_arguments_may_be_json_text():
    text = json.dumps(SHAPES["LangChain"])
    assert TodoList().observe(Call("write_todos", text), DONE).achieved == ("pack",)


def test_progress_is_reported_only_when_asked_for():
    call = Call("write_todos", SHAPES["LangChain"])
    assert TodoList().observe(call, DONE).progress is None


def test_tasks_may_go_by_their_ids():
    call = Call("TodoWrite", SHAPES["with ids and forms"])
    seen = TodoList(names_by="id").observe(call, DONE)
    assert (seen.tasks, seen.achieved) == ((Task("1"), Task("2")), ("1",))
    with pytest.raises(ConfigurationError, match="names_by"):
        TodoList(names_by="number")  # type: ignore[arg-type]


def test_what_was_given_up_is_no_task():
    todos = [{"content": "pack", "status": "cancelled"}, {"content": "go", "status": "completed"}]
    seen = TodoList(progress=True).observe(Call("t", {"todos": todos}), DONE)
    assert (seen.tasks, seen.progress) == ((Task("go"),), 1.0)
    struck = TodoList().observe(Call("t", "- [-] pack\n- [x] go"), DONE)
    assert struck.tasks == (Task("go"),)


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [
        ({"steps": ["pack", "drive"]}, "ok"),
        ({"items": [{"name": "pack"}, {"name": "drive"}]}, "ok"),
        ("1. pack\n2) drive\n", "ok"),
        ({"plan": "Plan:\n 1. pack\n 2. drive"}, "ok"),
        ({}, "- [ ] pack\n- [ ] drive"),
        (None, {"todos": [{"text": "pack", "done": False}, {"text": "drive", "done": False}]}),
    ],
)
def test_looser_shapes_are_read_of_named_tools_only(arguments, outcome):
    call, result = Call("make_plan", arguments), CallResult(outcome)
    assert TodoList().observe(call, result) is None
    seen = TodoList(tools=["make_plan"]).observe(call, result)
    assert (seen.tasks, seen.achieved) == ((Task("pack"), Task("drive")), ())
    assert TodoList(tools=["other"]).observe(call, result) is None


@pytest.mark.parametrize(
    "arguments",
    [
        {"items": [{"name": "shoe", "status": "shipped"}]},
        {"path": "README.md", "content": "- [ ] write docs"},
        {"todos": []},
        {"tasks": [{"name": "pack"}]},
        {"todos": [{"status": "pending"}, {"content": "  ", "status": "pending"}, 7, None]},
        {"todos": {"content": "pack", "status": "pending"}},
        "buy milk",
        None,
    ],
)
def test_what_is_no_list(arguments):
    assert TodoList().observe(Call("tool", arguments), CallResult('[{"title":"x"}]')) is None


def test_a_call_that_failed_changed_no_list():
    call = Call("write_todos", SHAPES["LangChain"])
    assert TodoList().observe(call, CallResult("error", True)) is None
    assert list(TodoList().uses(call)) == []

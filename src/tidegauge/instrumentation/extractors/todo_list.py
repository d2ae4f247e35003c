"""To-do lists and plans: tasks that an agent sets itself, and ticks off."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, Literal, NamedTuple

from tidegauge.errors import ConfigurationError
from tidegauge.events import Call, CallResult, Identity, Reach, Task
from tidegauge.instrumentation.extractors.contents import (
    applies,
    arguments_of,
    body_of,
    tool_names,
)
from tidegauge.runs.extraction import MAX_ITEMS, Observation

_LISTS: Final = ("todos", "todo_list", "task_list", "checklist", "plan", "tasks", "steps")
LIST_NAMES: Final = frozenset(_LISTS)
"""Names of the arguments that hold a list."""

_MORE_LISTS: Final = (*_LISTS, "items", "entries")  # also names of lists that are not plans
_TEXTS: Final = ("content", "title", "task", "text", "description", "step", "name", "subject")
_STATES: Final = ("status", "state", "done", "completed", "checked")
_DONE: Final = frozenset({"completed", "complete", "done", "finished", "closed", "x", "true"})
_GIVEN_UP: Final = frozenset({"cancelled", "canceled", "skipped", "deleted", "removed", "-", "~"})
_CHECKBOX: Final = re.compile(
    r"^[ \t]{0,40}(?:[-*+]|\d{1,4}[.)])[ \t]{1,9}\[([ xX~-])\][ \t]{1,9}(\S.*)$", re.MULTILINE
)
_NUMBERED: Final = re.compile(r"^[ \t]{0,40}\d{1,4}[.)][ \t]{1,9}(\S.*)$", re.MULTILINE)
_MAX_NAME: Final = 500


class _Entry(NamedTuple):
    id: Identity
    status: Literal["open", "done", "given_up"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TodoList:
    """Reads a to-do list: its entries are tasks, those ticked off are achieved.

    It is read from the call's arguments:

    - a list under ``todos``, ``todo_list``, ``task_list``, ``checklist``, ``plan``, ``tasks`` or
      ``steps``, whose entries have a text (``content``, ``title``, ``task``, ...) and a status
      (``status``, ``state``, ``done``, ``completed``, ``checked``);
    - text under such a name, or as the only argument, with checkboxes: ``- [ ] pack``.

    Of the tools that are named in ``tools`` it is also read from the result (a tool that shows
    the list), under ``items`` and ``entries``, from entries that are plain text or have no status,
    and from numbered lines, ``1. pack``: with other tools these may be anything.

    A task is identified by its text, because agents number each new plan from 1. Entries that were
    cancelled are not tasks. What was a task once stays pending until it is ticked off, also
    when the list no longer has it: giving up looks the same as forgetting.

    Args:
        tools: names of the tools to read; ``None``, all that have a list with statuses.
        names_by: ``"text"``, or ``"id"`` where entries keep their ids and change their texts;
            an entry that has only one of them is identified by it.
        progress: whether the share of entries done is reported as the run's progress.
        reach: ``None``, because a to-do list is not a place.

    >>> todos = [{"content": "pack", "status": "completed"}, {"content": "go", "status": "pending"}]
    >>> seen = TodoList(progress=True).observe(Call("write_todos", {"todos": todos}), CallResult())
    >>> [task.id for task in seen.tasks], seen.achieved, seen.progress
    (['pack', 'go'], ('pack',), 0.5)
    """

    tools: Collection[str] | None = None
    names_by: Literal["text", "id"] = "text"
    progress: bool = False
    reach: Reach | None = None

    def __post_init__(self) -> None:
        if self.names_by not in ("text", "id"):
            raise ConfigurationError(f"names_by={self.names_by!r} is unknown; use 'text' or 'id'")
        object.__setattr__(self, "tools", tool_names(self.tools))

    def uses(self, call: Call) -> Iterable[Identity]:
        """Nothing: tasks are not entities."""
        return ()

    def observe(self, call: Call, result: CallResult) -> Observation | None:
        """The tasks, and which of them are done."""
        if result.error or not applies(self.tools, call):
            return None
        entries = self._entries(arguments_of(call))
        if not entries and self.tools is not None:
            entries = self._entries(body_of(result.outcome))
        if not entries:
            return None
        wanted = {entry.id: entry.status for entry in entries if entry.status != "given_up"}
        done = tuple([each for each, status in wanted.items() if status == "done"])
        share = len(done) / len(wanted) if self.progress and wanted else None
        return Observation(tasks=tuple(map(Task, wanted)), achieved=done, progress=share)

    def _entries(self, given: object) -> list[_Entry]:
        """The entries of the first list found; none, there is no list."""
        lists: Iterable[object] = (given,)
        if isinstance(given, Mapping):
            names = _LISTS if self.tools is None else _MORE_LISTS
            lists = [given[name] for name in names if name in given]
        for each in lists:
            entries = list(islice(self._read(each), MAX_ITEMS))
            if entries:
                return entries
        return []

    def _read(self, given: object) -> Iterator[_Entry]:
        if isinstance(given, str):
            boxes = [(text, mark) for mark, text in _CHECKBOX.findall(given)]
            if not boxes and self.tools is not None:
                boxes = [(text, " ") for text in _NUMBERED.findall(given)]
            for text, mark in boxes:
                yield _Entry(_name(text), _status(mark))
        elif isinstance(given, list | tuple):
            for item in given:
                entry = self._entry(item)
                if entry is not None:
                    yield entry

    def _entry(self, item: object) -> _Entry | None:
        if isinstance(item, str):
            return None if self.tools is None or not item.strip() else _Entry(_name(item), "open")
        if not isinstance(item, Mapping):
            item = getattr(item, "__dict__", None)  # a model of pydantic, a dataclass
            if not isinstance(item, Mapping):
                return None
        state = next((item[name] for name in _STATES if name in item), None)
        if state is None and self.tools is None:
            return None
        text = next((item[name] for name in _TEXTS if isinstance(item.get(name), str)), "")
        id_ = item.get("id")
        by_id = isinstance(id_, str | int) and (self.names_by == "id" or not text.strip())
        name = _name(str(id_) if by_id else text)
        return _Entry(name, _status(state)) if name else None


def _name(text: str) -> str:
    return " ".join(text[:_MAX_NAME].split())


def _status(state: object) -> Literal["open", "done", "given_up"]:
    state = getattr(state, "value", state)  # an enum's
    word = str(state).strip().lower() if isinstance(state, str | bool) else ""
    if word in _DONE:
        return "done"
    return "given_up" if word in _GIVEN_UP else "open"

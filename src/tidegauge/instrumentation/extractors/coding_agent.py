"""Coding agents: their files, to-do lists and test runs, whatever their tools are called.

The tools of Claude Code, Codex CLI, Gemini CLI, Qwen Code, opencode, OpenHands and mini-swe-agent
are known. A call is brought into one form first: a command as text, run in its folder; a patch as
an edit of its last file; the output of a command without what the agent's shell says about it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tidegauge.events import ABSENT, Call, CallResult, Identity, Reach
from tidegauge.instrumentation.extractors.contents import (
    TEXT_LIMIT,
    Arguments,
    arguments_of,
    body_of,
    first_text,
    text_of,
)
from tidegauge.instrumentation.extractors.files import Files
from tidegauge.instrumentation.extractors.shell import changes_files, runs_tests
from tidegauge.instrumentation.extractors.shell_output import printed, share_passed
from tidegauge.instrumentation.extractors.todo_list import LIST_NAMES, TodoList
from tidegauge.runs.extraction import Observation
from tidegauge.values.safe_reading import text_digest

_COMMANDS: Final = ("command", "cmd")
_FOLDERS: Final = ("workdir", "working_directory", "dir_path", "directory", "cwd")
_PATHS: Final = ("path", "dir_path", "directory")
_LISTING_TOOLS: Final = frozenset({"list", "list_dir", "list_directory", "ls"})
_TEST_TOOLS: Final = frozenset({"run_test", "run_tests", "runtests", "test"})
_EDIT_ARGUMENTS: Final = frozenset(
    {"content", "edits", "file_text", "new_source", "new_str", "new_string", "newString"}
)
_PATCHES: Final = ("patchText", "patch", "input", *_COMMANDS)
_IN_OTHER_FORM: Final = frozenset({*_PATCHES, "__arg1"})
_PATCH: Final = "*** Begin Patch"
_PATCHED: Final = re.compile(r"^\*\*\* (?:Add|Update|Delete) File: (\S.{0,399})$", re.MULTILINE)
_TASK_NUMBER: Final = re.compile(r"Task #(\w{1,40})\b")


@dataclass(frozen=True, kw_only=True, slots=True)
class CodingAgent:
    """Reads the calls of coding agents; ``tidegauge watch`` and ``--from`` use it by default.

    - *Places* are those of :class:`~tidegauge.instrumentation.extractors.Files`: the file that was
      read or edited, the folder that was listed, the search that found something.
    - *Tasks* are the entries of to-do lists and plans, as
      :class:`~tidegauge.instrumentation.extractors.TodoList` reads them. A call that stands
      somewhere or changes a file is a task that is done with it. So a look at another part of a
      file, and an edit, are progress; the same call with the same result is not.
    - *Progress* is the share of tests that passed, after a call that ran tests and printed how many
      passed and failed, also if it failed. A test run is no move.

    Args:
        working_directory: the folder of the session, in which relative paths start.
        reach: how the agent moves between files.

    >>> agent = CodingAgent(working_directory="/repo")
    >>> agent.observe(Call("Read", {"file_path": "/repo/app.py"}), CallResult("import os")).place
    'app.py'
    >>> ran = CallResult("=== 1 failed, 3 passed in 0.10s ===", error=True)
    >>> agent.observe(Call("bash", {"command": "pytest -q"}), ran).progress
    0.75
    """

    working_directory: str = ""
    reach: Reach | None = "anywhere"
    _files: Files = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        files = Files(working_directory=self.working_directory, reach=self.reach)
        object.__setattr__(self, "_files", files)

    def uses(self, call: Call) -> Iterable[Identity]:
        """The file or folder of the call."""
        return self._files.used(*_in_one_form(call, arguments_of(call)))

    def observe(self, call: Call, result: CallResult) -> Observation | None:
        """Where the call stands, what it shows, and what is done."""
        if result.outcome is ABSENT:
            return None
        given = arguments_of(call)
        plain, arguments = _in_one_form(call, given)
        output = printed(result.outcome)
        command = _shell_command(plain)
        ran_tests = call.action.lower() in _TEST_TOOLS if command is None else runs_tests(command)
        if ran_tests:
            share = share_passed(text_of(output))
            if share is not None:
                return Observation(progress=share)
        if result.error:
            return None
        if isinstance(given, Mapping):  # text is a command or a patch
            tasks = None
            if call.action in ("TaskCreate", "TaskUpdate"):
                tasks = _numbered_task(call.action, given, output)
            if tasks is None and not LIST_NAMES.isdisjoint(given):
                tasks = _TODO_LIST.observe(call, result)
            if tasks is not None:
                return tasks
        seen = self._files.shown(plain, arguments, body_of(output))
        if seen is None and not _edits(plain, command):
            return None
        # A call with its result: the same one again is no news.
        shown = f"{call.action}\0{text_of(given, keys=True)}\0{text_of(output)}"
        news = (("done", text_digest(shown)),)
        return Observation(achieved=news) if seen is None else seen._replace(achieved=news)


_TODO_LIST: Final = TodoList()


def _in_one_form(call: Call, given: Arguments) -> tuple[Call, Arguments]:
    """The call with its command as ``command``, its patch as ``path`` and ``content``.

    Returns:
        The call, and its arguments as :func:`arguments_of` reads them.
    """
    listed = call.action.lower() in _LISTING_TOOLS
    if not listed and isinstance(given, Mapping) and _IN_OTHER_FORM.isdisjoint(given):
        return (call if given is call.arguments else call._replace(arguments=given)), given
    plain = _rewritten(call, given, listed=listed)
    return plain, arguments_of(plain)


def _rewritten(call: Call, given: Arguments, *, listed: bool) -> Call:
    patch = first_text(given, _PATCHES, fits=lambda text: _PATCH in text)
    if patch is not None:
        paths = _PATCHED.findall(patch[:TEXT_LIMIT])
        return call._replace(arguments={"path": paths[-1] if paths else "", "content": patch})
    if isinstance(given, str):
        return call
    if listed:
        return call._replace(arguments={"directory": first_text(given, _PATHS) or "."})
    command = _command(given)
    if command is None or first_text(given, ("path",)) is not None:  # an editor has both
        return call._replace(arguments=given)
    folder = first_text(given, _FOLDERS)
    if folder is not None:
        command = f"cd {shlex.quote(folder)} && {command}"
    return call._replace(arguments={"command": command})


def _command(arguments: Mapping[str, object]) -> str | None:
    """The shell command among the arguments; some agents give it as a list of words."""
    for name in _COMMANDS:
        value: Any = arguments.get(name)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            words = [str(word) for word in value]
            is_shell = len(words) == 3 and words[1].startswith("-") and words[1].endswith("c")
            return words[2] if is_shell else shlex.join(words)
    return None


def _shell_command(call: Call) -> str | None:
    """The command of a call in one form."""
    arguments = call.arguments
    if isinstance(arguments, Mapping):
        arguments = arguments.get("command")
        return arguments if isinstance(arguments, str) and arguments else None
    return arguments if isinstance(arguments, str) else None


def _edits(call: Call, command: str | None) -> bool:
    """Whether the call changes a file, as far as its arguments and its command show."""
    arguments = call.arguments
    if isinstance(arguments, Mapping) and any(
        arguments.get(name) is not None for name in _EDIT_ARGUMENTS
    ):
        return True
    return command is not None and changes_files(command)


def _numbered_task(
    action: str, arguments: Mapping[str, object], output: object
) -> Observation | None:
    """A task of Claude Code's ``TaskCreate`` and ``TaskUpdate``, which have it by its number."""
    if action == "TaskCreate":
        shown = output.get("task") if isinstance(output, Mapping) else None
        match = _TASK_NUMBER.search(text_of(output))
        printed_number = match[1] if match else None
        number = shown.get("id", printed_number) if isinstance(shown, Mapping) else printed_number
        status: object = "pending"
    else:
        number, status = arguments.get("taskId"), arguments.get("status")
    if not isinstance(number, str | int):
        return None
    entry = {"id": f"#{number}", "status": status}
    return _TASKS_BY_NUMBER.observe(Call(action, {"tasks": [entry]}), CallResult())


_TASKS_BY_NUMBER: Final = TodoList(names_by="id")

"""One session of work as each coding agent reports it: its tools, arguments and results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

__all__ = ["FOLDER", "SESSIONS", "Made", "hook_payloads"]

FOLDER: Final = "/home/dev/shop"
"""Where the sessions are started."""


class Made(NamedTuple):
    """A call that an agent made, and what it brought back."""

    tool: str
    arguments: Any
    result: Any
    error: bool | None = None


_CODE: Final = "import cart\n\nprint(cart.total())\n"
_TESTED: Final = "F...\nFAILED tests/test_cart.py::test_total\n1 failed, 3 passed in 0.12s\n"
_PATCH: Final = (
    "*** Begin Patch\n*** Update File: src/app.py\n@@\n-import cart\n+from shop import cart\n"
    "*** End Patch\n"
)
_EDIT: Final = ("import cart", "from shop import cart")
_STATES: Final = (
    ("completed", "in_progress", "pending"),
    ("completed", "completed", "completed"),
)
_NAMES: Final = ("look", "fix the total", "run the tests")


def _todos(states: tuple[str, ...], text: str = "content", **more: Any) -> list[dict[str, Any]]:
    return [
        {text: name, "status": state, **more} for name, state in zip(_NAMES, states, strict=True)
    ]


def _session(list_: Made, read: Made, todo: list[Made], edit: Made, test: Made) -> list[Made]:
    """Lists ``src`` (three entries), reads one, plans three tasks of which one is done, edits, runs
    four tests of which one fails, reads the same again, has done all tasks, lists ``src`` again."""
    return [list_, read, todo[0], edit, test, read, todo[1], list_]


def _gemini_shell(output: str, code: int) -> str:
    trailer = f"Exit Code: {code}\n" if code else ""
    pgid = "Process Group PGID: 77\n"
    return f"<untrusted_context>\nOutput: {output}{trailer}{pgid}</untrusted_context>"


def _qwen_shell(command: str, output: str, code: int) -> str:
    head = f"Command: {command}\nDirectory: (root)\nOutput: {output}"
    return f"{head}Error: (none)\nExit Code: {code}\nSignal: (none)\nProcess Group PGID: 77\n"


def _codex_shell(output: str, code: int) -> str:
    head = f"Chunk ID: 3f\nWall time: 0.1 seconds\nProcess exited with code {code}\n"
    return f"{head}Original token count: 5\nOutput:\n{output}"


_LISTED: Final = "app.py\ncart.py\ntests\n"
_ABSOLUTE: Final = f"{FOLDER}/src/app.py"

SESSIONS: Final[Mapping[str, list[Made]]] = {
    "claude": _session(
        Made("Bash", {"command": "ls src", "description": "List"}, {"stdout": _LISTED}),
        Made("Read", {"file_path": _ABSOLUTE}, {"type": "text", "file": {"content": _CODE}}),
        [Made("TodoWrite", {"todos": _todos(states)}, "Todos updated") for states in _STATES],
        Made(
            "Edit",
            {"file_path": _ABSOLUTE, "old_string": _EDIT[0], "new_string": _EDIT[1]},
            {"filePath": _ABSOLUTE, "oldString": _EDIT[0], "newString": _EDIT[1]},
        ),
        Made("Bash", {"command": "python -m pytest -q"}, f"Exit code 1\n{_TESTED}", error=True),
    ),
    "codex": _session(
        Made("Bash", {"command": "ls src"}, _LISTED),
        Made("Bash", {"command": "sed -n '1,200p' src/app.py"}, _CODE),
        [
            Made("update_plan", {"plan": _todos(states, "step")}, "Plan updated")
            for states in _STATES
        ],
        Made(
            "apply_patch",
            {"command": _PATCH},
            "Success. Updated the following files:\nM src/app.py",
        ),
        Made("Bash", {"command": "pytest -q"}, _TESTED),
    ),
    "codex sessions": _session(
        Made("exec_command", {"cmd": "ls src"}, _codex_shell(_LISTED, 0)),
        Made("shell", {"command": ["bash", "-lc", "cat src/app.py"]}, _codex_shell(_CODE, 0)),
        [
            Made("update_plan", {"plan": _todos(states, "step")}, "Plan updated")
            for states in _STATES
        ],
        Made("apply_patch", _PATCH, _codex_shell("Success.", 0)),
        Made("exec_command", {"cmd": "pytest -q"}, _codex_shell(_TESTED, 1), error=True),
    ),
    "gemini": _session(
        Made(
            "list_directory",
            {"dir_path": "src"},
            f"Directory listing for {FOLDER}/src:\n"
            "[DIR] tests\napp.py (34 bytes)\ncart.py (9 bytes)",
        ),
        Made("read_file", {"file_path": "src/app.py"}, _CODE),
        [
            Made("write_todos", {"todos": _todos(states, "description")}, "Successfully updated")
            for states in _STATES
        ],
        Made(
            "replace",
            {"file_path": _ABSOLUTE, "old_string": _EDIT[0], "new_string": _EDIT[1]},
            f"Successfully modified file: {_ABSOLUTE} (1 replacements).",
        ),
        Made(
            "run_shell_command",
            {"command": "pytest -q", "dir_path": "."},
            _gemini_shell(_TESTED, 1),
            error=True,
        ),
    ),
    "qwen": _session(
        Made(
            "list_directory",
            {"path": f"{FOLDER}/src"},
            f"Directory listing for {FOLDER}/src:\n[DIR] tests\napp.py\ncart.py",
        ),
        Made("read_file", {"absolute_path": _ABSOLUTE}, _CODE),
        [
            Made("todo_write", {"todos": _todos(states, id="1")}, "Todos have been modified")
            for states in _STATES
        ],
        Made(
            "edit", {"file_path": _ABSOLUTE, "old_string": _EDIT[0], "new_string": _EDIT[1]}, "Done"
        ),
        Made(
            "run_shell_command",
            {"command": "pytest -q", "is_background": False},
            _qwen_shell("pytest -q", _TESTED, 1),
            error=True,
        ),
    ),
    "opencode": _session(
        Made(
            "read",
            {"filePath": f"{FOLDER}/src"},
            f"<path>{FOLDER}/src</path>\n<type>directory</type>\n<entries>\napp.py\ncart.py\ntests/\n\n"
            "(3 entries)\n</entries>",
        ),
        Made(
            "read",
            {"filePath": _ABSOLUTE},
            f"<path>{_ABSOLUTE}</path>\n<type>file</type>\n<content>1: import cart\n</content>",
        ),
        [Made("todowrite", {"todos": _todos(states, id="1")}, "[]") for states in _STATES],
        Made(
            "edit",
            {"filePath": _ABSOLUTE, "oldString": _EDIT[0], "newString": _EDIT[1]},
            "Edit applied successfully.",
        ),
        Made("bash", {"command": "pytest -q", "workdir": FOLDER}, _TESTED, error=True),
    ),
    "openhands": _session(
        Made(
            "file_editor",
            {"command": "view", "path": "src"},
            "Here's the files and directories up to 2 levels deep in src, excluding hidden items:\n"
            "src/\nsrc/app.py\nsrc/cart.py\nsrc/tests/",
        ),
        Made(
            "file_editor", {"command": "view", "path": "src/app.py"}, f"Here's the result:\n{_CODE}"
        ),
        [
            Made(
                "task_tracker",
                {"command": "plan", "task_list": _todos(states, "title", notes="")},
                "Task list has been updated",
            )
            for states in (("done", "in_progress", "todo"), ("done", "done", "done"))
        ],
        Made(
            "file_editor",
            {
                "command": "str_replace",
                "path": "src/app.py",
                "old_str": _EDIT[0],
                "new_str": _EDIT[1],
            },
            "The file src/app.py has been edited.",
        ),
        Made("terminal", {"command": "pytest -q"}, _TESTED, error=True),
    ),
    "mini-swe-agent": [  # it has no to-do list
        Made("bash", {"command": "ls src"}, {"returncode": 0, "output": _LISTED}),
        Made("bash", {"command": "cat src/app.py"}, {"returncode": 0, "output": _CODE}),
        Made("bash", {"command": "sed -i s/a/b/ src/app.py"}, {"returncode": 0, "output": ""}),
        Made("bash", {"command": "pytest -q"}, {"returncode": 1, "output": _TESTED}, error=True),
        Made("bash", {"command": "cat src/app.py"}, {"returncode": 0, "output": _CODE}),
        Made("bash", {"command": "ls src"}, {"returncode": 0, "output": _LISTED}),
    ],
}
"""By the agent; where its hooks give another form than its sessions, two."""


def hook_payloads(agent: str, made: Made, call_id: str) -> tuple[Any, Any]:
    """What the hooks of an agent are given before a call and after it."""
    common = {"session_id": "s1", "cwd": FOLDER}
    match agent:
        case "opencode":
            given = {"sessionID": "s1", "tool": made.tool, "callID": call_id}
            before: Any = {"input": given, "output": {"args": made.arguments}}
            exit_code = {"exit": int(made.error)} if made.error is not None else {}
            output = {"output": made.result, "metadata": exit_code}
            after: Any = {"input": {**given, "args": made.arguments}, "output": output}
            begins = {"hook": "tool.execute.before", "cwd": FOLDER, **before}
            return begins, {"hook": "tool.execute.after", "cwd": FOLDER, **after}
        case "gemini":
            tool = {**common, "tool_name": made.tool, "tool_input": made.arguments}
            response = {"llmContent": made.result}
            done = {"hook_event_name": "AfterTool", "tool_response": response}
            return {**tool, "hook_event_name": "BeforeTool"}, {**tool, **done}
        case _:
            named = {"tool_name": made.tool, "tool_input": made.arguments, "tool_use_id": call_id}
            tool = {**common, **named}
            if made.error and agent in ("claude", "qwen"):
                done = {"hook_event_name": "PostToolUseFailure", "error": made.result}
            else:
                shown = {"llmContent": made.result} if agent == "qwen" else made.result
                done = {"hook_event_name": "PostToolUse", "tool_response": shown}
            return {**tool, "hook_event_name": "PreToolUse"}, {**tool, **done}

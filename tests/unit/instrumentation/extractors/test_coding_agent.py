"""What coding agents do, in the forms in which their tools are called and answer."""

from __future__ import annotations

from typing import Any

import pytest

from tidegauge.events import ABSENT, Call, CallResult, Task
from tidegauge.instrumentation.extractors import CodingAgent
from tidegauge.instrumentation.extractors.shell_output import printed

AGENT = CodingAgent(working_directory="/repo")

SEARCHES: dict[str, tuple[str, Any, Any]] = {
    "Claude Code, Grep": (
        "Grep",
        {"pattern": "cart", "output_mode": "files_with_matches"},
        {"mode": "files_with_matches", "filenames": ["src/app.py"], "numFiles": 1},
    ),
    "Claude Code, Glob": (
        "Glob",
        {"pattern": "**/*.py"},
        {"filenames": ["/repo/src/app.py"], "durationMs": 3, "truncated": False},
    ),
    "Claude Code, in a session": ("Grep", {"pattern": "cart"}, "Found 1 file\nsrc/app.py"),
    "Gemini CLI": (
        "search_file_content",
        {"pattern": "cart"},
        'Found 1 match for pattern "cart" in path ".":\n'
        "---\nFile: src/app.py\nL1: import cart\n---",
    ),
    "Gemini CLI, glob": (
        "glob",
        {"pattern": "**/*.py"},
        'Found 1 file(s) matching "**/*.py" within /repo, sorted by modification time:\n'
        "/repo/src/app.py",
    ),
    "opencode": (
        "grep",
        {"pattern": "cart", "path": "/repo"},
        "Found 1 matches\n/repo/src/app.py:\n  Line 1: import cart",
    ),
    "opencode, glob": ("glob", {"pattern": "**/*.py"}, "/repo/src/app.py"),
    "Codex CLI": (
        "shell",
        {"command": ["bash", "-lc", "rg -n cart"], "workdir": "/repo"},
        "Process exited with code 0\nOutput:\nsrc/app.py:1:import cart\n",
    ),
    "mini-swe-agent": (
        "bash",
        {"command": "grep -rn cart ."},
        '{\n  "returncode": 0,\n  "output": "src/app.py:1:import cart\\n"\n}',
    ),
}


@pytest.mark.parametrize(("tool", "arguments", "result"), SEARCHES.values(), ids=SEARCHES)
def test_a_search_leads_to_the_files_that_it_finds(tool: str, arguments: Any, result: Any) -> None:
    seen = AGENT.observe(Call(tool, arguments), CallResult(result))
    assert seen is not None
    assert isinstance(seen.place, tuple)
    assert seen.exits == ("src/app.py",)


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ({"command": "cat app.py", "workdir": "/repo/src"}, "src/app.py"),
        ({"command": "cat app.py", "dir_path": "src"}, "src/app.py"),
        ({"command": "cat 'my file.py'", "cwd": "it's here"}, "it's here/my file.py"),
        ({"command": ["cat", "src/app.py"]}, "src/app.py"),
        ({"command": ["/bin/zsh", "-lc", "cd src && cat app.py"]}, "src/app.py"),
        ({"cmd": "cat src/app.py", "yield_time_ms": 1000}, "src/app.py"),
    ],
)
def test_a_command_is_read_in_its_folder(arguments: Any, place: str) -> None:
    seen = AGENT.observe(Call("shell", arguments), CallResult("import cart"))
    assert seen is not None
    assert seen.place == place
    assert list(AGENT.uses(Call("shell", arguments))) == [place]


def test_a_command_that_is_not_about_files_has_no_place_though_it_has_a_folder() -> None:
    call = Call("run_shell_command", {"command": "make", "directory": "src"})
    assert AGENT.observe(call, CallResult("ok")) is None


@pytest.mark.parametrize(
    "arguments",
    [
        "*** Begin Patch\n*** Update File: src/a.py\n@@\n*** Add File: src/b.py\n+x\n*** End Patch",
        {"input": "*** Begin Patch\n*** Delete File: src/b.py\n*** End Patch"},
        {"patchText": "*** Begin Patch\n*** Update File: /repo/src/b.py\n*** End Patch"},
        {"command": "apply_patch <<'E'\n*** Begin Patch\n*** Add File: src/b.py\n*** End Patch\nE"},
    ],
)
def test_a_patch_stands_at_its_last_file(arguments: Any) -> None:
    seen = AGENT.observe(Call("apply_patch", arguments), CallResult("Done!"))
    assert seen is not None
    assert seen.place == "src/b.py"
    assert len(seen.achieved) == 1


def test_a_patch_of_a_list_is_no_to_do_list() -> None:
    patch = "*** Begin Patch\n*** Update File: todo.md\n@@\n - [ ] pack\n*** End Patch"
    seen = AGENT.observe(Call("apply_patch", patch), CallResult("Done!"))
    assert seen is not None
    assert (seen.place, seen.tasks) == ("todo.md", ())


def test_the_same_call_with_the_same_result_is_no_news() -> None:
    def done(arguments: Any, result: Any) -> Any:
        seen = AGENT.observe(Call("Read", arguments), CallResult(result))
        assert seen is not None
        return seen.achieved

    first = done({"file_path": "a.py"}, "x = 1")
    assert done({"file_path": "a.py"}, "x = 1") == first
    assert done({"file_path": "a.py"}, "x = 2") != first
    assert done({"file_path": "a.py", "offset": 100}, "x = 1") != first
    again = {"content": "x = 1", "durationMs": 3}
    assert done({"file_path": "a.py"}, again) == done({"file_path": "a.py"}, {**again, "d": 4})


def test_a_change_without_a_place_is_news_and_no_move() -> None:
    seen = AGENT.observe(Call("Bash", {"command": "mv a.py b.py"}), CallResult(""))
    assert seen is not None
    assert (seen.place, len(seen.achieved)) == (None, 1)


def test_tasks_that_have_a_number_are_known_by_it() -> None:
    created = Call("TaskCreate", {"subject": "fix it", "description": "the total"})
    for result in ("Task #3 created successfully: fix it", {"task": {"id": "3"}}):
        seen = AGENT.observe(created, CallResult(result))
        assert seen is not None
        assert (seen.tasks, seen.achieved) == ((Task("#3"),), ())
    updated = Call("TaskUpdate", {"taskId": "3", "status": "completed"})
    seen = AGENT.observe(updated, CallResult("Updated task #3 status"))
    assert seen is not None
    assert seen.achieved == ("#3",)
    assert AGENT.observe(Call("TaskUpdate", {"taskId": "3"}), CallResult("Updated")) is None


@pytest.mark.parametrize(
    "result",
    [
        CallResult(ABSENT),
        CallResult("No such file", error=True),
        CallResult("cat: a.py: No such file or directory"),
    ],
)
def test_a_call_that_shows_nothing_stands_nowhere(result: CallResult) -> None:
    assert AGENT.observe(Call("Bash", {"command": "cat a.py"}), result) is None


def test_a_file_that_is_listed_is_no_folder() -> None:
    seen = AGENT.observe(Call("Bash", {"command": "ls a.py"}), CallResult("a.py\n"))
    assert seen is not None
    assert (seen.place, seen.exits) == ("a.py", None)


@pytest.mark.parametrize("remark", ["(3 entries)", "(Showing 2 of 9 entries. Use offset=3.)"])
def test_a_folder_that_opencode_reads_is_listed(remark: str) -> None:
    entries = f"<entries>\na.py\nlib/\n\n{remark}\n</entries>"
    text = f"<path>/repo/src</path>\n<type>directory</type>\n{entries}"
    seen = AGENT.observe(Call("read", {"filePath": "/repo/src"}), CallResult(text))
    assert seen is not None
    assert (seen.place, seen.exits) == ("src", ("src/a.py", "src/lib"))


def test_arguments_that_are_null_are_not_given() -> None:
    arguments = {"command": "view", "path": "/repo/Makefile", "file_text": None, "new_str": None}
    search = {**arguments, "pattern": None}
    for given in (arguments, search):
        seen = AGENT.observe(Call("file_editor", given), CallResult("all: test"))
        assert seen is not None
        assert seen.place == "Makefile"


@pytest.mark.parametrize(
    "text",
    [
        "plain text",
        "Output: of a tool that has no frame",
        "Process exited with code 0\nno output",
        "<untrusted_context>\nno label\n</untrusted_context>",
        "Directory listing for x",
        "<path>a</path>\nnothing",
        "",
    ],
)
def test_text_in_no_known_frame_is_not_lost(text: str) -> None:
    shown = printed(text)
    assert isinstance(shown, str)
    words = text.replace("<untrusted_context>", "").replace("</untrusted_context>", "").split()
    assert shown.split()[-2:] == words[-2:]

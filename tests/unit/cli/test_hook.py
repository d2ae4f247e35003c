"""``tidegauge hook``: shows what changes, asks, and says what was done."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click.testing
import pytest

from support.processes import without_otel
from support.requirements import needs
from support.terminal_text import running
from tidegauge.cli.hook import hook
from tidegauge.coding_agents.agents import SETTINGS
from tidegauge.coding_agents.installation import AgentFolders


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CODEX_HOME", "CLAUDE_CONFIG_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    (tmp_path / ".codex").mkdir()
    return tmp_path


def run(*arguments: str, given: str = "") -> click.testing.Result:
    return click.testing.CliRunner().invoke(hook, list(arguments), input=given)


def test_it_shows_the_changes_and_asks(home: Path) -> None:
    ran = run("install", given="n\n")
    assert '+  "hooks": {' in ran.output
    assert ran.output.endswith("nothing was changed\n")
    assert not (home / ".codex" / "hooks.json").exists()
    ran = run("install", given="y\n")
    assert f"codex: {home}/.codex/hooks.json was written" in ran.output
    assert "trust" in ran.output
    assert ran.output.endswith("next: tidegauge watch\n")
    assert (home / ".local" / "share" / "tidegauge" / "hook_client.py").exists()


def test_it_takes_the_hooks_out_again(home: Path) -> None:
    (home / ".codex" / "hooks.json").write_text("{}")
    assert run("install", "--yes", "codex", "qwen").exit_code == 0
    assert "hooks" in json.loads((home / ".qwen" / "settings.json").read_text())
    assert "the hooks are installed: codex" in run("install", "--yes", "codex").output
    ran = run("remove", "--yes")
    assert f"qwen: {home}/.qwen/settings.json was removed" in ran.output
    assert (home / ".codex" / "hooks.json").read_text() == "{}"
    left = sorted(home.rglob("*"))
    assert run("remove").output == "there is no hook to remove\n"
    assert sorted(home.rglob("*")) == left
    assert not (home / ".local" / "share" / "tidegauge").exists()


def test_without_an_agent_it_names_them(home: Path) -> None:
    (home / ".codex").rmdir()
    assert run("install").output.startswith("no agent was found; name one of codex, claude")


def test_an_unknown_agent_is_wrong_usage(home: Path) -> None:
    assert run("install", "aider").exit_code == 2


DENY = {"permissions": {"deny": ["Bash(rm *)"]}}
AGENTS = [agent for agent, where in SETTINGS.items() if not where.own]
"""Those whose settings are not ours alone."""


def settings(home: Path, agent: str) -> Path:
    path = AgentFolders(home, home / "data", {}, sys.executable).settings(agent)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def meanwhile(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Let something happen between the question and the answer, which is yes."""

    def confirm(*_: object, **__: object) -> bool:
        change()
        return True

    monkeypatch.setattr(click, "confirm", confirm)


def hooked(path: Path) -> bool:
    return "hook_client.py" in path.read_text()


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("before", [None, "{}", '{"model": "big"}\n', '{\n\t"hooks": {}\n}'])
def test_what_was_saved_while_it_asked_stays(
    home: Path, tidegauge, monkeypatch: pytest.MonkeyPatch, agent: str, before: str | None
) -> None:
    path = settings(home, agent)
    if before is not None:
        path.write_text(before)

    def save() -> None:
        path.write_text(json.dumps({**json.loads(path.read_text()), **DENY}, indent=4))
        path.chmod(0o640)

    def write_new() -> None:
        path.write_text(json.dumps(DENY))

    meanwhile(monkeypatch, write_new if before is None else save)
    ran = tidegauge("hook", "install", agent)
    assert ran.code == 0, ran.err
    assert "was written; what was new in it was kept" in ran.out
    found = json.loads(path.read_text())
    assert found["permissions"] == DENY["permissions"]
    assert hooked(path)
    if before is not None:
        assert path.stat().st_mode & 0o777 == 0o640
    more = {"permissions": {"deny": ["Bash(rm *)", "WebFetch"]}}
    meanwhile(monkeypatch, lambda: path.write_text(json.dumps({**found, **more})))
    ran = tidegauge("hook", "remove", agent)
    assert ran.code == 0, ran.err
    left = json.loads(path.read_text())
    assert left.pop("permissions") == more["permissions"]
    assert left in ({}, json.loads(before or "{}"), {"model": "big"})


def test_hooks_that_came_while_it_asked_are_not_doubled(
    home: Path, tidegauge, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settings(home, "codex")
    path.write_text('{"model": "big"}')
    meanwhile(monkeypatch, lambda: run("install", "--yes", "codex"))
    assert tidegauge("hook", "install", "codex").code == 0
    assert path.read_text().count("hook_client.py") == 4
    meanwhile(monkeypatch, lambda: run("remove", "--yes", "codex"))
    assert tidegauge("hook", "remove", "codex").code == 0
    assert path.read_text() == '{"model": "big"}'


def test_a_file_that_went_while_it_asked_is_made_and_not_missed(
    home: Path, tidegauge, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settings(home, "codex")
    path.write_text("{}")
    meanwhile(monkeypatch, path.unlink)
    assert tidegauge("hook", "install", "codex").code == 0
    assert hooked(path)
    meanwhile(monkeypatch, path.unlink)
    assert tidegauge("hook", "remove", "codex").code == 0
    assert not path.exists()


@pytest.mark.parametrize("agent", SETTINGS)
def test_a_link_that_came_while_it_asked_is_not_followed(
    home: Path, tidegauge, monkeypatch: pytest.MonkeyPatch, agent: str
) -> None:
    path, elsewhere = settings(home, agent), home / "elsewhere.json"
    elsewhere.write_text("{}")
    meanwhile(monkeypatch, lambda: path.symlink_to(elsewhere))
    ran = tidegauge("hook", "install", agent)
    assert (ran.code, len(ran.faults)) == (2, 1)
    assert "replaced by a link" in ran.err or "not of tidegauge" in ran.err
    assert elsewhere.read_text() == "{}"


@pytest.fixture
def deadline() -> Iterator[None]:
    """Ends a test that waits for what never comes."""

    def fail(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def deep(levels: int) -> str:
    return '{"a":' + "[" * levels + "]" * levels + "}"


def as_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def as_folder(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.mkdir()


def as_loop(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path)


EVENTS = ("PreToolUse", "BeforeTool")
"""One of each agent."""

BAD: dict[str, str | bytes | Callable[[Path], object]] = {
    "nothing": "",
    "no JSON": '{"hooks": ',
    "comments": "// mine\n{}",
    "a list": "[]",
    "a number": "5",
    "hooks that are text": '{"hooks": "none"}',
    "an event that is a number": json.dumps({"hooks": dict.fromkeys(EVENTS, 5)}),
    "a group that is a number": json.dumps({"hooks": {event: [5] for event in EVENTS}}),
    "a group of a number": json.dumps({"hooks": {event: [{"hooks": 5}] for event in EVENTS}}),
    "a hook that is a number": json.dumps({"hooks": {event: [{"hooks": [5]}] for event in EVENTS}}),
    "a name twice": '{"hooks": {"Stop": []}, "hooks": {}}',
    "many levels": deep(100_000),
    "levels that are read here and not there": deep(950),
    "a number of many digits": '{"a": ' + "1" * 10_000 + "}",
    "no UTF-8": b'{"a": "\xff"}',
    "UTF-16": '{"a": 1}'.encode("utf-16"),
    "zeros": b"\0" * 9,
    "a pipe": as_pipe,
    "a folder": as_folder,
    "a link to itself": as_loop,
    "17 MiB": '{"a": "' + "x" * (17 << 20) + '"}',
}


def make(path: Path, bad: str | bytes | Callable[[Path], object]) -> None:
    if callable(bad):
        bad(path)
    else:
        path.write_bytes(bad if isinstance(bad, bytes) else bad.encode())


def below(home: Path) -> dict[Path, Any]:
    """Every file, and what is in it."""
    return {
        path: path.read_bytes() if path.is_file() else path.lstat().st_mode
        for path in home.rglob("*")
        if not path.is_relative_to(home / ".local")
    }


@pytest.mark.parametrize("asked", [False, True], ids=["before it asks", "while it asks"])
@pytest.mark.parametrize("what", ["install", "remove"])
@pytest.mark.parametrize("agent", ["codex", "gemini", "copilot", "opencode"])
@pytest.mark.parametrize("bad", BAD)
def test_what_is_no_settings_file_is_one_line_and_stays(
    home: Path,
    tidegauge,
    deadline: None,
    monkeypatch: pytest.MonkeyPatch,
    bad: str,
    agent: str,
    what: str,
    asked: bool,
) -> None:
    other = next(one for one in AGENTS if one != agent)
    if what == "remove":
        run("install", "--yes", other, agent)
    path = settings(home, agent)
    before: dict[Path, Any] = {}

    def spoil() -> None:
        make(path, BAD[bad])
        before.update(below(home))

    if asked:
        meanwhile(monkeypatch, spoil)
    else:
        spoil()
    ran = tidegauge("hook", what, other, agent, *([] if asked else ["--yes"]))
    if what == "remove" and not ran.faults:
        assert ran.code == 0
        assert below(home)[path] == before[path], "a file without our hooks is no matter of ours"
        return
    assert ran.code in (1, 2), ran
    assert len(ran.faults) == 1, ran.err
    assert str(path) in ran.err
    assert "internal error" not in ran.err
    assert below(home) == before


@pytest.mark.parametrize("levels", [10, 90, 98, 99, 100, 300, 500, 700, 900, 990, 1_000, 2_000])
def test_how_many_levels_are_read_depends_on_nothing(home: Path, tidegauge, levels: int) -> None:
    path = settings(home, "codex")
    path.write_text(deep(levels))
    for what in ("install", "remove"):
        ran = tidegauge("hook", what, "codex", "--yes")
        assert ran.code == (0 if levels <= 99 else 2)
    assert path.read_text() == deep(levels)


def touched(monkeypatch: pytest.MonkeyPatch, path: Path, texts: Iterator[str]) -> None:
    """Let another program write a file just before it is replaced."""
    made = tempfile.mkstemp

    def mkstemp(**options: Any) -> tuple[int, str]:
        if options["prefix"] == f".{path.name}.":
            text = next(texts, None)
            if text is not None:
                path.write_text(text)
        return made(**options)

    monkeypatch.setattr(tempfile, "mkstemp", mkstemp)


def test_what_is_saved_while_it_writes_stays(
    home: Path, tidegauge, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = settings(home, "gemini")
    path.write_text("{}")
    touched(monkeypatch, path, iter(['{"a": 1}', '{"a": 1, "b": 2}']))
    assert tidegauge("hook", "install", "gemini", "--yes").code == 0
    assert json.loads(path.read_text()).items() >= {"a": 1, "b": 2}.items()
    assert hooked(path)
    assert tidegauge("hook", "remove", "--yes").code == 0
    assert path.read_text() == '{"a": 1, "b": 2}', "what was there last is restored"
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_file_that_changes_all_the_time_is_left_and_so_are_all_others(
    home: Path, tidegauge, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, path = settings(home, "codex"), settings(home, "gemini")
    other.write_text('{"model": "big"}')
    path.write_text("{}")
    texts = (json.dumps({"n": number}) for number in range(100))
    touched(monkeypatch, path, texts)
    ran = tidegauge("hook", "install", "codex", "gemini", "--yes")
    assert (ran.code, len(ran.faults)) == (2, 1)
    assert "all the time" in ran.err
    assert other.read_text() == '{"model": "big"}'
    assert list(json.loads(path.read_text())) == ["n"]
    assert not list((home / ".local" / "share" / "tidegauge").iterdir())


def test_what_is_taken_back_is_not_what_others_wrote(
    home: Path, tidegauge, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = settings(home, "codex"), settings(home, "gemini")
    replace = os.replace

    def failing(source: str, target: Path) -> None:
        if target == second:
            first.write_text(json.dumps(DENY))
            raise OSError(28, "No space left on device", str(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    ran = tidegauge("hook", "install", "codex", "gemini", "--yes")
    assert (ran.code, len(ran.faults)) == (1, 1)
    assert json.loads(first.read_text()) == DENY


@pytest.mark.parametrize("what", ["install", "remove"])
def test_without_an_answer_it_says_how_to_do_without_one(home: Path, tidegauge, what: str) -> None:
    if what == "remove":
        run("install", "--yes", "codex")
    before = below(home)
    ran = tidegauge("hook", what, "codex")
    assert ran.code == 2
    assert ran.faults == [
        "tidegauge: there is no answer, so nothing was changed; use --yes to make the changes "
        "without a question"
    ]
    assert below(home) == before


@needs(hasattr(os, "openpty"), "this platform has no pseudo terminals")
@pytest.mark.parametrize("answer", ["y\n", "n\n", "\x04", "\x03"], ids=["yes", "no", "end", "stop"])
def test_on_a_terminal_the_answer_counts(home: Path, answer: str) -> None:
    path = settings(home, "claude")
    path.write_text("{}")
    program = "from tidegauge.cli.main import main; main()"
    command = [sys.executable, "-c", program, "hook", "install", "claude"]
    env = without_otel(HOME=str(home), PATH="")
    with running(command, tty=True, env=env, start_new_session=True) as ran:
        ran.wait_for("Make these changes?")
        path.write_text(json.dumps(DENY))
        if answer == "\x03":
            ran.process.send_signal(signal.SIGINT)
        else:
            ran.type(answer.encode())
        code = ran.ended()
    assert code == {"y\n": 0, "n\n": 0, "\x04": 2, "\x03": 130}[answer]
    found = json.loads(path.read_text())
    assert found["permissions"] == DENY["permissions"]
    assert ("hooks" in found) == (answer == "y\n")
    assert (b"--yes" in ran.printed) == (answer == "\x04")


KEPT: dict[str, str | bytes | Callable[[Path], object]] = {
    "nothing": "",
    "a list": "[]",
    "a number": '{"before": 5, "after": "DIGEST", "folders": []}',
    "folders that are text": '{"before": "{}", "after": "DIGEST", "folders": "/"}',
    "folders that are numbers": '{"before": "{}", "after": "DIGEST", "folders": [5]}',
    "many levels": deep(100_000),
    "no UTF-8": b"\xff",
    "a pipe": as_pipe,
}


@pytest.mark.parametrize("kept", KEPT)
def test_what_was_kept_and_cannot_be_read_is_not_needed(
    home: Path, tidegauge, deadline: None, kept: str
) -> None:
    path = settings(home, "codex")
    path.write_text('{"model": "big"}')
    run("install", "--yes", "codex")
    state = home / ".local" / "share" / "tidegauge" / "codex.json"
    digest = json.loads(state.read_text())["after"]
    text = KEPT[kept]
    make(state, text.replace("DIGEST", digest) if isinstance(text, str) else text)
    ran = tidegauge("hook", "remove", "--yes")
    assert ran.code == 0, ran.err
    assert path.read_text() == '{"model": "big"}'
    assert not state.exists()


def test_an_agent_that_is_named_twice_is_one(home: Path, tidegauge) -> None:
    ran = tidegauge("hook", "install", "codex", "codex", "--yes")
    assert ran.out.count("was written") == 1


def test_a_place_that_is_relative_or_no_text_makes_no_hook_that_is_not_found(
    home: Path, tidegauge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "here")
    assert tidegauge("hook", "install", "codex", "--yes").code == 0
    assert str(home / ".local") in settings(home, "codex").read_text()
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "\udcff"))
    ran = tidegauge("hook", "install", "gemini", "--yes")
    assert (ran.code, len(ran.faults)) == (2, 1)
    assert "set XDG_DATA_HOME" in ran.err

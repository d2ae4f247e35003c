"""Hooks come into the settings of agents and out again, and nothing else changes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support.requirements import missing
from tidegauge.coding_agents.agents import SETTINGS
from tidegauge.coding_agents.installation import AgentFolders, Change, apply
from tidegauge.coding_agents.installation import install as plan_install
from tidegauge.coding_agents.installation import remove as plan_remove
from tidegauge.coding_agents.json_edit import find_value, remove_item
from tidegauge.errors import ConfigurationError

JSON_AGENTS = [agent for agent, where in SETTINGS.items() if not where.own]
FOREIGN = {"type": "command", "command": "notify-send done"}
TEXTS = {
    "empty": "{}",
    "one line": '{"model": "big", "hooks": {"Stop": [{"hooks": [{"type": "command"}]}]}}',
    "two spaces": '{\n  "model": "big"\n}\n',
    "tabs": '{\n\t"theme": "dark",\n\t"hooks": {}\n}',
    "four spaces, CRLF": '{\r\n    "a": [1, 2],\r\n    "b": {"c": null}\r\n}\r\n',
    "foreign hooks": json.dumps(
        {
            "hooks": {
                event: [{"hooks": [FOREIGN]}]
                for event in ("Stop", "PreToolUse", "BeforeTool", "PostToolUse")
            },
            "last": '\u00fc {["]}',
        },
        indent=2,
        ensure_ascii=False,
    ),
    "spread out": '{ "hooks" :\n  { "Stop"\n : [ ] , "AfterAgent":[\n]} , "x":1 }\n\n',
}


@pytest.fixture
def user(tmp_path: Path) -> AgentFolders:
    return AgentFolders(tmp_path, tmp_path / "data" / "tidegauge", {"PATH": ""}, "/usr/bin/python3")


def install(user: AgentFolders, *agents: str) -> list[Change]:
    changes = plan_install(user, agents)
    apply(user, changes, installing=True)
    return changes


def remove(user: AgentFolders, *agents: str) -> list[Change]:
    changes = plan_remove(user, agents)
    apply(user, changes, installing=False)
    return changes


def written(user: AgentFolders, agent: str, text: str) -> Path:
    path = user.settings(agent)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


def commands(settings: Any) -> Sequence[str]:
    groups = [group for groups in settings["hooks"].values() for group in groups]
    return [hook.get("command", "") for group in groups for hook in group["hooks"]]


@pytest.mark.parametrize("agent", JSON_AGENTS)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_was_there_stays(user: AgentFolders, agent: str, text: str) -> None:
    path = written(user, agent, text)
    path.chmod(0o640)
    install(user, agent)
    before, after = json.loads(text), json.loads(path.read_bytes())
    where = SETTINGS[agent]
    assert path.stat().st_mode & 0o777 == 0o640
    for event in (*where.before, *where.other):
        assert after["hooks"][event][-1]["hooks"][0]["command"] == user.command(agent)
    for event, groups in before.get("hooks", {}).items():
        assert after["hooks"][event][: len(groups)] == groups
    assert {**after, "hooks": 0} == {**before, "hooks": 0}
    kept = [line for line in text.splitlines() if line.strip(" \t{}[],")]
    shown = path.read_bytes().decode()
    if "\n" in text and "\n : [" not in text:
        assert all(line.rstrip(",") in shown for line in kept if '"hooks": {}' not in line)
    assert ("\r\n" in shown) == ("\r\n" in text)
    assert not install(user, agent), "twice is once"
    remove(user, agent)
    assert path.read_bytes() == text.encode()
    assert not remove(user, agent)


@pytest.mark.parametrize("agent", JSON_AGENTS)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_what_changed_in_between_stays_too(user: AgentFolders, agent: str, text: str) -> None:
    path = written(user, agent, text)
    install(user, agent)
    settings = json.loads(path.read_text())
    settings["new"] = [1]
    path.write_text(json.dumps(settings, indent=2))
    remove(user, agent)
    left, before = json.loads(path.read_text()), json.loads(text)
    assert left.pop("new") == [1]
    for one in (left, before):
        one["hooks"] = {event: own for event, own in one.get("hooks", {}).items() if own}
    assert left == before


def test_nothing_is_left_of_what_was_not_there(user: AgentFolders, tmp_path: Path) -> None:
    (tmp_path / ".config" / "opencode").mkdir(parents=True)
    (tmp_path / ".copilot").mkdir()
    before = sorted(tmp_path.rglob("*"))
    install(user, *SETTINGS)
    install(user._replace(python="/opt/python3"), *SETTINGS)
    remove(user, "codex")
    assert (user.data / "hook_client.py").exists(), "the other agents run it"
    remove(user, *SETTINGS)
    user.data.parent.rmdir()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_in_which_something_else_is_stays(user: AgentFolders, tmp_path: Path) -> None:
    install(user, "copilot")
    (tmp_path / ".copilot" / "hooks" / "mine.json").write_text("{}")
    remove(user, "copilot")
    assert (tmp_path / ".copilot" / "hooks" / "mine.json").exists()


@pytest.mark.parametrize("agent", SETTINGS)
def test_a_file_that_was_not_there_is_removed(user: AgentFolders, agent: str) -> None:
    (change,) = install(user, agent)
    assert change.diff().startswith("--- /dev/null\n")
    assert change.path.stat().st_mode & 0o077 == 0
    assert (user.data / "hook_client.py").exists()
    remove(user, agent)
    assert not change.path.exists()


def test_the_hooks_of_another_installation_are_replaced(user: AgentFolders) -> None:
    path = written(user, "codex", TEXTS["foreign hooks"])
    install(user, "codex")
    moved = user._replace(python="/opt/python3")
    install(moved, "codex")
    found = [one for one in commands(json.loads(path.read_text())) if "tidegauge" in one]
    assert set(found) == {moved.command("codex")}
    assert len(found) == 4
    remove(user, "codex")
    assert path.read_text() == TEXTS["foreign hooks"]


def test_a_group_that_others_share_keeps_their_hooks(user: AgentFolders) -> None:
    path = written(user, "codex", "{}")
    install(user, "codex")
    settings = json.loads(path.read_text())
    settings["hooks"]["Stop"][0]["hooks"].insert(0, FOREIGN)
    path.write_text(json.dumps(settings))
    remove(user, "codex")
    assert json.loads(path.read_text()) == {"hooks": {"Stop": [{"hooks": [FOREIGN]}]}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1,}', "is not valid JSON"),
        ("// mine\n{}", "is not valid JSON"),
        ("", "is not valid JSON"),
        ("[]", "has hooks in another form"),
        ('{"hooks": []}', "has hooks in another form"),
        ('{"hooks": {"Stop": {}}}', "has hooks in another form"),
    ],
)
def test_a_file_that_cannot_be_read_stays_and_so_do_all_others(
    user: AgentFolders, text: str, said: str
) -> None:
    other, path = written(user, "gemini", "{}"), written(user, "codex", text)
    with pytest.raises(ConfigurationError, match=said):
        install(user, "gemini", "codex")
    assert (other.read_text(), path.read_text()) == ("{}", text)
    assert not user.data.exists()


def test_another_setting_beside_the_events_is_kept(user: AgentFolders) -> None:
    path = written(user, "gemini", '{"hooks": {"enabled": true, "disabled": []}}')
    install(user, "gemini")
    assert json.loads(path.read_text())["hooks"]["enabled"] is True


def test_a_file_that_may_not_be_written_stays(
    user: AgentFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(user, "codex", "{}")
    access = os.access
    monkeypatch.setattr(os, "access", lambda file, mode: file != path and access(file, mode))
    with pytest.raises(PermissionError, match=r"Permission denied: .*hooks\.json"):
        install(user, "gemini", "codex")
    assert path.read_text() == "{}"
    assert not user.settings("gemini").exists()


def test_a_change_that_fails_takes_back_those_before(
    user: AgentFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [written(user, agent, "{}") for agent in ("codex", "gemini")]
    replace = os.replace

    def failing(source: str, target: Path) -> None:
        if "gemini" in str(target) and str(target).endswith("settings.json"):
            raise OSError(28, "No space left on device", str(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", failing)
    with pytest.raises(OSError, match="No space left"):
        install(user, "codex", "gemini")
    assert [path.read_text() for path in paths] == ["{}", "{}"]
    assert not [one for path in paths for one in path.parent.iterdir() if one != path]


def test_a_link_stays_a_link(user: AgentFolders, tmp_path: Path) -> None:
    target = tmp_path / "dotfiles.json"
    target.write_text("{}")
    (user.home / ".codex").mkdir()
    (user.home / ".codex" / "hooks.json").symlink_to(target)
    install(user, "codex")
    assert "tidegauge" in target.read_text()
    assert (user.home / ".codex" / "hooks.json").is_symlink()


@pytest.mark.parametrize(
    ("agent", "text"),
    [
        ("opencode", "export default 1\n"),
        ("copilot", '{"version": 1, "hooks": {"Stop": [{"bash": "./tidegauge/log.sh"}]}}'),
        ("copilot", "\x00{"),
    ],
)
def test_a_file_of_that_name_that_is_not_ours_stays(
    user: AgentFolders, agent: str, text: str
) -> None:
    path = written(user, agent, text)
    with pytest.raises(ConfigurationError, match="is not of tidegauge; rename it"):
        install(user, agent)
    assert not remove(user, agent)
    assert path.read_text() == text


def test_a_file_of_our_own_names_each_event_once(user: AgentFolders) -> None:
    (change,) = install(user, "copilot")
    assert change.path == user.home / ".copilot" / "hooks" / "tidegauge.json"
    settings = json.loads(change.path.read_text())
    where = SETTINGS["copilot"]
    assert settings["version"] == 1
    assert list(settings["hooks"]) == [*where.before, *where.other]
    assert {hook["command"] for [hook] in settings["hooks"].values()} == {user.command("copilot")}
    assert not install(user, "copilot"), "twice is once"
    moved = user._replace(python="/opt/python3")
    (change,) = install(moved, "copilot")
    assert "/usr/bin/python3" not in change.path.read_text()


@pytest.mark.parametrize("agent", SETTINGS)
def test_settings_are_where_the_user_has_moved_them(user: AgentFolders, agent: str) -> None:
    moved, where = user.home / "moved", SETTINGS[agent].folder
    for variable in filter(None, [where.variable]):
        there = user._replace(environ={variable: str(moved)})
        assert there.settings(agent) == moved / SETTINGS[agent].file
    there = user._replace(environ={"XDG_CONFIG_HOME": str(moved)})
    if agent == "opencode":
        assert there.settings(agent) == moved / "opencode/plugin/tidegauge.js"
    else:
        assert there.settings(agent) == user.home / where.path / SETTINGS[agent].file


def test_agents_are_found_by_their_folder_or_their_program(
    user: AgentFolders, tmp_path: Path
) -> None:
    assert user.found() == []
    (user.home / ".gemini").mkdir()
    program = tmp_path / "bin" / "qwen"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    environ = {"PATH": str(program.parent), "CODEX_HOME": str(moved)}
    assert user._replace(environ=environ).found() == ["codex", "gemini", "qwen"]
    assert user._replace(environ=environ).settings("codex") == moved / "hooks.json"


def test_the_command_succeeds_and_is_silent_without_its_file(user: AgentFolders) -> None:
    if os.name == "nt":
        missing("this platform has no sh")
    for python in ("/usr/bin/env", "/nowhere/python3"):
        command = user._replace(python=python).command("codex")
        ran = subprocess.run(["sh", "-c", command], capture_output=True, check=False)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, b"", b"")


def test_values_are_found_in_texts() -> None:
    text = '{"a": [0, {"b": "\\"}"}], "a": [1, [2]]}'
    assert find_value(text, ("a", 1)) == text.index("[2]"), "the last of equal names counts"
    assert find_value(text, ("c",)) is None
    assert find_value("3", ("a",)) is None
    assert remove_item('{ "only": 1 }', 0, "only") == "{}"

"""``tidegauge hook``: shows what changes, asks, and says what was done."""

from __future__ import annotations

import json
from pathlib import Path

import click.testing
import pytest

from tidegauge.cli.hook import hook


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
    assert run("install").output.startswith("no agent was found; name one of codex, gemini")


def test_an_unknown_agent_is_wrong_usage(home: Path) -> None:
    assert run("install", "aider").exit_code == 2

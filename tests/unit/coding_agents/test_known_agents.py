"""Every agent has all that it needs: payloads and a session in the tests, and rows in the docs.

``python tests/unit/coding_agents/test_known_agents.py`` writes the tables of ``docs/watch.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from support.hook_payloads import PAYLOADS
from support.session_samples import CALL, SAMPLES
from tidegauge.coding_agents.agents import AGENTS, SESSIONS, SETTINGS, find_sessions, guess_agent
from tidegauge.coding_agents.known_agent import Folder, KnownAgent
from tidegauge.coding_agents.session_files import AnswerTokens
from tidegauge.coding_agents.tails import default_folders

ROOT: Final = Path(__file__).parents[3]
DOCS: Final = ROOT / "docs" / "watch.md"
HOOKS: Final = [name for name, agent in AGENTS.items() if agent.hook is not None]
FOLLOWED: Final = [name for name, kind in SESSIONS.items() if kind.folder is not None]


def _shown(folder: Folder, file: str = "") -> str:
    """A folder, or a file in it, as the docs have it."""
    home = Path("/~")
    names = ["XDG_CONFIG_HOME", "XDG_DATA_HOME"] if folder.variable is None else [folder.variable]
    usual = folder.find(home, {})
    named = [(name, folder.find(home, {name: f"/${name}"})) for name in names]
    found = [path for _, path in named if path != usual] + [usual]
    return " or ".join(f"`{(path / file).as_posix()[1:]}`" for path in found)


def _hooked(agent: KnownAgent) -> list[str]:
    hook = agent.hook
    stop = "yes" if hook.stops else "refuses every further call until the agent ends"
    unseen = "" if agent.versions else "; by its documentation, it was not run"
    return [f"{agent.title} {agent.versions}".strip(), hook.nudges, "yes", f"{stop}{unseen}"]


def _tables() -> Iterator[tuple[str, list[list[str]]]]:
    """The tables of the docs, by their first lines."""
    agents = [AGENTS[name] for name in SETTINGS]
    yield "| | nudge | refuse | stop |", [_hooked(agent) for agent in agents]
    followed = [AGENTS[name] for name in FOLLOWED]
    yield "| | files |", [[one.title, _shown(one.sessions.folder)] for one in followed]
    rows = []
    for agent in agents:
        where = agent.settings
        note = where.note or ("its own file" if where.own else "")
        rows.append([agent.title, _shown(where.folder, where.file), note])
    yield "| | file | |", rows
    rows = [
        [f"`{name}`", ", ".join(f"`{one}`" for one in kind.files), kind.note]
        for name, kind in SESSIONS.items()
    ]
    rows.append(["`auto`", "all of these", "finds out by the content, and says what it found"])
    yield "| `--from` | in a folder | |", rows


def with_the_tables(page: str) -> str:
    """The page with the tables of the agents as they must be."""
    lines = page.split("\n")
    for head, rows in _tables():
        begin = lines.index(head) + 2  # after the line below the heads of the columns
        end = next(at for at in range(begin, len(lines)) if not lines[at].startswith("|"))
        lines[begin:end] = [f"| {' | '.join(row)} |".replace("|  |", "| |") for row in rows]
    return "\n".join(lines)


def test_the_tables_in_the_docs_have_all_agents() -> None:
    page = DOCS.read_text()
    assert page == with_the_tables(page), (
        "docs/watch.md is out of date. Run: "
        ".venv/bin/python tests/unit/coding_agents/test_known_agents.py"
    )


def test_an_agent_has_its_name_everywhere() -> None:
    for name, agent in AGENTS.items():
        assert agent.name == name
        assert agent.hook is not None or agent.settings is None, f"{name} has no hook to install"
        assert agent.sessions is None or agent.sessions.transcript.agent == name
    assert PAYLOADS.keys() == set(HOOKS), "tests/support/hook_payloads.py: payloads of each agent"
    assert SAMPLES.keys() == SESSIONS.keys(), "tests/support/session_samples.py: one of each agent"


@pytest.mark.parametrize("name", SESSIONS)
def test_a_session_is_found_known_and_read(name: str, tmp_path: Path) -> None:
    path, kind = SAMPLES[name](tmp_path), SESSIONS[name]
    assert find_sessions(tmp_path, name) == [path], f"{name}: its pattern does not find {path.name}"
    assert guess_agent(path) == name
    parts = list(kind.read(path))
    assert [part.error for part in parts if part.error is not None] == []
    start, step, end = (line for part in parts for line in part.lines)
    assert (start["agent"], start["task"], end["type"]) == (name, "find it", "end")
    assert step["calls"] == [{"action": "ls", "args": CALL, "outcome": "none"} | _error(step)]


def _error(step: dict[str, Any]) -> dict[str, Any]:
    """Whether the call failed, where the agent says so."""
    found = step["calls"][0].get("error")
    assert found in (None, False)
    return {} if found is None else {"error": found}


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_session_that_is_followed_has_the_same_lines(name: str, tmp_path: Path) -> None:
    path, kind = SAMPLES[name](tmp_path), SESSIONS[name]
    assert path.match(kind.followed)
    tail = kind.tail(path, kind.transcript, 0.0)
    look = tail.look()
    assert look is not None
    read = [line for part in kind.read(path) for line in part.lines]
    assert [*look.lines, *tail.close()] == read
    assert tail.session_of(read[0]["run"]) in read[0]["run"]


@pytest.mark.parametrize("name", [name for name, kind in SESSIONS.items() if kind.tokens])
def test_tokens_are_in_the_file_before_the_call_has_ended(name: str, tmp_path: Path) -> None:
    path = SAMPLES[name](tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    if name != "gemini":  # it writes an answer again, with its calls and their results
        path.write_bytes(b"".join(lines[:-1]))
    assert AnswerTokens(path, SESSIONS[name].transcript).take("1") == 7


@pytest.mark.parametrize("name", FOLLOWED)
def test_its_folder_follows_its_variable(name: str, tmp_path: Path) -> None:
    folder = SESSIONS[name].folder
    home, moved = tmp_path / "home", tmp_path / "moved"
    usual = folder.find(home, {})
    assert usual == home / folder.path / folder.part
    for variable in filter(None, [folder.variable]):
        assert folder.find(home, {variable: str(moved)}) == moved / folder.part
        assert folder.find(home, {variable: ""}) == usual
    assert len(default_folders({})) == len(FOLLOWED)


if __name__ == "__main__":
    DOCS.write_text(with_the_tables(DOCS.read_text()))

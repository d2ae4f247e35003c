"""Sessions that are followed while they are written: the same runs as when they are read whole."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.requirements import missing
from tidegauge.coding_agents.agents import SESSIONS
from tidegauge.coding_agents.claude import ClaudeTranscript
from tidegauge.coding_agents.known_agent import Sessions
from tidegauge.coding_agents.sessions import HookSessions
from tidegauge.coding_agents.tails import SessionFolder, Tails, read_folders
from tidegauge.events import Decision, Outcome, RunEnded, RunStarted, Step, StepSink
from tidegauge.pipeline import Pipeline
from tidegauge.pipeline.settings import Settings
from tidegauge.recordings.line_replay import Replay
from tidegauge.recordings.step_events import parse_line
from tidegauge.safety.guard import internal_errors

DATA = Path(os.environ.get("TIDEGAUGE_DATA", Path(__file__).parents[4] / "shared" / "data"))
CAPTURES = sorted(DATA.glob("coding_agents/*/*/transcript.*")) + sorted(
    DATA.glob("coding_agents/openhands/*/events")
)
NAMES = {
    "codex": "rollout-1.jsonl",
    "gemini": "session-1.jsonl",
    "qwen": "1.jsonl",
    "claude": "1.jsonl",
    "opencode": "opencode.db",
    "openhands": "events",
    "mini-swe-agent": "1.traj.json",
}


class Events(StepSink):
    """Takes steps, and keeps what it was given."""

    def __init__(self) -> None:
        self.all: list[Any] = []

    def run_started(self, event: RunStarted) -> None:
        self.all.append(event)

    def step_issued(self, event: Step) -> Decision:
        self.all.append(event)
        return Decision()

    def step_observed(self, event: Outcome) -> Decision:
        self.all.append(event)
        return Decision()

    def run_ended(self, event: RunEnded) -> None:
        self.all.append(event)

    def of_runs(self) -> dict[str, list[Any]]:
        """What was reported of each run, but for the session's id."""
        found: dict[str, list[Any]] = {}
        for event in self.all:
            kept = event
            if isinstance(event, RunStarted):
                kept = replace(event, conversation=None, observe_only=False)
            if isinstance(event, RunEnded):
                kept = replace(event, reason=None)
            found.setdefault(event.run, []).append(kept)
        return found

    @property
    def steps(self) -> int:
        return sum(isinstance(event, Step) for event in self.all)


class Following:
    """Tails of one folder, with a clock that each look moves on."""

    def __init__(
        self, agent: str, folder: Path, sessions: Sessions | None = None, **given: Any
    ) -> None:
        self.events = Events()
        self.time = 0.0
        self.reported: set[str] = set()
        self.began: list[tuple[str, str]] = []
        self.tails = Tails(
            self.events,
            [SessionFolder(sessions or SESSIONS[agent], folder)],
            is_reported=lambda _, session: session in self.reported,
            began=lambda agent, session: self.began.append((agent, session)),
            clock=lambda: self.time,
            **{"now": lambda: 0.0, **given},
        )

    def look(self, times: int = 1, seconds: float = 10.0) -> None:
        for _ in range(times):
            self.time += seconds
            self.tails.look()

    def end(self) -> Events:
        self.look(2)
        self.tails.close()
        return self.events


def whole(path: Path, agent: str) -> Events:
    """The session as it is read whole."""
    events = Events()
    replay = Replay(events)
    for part in SESSIONS[agent].read(path):
        for line in part.lines:
            replay.feed(parse_line(orjson.dumps(line)))
    return events


def agent_of(path: Path) -> str:
    name = path.relative_to(DATA / "coding_agents").parts[0]
    return "qwen" if name.startswith("qwen") else name


def written(source: Path, target: Path, agent: str) -> Iterator[None]:
    """Write a session as its agent does, piece by piece."""
    if agent == "openhands":
        target.mkdir()
        for event in sorted(source.glob("event-*.json")):
            shutil.copy(event, target)
            yield
    elif agent == "mini-swe-agent":
        content = json.loads(source.read_bytes())
        for count in range(len(content["messages"]) + 1):
            over = count == len(content["messages"])
            part = {**content, "messages": content["messages"][:count]}
            target.write_text(json.dumps(part if over else {**part, "info": {}}))
            yield
    elif agent == "opencode":
        yield from _database(source, target)
    else:
        with open(target, "wb") as file:
            for line in source.read_bytes().splitlines(keepends=True):
                file.write(line)
                file.flush()
                yield


def _database(source: Path, target: Path) -> Iterator[None]:
    """Add the messages of a database one by one, each with its parts, as far as they are known."""
    with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(target)) as write:
        write.execute("PRAGMA journal_mode=WAL")
        for (made,) in read.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"):
            if "sqlite_" not in made and any(f"`{name}`" in made.split("(")[0] for name in TABLES):
                write.execute(made)
        write.executescript("PRAGMA foreign_keys=OFF")
        for row in read.execute("SELECT * FROM session"):
            write.execute(f"INSERT INTO session VALUES ({','.join('?' * len(row))})", row)
        write.commit()
        yield
        messages = read.execute("SELECT * FROM message ORDER BY time_created, id").fetchall()
        for message in messages:
            write.execute(f"INSERT INTO message VALUES ({','.join('?' * len(message))})", message)
            parts = "SELECT * FROM part WHERE message_id = ? ORDER BY time_created, id"
            for part in read.execute(parts, (message[0],)).fetchall():
                write.execute(f"INSERT INTO part VALUES ({','.join('?' * len(part))})", part)
                write.commit()
                yield


TABLES = ("session", "message", "part")


@pytest.mark.parametrize(
    "source", CAPTURES, ids=lambda path: "-".join(path.relative_to(DATA).parts[1:3])
)
def test_a_session_that_is_written_piece_by_piece(source: Path, tmp_path: Path) -> None:
    agent = agent_of(source)
    target = tmp_path / NAMES[agent]
    following = Following(agent, tmp_path)
    following.look()
    for _ in written(source, target, agent):
        following.look()
    followed = following.end().of_runs()
    assert followed == whole(target, agent).of_runs()
    assert followed
    assert following.tails.skipped == 0
    assert following.tails.active == []


HOOKED = [path for path in CAPTURES if (path.parent / "hooks.jsonl").exists()]


@pytest.mark.parametrize(
    "source", HOOKED, ids=lambda path: "-".join(path.relative_to(DATA).parts[1:3])
)
def test_a_session_that_hooks_report_is_not_read(source: Path, tmp_path: Path) -> None:
    agent = agent_of(source)
    pipeline = Pipeline(Settings(), serve=False)
    sessions = HookSessions(pipeline.recorder)
    read = Events()
    reading = Tails(
        read,
        [SessionFolder(SESSIONS[agent], tmp_path)],
        is_reported=sessions.is_reported,
        now=lambda: 0.0,
    )
    target = tmp_path / NAMES[agent]
    lines = (source.parent / "hooks.jsonl").read_bytes().splitlines()
    writes = written(source, target, agent)
    try:
        for given in map(json.loads, lines):
            sessions.receive(agent, orjson.dumps(given if "hook" in given else given["input"]))
            next(writes, None)
            reading.look()
        for _ in writes:
            reading._scanned -= 10
            reading.look()
        reading.close()
        assert read.all == []
    finally:
        sessions.close()
        pipeline.shutdown()


if not CAPTURES:

    def test_captured_sessions() -> None:
        missing("captures of coding agents are not here")


def line(kind: str, content: Any, **fields: Any) -> bytes:
    message = {"role": kind, "content": content, **fields.pop("message", {})}
    record = {"type": kind, "sessionId": "s1", "message": message, **fields}
    return json.dumps(record).encode() + b"\n"


def prompt(text: str = "fix it", **fields: Any) -> bytes:
    return line("user", text, **fields)


def call(number: int, command: str = "ls", **fields: Any) -> bytes:
    part = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": command}}
    return line("assistant", [part], message={"id": f"m{number}"}, **fields)


def result(number: int, text: str = "none", **fields: Any) -> bytes:
    return line("user", [{"type": "tool_result", "tool_use_id": f"t{number}", "content": text}])


def turn(number: int) -> bytes:
    return call(number) + result(number)


def following_claude(tmp_path: Path, **given: Any) -> tuple[Following, Path]:
    following = Following("claude", tmp_path, **given)
    following.look()
    return following, tmp_path / "s1.jsonl"


def append(path: Path, content: bytes) -> None:
    with open(path, "ab") as file:
        file.write(content)


@settings(deadline=None)
@given(cuts=st.lists(st.integers(0, 2_000), max_size=12), looks=st.integers(1, 3))
def test_any_pieces_give_the_same_runs(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], looks: int
) -> None:
    folder = tmp_path_factory.mktemp("sessions")
    content = prompt() + b"".join(map(turn, range(4))) + prompt("again") + turn(5) + b"no json\n"
    following, path = following_claude(folder)
    before = 0
    for cut in sorted({min(cut, len(content)) for cut in cuts} | {len(content)}):
        append(path, content[before:cut])
        before = cut
        following.look(looks)
    followed = following.end().of_runs()
    assert list(followed) == ["claude-s1-1", "claude-s1-2"]
    assert followed == whole(path, "claude").of_runs()
    assert following.tails.skipped == 1
    assert following.began == [("claude", "s1")] * 2


def test_a_line_without_its_end_waits(tmp_path: Path) -> None:
    following, path = following_claude(tmp_path)
    append(path, prompt() + turn(0) + call(1)[:-1])
    following.look(3)
    assert following.events.steps == 0
    append(path, b"\n")
    following.look(2)
    assert following.events.steps == 1


def test_a_file_that_is_cut_or_replaced_or_moved_counts_once(tmp_path: Path) -> None:
    following, path = following_claude(tmp_path)
    content = prompt() + turn(0) + turn(1) + turn(2)
    append(path, content)
    following.look(2)
    assert following.events.steps == 2
    path.write_bytes(prompt() + turn(0) + turn(1))  # shorter
    following.look(2)
    path.write_bytes(content + turn(3))  # longer, in the same file
    following.look(2)
    assert following.events.steps == 3
    other = tmp_path / "new"
    other.write_bytes(content + turn(3) + turn(4))
    other.replace(path)  # another file
    following.look(2)
    assert following.events.steps == 4
    path.rename(tmp_path / "moved.jsonl")
    following.look(2)
    append(tmp_path / "moved.jsonl", turn(5))
    following.look(2)
    assert [event.run for event in following.events.all if isinstance(event, RunStarted)] == [
        "claude-s1-1"
    ]


def test_what_was_over_before_is_not_measured(tmp_path: Path) -> None:
    path = tmp_path / "s1.jsonl"
    early, late = "2026-01-01T00:00:00Z", "2026-03-01T00:00:00Z"
    begin = 1_769_904_000.0  # 2026-02-01
    append(path, prompt("over", timestamp=early) + turn(0) + prompt("at work", timestamp=early))
    append(path, turn(1))
    os.utime(path, (begin, begin))
    dormant = tmp_path / "s2.jsonl"
    append(dormant, prompt("of old", timestamp=early, sessionId="s2"))
    os.utime(dormant, (begin - 3_600, begin - 3_600))
    following, _ = following_claude(tmp_path, now=lambda: begin)
    following.look(2)
    assert [event.task for event in following.events.all] == ["at work"]
    append(path, turn(2) + prompt("next", timestamp=late) + turn(3) + turn(4))
    append(dormant, prompt("resumed", timestamp=late, sessionId="s2"))
    following.look(2)
    started = [event for event in following.events.all if isinstance(event, RunStarted)]
    assert sorted(event.task or "" for event in started) == ["at work", "next", "resumed"]
    assert {event.conversation for event in started} == {"s1", "s2"}
    assert following.events.steps == 3


def test_hooks_come_first(tmp_path: Path) -> None:
    following, path = following_claude(tmp_path)
    append(path, prompt() + turn(0))
    following.look()
    following.reported.add("s1")  # heard between two looks
    following.look(2)
    append(path, turn(1) + turn(2))
    following.look(2)
    assert following.events.all == []
    other = tmp_path / "s2.jsonl"
    append(other, prompt(sessionId="s2") + call(0, sessionId="s2") + call(1, sessionId="s2"))
    following.look(2)
    assert following.tails.active == ["claude"]
    following.reported.add("s2")  # the hooks were installed while it was at work
    append(other, call(2, sessionId="s2") + call(3, sessionId="s2"))
    following.look(3)
    *_, ended = following.events.all
    assert (ended.run, ended.reason) == ("claude-s2-1", "reported by hooks")
    assert following.events.steps == 1
    assert following.tails.active == []


def test_a_session_that_is_idle_ends_and_continues_with_the_next_prompt(tmp_path: Path) -> None:
    following, path = following_claude(tmp_path, idle_seconds=60.0)
    append(path, prompt() + turn(0))
    following.look(2)
    assert following.tails.active == ["claude"]
    following.look(10)
    assert [type(event) for event in following.events.all] == [RunStarted, Step, Outcome, RunEnded]
    append(path, prompt("again") + turn(1) + turn(2))
    following.look(3)
    assert following.tails.active == ["claude"]
    started = [event.run for event in following.events.all if isinstance(event, RunStarted)]
    assert started == ["claude-s1-1", "claude-s1-2"]


def test_two_sessions_and_a_sub_agent_at_once(tmp_path: Path) -> None:
    following, path = following_claude(tmp_path)
    other = tmp_path / "deep" / "er" / "s2.jsonl"
    other.parent.mkdir(parents=True)
    for number in range(3):
        if not number:
            append(path, prompt())
            append(other, prompt(sessionId="s2"))
            append(path, prompt("look", isSidechain=True, agentId="a", uuid="u1"))
        append(path, call(number, isSidechain=True, agentId="a", uuid=f"v{number}"))
        append(path, turn(number + 10))
        append(other, call(number, sessionId="s2"))
        following.look()
    found = following.end().of_runs()
    assert sorted(found) == ["claude-s1-1", "claude-s1-a-1", "claude-s2-1"]
    assert {run: sum(isinstance(one, Step) for one in all_) for run, all_ in found.items()} == {
        "claude-s1-1": 3,
        "claude-s1-a-1": 3,
        "claude-s2-1": 3,
    }


@pytest.mark.parametrize("agent", ["claude", "mini-swe-agent", "opencode", "openhands"])
def test_what_cannot_be_read_is_left_and_hurts_nothing(
    agent: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    following = Following(agent, tmp_path)
    following.look()
    bad = tmp_path / NAMES[agent]
    if agent == "openhands":
        bad.mkdir()
        (bad / "event-1.json").write_text("{")
        (bad / "event-2.json").write_text('{"kind": "MessageEvent", "source": "user"}')
    else:
        bad.write_bytes(b'{"sessionId": 1}\n\xff\xfe\n[1]\n{"messages": [1, {}]}\n')
    following.look(15)
    assert [type(event) for event in following.end().all if isinstance(event, Step)] == []
    assert ("is not followed any more" in caplog.text) == (agent == "opencode")


def test_a_reader_that_fails_does_not_hold_up_the_others(tmp_path: Path) -> None:
    class Failing(ClaudeTranscript):
        def read(self, record: Any) -> None:
            if "bad" in str(record):
                raise TypeError("unexpected")
            super().read(record)

    failing = SESSIONS["claude"]._replace(transcript=Failing)
    following, path = following_claude(tmp_path, sessions=failing)
    bad = tmp_path / "s0.jsonl"
    append(bad, prompt(sessionId="s0"))
    append(path, prompt() + turn(0) + turn(1))
    before = internal_errors.counts().get("transcripts.look", 0)
    following.look(5)
    assert following.tails.active == ["claude", "claude"]
    append(bad, call(0, "bad", sessionId="s0"))
    following.look(5)
    assert following.tails.active == ["claude"]
    append(path, turn(2))
    assert following.end().steps == 3
    assert internal_errors.counts()["transcripts.look"] == before + 1


def test_a_line_that_is_too_long_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegauge.coding_agents.session_files.MAX_LINE_BYTES", 1_000)
    following, path = following_claude(tmp_path)
    append(path, prompt() + turn(0) + prompt("x" * 5_000) + turn(1) + turn(2))
    following.look(20)
    found = following.end().of_runs()
    assert list(found) == ["claude-s1-1"]
    assert (following.events.steps, following.tails.skipped) == (3, 1)


def test_so_many_are_followed_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegauge.coding_agents.tails._MAX_FOLLOWED", 3)
    following, _ = following_claude(tmp_path)
    for number in range(5):
        append(tmp_path / f"{number}.jsonl", prompt(sessionId=f"s{number}"))
        following.look(2)
    assert following.tails.active == ["claude"] * 3
    append(tmp_path / "0.jsonl", prompt("again", sessionId="s0"))
    following.look(3)
    assert following.tails.active == ["claude"] * 3
    assert following.began[-1] == ("claude", "s0")


def test_folders_are_read_from_text(tmp_path: Path) -> None:
    assert read_folders("") == []
    assert read_folders("codex=~, ")[0].path == Path.home()
    for text, said in [("aider=/x", "'aider' is no agent"), ("codex", "names no folder")]:
        with pytest.raises(ValueError, match=said):
            read_folders(text)


def test_nothing_is_kept_of_runs_that_are_over_but_how_many_lines_were_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegauge.coding_agents.tails._MAX_RUNS", 10)
    following, path = following_claude(tmp_path)
    for number in range(40):
        append(path, prompt(str(number)) + turn(number))
        following.look(2)
    [followed] = following.tails._followed.values()
    assert (len(followed.lines), len(followed.held), len(followed.left_out)) == (1, 0, 0)
    assert len(following.tails._fed) == len(following.tails._replay._standing) == 10
    assert len(following.tails._open) == 1
    assert following.end().steps == 40

"""Sessions with hooks and a file: the numbers of the hooks, and the tokens of the file."""

from __future__ import annotations

import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from support.requirements import missing
from tidegauge.coding_agents import sessions
from tidegauge.coding_agents.agents import SESSIONS
from tidegauge.coding_agents.claude import CLAUDE, ClaudeTranscript
from tidegauge.coding_agents.codex import CodexTranscript
from tidegauge.coding_agents.session_files import AnswerTokens
from tidegauge.coding_agents.sessions import HookSessions
from tidegauge.events import Decision, Outcome, RunObserver, Step
from tidegauge.pipeline import Pipeline
from tidegauge.pipeline.settings import Settings
from tidegauge.safety.guard import internal_errors

DATA = Path(os.environ.get("TIDEGAUGE_DATA", Path(__file__).parents[4] / "shared" / "data"))
CAPTURES = [
    path
    for agent in ("codex", "gemini", "qwen-0.24")
    for path in sorted(DATA.glob(f"coding_agents/{agent}/*/transcript.jsonl"))
    if path.parent.name not in ("denied", "stopped")  # refused calls are no steps of hooks
]


def measured(agent: str, events: list[tuple[float, Any]], path: Path, *, tokens: bool) -> list[Any]:
    """What hooks report; before each of them, what the agent has written is in the file.

    Args:
        agent: the agent.
        events: lines of the file, as bytes, and payloads of hooks, each with its time.
        path: the file.
        tokens: whether the file is read.
    """
    path.write_bytes(b"")
    pipeline = Pipeline(Settings(), serve=False)
    found: list[Any] = []

    class Found(RunObserver):
        def step_issued(self, event: Step, decision: Decision) -> None:
            found.append(event._replace(run=""))

        def step_observed(self, event: Outcome, decision: Decision) -> None:
            found.append(event._replace(run="", seconds=None))

    pipeline.observe(Found())
    sessions = HookSessions(pipeline.recorder, tokens=tokens)
    try:
        for _, event in sorted(events, key=lambda one: one[0]):
            if isinstance(event, bytes):
                with open(path, "ab") as file:
                    file.write(event)
            else:
                given = {**event, "transcript_path": str(path)}
                sessions.receive(agent, orjson.dumps(given))
    finally:
        sessions.close()
        pipeline.shutdown()
    return found


def written_at(record: dict[str, Any]) -> float:
    """When a line of a session was written; Gemini writes a message again when it is done."""
    record = record.get("$set", record)
    calls = record.get("toolCalls", [])
    given = (one.get("timestamp") or one.get("lastUpdated") for one in (record, *calls))
    return max(datetime.fromisoformat(time).timestamp() for time in given if time)


def spent(found: list[Any]) -> list[float | None]:
    return [event.tokens for event in found if isinstance(event, Step)]


@pytest.mark.parametrize(
    "source", CAPTURES, ids=lambda path: "-".join(path.relative_to(DATA).parts[1:3])
)
def test_hooks_and_file_together(source: Path, tmp_path: Path) -> None:
    agent = source.relative_to(DATA / "coding_agents").parts[0].partition("-")[0]
    lines = [json.loads(line) for line in (source.parent / "hooks.jsonl").read_bytes().splitlines()]
    events: list[tuple[float, Any]] = [(line["t"], line["input"]) for line in lines]
    for line in source.read_bytes().splitlines(keepends=True):
        events.append((written_at(json.loads(line)), line))
    path = tmp_path / "rollout.jsonl"
    alone = measured(agent, events, path, tokens=False)
    both = measured(agent, events, path, tokens=True)
    without = [one._replace(tokens=None) if isinstance(one, Step) else one for one in both]
    assert without == alone
    assert set(spent(alone)) == {None}
    steps = [line for part in SESSIONS[agent].read(source) for line in part.lines]
    read = [line.get("tokens") for line in steps if line["type"] == "step"]
    given = [tokens for tokens in spent(both) if tokens is not None]
    assert given == read
    if agent in ("codex", "gemini"):
        assert spent(both) == read


if not CAPTURES:

    def test_captured_sessions() -> None:
        missing("captures of coding agents are not here")


def answer(number: int, *calls: str, output: int = 7, **fields: Any) -> bytes:
    parts = [{"type": "tool_use", "id": one, "name": "Bash", "input": {}} for one in calls]
    message = {"id": f"m{number}", "content": parts, "usage": {"output_tokens": output}}
    record = {"type": "assistant", "sessionId": "s1", "message": message, **fields}
    return json.dumps(record).encode() + b"\n"


def hook(name: str, call: str = "", **fields: Any) -> dict[str, Any]:
    given = {"tool_name": "Bash", "tool_input": {"command": call}, "tool_use_id": call}
    return {"hook_event_name": name, "session_id": "s1", **(given if call else {}), **fields}


def test_an_answer_counts_once_for_its_step(tmp_path: Path) -> None:
    events: list[Any] = [
        hook("UserPromptSubmit", prompt="go"),
        answer(0, "a", "b"),
        hook("PreToolUse", "a"),
        hook("PreToolUse", "b"),
        hook("PostToolUse", "b", tool_response="none"),
        hook("PostToolUse", "a", tool_response="none"),
        hook("PreToolUse", "c"),  # its answer is written late, but before its result
        answer(1, "c", output=8),
        hook("PostToolUse", "c", tool_response="none"),
        hook("PreToolUse", "d"),  # its answer is written too late
        hook("PostToolUse", "d", tool_response="none"),
        answer(2, "d", output=100),
        answer(3, "e", output=9)[:-1],  # half a line
        hook("PreToolUse", "e"),
        b"\n",
        hook("PostToolUse", "e", tool_response="none"),
        hook("Stop"),
    ]
    found = measured("claude", list(enumerate(events)), tmp_path / "s1.jsonl", tokens=True)
    assert spent(found) == [7, 8, None, 9]


def copilot(kind: str, **data: Any) -> bytes:
    return json.dumps({"type": kind, "parentId": None, "data": data}).encode() + b"\n"


def without_id(name: str, call: str, **fields: Any) -> dict[str, Any]:
    given = hook(name, call, **fields)
    del given["tool_use_id"]
    return given


def test_without_ids_of_calls_it_is_the_answer_whose_calls_are_open(tmp_path: Path) -> None:
    def answer_of(number: int, *calls: str) -> list[bytes]:
        usage = {"apiCallId": f"a{number}", "inputTokens": number, "outputTokens": 1}
        requests = [{"toolCallId": call, "name": "bash"} for call in calls]
        message = {"apiCallId": f"a{number}", "toolRequests": requests}
        return [
            copilot("session.usage_record", usage=usage),
            copilot("assistant.message", **message),
        ]

    events: list[Any] = [
        hook("UserPromptSubmit", prompt="go"),
        *answer_of(1, "a", "b"),
        without_id("PreToolUse", "x"),
        without_id("PreToolUse", "y"),
        without_id("PostToolUse", "x", tool_result={"text_result_for_llm": "1"}),
        copilot("tool.execution_complete", toolCallId="a", result={"content": "1"}),
        without_id("PostToolUse", "y", tool_result={"text_result_for_llm": "2"}),
        copilot("tool.execution_complete", toolCallId="b", result={"content": "2"}),
        without_id("PreToolUse", "x"),  # its answer is written too late
        without_id("PostToolUse", "x", tool_result={"text_result_for_llm": "1"}),
        *answer_of(2, "c"),
        copilot("tool.execution_complete", toolCallId="c", result={"content": "1"}),
        *answer_of(3, "d"),
        without_id("PreToolUse", "z"),
        without_id("PostToolUse", "z", tool_result={"text_result_for_llm": "3"}),
        hook("Stop"),
    ]
    found = measured("copilot", list(enumerate(events)), tmp_path / "s1.jsonl", tokens=True)
    assert spent(found) == [2, None, 4]


def test_a_file_that_is_written_again_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "s1.jsonl"
    path.write_bytes(b"\n" * 500 + answer(0, "a", "b"))
    tokens = AnswerTokens(path, ClaudeTranscript)
    assert [tokens.take(call) for call in ("a", "a", "other")] == [7, None, None]
    path.write_bytes(answer(0, "a", "b"))
    assert [tokens.take(call) for call in ("b", "a")] == [None, None]


def test_a_sub_agent_has_its_own_answers(tmp_path: Path) -> None:
    path = tmp_path / "s1.jsonl"
    path.write_bytes(answer(0, "a") + answer(1, "b", output=8, isSidechain=True, agentId="x"))
    tokens = AnswerTokens(path, ClaudeTranscript)
    assert [tokens.take(call) for call in ("b", "a")] == [8, 7]


def test_only_the_end_of_a_long_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(AnswerTokens, "_at_most", 1_000)
    path = tmp_path / "s1.jsonl"
    path.write_bytes(answer(0, "old") + b" " * 5_000 + b"\n" + answer(1, "a"))
    tokens = AnswerTokens(path, ClaudeTranscript)
    assert [tokens.take(call) for call in ("old", "a")] == [None, 7]
    with open(path, "ab") as file:
        file.write(b" " * 5_000 + b"\n" + answer(2, "b", output=8))
    assert tokens.take("b") == 8


def test_what_cannot_be_read_has_no_tokens(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "bad").write_bytes(b"\xff\n[1]\n{}\n")
    for name in ("gone", "fifo", "bad", "."):
        assert AnswerTokens(tmp_path / name, CodexTranscript).take("a") is None


def test_a_reader_that_fails_leaves_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Failing(ClaudeTranscript):
        def read(self, record: Any) -> None:
            raise TypeError("unexpected")

    failing = SESSIONS["claude"]._replace(transcript=Failing)
    monkeypatch.setattr(sessions, "AGENTS", {"claude": CLAUDE._replace(sessions=failing)})
    before = internal_errors.counts().get("transcripts.tokens", 0)
    events: list[Any] = [hook("UserPromptSubmit", prompt="go")]
    for number in range(2):
        events += [answer(number, f"c{number}"), hook("PreToolUse", f"c{number}")]
        events.append(hook("PostToolUse", f"c{number}", tool_response="none"))
    found = measured("claude", list(enumerate(events)), tmp_path / "s1.jsonl", tokens=True)
    assert spent(found) == [None, None]
    assert internal_errors.counts()["transcripts.tokens"] == before + 1

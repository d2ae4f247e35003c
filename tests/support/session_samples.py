"""One session of each agent and format, as small as can be: a prompt, a call and its result."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

CALL: Final[dict[str, Any]] = {"command": "ls"}


def _lines(name: str, *records: dict[str, Any]) -> Callable[[Path], Path]:
    """Makes a file with a record a line."""
    return _file(name, "".join(f"{json.dumps(record)}\n" for record in records))


def _file(name: str, text: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return make


def _codex() -> Callable[[Path], Path]:
    def item(kind: str, **fields: Any) -> dict[str, Any]:
        return {"type": "response_item", "payload": {"type": kind, "call_id": "1", **fields}}

    return _lines(
        "rollout-1.jsonl",
        {"type": "event_msg", "payload": {"type": "user_message", "message": "find it"}},
        item("function_call", name="ls", arguments=json.dumps(CALL)),
        {"type": "token_usage_record", "payload": {"usage": {"total_tokens": 7}}},
        item("function_call_output", output="none"),
    )


def _claude() -> Callable[[Path], Path]:
    def said(kind: str, **message: Any) -> dict[str, Any]:
        return {"type": kind, "sessionId": "s1", "message": message}

    use = {"type": "tool_use", "id": "1", "name": "ls", "input": CALL}
    result = {"type": "tool_result", "tool_use_id": "1", "content": "none"}
    return _lines(
        "s1.jsonl",
        said("user", content="find it"),
        said("assistant", id="m1", content=[use], usage={"output_tokens": 7}),
        said("user", content=[result]),
    )


def _gemini() -> Callable[[Path], Path]:
    message = {"id": "2", "type": "gemini", "content": "", "tokens": {"total": 7}}
    response = {"functionResponse": {"response": {"output": "none"}}}
    call = {"id": "1", "name": "ls", "args": CALL, "status": "success", "result": [response]}
    return _lines(
        "session-1.jsonl",
        {"sessionId": "s1", "projectHash": "p"},
        {"id": "1", "type": "user", "content": [{"text": "find it"}]},
        {**message, "toolCalls": [call]},
    )


def _qwen() -> Callable[[Path], Path]:
    def said(kind: str, part: dict[str, Any], **fields: Any) -> dict[str, Any]:
        return {"type": kind, "sessionId": "s1", "message": {"parts": [part]}, **fields}

    call = {"functionCall": {"id": "1", "name": "ls", "args": CALL}}
    result = {"functionResponse": {"id": "1", "response": {"output": "none"}}}
    return _lines(
        "chats/s1.jsonl",
        said("user", {"text": "find it"}),
        said("assistant", call, usageMetadata={"totalTokenCount": 7}),
        said("tool_result", result),
    )


def _copilot() -> Callable[[Path], Path]:
    def record(kind: str, **data: Any) -> dict[str, Any]:
        return {"type": kind, "data": data, "parentId": None}

    request = {"toolCallId": "1", "name": "ls", "arguments": CALL}
    usage = {"apiCallId": "a", "inputTokens": 5, "outputTokens": 2}
    return _lines(
        "events.jsonl",
        record("user.message", content="find it"),
        record("session.usage_record", usage=usage),
        record("assistant.message", apiCallId="a", toolRequests=[request]),
        record("tool.execution_complete", toolCallId="1", result={"content": "none"}),
    )


def _opencode(folder: Path) -> Path:
    state = {"status": "completed", "input": CALL, "output": "none"}
    said = [
        ({"role": "user"}, {"type": "text", "text": "find it"}),
        (
            {"role": "assistant", "tokens": {"total": 7}},
            {"type": "tool", "tool": "ls", "callID": "1", "state": state},
        ),
    ]
    with closing(sqlite3.connect(folder / "opencode.db")) as made:
        made.executescript(
            "CREATE TABLE session (id, time_created, time_updated); CREATE TABLE message (id, "
            "session_id, time_created, time_updated, data); "
            "CREATE TABLE part (id, message_id, time_created, data); "
            "INSERT INTO session VALUES ('s1', 1, 9000000000000);"
        )
        for at, (message, part) in enumerate(said):
            row = (at, "s1", at, at, json.dumps(message))
            made.execute("INSERT INTO message VALUES (?, ?, ?, ?, ?)", row)
            made.execute("INSERT INTO part VALUES (?, ?, ?, ?)", (at, at, at, json.dumps(part)))
        made.commit()
    return folder / "opencode.db"


def _openhands(folder: Path) -> Path:
    text = {"content": [{"type": "text", "text": "find it"}]}
    seen = {"content": [{"type": "text", "text": "none"}]}
    action = {"tool_name": "ls", "tool_call": {"arguments": json.dumps(CALL)}}
    records = [
        {"kind": "MessageEvent", "source": "user", "llm_message": text},
        {"kind": "ActionEvent", "source": "agent", "tool_call_id": "1", **action},
        {"kind": "ObservationEvent", "tool_call_id": "1", "observation": seen},
    ]
    for number, record in enumerate(records):
        _file(f"talk/events/event-{number}.json", json.dumps(record))(folder)
    return folder / "talk" / "events"


def _mini_swe_agent() -> Callable[[Path], Path]:
    call = {"id": "1", "function": {"name": "ls", "arguments": json.dumps(CALL)}}
    spent = {"response": {"usage": {"total_tokens": 7}}}
    messages = [
        {"role": "user", "content": "find it"},
        {"role": "assistant", "tool_calls": [call], "extra": spent},
        {"role": "tool", "tool_call_id": "1", "content": "none"},
    ]
    whole = {"trajectory_format": "mini-swe-agent-1", "messages": messages}
    return _file("s1.traj.json", json.dumps(whole, indent=2))


def _atif() -> Callable[[Path], Path]:
    call = {"tool_call_id": "1", "function_name": "ls", "arguments": CALL}
    seen = {"results": [{"source_call_id": "1", "content": "none"}]}
    spent = {"prompt_tokens": 5, "completion_tokens": 2}
    steps = [
        {"source": "user", "message": "find it"},
        {"source": "agent", "tool_calls": [call], "observation": seen, "metrics": spent},
    ]
    whole = {"schema_version": "ATIF-v1.6", "steps": steps}
    return _file("trajectory.json", json.dumps(whole, indent=2))


def _inspect() -> Callable[[Path], Path]:
    message = {"tool_calls": [{"id": "1", "function": "ls", "arguments": CALL}]}
    output = {"choices": [{"message": message}], "usage": {"total_tokens": 7}}
    events = [
        {"event": "model", "output": output},
        {"event": "tool", "id": "1", "result": "none"},
    ]
    whole = {"version": 2, "status": "success", "eval": {"eval_id": "e1"}}
    sample = {"id": 1, "epoch": 1, "input": "find it", "events": events}
    text = json.dumps({**whole, "samples": [sample]}, indent=2)
    return _file("2026-11-28T08-00-00_task_x.json", text)


SAMPLES: Final[Mapping[str, Callable[[Path], Path]]] = {
    "codex": _codex(),
    "claude": _claude(),
    "gemini": _gemini(),
    "qwen": _qwen(),
    "copilot": _copilot(),
    "opencode": _opencode,
    "openhands": _openhands,
    "mini-swe-agent": _mini_swe_agent(),
    "atif": _atif(),
    "inspect": _inspect(),
}
"""By the agent's name: writes its session into a folder."""

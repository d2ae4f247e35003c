"""What each reader makes of the records of its agent: runs, steps, results without what changes."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.coding_agents.agents import SESSIONS, find_sessions, guess_agent
from tidegauge.coding_agents.claude import ClaudeTranscript
from tidegauge.coding_agents.codex import CodexTranscript
from tidegauge.coding_agents.copilot import CopilotTranscript
from tidegauge.coding_agents.gemini import GeminiTranscript
from tidegauge.coding_agents.mini_swe_agent import MiniSweAgentTranscript
from tidegauge.coding_agents.opencode import OpencodeTranscript
from tidegauge.coding_agents.openhands import OpenHandsTranscript
from tidegauge.coding_agents.qwen import QwenTranscript
from tidegauge.coding_agents.session_transcript import SessionError
from tidegauge.recordings.step_events import parse_event


def lines_of(kind: Any, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    transcript = kind("s")
    lines = [line for record in records for line in transcript.take(record)]
    return [*lines, *transcript.close()]


def steps_of(kind: Any, records: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    return [line["calls"] for line in lines_of(kind, records) if line["type"] == "step"]


def item(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": "response_item", "payload": {"type": kind, **fields}}


def codex_call(call_id: str) -> dict[str, Any]:
    return item("function_call", name="exec_command", arguments='{"cmd": "ls"}', call_id=call_id)


def codex_result(call_id: str, chunk: str) -> dict[str, Any]:
    output = (
        f"Chunk ID: {chunk}\nWall time: 0.0{chunk[:1]} seconds\nProcess exited with code 1\n"
        "Original token count: 13\nOutput:\nno such file\n"
    )
    return item("function_call_output", call_id=call_id, output=output)


MOVES = {"reach": "anywhere", "detect_polls": True}
LS = {"action": "exec_command", "args": {"cmd": "ls"}}
FAILED = {"outcome": "Process exited with code 1\nOutput:\nno such file", "error": True}


class TestCodex:
    def test_calls_before_a_result_are_one_step_and_results_lose_what_changes(self) -> None:
        records = [
            codex_call("1"),
            codex_call("2"),
            codex_result("2", "3f"),
            codex_result("1", "9"),
        ]
        both = {**LS, **FAILED}
        assert steps_of(CodexTranscript, records) == [[both, both]]

    def test_a_prompt_is_a_run_with_the_tokens_of_its_answers(self) -> None:
        def prompt(text: str) -> dict[str, Any]:
            said = {"type": "UserMessage", "content": [{"type": "text", "text": text}]}
            return {"type": "event_msg", "payload": {"type": "item_completed", "item": said}}

        spent = {"type": "token_usage_record", "payload": {"usage": {"total_tokens": 30}}}
        records = [
            {"type": "session_meta", "payload": {"id": "abc"}},
            {"type": "turn_context", "payload": {"model": "m"}},
            prompt("first"),
            codex_call("1"),
            spent,
            codex_result("1", "3f"),
            {"type": "event_msg", "payload": {"type": "task_complete"}},
            prompt("second"),
            codex_call("2"),
            {"type": "event_msg", "payload": {"type": "turn_aborted", "reason": "interrupted"}},
        ]
        first, second = "codex-abc-1", "codex-abc-2"
        assert lines_of(CodexTranscript, records) == [
            {
                "type": "start",
                "run": first,
                "agent": "codex",
                "task": "first",
                "model": "m",
                **MOVES,
            },
            {
                "type": "step",
                "run": first,
                "calls": [{**LS, **FAILED}],
                "tokens": 30,
                "uses": (".",),
            },
            {"type": "end", "run": first},
            {
                "type": "start",
                "run": second,
                "agent": "codex",
                "task": "second",
                "model": "m",
                **MOVES,
            },
            {"type": "step", "run": second, "calls": [LS], "uses": (".",)},
            {"type": "end", "run": second, "reason": "interrupted"},
        ]

    def test_the_tokens_of_an_answer_without_calls_are_of_no_step(self) -> None:
        def spent(total: int) -> dict[str, Any]:
            return {"type": "token_usage_record", "payload": {"usage": {"total_tokens": total}}}

        records = [codex_call("1"), spent(30), codex_result("1", "3f"), spent(99)]
        lines = lines_of(CodexTranscript, records)
        assert [line.get("tokens") for line in lines if line["type"] == "step"] == [30]

    def test_a_call_that_a_hook_refused_has_failed(self) -> None:
        said = "Command blocked by PreToolUse hook: no. Command: ls"
        refused = item("function_call_output", call_id="1", output=said)
        [[call]] = steps_of(CodexTranscript, [codex_call("1"), refused])
        assert call == {**LS, "outcome": said, "error": True}

    def test_what_a_command_prints_stays_as_it_is(self) -> None:
        printed = "Wall time: 3.1 seconds\nProcess exited with code 7"
        result = codex_result("1", "3f")
        result["payload"]["output"] += printed
        [[call]] = steps_of(CodexTranscript, [codex_call("1"), result])
        assert call["outcome"] == f"{FAILED['outcome']}\n{printed}"
        other = item("function_call_output", call_id="1", output=printed)
        [[call]] = steps_of(CodexTranscript, [codex_call("1"), other])
        assert call == {**LS, "outcome": printed}


class TestGemini:
    def message(self, pgid: int, more: str = "", **fields: Any) -> dict[str, Any]:
        text = f"Output: none\nExit Code: 1\nProcess Group PGID: {pgid}\n{more}"
        response = {"functionResponse": {"response": {"output": text}}}
        call = {"id": "c", "name": "sh", "args": {}, "result": [response], "status": "success"}
        return {"id": str(pgid), "type": "gemini", "toolCalls": [call], **fields}

    def test_a_message_that_is_written_again_counts_once(self) -> None:
        without = {"id": "7", "type": "gemini", "content": "", "tokens": {"total": 5}}
        message = self.message(7, tokens={"total": 5})
        hook = self.message(8, "\n\n<hook_context>tidegauge: again</hook_context>")
        found = lines_of(GeminiTranscript, [without, message, message, hook])
        assert [line.get("tokens") for line in found if line["type"] == "step"] == [5, None]
        steps = [line["calls"] for line in found if line["type"] == "step"]
        first = steps[0][0]
        assert (first["outcome"].rstrip(), first["error"]) == ("Output: none\nExit Code: 1", True)
        assert steps[1][0]["outcome"].rstrip() == first["outcome"].rstrip()

    def test_what_gemini_says_of_the_session_is_no_prompt(self) -> None:
        said = ["<session_context>\nToday", "find it", "System: Potential loop detected. Stop"]
        records = [
            {"id": str(n), "type": "user", "content": [{"text": text}]}
            for n, text in enumerate(said)
        ]
        records.append({"id": "9", "type": "user", "content": [{"functionResponse": {}}]})
        starts = [one for one in lines_of(GeminiTranscript, records) if one["type"] == "start"]
        assert [start["task"] for start in starts] == ["find it"]

    @pytest.mark.parametrize("wrapped", [True, False])
    def test_paths_start_in_the_folder_that_gemini_names(self, wrapped: bool) -> None:
        text = "<session_context>\nI'm currently working in the directory: /home/dev/shop\nHere"
        said: dict[str, Any] = {"id": "1", "type": "user", "content": [{"text": text}]}
        asked = "I'm currently working in the directory: /tmp"
        transcript = GeminiTranscript("s")
        transcript.take({"id": "2", "type": "user", "content": [{"text": asked}]})
        assert transcript.folder == ""
        transcript.take({"$set": {"messages": [said]}} if wrapped else said)
        assert transcript.folder == "/home/dev/shop"


def qwen(kind: str, *parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": kind, "sessionId": "q", "message": {"parts": list(parts)}, **fields}


def test_qwen() -> None:
    call = {"functionCall": {"id": "1", "name": "sh", "args": {"command": "ls"}}}
    output = "Exit Code: 0\nProcess Group PGID: 4\n\ntidegauge: the same again"
    result = {"functionResponse": {"id": "1", "response": {"output": output}}}
    denied = {"functionResponse": {"id": "1", "response": {"error": "no"}}}
    used = {"usageMetadata": {"totalTokenCount": 9}}
    records = [
        qwen("user", {"text": "find it"}),
        qwen("assistant", {"text": "hm"}, call, **used),
        qwen("tool_result", result),
        qwen("assistant", call),
        qwen("tool_result", denied, toolCallResult={"status": "error"}),
        qwen("assistant", {"text": "done"}),
    ]
    start, one, other, end = lines_of(QwenTranscript, records)
    assert (start["run"], start["task"], one["tokens"]) == ("qwen-q-1", "find it", 9)
    assert one["calls"][0]["outcome"].rstrip() == "Exit Code: 0"
    assert one["calls"][0]["error"] is False
    assert (other["calls"][0]["outcome"], other["calls"][0]["error"]) == ("no", True)
    assert end["type"] == "end"


def copilot(kind: str, **data: Any) -> dict[str, Any]:
    return {"type": kind, "data": data, "parentId": None, "timestamp": "2026-11-25T03:40:38.409Z"}


def copilot_answer(number: int, *calls: str) -> list[dict[str, Any]]:
    usage = {"apiCallId": f"a{number}", "inputTokens": 10 * number, "outputTokens": 2}
    asked = {"name": "bash", "arguments": {"command": "ls"}}
    requests = [{"toolCallId": call, **asked} for call in calls]
    return [
        copilot("assistant.turn_start", turnId=f"{number}"),
        copilot("session.usage_record", usage=usage),
        copilot("assistant.message", apiCallId=f"a{number}", model="m", toolRequests=requests),
    ]


def copilot_result(call: str, text: str, **data: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"success": True, "result": {"content": text}}
    return copilot("tool.execution_complete", toolCallId=call, **{**given, **data})


def test_copilot() -> None:
    end = copilot("assistant.turn_end")
    guidance = (
        '\n\nTool "bash" succeeded. Additional guidance from postToolUse hooks:\nGo on.\nNow.'
    )
    failed = {"success": False, "error": {"message": "Denied by preToolUse hook: no"}}
    inner = {**copilot("assistant.message", toolRequests=[{"toolCallId": "9"}]), "agentId": "i"}
    records = [
        copilot("session.start", sessionId="c", selectedModel="m", context={"cwd": "/shop"}),
        copilot("user.message", content="find it"),
        *copilot_answer(1, "1", "2"),
        inner,
        copilot_result("2", "b\n<shellId: 1 completed with exit code 0>"),
        copilot_result("1", f"none\n<shellId: 0 completed with exit code 1>{guidance}"),
        end,
        *copilot_answer(2, "3"),
        copilot_result("3", "", **failed),
        end,
        *copilot_answer(3),
        end,
        copilot("user.message", content="again"),
        copilot("abort", reason="user_abort"),
        copilot("session.shutdown"),
    ]
    start, one, other, over, again, aborted = lines_of(CopilotTranscript, records)
    assert (start["run"], start["task"], start["model"]) == ("copilot-c-1", "find it", "m")
    assert [call["outcome"] for call in one["calls"]] == ["none\n<exit code 1>", "b\n<exit code 0>"]
    assert [call["error"] for call in one["calls"]] == [True, False]
    assert (one["tokens"], other["tokens"]) == (12, 22)
    assert other["calls"][0]["outcome"] == "Denied by preToolUse hook: no"
    assert other["calls"][0]["error"] is True
    assert over["type"] == "end"
    assert (again["run"], aborted["reason"]) == ("copilot-c-2", "user_abort")


def ended(kind: Any, *records: dict[str, Any]) -> bool:
    """Whether a run is over by its records, and does not wait for the next prompt."""
    transcript = kind("s")
    lines = [line for record in records for line in transcript.take(record)]
    assert lines[0]["type"] == "start"
    return lines[-1]["type"] == "end" and transcript.run is None


def test_a_run_is_over_when_the_agent_has_answered() -> None:
    call = {"functionCall": {"id": "1", "name": "sh"}}
    asked = qwen("user", {"text": "find it"})
    assert not ended(QwenTranscript, asked, qwen("assistant", {"text": "let me see"}, call))
    assert ended(QwenTranscript, asked, qwen("assistant", {"text": "done"}))
    use = {"type": "tool_use", "id": "1", "name": "Bash"}
    said = {"type": "text", "text": "done"}
    for parts, reason, over in [
        ([said], "end_turn", True),
        ([{"type": "thinking"}], "end_turn", True),
        ([said], None, False),
        ([said, use], "tool_use", False),
        ([said], "tool_use", False),
        ([said], "max_tokens", False),
    ]:
        answer = claude("assistant", parts, message={"id": "m1", "stop_reason": reason})
        assert ended(ClaudeTranscript, claude("user", "find it"), answer) == over
    turn = copilot("assistant.turn_end")
    prompt = copilot("user.message", content="find it")
    assert not ended(CopilotTranscript, prompt, *copilot_answer(1, "1"), turn)
    assert not ended(CopilotTranscript, prompt, *copilot_answer(1))
    assert ended(CopilotTranscript, prompt, *copilot_answer(1), turn)


def claude(kind: str, content: Any, **fields: Any) -> dict[str, Any]:
    message = {"content": content, **fields.pop("message", {})}
    return {"type": kind, "sessionId": "c", "message": message, **fields}


def test_claude_code() -> None:
    def use(call_id: str) -> dict[str, Any]:
        return {"type": "tool_use", "id": call_id, "name": "Bash", "input": {"command": "ls"}}

    def result(call_id: str, **fields: Any) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": call_id, "content": "none", **fields}

    used = {"input_tokens": 3, "cache_read_input_tokens": 5, "output_tokens": 4}
    answer = {"id": "m1", "model": "m", "usage": used}
    chain = {"isSidechain": True}
    records = [
        claude("user", "find it"),
        claude("user", "for the model only", isMeta=True),
        claude("assistant", [use("1")], message=answer),
        claude("assistant", [use("2")], message=answer),
        claude("user", "look there", uuid="a", **chain),
        claude("user", "look here", uuid="b", **chain),
        claude("assistant", [use("9")], uuid="c", parentUuid="a", **chain),
        claude("assistant", [use("9")], uuid="d", parentUuid="b", **chain),
        claude("user", [result("9")], uuid="e", parentUuid="d", **chain),
        claude("user", [result("1"), result("2", is_error=True)]),
        claude("assistant", [{"type": "text", "text": "done"}], message={"id": "m2"}),
    ]
    lines = lines_of(ClaudeTranscript, records)
    tasks = [line["task"] for line in lines if line["type"] == "start"]
    assert tasks == ["find it", "look there", "look here"]
    steps = {line["run"]: line for line in lines if line["type"] == "step"}
    own = steps["claude-c-1"]
    assert [call.get("error") for call in own["calls"]] == [None, True]
    assert own["tokens"] == 12
    assert ["outcome" in steps[f"claude-c-{one}-1"]["calls"][0] for one in "ab"] == [False, True]


def test_openhands() -> None:
    def action(call_id: str, response: str) -> dict[str, Any]:
        call = {"arguments": '{"command": "ls"}'}
        shared = {"kind": "ActionEvent", "source": "agent", "tool_name": "terminal"}
        ids = {"tool_call_id": call_id, "llm_response_id": response}
        return {**shared, **ids, "tool_call": call}

    text = [{"type": "text", "text": "none"}]
    seen = {"content": text, "is_error": False, "exit_code": 1}
    records = [
        {"kind": "MessageEvent", "source": "user", "llm_message": {"content": text}},
        action("1", "r1"),
        action("2", "r1"),
        {"kind": "ObservationEvent", "tool_call_id": "1", "observation": seen},
        {"kind": "AgentErrorEvent", "tool_call_id": "2", "error": "broken"},
        action("3", "r2"),
    ]
    call = {"action": "terminal", "args": {"command": "ls"}}
    assert steps_of(OpenHandsTranscript, records) == [
        [{**call, "outcome": "none", "error": True}, {**call, "outcome": "broken", "error": True}],
        [call],
    ]


def test_mini_swe_agent() -> None:
    function = {"name": "bash", "arguments": '{"command": "ls"}'}
    records: list[dict[str, Any]] = [
        {"role": "system", "content": "you can"},
        {"role": "user", "content": "find it"},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": function}]},
        {"role": "tool", "tool_call_id": "1", "content": "none\n", "extra": {"returncode": 2}},
        {"role": "user", "content": "use a tool"},
    ]
    start, step, end = lines_of(MiniSweAgentTranscript, records)
    assert start["task"] == "find it"
    call = {"action": "bash", "args": {"command": "ls"}, "outcome": "none", "error": True}
    assert step["calls"] == [call]
    assert end["type"] == "end"


def database(path: Path) -> Path:
    """A database of opencode with a session and that of a sub-agent."""
    made = sqlite3.connect(path)
    made.executescript(
        "CREATE TABLE session (id, time_created); CREATE TABLE message (id, session_id, "
        "time_created, data); CREATE TABLE part (id, message_id, time_created, data);"
    )
    state = {"status": "completed", "input": {"a": 1}, "output": "none\n", "metadata": {"exit": 1}}
    tool = {"type": "tool", "tool": "bash", "callID": "1", "state": state}
    for number, session in enumerate(("outer", "inner")):
        made.execute("INSERT INTO session VALUES (?, ?)", (session, number))
        for at, (role, part) in enumerate(
            [("user", {"type": "text", "text": "find it"}), ("assistant", tool)]
        ):
            message = f"{session}{at}"
            said = json.dumps({"role": role, "tokens": {"total": 4}})
            made.execute("INSERT INTO message VALUES (?, ?, ?, ?)", (message, session, at, said))
            made.execute(
                "INSERT INTO part VALUES (?, ?, ?, ?)", (at, message, at, json.dumps(part))
            )
    made.commit()
    made.close()
    return path


class TestFiles:
    def test_a_database_is_read_only(self, tmp_path: Path) -> None:
        path = database(tmp_path / "opencode.db")
        before = path.read_bytes()
        lines = [line for part in SESSIONS["opencode"].read(path) for line in part.lines]
        call = {"action": "bash", "args": {"a": 1}, "outcome": "none", "error": True}
        assert [one["calls"] for one in lines if one["type"] == "step"] == [[call], [call]]
        assert path.read_bytes() == before
        assert guess_agent(path) == "opencode"

    @pytest.mark.parametrize("agent", SESSIONS)
    def test_what_is_no_session_is_one_error(self, agent: str, tmp_path: Path) -> None:
        path = tmp_path / "file.jsonl"
        path.write_text('{"a": 1}\nnot JSON\n')
        with pytest.raises((SessionError, NotADirectoryError)):
            list(SESSIONS[agent].read(path))
        assert guess_agent(path) is None

    def test_a_broken_line_is_skipped(self, tmp_path: Path) -> None:
        path = tmp_path / "rollout-1.jsonl"
        records = [codex_call("1"), codex_result("1", "3f"), codex_call("2")]
        whole = [json.dumps(record) for record in records]
        path.write_text("\n".join([whole[0], "{broken", "", whole[1], whole[2][:-9]]))
        parts = list(SESSIONS["codex"].read(path))
        assert [part.number for part in parts if part.error] == [2, 5]
        assert sum(len(part.lines) for part in parts) == 3

    def test_sessions_in_folders_are_found_by_their_names(self, tmp_path: Path) -> None:
        names = ["a/rollout-1.jsonl", "chats/session-2.jsonl", "x.traj.json", "y.txt"]
        for name in names:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        events = tmp_path / "talk" / "events"
        events.mkdir(parents=True)
        (tmp_path / "events").mkdir()  # without any
        (events / "event-00000-1.json").write_text("{}")
        assert find_sessions(tmp_path, "codex") == [tmp_path / "a/rollout-1.jsonl"]
        assert find_sessions(tmp_path, "openhands") == [events]
        assert find_sessions(events, "openhands") == [events]
        assert len(find_sessions(tmp_path, "auto")) == 4
        assert find_sessions(tmp_path / "y.txt", "codex") == [tmp_path / "y.txt"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "payload",
                    "message",
                    "content",
                    "parts",
                    "id",
                    "item",
                    "text",
                    "kind",
                    "role",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
NAMES = (
    *("type", "payload", "message", "content", "toolCalls", "timestamp", "sessionId", "parts"),
    *("kind", "source", "role", "tool_calls", "extra", "tokens", "observation", "time_created"),
    *("tool_call_id", "llm_message"),
)
SAID = ("user", "assistant", "gemini", "tool", "response_item", "event_msg", "ActionEvent")
RECORDS = st.dictionaries(st.sampled_from(NAMES), VALUES | st.sampled_from(SAID), max_size=6)


@pytest.mark.parametrize(
    "kind", [one.transcript for one in SESSIONS.values()], ids=lambda kind: kind.agent
)
@given(records=st.lists(RECORDS, max_size=5))
def test_any_record_gives_valid_lines_or_none(kind: Any, records: list[dict[str, Any]]) -> None:
    for line in lines_of(kind, records):
        parse_event(line)


def test_records_of_wrong_forms_are_no_error() -> None:
    user = {"type": "UserMessage", "content": 5}
    said = {"type": "event_msg", "payload": {"type": "item_completed", "item": user}}
    assert [line["type"] for line in lines_of(CodexTranscript, [said])] == ["start", "end"]
    late = {"role": "user", "time_created": 1e18, "parts": 7}
    [start, _] = lines_of(OpencodeTranscript, [late])
    assert "time" not in start


def test_a_mark_before_the_first_line_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "rollout-1.jsonl"
    records = [codex_call("1"), codex_result("1", "a1")]
    path.write_bytes(b"\xef\xbb\xbf" + b"\n".join(json.dumps(one).encode() for one in records))
    assert guess_agent(path) == "codex"
    parts = list(SESSIONS["codex"].read(path))
    assert {part.error for part in parts} == {None}
    assert [line["type"] for part in parts for line in part.lines] == ["start", "step", "end"]


def test_what_claude_code_writes_besides_is_no_prompt() -> None:
    use = {"type": "tool_use", "id": "1", "name": "Bash"}
    said = [{"type": "text", "text": "done"}]
    over = {"type": "system", "subtype": "stop_hook_summary", "sessionId": "c"}
    records = [
        claude("user", "find it"),
        claude("assistant", [use], message={"id": "m1"}),
        over,  # the calls are not done
        claude("user", "This session is being continued from ...", isCompactSummary=True),
        claude("user", [{"type": "tool_result", "tool_use_id": "1", "content": "none"}]),
        claude("user", "<local-command-stdout>Compacted</local-command-stdout>"),
        claude("user", "<bash-input>ls</bash-input>"),
        claude("assistant", said, message={"id": "m2"}),
        over,
        claude("user", "<command-name>/compact</command-name>"),
        claude("user", "<command-name>/review</command-name>"),
        claude("assistant", [use], message={"id": "m3"}),
        claude("user", "again"),
        claude("user", [{"type": "text", "text": "[Request interrupted by user for tool use]"}]),
    ]
    lines = lines_of(ClaudeTranscript, records)
    kinds = [line["type"] for line in lines]
    assert kinds == ["start", "step", "end", "start", "step", "end", "start", "end"]
    tasks = [line["task"] for line in lines if line["type"] == "start"]
    assert tasks == ["find it", "<command-name>/review</command-name>", "again"]
    assert lines[1]["calls"][0]["outcome"] == "none"
    assert lines[-1]["reason"] == "interrupted"


def test_how_a_model_describes_a_command_does_not_count() -> None:
    given = {"command": "ls", "description": "List the files"}
    called = {"id": "1", "name": "sh", "args": given, "status": "success", "result": []}
    request = {"toolCallId": "1", "name": "bash", "arguments": given}
    use = {"type": "tool_use", "id": "1", "name": "Bash", "input": given}
    gemini = {"id": "m", "type": "gemini", "content": "", "toolCalls": [called]}
    for kind, record in [
        (GeminiTranscript, gemini),
        (QwenTranscript, qwen("assistant", {"functionCall": {"id": "1", "args": given}})),
        (ClaudeTranscript, claude("assistant", [use])),
        (CopilotTranscript, copilot("assistant.message", toolRequests=[request])),
    ]:
        assert [call["args"] for [call] in steps_of(kind, [record])] == [{"command": "ls"}], kind

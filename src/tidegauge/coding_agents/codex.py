"""Codex CLI.

A hook can refuse calls, and add a message for the model. It cannot end a run: a stopped run is
refused every further call. A command that failed is a result like any other, without its exit code.

In sessions, the head of a result loses what is new at every call: the chunk id, the wall time, and
the token count. What the command has printed stays as it is.
"""

from __future__ import annotations

import re
from typing import Any, Final

from tidegauge.coding_agents.known_agent import (
    Folder,
    Hook,
    HookEvent,
    HookSettings,
    KnownAgent,
    Payload,
    Sessions,
    read_event,
    specific_answer,
)
from tidegauge.coding_agents.session_transcript import (
    Record,
    SessionTranscript,
    joined_texts,
    mapping,
    parsed_arguments,
    parsed_time,
    text_in,
    total_of,
    without_our_text,
)
from tidegauge.events import ABSENT, Call, CallResult

_HOME: Final = Folder(".codex", "CODEX_HOME")
_TYPES: Final = ("session_meta", "turn_context", "response_item", "event_msg")
_VOLATILE: Final = re.compile(
    r"^(?:Chunk ID: \w+|Wall time: [\d.]+ seconds|Original token count: \d+)(?:\n|\Z)", re.M
)
_OUTPUT: Final = re.compile(r"^Output:$", re.M)
_REFUSED: Final = "Command blocked by "
"""How the result of a call begins that a hook has refused."""

_EXIT_CODE: Final = re.compile(r"^Process exited with code (-?\d+)$", re.M)


class CodexTranscript(SessionTranscript):
    """A session of Codex CLI."""

    agent = "codex"

    @classmethod
    def recognizes(cls, record: Record) -> bool:
        return record.get("type") in _TYPES and isinstance(record.get("payload"), dict)

    def read(self, record: Record) -> None:
        payload, time = mapping(record.get("payload")), parsed_time(record.get("timestamp"))
        match record.get("type"):
            case "session_meta":
                self.session = text_in(payload, "id") or self.session
                self.folder = text_in(payload, "cwd") or self.folder
            case "turn_context":
                self.model = text_in(payload, "model") or self.model
            case "token_usage_record":
                total = mapping(payload.get("usage")).get("total_tokens")
                if self.tokens is None:  # else it is of an answer without calls, which is no step
                    self.spend(total_of(total))
            case "event_msg":
                self._event(payload, time)
            case "response_item":
                self._item(payload, time)

    def _event(self, payload: Record, time: float | None) -> None:
        item = mapping(payload.get("item"))
        match payload.get("type"):
            case "item_completed" if item.get("type") == "UserMessage":
                self.prompt(joined_texts(item.get("content")), time)
            case "user_message":
                self.prompt(text_in(payload, "message"), time)
            case "task_complete":
                self.end(time=time)
            case "turn_aborted":
                self.end(reason=text_in(payload, "reason") or "aborted", time=time)

    def _item(self, payload: Record, time: float | None) -> None:
        call_id = text_in(payload, "call_id")
        if call_id is None:
            return
        match payload.get("type"):
            case "function_call" | "custom_tool_call":
                given: Any = payload.get("arguments", payload.get("input"))
                call = Call(text_in(payload, "name") or "tool", parsed_arguments(given))
                if self.results:
                    self.choose({call_id: call}, time=time)
                else:
                    self.choose_also(call_id, call, time)
            case "function_call_output" | "custom_tool_call_output":
                self.observe(call_id, _result(payload.get("output")), time)


def _result(output: Any) -> CallResult:
    if not isinstance(output, str):
        return CallResult(output)
    printed = _OUTPUT.search(output)
    if printed is None:
        refused = True if output.startswith(_REFUSED) else None
        return CallResult(without_our_text(output), refused)
    head, code = output[: printed.start()], _EXIT_CODE.search(output, 0, printed.start())
    text = without_our_text(_VOLATILE.sub("", head) + output[printed.start() :])
    return CallResult(text, None if code is None else code[1] != "0")


def _read(payload: Payload) -> HookEvent | None:
    return read_event(payload, result=CallResult(payload.get("tool_response", ABSENT)))


CODEX: Final = KnownAgent(
    "codex",
    "Codex CLI",
    "0.169",
    hook=Hook(_read, specific_answer),
    settings=HookSettings(
        _HOME,
        "hooks.json",
        ("PreToolUse", "PostToolUse"),
        ("UserPromptSubmit", "Stop"),
        note="Codex runs hooks only when you trust them: start codex once, and review them with "
        "/hooks.",
    ),
    sessions=Sessions(
        CodexTranscript, ("rollout-*.jsonl",), _HOME._replace(part="sessions"), tokens=True
    ),
)

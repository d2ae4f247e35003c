"""Qwen Code, 0.15 and 0.24, which began as Gemini CLI.

Calls of one answer are run one after the other, so each of them is a step. A hook can refuse calls,
and add to a result. It cannot end a run: a stopped run is refused every further call.

In sessions, results lose the ids of processes, and what ``tidegauge watch`` has added to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegauge.coding_agents.gemini import without_process_ids
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
    without_description,
)
from tidegauge.coding_agents.session_transcript import (
    Record,
    SessionTranscript,
    joined_texts,
    mapping,
    mappings,
    parsed_time,
    text_in,
    total_of,
    without_our_text,
)
from tidegauge.events import Call, CallResult


class QwenTranscript(SessionTranscript):
    """A session of Qwen Code."""

    agent = "qwen"

    @classmethod
    def recognizes(cls, record: Record) -> bool:
        return "sessionId" in record and (
            "parts" in mapping(record.get("message")) or "systemPayload" in record
        )

    def read(self, record: Record) -> None:
        self.session = text_in(record, "sessionId") or self.session
        self.folder = self.folder or text_in(record, "cwd") or ""
        time = parsed_time(record.get("timestamp"))
        parts = mappings(mapping(record.get("message")).get("parts"))
        match record.get("type"):
            case "user":
                self.prompt(joined_texts(parts), time)
            case "assistant":
                self.model = text_in(record, "model") or self.model
                total = mapping(record.get("usageMetadata")).get("totalTokenCount")
                calls = [mapping(part.get("functionCall")) for part in parts]
                chosen = {
                    text_in(call, "id") or str(number): Call(
                        text_in(call, "name") or "tool", without_description(call.get("args"))
                    )
                    for number, call in enumerate(calls)
                    if call
                }
                self.choose(chosen, tokens=total_of(total), time=time)
                if not chosen:
                    self.end(time=time)
            case "tool_result":
                failed = mapping(record.get("toolCallResult")).get("status") == "error"
                for part in parts:
                    given = mapping(part.get("functionResponse"))
                    result = _recorded_result(mapping(given.get("response")), failed=failed)
                    self.observe(text_in(given, "id") or "0", result, time)


def _recorded_result(response: Record, *, failed: bool) -> CallResult:
    output = without_our_text(response.get("output", response.get("error")))
    result = without_process_ids(output)
    return result._replace(error=True) if failed or "error" in response else result


def _read(payload: Payload) -> HookEvent | None:
    return read_event(payload, result=_result(payload))


def _result(payload: Payload) -> CallResult:
    if payload.get("hook_event_name") == "PostToolUseFailure":
        return without_process_ids(payload.get("error"))._replace(error=True)
    response = payload.get("tool_response")
    return without_process_ids(
        response.get("llmContent") if isinstance(response, Mapping) else response
    )


QWEN: Final = KnownAgent(
    "qwen",
    "Qwen Code",
    "0.15, 0.24",
    hook=Hook(_read, specific_answer),
    settings=HookSettings(
        Folder(".qwen"),
        "settings.json",
        ("PreToolUse", "PostToolUse", "PostToolUseFailure"),
        ("UserPromptSubmit", "Stop"),
        timeout=5_000,  # 0.24 takes less than 1,000 for seconds, 0.15 does not
    ),
    sessions=Sessions(
        QwenTranscript, ("chats/*.jsonl",), Folder(".qwen", part="projects"), tokens=True
    ),
)

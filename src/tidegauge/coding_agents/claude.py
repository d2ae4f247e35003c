"""Hooks of Claude Code, by its documentation; they were not run."""

from __future__ import annotations

from typing import Final

from tidegauge.coding_agents.hook_events import HookAgent, HookAnswer, HookEvent, Payload
from tidegauge.coding_agents.payload_fields import read_event, specific_answer
from tidegauge.events import ABSENT, CallResult


def _read(payload: Payload) -> HookEvent | None:
    if payload.get("hook_event_name") == "PostToolUseFailure":
        result = CallResult(payload.get("error", ABSENT), True)
    else:
        result = CallResult(payload.get("tool_response", ABSENT))
    return read_event(payload, result=result)


def _write(payload: Payload, answer: HookAnswer) -> Payload | None:
    if answer.action == "stop":
        return {"continue": False, "stopReason": answer.text}
    return specific_answer(payload, answer)


CLAUDE: Final = HookAgent("claude", _read, _write, stops=True)
"""Claude Code."""

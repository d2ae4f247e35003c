"""Hooks of Gemini CLI.

Its calls have no ids: a result belongs to the call with the same tool and arguments. A hook can
refuse calls, add to a result, and end the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegauge.coding_agents.hook_events import HookAgent, HookAnswer, HookEvent, Payload
from tidegauge.coding_agents.payload_fields import (
    text_of,
    without_description,
    without_process_ids,
)
from tidegauge.events import CallResult


def _read(payload: Payload) -> HookEvent | None:
    session = text_of(payload, "session_id")
    if session is None:
        return None
    tool = text_of(payload, "tool_name") or ""
    arguments = without_description(payload.get("tool_input"))
    match payload.get("hook_event_name"):
        case "BeforeAgent":
            return HookEvent("prompt", session, prompt=text_of(payload, "prompt"))
        case "BeforeTool":
            return HookEvent("call", session, tool, arguments)
        case "AfterTool":
            result = _result(payload.get("tool_response"))
            return HookEvent("result", session, tool, arguments, result=result)
        case "AfterAgent":
            return HookEvent("end", session)
        case "SessionEnd":
            return HookEvent("end", session, reason=text_of(payload, "reason"))
        case _:
            return None


def _result(response: object) -> CallResult:
    if not isinstance(response, Mapping):
        return CallResult(response)
    result = without_process_ids(response.get("llmContent"))
    return result._replace(error=True) if response.get("error") else result


def _write(payload: Payload, answer: HookAnswer) -> Payload | None:
    event = payload.get("hook_event_name")
    match answer.action:
        case "stop" if event in ("BeforeTool", "AfterTool"):
            return {"continue": False, "stopReason": answer.text}
        case "refuse" if event == "BeforeTool":
            return {"decision": "deny", "reason": answer.text}
        case "nudge" if event == "AfterTool":
            context = {"hookEventName": event, "additionalContext": answer.text}
            return {"hookSpecificOutput": context}
        case _:
            return None


GEMINI: Final = HookAgent("gemini", _read, _write, stops=True)
"""Gemini CLI."""

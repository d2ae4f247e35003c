"""Hooks of opencode, as our plugin reports them: ``{"hook", "cwd", "input", "output"}``.

The plugin can refuse calls, add to a result, and end the run. Calls that were refused or failed are
known from the event that updates their part of the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tidegauge.coding_agents.hook_events import HookAgent, HookAnswer, HookEvent, Payload
from tidegauge.coding_agents.payload_fields import (
    text_of,
    without_description,
    without_saved_path,
)
from tidegauge.events import ABSENT, CallResult


def _read(payload: Payload) -> HookEvent | None:
    given, output = _mapping(payload.get("input")), _mapping(payload.get("output"))
    session = text_of(given, "sessionID")
    if session is None:
        return None
    tool, call_id = text_of(given, "tool") or "", text_of(given, "callID")
    match payload.get("hook"):
        case "chat.message":
            return HookEvent("prompt", session, prompt=_prompt(output), model=_model(output))
        case "tool.execute.before":
            return HookEvent(
                "call", session, tool, without_description(output.get("args")), call_id
            )
        case "tool.execute.after":
            code = _mapping(output.get("metadata")).get("exit")
            error = code != 0 if isinstance(code, int) else None
            result = CallResult(without_saved_path(output.get("output", ABSENT)), error)
            arguments = without_description(given.get("args"))
            return HookEvent("result", session, tool, arguments, call_id, result)
        case "event:message.part.updated":
            return _failed(session, _mapping(given.get("part")))
        case "event:session.idle":
            return HookEvent("end", session)
        case "event:session.error":
            name = text_of(_mapping(given.get("error")), "name")
            return HookEvent("end", session, reason=name)
        case _:
            return None


def _failed(session: str, part: Payload) -> HookEvent | None:
    state = _mapping(part.get("state"))
    if part.get("type") != "tool" or state.get("status") != "error":
        return None
    result = CallResult(state.get("error", ABSENT), True)
    tool, call_id = text_of(part, "tool") or "", text_of(part, "callID")
    arguments = without_description(state.get("input"))
    return HookEvent("result", session, tool, arguments, call_id, result)


def _prompt(output: Payload) -> str | None:
    parts = output.get("parts")
    texts = [text_of(_mapping(part), "text") for part in parts] if isinstance(parts, list) else []
    return "\n".join(text for text in texts if text) or None


def _model(output: Payload) -> str | None:
    return text_of(_mapping(_mapping(output.get("message")).get("model")), "modelID")


def _mapping(value: Any) -> Payload:
    return value if isinstance(value, Mapping) else {}


def _write(payload: Payload, answer: HookAnswer) -> Payload | None:
    if payload.get("hook") not in ("tool.execute.before", "tool.execute.after"):
        return None
    return {"action": answer.action, "message": answer.text}


OPENCODE: Final = HookAgent("opencode", _read, _write, stops=True)
"""opencode."""

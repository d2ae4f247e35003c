"""Hooks of any other agent, in a form that is ours; ``docs/watch.md`` documents it."""

from __future__ import annotations

from typing import Any, Final

from tidegauge.coding_agents.hook_events import HookAgent, HookAnswer, HookEvent, Payload
from tidegauge.coding_agents.payload_fields import text_of
from tidegauge.events import ABSENT, CallResult

_KINDS: Final = ("prompt", "call", "result", "end")


def _read(payload: Payload) -> HookEvent | None:
    session, kind = text_of(payload, "session"), payload.get("event")
    if session is None or kind not in _KINDS:
        return None
    error: Any = payload.get("error")
    return HookEvent(
        kind,
        session,
        tool=text_of(payload, "tool") or "",
        arguments=payload.get("arguments"),
        call_id=text_of(payload, "call_id"),
        result=CallResult(payload.get("result", ABSENT), error if type(error) is bool else None),
        prompt=text_of(payload, "prompt"),
        model=text_of(payload, "model"),
        inner=text_of(payload, "sub_agent"),
        agent=text_of(payload, "agent"),
        reason=text_of(payload, "reason"),
    )


def _write(payload: Payload, answer: HookAnswer) -> Payload | None:
    if payload.get("event") not in ("call", "result"):
        return None
    return {"action": answer.action, "message": answer.text}


GENERIC: Final = HookAgent("generic", _read, _write, stops=True)
"""Any other agent."""

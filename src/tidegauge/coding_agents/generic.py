"""Any other agent: hooks in a form that is ours; ``docs/watch.md`` documents it."""

from __future__ import annotations

from typing import Any, Final

from tidegauge.coding_agents.known_agent import Hook, HookAnswer, HookEvent, KnownAgent, Payload
from tidegauge.coding_agents.session_transcript import text_in
from tidegauge.events import ABSENT, CallResult

_KINDS: Final = ("prompt", "call", "result", "end")


def _read(payload: Payload) -> HookEvent | None:
    session, kind = text_in(payload, "session"), payload.get("event")
    if session is None or kind not in _KINDS:
        return None
    error: Any = payload.get("error")
    return HookEvent(
        kind,
        session,
        tool=text_in(payload, "tool") or "",
        arguments=payload.get("arguments"),
        call_id=text_in(payload, "call_id"),
        result=CallResult(payload.get("result", ABSENT), error if type(error) is bool else None),
        prompt=text_in(payload, "prompt"),
        model=text_in(payload, "model"),
        inner=text_in(payload, "sub_agent"),
        agent=text_in(payload, "agent"),
        reason=text_in(payload, "reason"),
    )


def _write(payload: Payload, answer: HookAnswer) -> Payload | None:
    if payload.get("event") not in ("call", "result"):
        return None
    return {"action": answer.action, "message": answer.text}


GENERIC: Final = KnownAgent("generic", "other agents", hook=Hook(_read, _write, stops=True))

"""Hooks of Codex CLI.

A hook can refuse calls, and add a message for the model. It cannot end a run: a stopped run is
refused every further call. A command that failed is a result like any other, without its exit code.
"""

from __future__ import annotations

from typing import Final

from tidegauge.coding_agents.hook_events import HookAgent, HookEvent, Payload
from tidegauge.coding_agents.payload_fields import read_event, specific_answer
from tidegauge.events import ABSENT, CallResult


def _read(payload: Payload) -> HookEvent | None:
    return read_event(payload, result=CallResult(payload.get("tool_response", ABSENT)))


CODEX: Final = HookAgent("codex", _read, specific_answer)
"""Codex CLI."""

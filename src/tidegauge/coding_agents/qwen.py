"""Hooks of Qwen Code, 0.15 and 0.24.

Calls of one answer are run one after the other, so each of them is a step. A hook can refuse calls,
and add to a result. It cannot end a run: a stopped run is refused every further call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidegauge.coding_agents.hook_events import HookAgent, HookEvent, Payload
from tidegauge.coding_agents.payload_fields import (
    read_event,
    specific_answer,
    without_process_ids,
)
from tidegauge.events import CallResult


def _read(payload: Payload) -> HookEvent | None:
    return read_event(payload, result=_result(payload))


def _result(payload: Payload) -> CallResult:
    if payload.get("hook_event_name") == "PostToolUseFailure":
        return without_process_ids(payload.get("error"))._replace(error=True)
    response = payload.get("tool_response")
    return without_process_ids(
        response.get("llmContent") if isinstance(response, Mapping) else response
    )


QWEN: Final = HookAgent("qwen", _read, specific_answer)
"""Qwen Code."""

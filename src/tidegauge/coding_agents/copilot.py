"""Hooks of Copilot CLI, with the names of events that Claude Code has, too.

Its calls have no ids: a result belongs to the call with the same tool and arguments. Hooks of the
calls of one answer come one after the other. A hook can refuse calls, and add to a result, but not
to that of a call that failed. It cannot end a run: a stopped run is refused every further call.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final

from tidegauge.coding_agents.hook_events import HookAgent, HookAnswer, HookEvent, Payload
from tidegauge.coding_agents.payload_fields import (
    read_event,
    specific_answer,
    without_saved_path,
)
from tidegauge.events import ABSENT, CallResult

_ENDED: Final = re.compile(r"\n?<shellId: \S{1,40} completed with exit code (-?\d{1,10})>\s*\Z")
_MAX_ENDED: Final = 200
_SESSION: Final = re.compile(r"[\w-]{1,100}")


def without_shell_id(content: Any) -> CallResult:
    r"""The result of a tool of Copilot CLI, whose shell reports the id of each call.

    >>> without_shell_id("none\n<shellId: 4 completed with exit code 1>")
    CallResult(outcome='none\n<exit code 1>', error=True)
    """
    content = without_saved_path(content)
    if not isinstance(content, str):
        return CallResult(content)
    ended = _ENDED.search(content, max(0, len(content) - _MAX_ENDED))
    if ended is None:
        return CallResult(content)
    return CallResult(f"{content[: ended.start()]}\n<exit code {ended[1]}>", ended[1] != "0")


def _read(payload: Payload) -> HookEvent | None:
    if payload.get("hook_event_name") == "PostToolUseFailure":
        result = CallResult(payload.get("error", ABSENT), True)
    else:
        given = payload.get("tool_result")
        text = given.get("text_result_for_llm", ABSENT) if isinstance(given, Mapping) else ABSENT
        result = without_shell_id(text)
    event = read_event(payload, result=result)
    return None if event is None else event._replace(transcript=_session_file(event.session))


def _session_file(session: str) -> str | None:
    """The file of a session, which its hooks do not name."""
    if _SESSION.fullmatch(session) is None:
        return None
    home = os.environ.get("COPILOT_HOME") or os.path.join(os.path.expanduser("~"), ".copilot")
    return os.path.join(home, "session-state", session, "events.jsonl")


def _write(payload: Payload, answer: HookAnswer) -> Payload | None:
    if payload.get("hook_event_name") == "PostToolUse":
        return {"additionalContext": answer.text}
    if payload.get("hook_event_name") == "PreToolUse":
        return specific_answer(payload, answer)
    return None


COPILOT: Final = HookAgent("copilot", _read, _write)
"""Copilot CLI."""

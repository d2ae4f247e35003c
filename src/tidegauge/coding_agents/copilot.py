"""Copilot CLI, whose hooks have the names of events that Claude Code has, too.

Its calls have no ids: a result belongs to the call with the same tool and arguments. Hooks of the
calls of one answer come one after the other. A hook can refuse calls, and add to a result, but not
to that of a call that failed. It cannot end a run: a stopped run is refused every further call.

In sessions, results lose the id of the shell, and what a hook has added to them. Events of
sub-agents are left out.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tidegauge.coding_agents.known_agent import (
    Folder,
    Hook,
    HookAnswer,
    HookEvent,
    HookSettings,
    KnownAgent,
    Payload,
    Sessions,
    read_event,
    specific_answer,
    without_description,
    without_saved_path,
)
from tidegauge.coding_agents.session_transcript import (
    Record,
    SessionTranscript,
    mapping,
    mappings,
    parsed_arguments,
    parsed_time,
    text_in,
    total_of,
)
from tidegauge.events import ABSENT, Call, CallResult

_HOME: Final = Folder(".copilot", "COPILOT_HOME")
_STATE: Final = _HOME._replace(part="session-state")
_ENDED: Final = re.compile(r"\n?<shellId: \S{1,40} completed with exit code (-?\d{1,10})>\s*\Z")
_MAX_ENDED: Final = 200
_SESSION: Final = re.compile(r"[\w-]{1,100}")
_TYPES: Final = ("session.", "user.", "assistant.", "tool.", "system.", "hook.")
_GUIDANCE: Final = re.compile(
    r'\n\nTool "[^"\n]*" succeeded\. Additional guidance from postToolUse hooks:\n.*\Z', re.DOTALL
)


class CopilotTranscript(SessionTranscript):
    """A session of Copilot CLI."""

    agent = "copilot"

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self._spent: tuple[str, int | None] = ("", None)  # the last answer and its tokens
        self._answer = ""  # its messages may be several

    @classmethod
    def recognizes(cls, record: Record) -> bool:
        kind = text_in(record, "type") or ""
        return kind.startswith(_TYPES) and "parentId" in record and "data" in record

    def read(self, record: Record) -> None:
        data, time = mapping(record.get("data")), parsed_time(record.get("timestamp"))
        if text_in(record, "agentId") is not None:
            return
        match record.get("type"):
            case "session.start" | "session.resume":
                self.session = text_in(data, "sessionId") or self.session
                self.folder = text_in(mapping(data.get("context")), "cwd") or self.folder
                self.model = text_in(data, "selectedModel") or self.model
            case "user.message":
                self.prompt(text_in(data, "content"), time)
            case "session.usage_record":
                usage = mapping(data.get("usage"))
                total = total_of(usage.get("inputTokens"), usage.get("outputTokens"))
                self._spent = (text_in(usage, "apiCallId") or "", total)
            case "assistant.message":
                self._message(data, time)
            case "tool.execution_complete":
                self.observe(text_in(data, "toolCallId") or "", _recorded_result(data), time)
            case "assistant.turn_end" if not self.calls:
                self.end(time=time)
            case "abort":
                self.end(reason=text_in(data, "reason") or "aborted", time=time)
            case "session.shutdown":
                self.end(time=time)

    def _message(self, data: Record, time: float | None) -> None:
        self.model = text_in(data, "model") or self.model
        answer = text_in(data, "apiCallId") or text_in(data, "messageId") or ""
        if answer != self._answer:
            self.choose({}, time=time)
        self._answer = answer
        requests = mappings(data.get("toolRequests"))
        for request in requests:
            arguments = without_description(parsed_arguments(request.get("arguments")))
            call = Call(text_in(request, "name") or "tool", arguments)
            self.choose_also(text_in(request, "toolCallId") or "", call, time)
        if self._spent[0] == answer:
            self.spend(self._spent[1])


def _recorded_result(data: Record) -> CallResult:
    failed = data.get("success") is False
    output = mapping(data.get("result")).get("content")
    if failed:
        output = mapping(data.get("error")).get("message", output)
    if isinstance(output, str):
        output = _GUIDANCE.sub("", output)
    result = without_shell_id(output)
    return result._replace(error=True) if failed else result


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
    folder = _STATE.find(Path(os.path.expanduser("~")), os.environ)
    return str(folder / session / "events.jsonl")


def _write(payload: Payload, answer: HookAnswer) -> Payload | None:
    if payload.get("hook_event_name") == "PostToolUse":
        return {"additionalContext": answer.text}
    if payload.get("hook_event_name") == "PreToolUse":
        return specific_answer(payload, answer)
    return None


def _hooks_file(settings: HookSettings, command: str) -> str:
    hook = {"type": "command", "command": command, "timeoutSec": settings.timeout}
    hooks = {event: [hook] for event in (*settings.before, *settings.other)}
    return json.dumps({"version": 1, "hooks": hooks}, indent=2) + "\n"


COPILOT: Final = KnownAgent(
    "copilot",
    "Copilot CLI",
    "1.0",
    hook=Hook(_read, _write, nudges="yes, but not after a call that failed"),
    settings=HookSettings(
        _HOME,
        "hooks/tidegauge.json",
        ("PreToolUse", "PostToolUse", "PostToolUseFailure"),
        ("UserPromptSubmit", "Stop", "SessionEnd"),
        own=_hooks_file,
    ),
    sessions=Sessions(
        CopilotTranscript, ("events.jsonl",), _STATE, tokens=True, note="without its sub-agents"
    ),
)

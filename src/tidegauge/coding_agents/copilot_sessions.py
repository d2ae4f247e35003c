"""Sessions of Copilot CLI: ``~/.copilot/session-state/*/events.jsonl``.

Results lose the id of the shell, and what a hook has added to them. Events of sub-agents are left
out.
"""

from __future__ import annotations

import re
from typing import Final

from tidegauge.coding_agents.copilot import without_shell_id
from tidegauge.coding_agents.payload_fields import without_description
from tidegauge.coding_agents.session_transcript import (
    Record,
    SessionTranscript,
    listed,
    mapping,
    parsed_arguments,
    parsed_time,
    text_in,
    total_of,
)
from tidegauge.events import Call, CallResult

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
        """Whether a record is one of Copilot CLI's."""
        kind = text_in(record, "type") or ""
        return kind.startswith(_TYPES) and "parentId" in record and "data" in record

    def read(self, record: Record) -> None:
        """Read one line."""
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
                self.observe(text_in(data, "toolCallId") or "", _result(data), time)
            case "assistant.turn_end" if not self.chosen:
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
        requests = [mapping(one) for one in listed(data.get("toolRequests"))]
        for request in requests:
            arguments = without_description(parsed_arguments(request.get("arguments")))
            call = Call(text_in(request, "name") or "tool", arguments)
            self.choose_also(text_in(request, "toolCallId") or "", call, time)
        if self._spent[0] == answer:
            self.spend(self._spent[1])


def _result(data: Record) -> CallResult:
    failed = data.get("success") is False
    output = mapping(data.get("result")).get("content")
    if failed:
        output = mapping(data.get("error")).get("message", output)
    if isinstance(output, str):
        output = _GUIDANCE.sub("", output)
    result = without_shell_id(output)
    return result._replace(error=True) if failed else result

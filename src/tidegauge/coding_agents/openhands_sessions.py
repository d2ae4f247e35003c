"""Conversations of OpenHands: a folder with a file an event, ``events/event-*.json``."""

from __future__ import annotations

from typing import Any

from tidegauge.coding_agents.session_transcript import (
    Record,
    SessionTranscript,
    listed,
    mapping,
    parsed_arguments,
    parsed_time,
    text_in,
    without_our_text,
)
from tidegauge.events import Call, CallResult


class OpenHandsTranscript(SessionTranscript):
    """A conversation of OpenHands."""

    agent = "openhands"

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self._response = ""  # id of the last answer: each of its calls is an event

    @classmethod
    def recognizes(cls, record: Record) -> bool:
        """Whether a record is one of OpenHands'."""
        return "kind" in record and "source" in record

    def read(self, record: Record) -> None:
        """Read one event."""
        time = parsed_time(record.get("timestamp"))
        call_id = text_in(record, "tool_call_id") or ""
        match record.get("kind"):
            case "MessageEvent" if record.get("source") == "user":
                self.prompt(_text(mapping(record.get("llm_message")).get("content")), time)
            case "ActionEvent":
                response = text_in(record, "llm_response_id") or ""
                if response != self._response or not response:
                    self.choose({}, time=time)
                self._response = response
                given = mapping(record.get("tool_call")).get("arguments")
                call = Call(text_in(record, "tool_name") or "tool", parsed_arguments(given))
                self.choose_also(call_id, call, time)
            case "ObservationEvent":
                observed = mapping(record.get("observation"))
                code = observed.get("exit_code")
                failed = observed.get("is_error") is True or code not in (None, 0)
                known = "is_error" in observed or code is not None
                text = without_our_text(_text(observed.get("content")))
                self.observe(call_id, CallResult(text, failed if known else None), time)
            case "AgentErrorEvent":
                self.observe(call_id, CallResult(record.get("error"), True), time)
            case "UserRejectObservation":
                self.observe(call_id, CallResult(record.get("rejection_reason"), None), time)


def _text(content: Any) -> str | None:
    texts = [text_in(mapping(one), "text") for one in listed(content)]
    return "\n".join(filter(None, texts)) or None

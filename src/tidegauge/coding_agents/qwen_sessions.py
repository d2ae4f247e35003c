"""Sessions of Qwen Code: ``~/.qwen/projects/*/chats/*.jsonl``.

Results lose the ids of processes, and what ``tidegauge watch`` has added to them.
"""

from __future__ import annotations

from tidegauge.coding_agents.payload_fields import without_description, without_process_ids
from tidegauge.coding_agents.session_transcript import (
    Record,
    SessionTranscript,
    listed,
    mapping,
    parsed_time,
    text_in,
    without_our_text,
)
from tidegauge.events import Call, CallResult


class QwenTranscript(SessionTranscript):
    """A session of Qwen Code."""

    agent = "qwen"

    @classmethod
    def recognizes(cls, record: Record) -> bool:
        """Whether a record is one of Qwen Code's."""
        return "sessionId" in record and (
            "parts" in mapping(record.get("message")) or "systemPayload" in record
        )

    def read(self, record: Record) -> None:
        """Read one line."""
        self.session = text_in(record, "sessionId") or self.session
        self.folder = self.folder or text_in(record, "cwd") or ""
        time = parsed_time(record.get("timestamp"))
        parts = [mapping(part) for part in listed(mapping(record.get("message")).get("parts"))]
        match record.get("type"):
            case "user":
                texts = [text_in(part, "text") for part in parts]
                self.prompt("\n".join(filter(None, texts)) or None, time)
            case "assistant":
                self.model = text_in(record, "model") or self.model
                total = mapping(record.get("usageMetadata")).get("totalTokenCount")
                calls = [mapping(part.get("functionCall")) for part in parts]
                chosen = {
                    text_in(call, "id") or str(number): Call(
                        text_in(call, "name") or "tool", without_description(call.get("args"))
                    )
                    for number, call in enumerate(calls)
                    if call
                }
                self.choose(chosen, tokens=total if isinstance(total, int) else None, time=time)
                if not chosen:
                    self.end(time=time)
            case "tool_result":
                failed = mapping(record.get("toolCallResult")).get("status") == "error"
                for part in parts:
                    given = mapping(part.get("functionResponse"))
                    result = _result(mapping(given.get("response")), failed=failed)
                    self.observe(text_in(given, "id") or "0", result, time)


def _result(response: Record, *, failed: bool) -> CallResult:
    output = without_our_text(response.get("output", response.get("error")))
    result = without_process_ids(output)
    return result._replace(error=True) if failed or "error" in response else result

"""Trajectories of mini-swe-agent: one JSON file, ``*.traj.json``, whose messages are records."""

from __future__ import annotations

from tidegauge.coding_agents.session_transcript import (
    Record,
    SessionTranscript,
    listed,
    mapping,
    parsed_arguments,
    text_in,
    without_our_text,
)
from tidegauge.events import Call, CallResult


class MiniSweAgentTranscript(SessionTranscript):
    """A trajectory of mini-swe-agent."""

    agent = "mini-swe-agent"

    @classmethod
    def recognizes(cls, record: Record) -> bool:
        """Whether this is the object of a whole file."""
        return str(record.get("trajectory_format")).startswith("mini-swe-agent")

    def read(self, record: Record) -> None:
        """Read one message."""
        content, extra = record.get("content"), mapping(record.get("extra"))
        match record.get("role"):
            case "user" if self.run is None:
                self.prompt(content if isinstance(content, str) else None)
            case "assistant":
                response = mapping(extra.get("response"))
                self.model = text_in(response, "model") or self.model
                total = mapping(response.get("usage")).get("total_tokens")
                given = [mapping(call) for call in listed(record.get("tool_calls"))]
                chosen = {text_in(call, "id") or "": _call(call) for call in given}
                self.choose(chosen, tokens=total if isinstance(total, int) else None)
            case "tool":
                code = extra.get("returncode")
                error = code != 0 if isinstance(code, int) else None
                result = CallResult(without_our_text(content), error)
                self.observe(text_in(record, "tool_call_id") or "", result)


def _call(call: Record) -> Call:
    function = mapping(call.get("function"))
    return Call(text_in(function, "name") or "tool", parsed_arguments(function.get("arguments")))

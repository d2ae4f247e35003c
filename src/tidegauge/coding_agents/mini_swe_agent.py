"""mini-swe-agent: a trajectory is one JSON file, ``*.traj.json``, whose messages are records."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tidegauge.coding_agents.known_agent import Folder, KnownAgent, Sessions
from tidegauge.coding_agents.session_files import (
    Lines,
    Look,
    SessionPart,
    SessionTail,
    read_growing_object,
    read_object,
)
from tidegauge.coding_agents.session_transcript import (
    Record,
    SessionError,
    SessionTranscript,
    mapping,
    mappings,
    parsed_arguments,
    text_in,
    total_of,
    without_our_text,
)
from tidegauge.events import Call, CallResult

_SUFFIX: Final = ".traj.json"


class MiniSweAgentTranscript(SessionTranscript):
    """A trajectory of mini-swe-agent."""

    agent = "mini-swe-agent"

    @classmethod
    def recognizes(cls, record: Record) -> bool:
        return str(record.get("trajectory_format")).startswith("mini-swe-agent")

    def read(self, record: Record) -> None:
        content, extra = record.get("content"), mapping(record.get("extra"))
        match record.get("role"):
            case "user" if self.run is None:
                self.prompt(content if isinstance(content, str) else None)
            case "assistant":
                response = mapping(extra.get("response"))
                self.model = text_in(response, "model") or self.model
                total = mapping(response.get("usage")).get("total_tokens")
                given = mappings(record.get("tool_calls"))
                chosen = {text_in(call, "id") or "": _call(call) for call in given}
                self.choose(chosen, tokens=total_of(total))
            case "tool":
                code = extra.get("returncode")
                error = code != 0 if isinstance(code, int) else None
                result = CallResult(without_our_text(content), error)
                self.observe(text_in(record, "tool_call_id") or "", result)


def _call(call: Record) -> Call:
    function = mapping(call.get("function"))
    return Call(text_in(function, "name") or "tool", parsed_arguments(function.get("arguments")))


def _read_trajectory(path: Path) -> Iterator[SessionPart]:
    whole = read_object(path)
    messages = None if whole is None else whole.get("messages")
    if whole is None or not isinstance(messages, list):
        raise SessionError("it is no trajectory: use a JSON object with messages")
    transcript = MiniSweAgentTranscript(path.name.removesuffix(_SUFFIX))
    for number, message in enumerate(messages, start=1):
        if isinstance(message, dict):
            yield SessionPart(transcript.take(message), number)
        else:
            yield SessionPart([], number, 0, "the message is no JSON object")
    transcript.end(reason=_status(whole))
    yield SessionPart(transcript.close(), len(messages), os.path.getsize(path))


def _status(whole: Record) -> str | None:
    """Why the agent ended; ``None``, it has not."""
    return text_in(mapping(whole.get("info")), "exit_status")


class MiniSweAgentTail(SessionTail):
    """A file that is written again, whole, after each step."""

    _seen: tuple[int, int] | None = None

    def look(self) -> Look | None:
        """Read the file, if it has changed."""
        found = os.stat(self.path)
        seen = (found.st_mtime_ns, found.st_size)
        if seen == self._seen:
            return None
        whole = read_growing_object(self.path)
        messages = None if whole is None else whole.get("messages")
        if whole is None or not isinstance(messages, list):
            return None  # it is being written
        self._seen = seen
        self._transcript = self.kind(self._session())
        lines: Lines = []
        for message in messages:
            if isinstance(message, dict):
                lines += self._transcript.take(message)
        status = _status(whole)
        if status is not None:
            self._transcript.end(reason=status)
            lines += self._transcript.close()
        return Look(lines, again=True)

    def _session(self) -> str:
        return self.path.name.removesuffix(_SUFFIX)


MINI_SWE_AGENT: Final = KnownAgent(
    "mini-swe-agent",
    "mini-swe-agent",
    sessions=Sessions(
        MiniSweAgentTranscript,
        (f"*{_SUFFIX}",),
        Folder(".config/mini-swe-agent", "MSWEA_GLOBAL_CONFIG_DIR"),
        reader=_read_trajectory,
        tail=MiniSweAgentTail,
        whole=True,
    ),
)

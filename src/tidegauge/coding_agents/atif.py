"""Trajectories in ATIF, the format of Harbor: one JSON object, whose steps are records.

https://harborframework.com/docs/trajectory-format (versions 1.0 to 1.8). A trajectory is what one
agent did for one task, so it is one run, also if its user says something more than once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tidegauge.coding_agents.known_agent import KnownAgent, Sessions
from tidegauge.coding_agents.session_files import SessionPart, read_object
from tidegauge.coding_agents.session_transcript import (
    Record,
    SessionError,
    SessionTranscript,
    listed,
    mapping,
    mappings,
    parsed_time,
    text_in,
    total_of,
)
from tidegauge.events import Call, CallResult

_MAX_LEVELS: Final = 8
"""Sub-agents in sub-agents; those further down are left out."""


class AtifTranscript(SessionTranscript):
    """What one agent did."""

    agent = "atif"

    @classmethod
    def recognizes(cls, record: Record) -> bool:
        return str(record.get("schema_version")).startswith("ATIF-")

    def read(self, record: Record) -> None:
        """Read one step. One that was copied from an earlier trajectory counts there."""
        if record.get("is_copied_context") is True:
            return
        time = parsed_time(record.get("timestamp"))
        match record.get("source"):
            case "user" if self.run is None:
                task = _text(record.get("message"))
                self.prompt(task if isinstance(task, str) else None, time)
            case "agent":
                self._answer(record, time)

    def _answer(self, record: Record, time: float | None) -> None:
        self.model = text_in(record, "model_name") or self.model
        spent = mapping(record.get("metrics"))
        tokens = total_of(spent.get("prompt_tokens"), spent.get("completion_tokens"))
        chosen: dict[str, Call] = {}
        for number, given in enumerate(mappings(record.get("tool_calls"))):
            call = Call(text_in(given, "function_name") or "tool", given.get("arguments"))
            chosen[text_in(given, "tool_call_id") or f"#{number}"] = call
        self.choose(chosen, tokens=tokens, time=time)
        for result in mappings(mapping(record.get("observation")).get("results")):
            # A terminal shows what all calls of a step have written: that is the last one's.
            call_id = text_in(result, "source_call_id") or next(reversed(chosen), "")
            if "content" in result:
                self.observe(call_id, CallResult(_text(result["content"]), None))


def _lines_of(whole: Record, session: str, *, level: int = 0) -> Iterator[list[dict[str, Any]]]:
    """The lines of a trajectory, step by step, then those of the sub-agents in it.

    Args:
        whole: the object of the file.
        session: its id, if it has none.
        level: how many trajectories it is in.
    """
    about = mapping(whole.get("agent"))
    ids = text_in(whole, "trajectory_id"), text_in(whole, "session_id")
    transcript = AtifTranscript(ids[0] or ids[1] or session)
    transcript.name = text_in(about, "name")
    transcript.model = text_in(about, "model_name")
    for step in mappings(whole.get("steps")):
        yield transcript.take(step)
    yield transcript.close()
    if level < _MAX_LEVELS:
        for number, inner in enumerate(listed(whole.get("subagent_trajectories")), start=1):
            inside = f"{transcript.session}-{number}"
            yield from _lines_of(mapping(inner), inside, level=level + 1)


def _text(content: Any) -> Any:
    """Text, also if it has parts; with a picture in it, the parts as they are."""
    parts = mappings(content)
    texts = [part.get("text") for part in parts]
    if not parts or not all(isinstance(text, str) for text in texts):
        return content
    return "\n".join(map(str, texts))


def _read_file(path: Path) -> Iterator[SessionPart]:
    whole = read_object(path)
    if whole is None or not AtifTranscript.recognizes(whole):
        raise SessionError("it is no trajectory in ATIF: it has no schema_version of ATIF")
    for number, lines in enumerate(_lines_of(whole, path.stem), start=1):
        yield SessionPart(lines, number)
    yield SessionPart([], 1, os.path.getsize(path))


ATIF: Final = KnownAgent(
    "atif",
    "ATIF",
    sessions=Sessions(
        AtifTranscript,
        ("*trajectory*.json",),
        reader=_read_file,
        whole=True,
        note="trajectories of [Harbor](https://harborframework.com/docs/trajectory-format) and "
        "others; one is a run, and so is each sub-agent in it",
    ),
)

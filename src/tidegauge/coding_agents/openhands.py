"""OpenHands: a conversation is a folder with a file an event, ``events/event-*.json``."""

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
    joined_texts,
    mapping,
    parsed_arguments,
    parsed_time,
    text_in,
    without_our_text,
)
from tidegauge.events import Call, CallResult

_MAX_EVENTS: Final = 1_000
"""Events that one look reads."""


class OpenHandsTranscript(SessionTranscript):
    """A conversation of OpenHands."""

    agent = "openhands"

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self._response = ""  # id of the last answer: each of its calls is an event

    @classmethod
    def recognizes(cls, record: Record) -> bool:
        return "kind" in record and "source" in record

    def read(self, record: Record) -> None:
        time = parsed_time(record.get("timestamp"))
        call_id = text_in(record, "tool_call_id") or ""
        match record.get("kind"):
            case "MessageEvent" if record.get("source") == "user":
                self.prompt(joined_texts(mapping(record.get("llm_message")).get("content")), time)
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
                text = without_our_text(joined_texts(observed.get("content")))
                self.observe(call_id, CallResult(text, failed if known else None), time)
            case "AgentErrorEvent":
                self.observe(call_id, CallResult(record.get("error"), True), time)
            case "UserRejectObservation":
                self.observe(call_id, CallResult(record.get("rejection_reason"), None), time)


def _read_folder(path: Path) -> Iterator[SessionPart]:
    transcript, number = OpenHandsTranscript(path.absolute().parent.name), 0
    for number, file in enumerate(sorted(path.glob("event-*.json")), start=1):
        record, size = read_object(file), os.path.getsize(file)
        if record is None:
            yield SessionPart([], number, size, f"{file.name} is no JSON object")
        else:
            yield SessionPart(transcript.take(record), number, size)
    if not number:
        raise SessionError("it has no files event-*.json; give the folder of a conversation")
    yield SessionPart(transcript.close(), number)


def _is_conversation(path: Path) -> bool:
    """Whether a folder has the events of a conversation."""
    return path.is_dir() and any(path.glob("event-*.json"))


class OpenHandsTail(SessionTail):
    """A folder with a file an event."""

    _last = ""

    def look(self) -> Look | None:
        """Read the events that are new. One that is not complete yet is read at the next look."""
        names = [one.name for one in os.scandir(self.path) if one.name.startswith("event-")]
        new = sorted(name for name in names if name > self._last and name.endswith(".json"))
        if not new:
            return None
        lines: Lines = []
        for number, name in enumerate(new[:_MAX_EVENTS], start=1):
            record = read_growing_object(self.path / name)
            if record is None and number == len(new):
                break
            if record is None:
                self.skipped += 1
            else:
                lines += self._transcript.take(record)
            self._last = name
        return Look(lines, whole=len(new) <= _MAX_EVENTS)

    def _session(self) -> str:
        return self.path.absolute().parent.name


OPENHANDS: Final = KnownAgent(
    "openhands",
    "OpenHands",
    sessions=Sessions(
        OpenHandsTranscript,
        ("events",),
        Folder(".openhands/conversations"),
        reader=_read_folder,
        tail=OpenHandsTail,
        is_session=_is_conversation,
        note="a run for each prompt of the conversation",
    ),
)

"""Sessions of opencode: its SQLite database, ``~/.local/share/opencode/opencode.db``, read only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from tidegauge.coding_agents.payload_fields import without_description, without_saved_path
from tidegauge.coding_agents.session_transcript import (
    Record,
    SessionError,
    SessionTranscript,
    listed,
    mapping,
    parsed_time,
    text_in,
    without_our_text,
)
from tidegauge.events import Call, CallResult
from tidegauge.values.exact_json import bounded_json

_CHANGED: Final = """
    SELECT session.id, max(session.time_updated, coalesce(max(message.time_updated), 0)) AS changed
    FROM session LEFT JOIN message ON message.session_id = session.id
    GROUP BY session.id HAVING changed >= ? ORDER BY session.time_created, session.id
"""
_SESSIONS: Final = "SELECT id FROM session ORDER BY time_created, id"
_MESSAGES: Final = (
    "SELECT id, time_created, data FROM message WHERE session_id = ? ORDER BY time_created, id"
)
_PARTS: Final = "SELECT data FROM part WHERE message_id = ? ORDER BY time_created, id"


class OpencodeTranscript(SessionTranscript):
    """A session of opencode, whose messages are records, with their ``parts``."""

    agent = "opencode"

    @classmethod
    def recognizes(cls, record: Record) -> bool:
        """Messages are in a database only."""
        return False

    def read(self, record: Record) -> None:
        """Read one message."""
        time = parsed_time(record.get("time_created"))
        parts = [mapping(part) for part in listed(record.get("parts"))]
        match record.get("role"):
            case "user":
                texts = [text_in(part, "text") for part in parts]
                self.prompt("\n".join(filter(None, texts)) or None, time)
            case "assistant":
                self.model = text_in(record, "modelID") or self.model
                self.folder = self.folder or text_in(mapping(record.get("path")), "cwd") or ""
                total = mapping(record.get("tokens")).get("total")
                tools = [part for part in parts if part.get("type") == "tool"]
                chosen = {text_in(part, "callID") or "": _call(part) for part in tools}
                self.choose(chosen, tokens=total if isinstance(total, int) else None, time=time)
                for part in tools:
                    state = mapping(part.get("state"))
                    ended = parsed_time(mapping(state.get("time")).get("end"))
                    result = _result(state)
                    if result is not None:
                        self.observe(text_in(part, "callID") or "", result, ended)


def read_database(path: Path) -> Iterator[list[dict[str, Any]]]:
    """The lines of all its sessions; a sub-agent has a separate session.

    Raises:
        SessionError: it is no database of opencode.
    """
    import sqlite3  # not every Python has it

    try:
        yield from _sessions(sqlite3, path)
    except sqlite3.Error as error:
        raise SessionError(f"it is no database of opencode: {error}") from None


def read_changed_sessions(
    path: Path, since: int
) -> Iterator[tuple[str, int, OpencodeTranscript, list[dict[str, Any]]]]:
    """The sessions that have changed, each from its beginning, which need not be over.

    Args:
        path: the database.
        since: sessions that changed at this time or later, in milliseconds.

    Yields:
        id, time of the last change, transcript, and the lines that are complete.

    Raises:
        SessionError: it is no database of opencode.
    """
    import sqlite3  # not every Python has it

    try:
        with closing(_opened(sqlite3, path)) as database:
            for session, changed in database.execute(_CHANGED, (since,)).fetchall():
                transcript = OpencodeTranscript(str(session))
                lines = [line for found in _read(database, transcript) for line in found]
                yield transcript.session, int(changed), transcript, lines
    except sqlite3.Error as error:
        raise SessionError(f"it is no database of opencode: {error}") from None


def _sessions(sqlite3: Any, path: Path) -> Iterator[list[dict[str, Any]]]:
    with closing(_opened(sqlite3, path)) as database:
        for (session,) in database.execute(_SESSIONS).fetchall():
            transcript = OpencodeTranscript(str(session))
            yield from _read(database, transcript)
            yield transcript.close()


def _opened(sqlite3: Any, path: Path) -> Any:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)


def _read(database: Any, transcript: OpencodeTranscript) -> Iterator[list[dict[str, Any]]]:
    for message, time, data in database.execute(_MESSAGES, (transcript.session,)):
        parts = [_object(part) for (part,) in database.execute(_PARTS, (message,))]
        yield transcript.take({**_object(data), "time_created": time, "parts": parts})


def _object(data: Any) -> Record:
    try:
        return mapping(bounded_json(data))
    except (ValueError, TypeError, AttributeError):
        return {}


def _call(part: Record) -> Call:
    return Call(
        text_in(part, "tool") or "tool",
        without_description(mapping(part.get("state")).get("input")),
    )


def _result(state: Record) -> CallResult | None:
    match state.get("status"):
        case "completed":
            code = mapping(state.get("metadata")).get("exit")
            error = code != 0 if isinstance(code, int) else None
            return CallResult(without_saved_path(without_our_text(state.get("output"))), error)
        case "error":
            return CallResult(state.get("error"), True)
        case _:
            return None

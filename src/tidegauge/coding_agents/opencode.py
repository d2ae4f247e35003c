"""opencode: our plugin reports its hooks; its sessions are in a SQLite database, read only.

The plugin gives ``{"hook", "cwd", "input", "output"}``. It can refuse calls, add to a result, and
end the run. Calls that were refused or failed are known from the event that updates their part of
the message.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
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
    without_description,
    without_saved_path,
)
from tidegauge.coding_agents.session_files import Lines, Look, SessionPart, SessionTail
from tidegauge.coding_agents.session_transcript import (
    Record,
    SessionError,
    SessionTranscript,
    joined_texts,
    mapping,
    mappings,
    parsed_time,
    text_in,
    total_of,
    without_our_text,
)
from tidegauge.events import ABSENT, Call, CallResult
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
_MAX_SESSIONS: Final = 1_000


class OpencodeTranscript(SessionTranscript):
    """A session of opencode, whose messages are records, with their ``parts``."""

    agent = "opencode"

    @classmethod
    def recognizes(cls, record: Record) -> bool:
        """Messages are in a database only."""
        return False

    def read(self, record: Record) -> None:
        time = parsed_time(record.get("time_created"))
        parts = mappings(record.get("parts"))
        match record.get("role"):
            case "user":
                self.prompt(joined_texts(parts), time)
            case "assistant":
                self.model = text_in(record, "modelID") or self.model
                self.folder = self.folder or text_in(mapping(record.get("path")), "cwd") or ""
                total = mapping(record.get("tokens")).get("total")
                tools = [part for part in parts if part.get("type") == "tool"]
                chosen = {text_in(part, "callID") or "": _call(part) for part in tools}
                self.choose(chosen, tokens=total_of(total), time=time)
                for part in tools:
                    state = mapping(part.get("state"))
                    ended = parsed_time(mapping(state.get("time")).get("end"))
                    result = _recorded_result(state)
                    if result is not None:
                        self.observe(text_in(part, "callID") or "", result, ended)


@contextmanager
def _database(path: Path) -> Iterator[Any]:
    """The database, for reading.

    Raises:
        SessionError: it is no database of opencode.
    """
    import sqlite3  # not every Python has it

    if not path.is_file():
        raise FileNotFoundError(2, "No such file", str(path))
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as opened:
            yield opened
    except sqlite3.Error as error:
        raise SessionError(f"it is no database of opencode: {error}") from None


def _read_database(path: Path) -> Iterator[SessionPart]:
    """The lines of all its sessions; a sub-agent has a separate session."""
    number = count(1)
    with _database(path) as database:
        for (session,) in database.execute(_SESSIONS).fetchall():
            transcript = OpencodeTranscript(str(session))
            for lines in _read_messages(database, transcript):
                yield SessionPart(lines, next(number))
            yield SessionPart(transcript.close(), next(number))


def _read_messages(database: Any, transcript: OpencodeTranscript) -> Iterator[list[dict[str, Any]]]:
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


def _recorded_result(state: Record) -> CallResult | None:
    match state.get("status"):
        case "completed":
            code = mapping(state.get("metadata")).get("exit")
            error = code != 0 if isinstance(code, int) else None
            return CallResult(without_saved_path(without_our_text(state.get("output"))), error)
        case "error":
            return CallResult(state.get("error"), True)
        case _:
            return None


class OpencodeTail(SessionTail):
    """The database of opencode, with all its sessions."""

    def __init__(self, path: Path, kind: type[SessionTranscript], since: float = 0.0) -> None:
        super().__init__(path, kind, since)
        self._seen: tuple[int, ...] = ()
        self._changed = int(since * 1_000)  # the latest change that was read
        self._open: OrderedDict[str, SessionTranscript] = OrderedDict()

    def session_of(self, run: str) -> str:
        """The session's id, which is in that of the run."""
        return run.removeprefix(f"{self.kind.agent}-").rpartition("-")[0]

    def look(self) -> Look | None:
        """Read the sessions that have changed."""
        seen = tuple(self._stats())
        if seen == self._seen:
            return None
        lines: Lines = []
        with _database(self.path) as database:
            # Each that has changed, from its beginning; it need not be over.
            for session, changed in database.execute(_CHANGED, (self._changed,)).fetchall():
                transcript = OpencodeTranscript(str(session))
                for found in _read_messages(database, transcript):
                    lines += found
                self._open[transcript.session] = transcript
                self._open.move_to_end(transcript.session)
                if len(self._open) > _MAX_SESSIONS:
                    self._open.popitem(last=False)
                self._changed = max(self._changed, int(changed))
        self._seen = seen
        return Look(lines, again=True)

    def close(self) -> Lines:
        """The lines that are complete if nothing more comes."""
        opened, self._open = self._open, OrderedDict()
        return [line for transcript in opened.values() for line in transcript.close()]

    def _stats(self) -> Iterator[int]:
        for path in (self.path, self.path.with_name(f"{self.path.name}-wal")):
            try:
                found = os.stat(path)
            except FileNotFoundError:
                continue
            yield from (found.st_mtime_ns, found.st_size)


def _read(payload: Payload) -> HookEvent | None:
    given, output = mapping(payload.get("input")), mapping(payload.get("output"))
    session = text_in(given, "sessionID")
    if session is None:
        return None
    tool, call_id = text_in(given, "tool") or "", text_in(given, "callID")
    match payload.get("hook"):
        case "chat.message":
            return HookEvent(
                "prompt", session, prompt=joined_texts(output.get("parts")), model=_model(output)
            )
        case "tool.execute.before":
            return HookEvent(
                "call", session, tool, without_description(output.get("args")), call_id
            )
        case "tool.execute.after":
            code = mapping(output.get("metadata")).get("exit")
            error = code != 0 if isinstance(code, int) else None
            result = CallResult(without_saved_path(output.get("output", ABSENT)), error)
            arguments = without_description(given.get("args"))
            return HookEvent("result", session, tool, arguments, call_id, result)
        case "event:message.part.updated":
            return _failed(session, mapping(given.get("part")))
        case "event:session.idle":
            return HookEvent("end", session)
        case "event:session.error":
            name = text_in(mapping(given.get("error")), "name")
            return HookEvent("end", session, reason=name)
        case _:
            return None


def _failed(session: str, part: Payload) -> HookEvent | None:
    state = mapping(part.get("state"))
    if part.get("type") != "tool" or state.get("status") != "error":
        return None
    result = CallResult(state.get("error", ABSENT), True)
    tool, call_id = text_in(part, "tool") or "", text_in(part, "callID")
    arguments = without_description(state.get("input"))
    return HookEvent("result", session, tool, arguments, call_id, result)


def _model(output: Payload) -> str | None:
    return text_in(mapping(mapping(output.get("message")).get("model")), "modelID")


def _write(payload: Payload, answer: HookAnswer) -> Payload | None:
    if payload.get("hook") not in ("tool.execute.before", "tool.execute.after"):
        return None
    return {"action": answer.action, "message": answer.text}


def _plugin(settings: HookSettings, command: str) -> str:
    return Path(__file__).with_name("opencode_plugin.js").read_text(encoding="utf-8")


OPENCODE: Final = KnownAgent(
    "opencode",
    "opencode",
    "1.18",
    hook=Hook(_read, _write, stops=True),
    settings=HookSettings(Folder(".config/opencode"), "plugin/tidegauge.js", own=_plugin),
    sessions=Sessions(
        OpencodeTranscript,
        ("opencode*.db",),
        Folder(".local/share/opencode"),
        reader=_read_database,
        tail=OpencodeTail,
        begins=b"SQLite format 3\0",
        note="opened read only",
    ),
)

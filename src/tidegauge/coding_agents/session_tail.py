"""A session that is being written: what its file has more than at the last look.

Files with a line a record are read from where the last look has stopped. A line without its end
waits for the next look. A file that has become shorter, or is another one, is read from its start,
and so is every file that agents write again as a whole.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Final, NamedTuple

from tidegauge.coding_agents.mini_swe_agent_sessions import MiniSweAgentTranscript
from tidegauge.coding_agents.opencode_sessions import (
    OpencodeTranscript,
    read_changed_sessions,
)
from tidegauge.coding_agents.openhands_sessions import OpenHandsTranscript
from tidegauge.coding_agents.session_transcript import (
    CallingAnswer,
    SessionError,
    SessionTranscript,
)
from tidegauge.recordings.line_replay import MAX_LINE_BYTES
from tidegauge.values.elements import MOST_OF_A_FILE
from tidegauge.values.exact_json import bounded_json

_HEAD_BYTES: Final = 256
_MAX_EVENTS: Final = 1_000
"""Events that one look at a folder reads."""

_MAX_SESSIONS: Final = 1_000

Lines = list[dict[str, Any]]


class Look(NamedTuple):
    """What one look has found.

    Attributes:
        lines: the lines of a recording that are complete now.
        again: whether they begin with the first one of the session again.
        whole: whether there is no more to read for now.
    """

    lines: Lines
    again: bool = False
    whole: bool = True


class SessionTail(ABC):
    """A session that is being written.

    Args:
        path: its file or folder.
        kind: whose session it is.

    Attributes:
        skipped: records that could not be read.
    """

    def __init__(self, path: Path, kind: type[SessionTranscript]) -> None:
        self.path = path
        self.kind = kind
        self.skipped = 0
        self._transcript = kind(self._session())

    def session_of(self, run: str) -> str:
        """The id of the session that a run of it belongs to."""
        return self._transcript.session

    def answer_with(self, call_id: str) -> CallingAnswer | None:
        """The last answer that was read, if it has chosen this call."""
        return self._transcript.answer_with(call_id)

    def open_answer(self) -> CallingAnswer | None:
        """The last answer that was read, if it has chosen calls that have no result yet."""
        return self._transcript.open_answer()

    @abstractmethod
    def look(self) -> Look | None:
        """Read what is new; ``None``, nothing has changed.

        Raises:
            OSError: it cannot be read.
            SessionError: it is no session of this agent.
        """

    def close(self) -> Lines:
        """The lines that are complete if nothing more comes."""
        return self._transcript.close()

    def _session(self) -> str:
        return self.path.stem


class LinesTail(SessionTail):
    """A file with a record a line, to which an agent appends.

    Args:
        path: the file.
        kind: whose session it is.
        at_most: only so many bytes at its end are read at once; ``None``, all of it is read, in
            several looks.
    """

    def __init__(
        self, path: Path, kind: type[SessionTranscript], *, at_most: int | None = None
    ) -> None:
        super().__init__(path, kind)
        self._at_most = at_most
        self._file: tuple[int, int] | None = None
        self._head = b""
        self._offset = 0
        self._too_long = False  # the line that is being read has no end within the limit
        self._known = False

    def look(self) -> Look | None:
        """Read the lines that are complete."""
        found = os.stat(self.path)
        identity = (found.st_dev, found.st_ino)
        if identity == self._file and found.st_size == self._offset:
            return None
        again = False
        with open(self.path, "rb") as file:
            if identity != self._file or found.st_size < self._offset or not self._is_same(file):
                again = self._file is not None
                self._begin(identity)
            self._head = self._head or file.read(_HEAD_BYTES)
            if self._at_most is not None and found.st_size - self._offset > self._at_most:
                self._offset, self._too_long = found.st_size - self._at_most, True
            file.seek(self._offset)
            content = file.read(MAX_LINE_BYTES)
        lines: Lines = []
        end = content.rfind(b"\n") + 1
        for line in content[:end].splitlines():
            if self._too_long:
                self._too_long = False
                self.skipped += 1
            else:
                lines += self._take(line)
        if not end and len(content) == MAX_LINE_BYTES:
            self._too_long, end = True, len(content)
        self._offset += end
        return Look(lines, again, self._offset + len(content) - end >= found.st_size)

    def _is_same(self, file: BinaryIO) -> bool:
        return file.read(len(self._head)) == self._head

    def _begin(self, identity: tuple[int, int]) -> None:
        self._transcript = self.kind(self._session())
        self._file, self._head, self._offset = identity, b"", 0
        self._too_long = self._known = False

    def _take(self, line: bytes) -> Lines:
        if not line.strip():
            return []
        try:
            record = bounded_json(line)
        except ValueError:
            self.skipped += 1
            return []
        if not isinstance(record, dict):
            self.skipped += 1
            return []
        self._known = self._known or self.kind.recognizes(record)
        return self._transcript.take(record) if self._known else []


class FolderTail(SessionTail):
    """A folder with a file an event, as OpenHands writes it."""

    def __init__(self, path: Path, kind: type[SessionTranscript] = OpenHandsTranscript) -> None:
        super().__init__(path, kind)
        self._last = ""

    def look(self) -> Look | None:
        """Read the events that are new. One that is not complete yet is read at the next look."""
        names = [one.name for one in os.scandir(self.path) if one.name.startswith("event-")]
        new = sorted(name for name in names if name > self._last and name.endswith(".json"))
        if not new:
            return None
        lines: Lines = []
        for number, name in enumerate(new[:_MAX_EVENTS], start=1):
            record = _object_in(self.path / name)
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


class WholeFileTail(SessionTail):
    """A file that mini-swe-agent writes again, whole, after each step."""

    _SUFFIX: ClassVar = ".traj.json"

    def __init__(self, path: Path, kind: type[SessionTranscript] = MiniSweAgentTranscript) -> None:
        super().__init__(path, kind)
        self._seen: tuple[int, int] | None = None

    def look(self) -> Look | None:
        """Read the file, if it has changed."""
        found = os.stat(self.path)
        seen = (found.st_mtime_ns, found.st_size)
        if seen == self._seen:
            return None
        whole = _object_in(self.path)
        messages = None if whole is None else whole.get("messages")
        if whole is None or not isinstance(messages, list):
            return None  # it is being written
        self._seen = seen
        self._transcript = self.kind(self._session())
        lines: Lines = []
        for message in messages:
            if isinstance(message, dict):
                lines += self._transcript.take(message)
        info = whole.get("info")
        status = info.get("exit_status") if isinstance(info, dict) else None
        if isinstance(status, str) and status:
            self._transcript.end(reason=status)
            lines += self._transcript.close()
        return Look(lines, again=True)

    def _session(self) -> str:
        return self.path.name.removesuffix(self._SUFFIX)


class OpencodeTail(SessionTail):
    """The database of opencode, with all its sessions.

    Args:
        path: the database.
        since: sessions that changed later are read, in seconds since the epoch.
    """

    def __init__(self, path: Path, since: float = 0.0) -> None:
        super().__init__(path, OpencodeTranscript)
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
        for session, changed, transcript, found in read_changed_sessions(self.path, self._changed):
            lines += found
            self._open[session] = transcript
            self._open.move_to_end(session)
            if len(self._open) > _MAX_SESSIONS:
                self._open.popitem(last=False)
            self._changed = max(self._changed, changed)
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


def _object_in(path: Path) -> dict[str, Any] | None:
    """The object in a file; ``None``, it is too long, or is not complete."""
    if os.path.getsize(path) > 4 * MAX_LINE_BYTES:
        raise SessionError(f"{path.name} has more than {4 * MAX_LINE_BYTES >> 20} MiB")
    try:
        found = bounded_json(path.read_bytes(), MOST_OF_A_FILE)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None

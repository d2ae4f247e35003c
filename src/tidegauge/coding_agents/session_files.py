"""The file of a session: read whole, or while an agent writes it; the tokens of its answers.

While it is written, a file with a line a record is read from where the last look has stopped. A
line without its end waits for the next look. A file that has become shorter, or is another one, is
read from its start, and so is every file that agents write again as a whole.
"""

from __future__ import annotations

import codecs
import os
import stat
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from tidegauge.coding_agents.session_transcript import (
    CallingAnswer,
    SessionError,
    SessionTranscript,
)
from tidegauge.recordings.line_replay import MAX_LINE_BYTES, Line, read_lines
from tidegauge.safety.guard import internal_errors
from tidegauge.values.elements import MOST_OF_A_FILE
from tidegauge.values.exact_json import bounded_json

_MAX_FILE_BYTES: Final = 1 << 30
_HEAD_BYTES: Final = 256
_TOKEN_BYTES: Final = 1024 * 1024
_MAX_CALLS: Final = 1_000

Lines = list[dict[str, Any]]


class SessionPart(NamedTuple):
    """Lines of a recording that a part of a file completes.

    Attributes:
        number: that of the line that was read, or of the message or event.
        size: how many bytes were read.
        error: why the part was skipped.
    """

    lines: Sequence[dict[str, Any]]
    number: int
    size: int = 0
    error: str | None = None


def read_records(path: Path, kind: type[SessionTranscript]) -> Iterator[SessionPart]:
    """The lines of a session whose file has a record a line.

    Raises:
        SessionError: no line is a record of this kind.
        OSError: it cannot be read.
    """
    transcript, number, known = kind(path.stem), 0, False
    with open(path, "rb") as file:
        for line in _read_lines(file):
            number = line.number
            record, error = _parsed(line.content), None
            if record is None:
                if line.content is not None and not line.content.strip():
                    continue
                limit = MAX_LINE_BYTES >> 20
                error = f"use one JSON object of at most {limit} MiB in a line"
            known = known or (record is not None and kind.recognizes(record))
            lines = transcript.take(record) if record is not None and known else []
            yield SessionPart(lines, number, line.size, error)
    yield SessionPart(transcript.close(), number)
    if not known and number:
        raise SessionError(f"no line of it is one of {kind.agent}'s; use --from auto to find out")


def first_records(path: Path, count: int) -> list[dict[str, Any]]:
    """The records in the first lines of a file."""
    with open(path, "rb") as file:
        found = [_parsed(line.content) for line in islice(_read_lines(file), count)]
    return list(filter(None, found))


def read_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; ``None``, it has none, or more than 1 GiB."""
    if os.path.getsize(path) > _MAX_FILE_BYTES:
        return None
    return _parsed(path.read_bytes())


def read_growing_object(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file that is being written; ``None``, it is not complete.

    Raises:
        SessionError: it is too long to be read at each look.
        OSError: it cannot be read.
    """
    if os.path.getsize(path) > 4 * MAX_LINE_BYTES:
        raise SessionError(f"{path.name} has more than {4 * MAX_LINE_BYTES >> 20} MiB")
    return _parsed(path.read_bytes())


def _read_lines(file: BinaryIO) -> Iterator[Line]:
    """The lines of a file, without the mark that some editors write before the first one."""
    for line in read_lines(file):
        marked = line.number == 1 and (line.content or b"").startswith(codecs.BOM_UTF8)
        yield line._replace(content=line.content[3:]) if marked and line.content else line


def _parsed(content: bytes | None) -> dict[str, Any] | None:
    if content is None:
        return None
    try:
        record = bounded_json(content, MOST_OF_A_FILE)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


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
        since: of a file with many sessions, those are read that changed later, in seconds since
            the epoch.

    Attributes:
        skipped: records that could not be read.
    """

    def __init__(self, path: Path, kind: type[SessionTranscript], since: float = 0.0) -> None:
        self.path = path
        self.kind = kind
        self.skipped = 0
        self._transcript = kind(self._session())

    def session_of(self, run: str) -> str:
        """The id of the session that a run of it belongs to."""
        return self._transcript.session

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
    """A file with a record a line, to which an agent appends. A look reads at most 16 MiB."""

    _at_most: int | None = None
    """Only so many bytes at its end are read; ``None``, all of it is, in several looks."""

    def __init__(self, path: Path, kind: type[SessionTranscript], since: float = 0.0) -> None:
        super().__init__(path, kind, since)
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
            record = None
        if not isinstance(record, dict):
            self.skipped += 1
            return []
        self._known = self._known or self.kind.recognizes(record)
        return self._transcript.take(record) if self._known else []


class AnswerTokens(LinesTail):
    """The tokens of the answers in the file of a session, each given once.

    For sessions whose hooks report the calls but no tokens. An agent writes an answer before it
    runs the calls of the answer, so the tokens are known when the hook reports the first of these
    calls. If its hooks give no ids of calls, the answer is the last one, as long as its calls have
    no results. It reads at most the last 1 MiB of a file at once.
    """

    _at_most = _TOKEN_BYTES

    def __init__(self, path: Path, kind: type[SessionTranscript]) -> None:
        super().__init__(path, kind)
        self._failed = False
        self._given: OrderedDict[str, None] = OrderedDict()  # calls of the answers that were given

    def take(self, call_id: str | None) -> int | None:
        """The tokens of the last answer, if it has chosen this call, or if calls have no ids.

        ``None``, they are not known, or were given for another call of the answer.
        """
        given = self._given
        if self._failed or call_id in given:
            return None
        try:
            if not stat.S_ISREG(os.stat(self.path).st_mode):
                return None
            self.look()
        except OSError:
            return None
        except Exception as error:  # noqa: BLE001 -- the call counts, whatever its file holds
            internal_errors.record("transcripts.tokens", error)
            self._failed = True
            return None
        answer = self._answer(call_id)
        if answer is None or answer.tokens is None:
            return None
        again = any(one in given for one in answer.call_ids)
        given.update(dict.fromkeys(answer.call_ids))
        while len(given) > _MAX_CALLS:
            given.popitem(last=False)
        return None if again else answer.tokens

    def _answer(self, call_id: str | None) -> CallingAnswer | None:
        if call_id is None:
            return self._transcript.open_answer()
        return self._transcript.answer_with(call_id)

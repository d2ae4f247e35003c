"""A file of lines, written on a thread of its own: whoever adds a line never waits for the disk."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tidegauge._guard import guarded, internal_errors
from tidegauge.errors import ConfigurationError

__all__ = ["LineWriter"]

_BATCH_LINES: Final = 1_000
_WHERE: Final = "jsonl"


class LineWriter:
    """Appends lines to a file, and starts another when it has grown.

    Every line is handed to the operating system within moments, whole lines at a time: after a
    crash the file is readable up to its last full line. A line cut short by a disk that is full
    or a process that was killed is ended before the next one, so that it costs itself alone.

    Args:
        path: the file; ``{pid}`` in its name stands for the process id, so that several processes
            have a file each. Its folder is made.
        max_bytes: size past which it is renamed to ``<path>.1``, that one to ``<path>.2`` and so
            on, and a new one is begun.
        backups: how many renamed files are kept.
        max_lines: lines that may wait; more are dropped and counted.

    Attributes:
        written: lines written.
        dropped: lines lost, by reason: ``queue_full`` or ``write_failed``.

    Raises:
        ConfigurationError: the file cannot be opened.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int = 100 * 1024 * 1024,
        backups: int = 5,
        max_lines: int = 10_000,
    ) -> None:
        if max_bytes < 1 or backups < 0 or max_lines < 1:
            raise ConfigurationError("max_bytes and max_lines are to be at least 1, backups 0")
        self._template = os.fspath(path)
        self._max_bytes = max_bytes
        self._backups = backups
        self._max_lines = max_lines
        self.written = 0
        self.dropped = {"queue_full": 0, "write_failed": 0}
        self._file = -1
        self._size = 0
        self._broken = False  # the last line of the file is not whole
        try:
            self._open()
        except OSError as error:
            raise ConfigurationError(f"cannot record to {self.path}: {error.strerror}") from error
        self._start()

    @property
    def path(self) -> Path:
        """The file that is written to now."""
        return Path(self._template.replace("{pid}", str(os.getpid())))

    def add(self, line: bytes) -> None:
        """Add one line, without its end. Never waits, never raises."""
        if os.getpid() != self._process:  # a fork has the file and not the thread
            self._restart()
        try:
            self._waiting.put_nowait(line)
        except queue.Full:
            self.dropped["queue_full"] += 1

    def close(self, seconds: float = 5.0) -> None:
        """Write what waits and close the file; give up after so many seconds."""
        if self._closed.is_set():
            return
        self._closed.set()
        deadline = time.monotonic() + seconds
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)  # wakes the thread
        self._thread.join(max(deadline - time.monotonic(), 0.0))

    def _start(self) -> None:
        self._process = os.getpid()
        self._closed = threading.Event()
        self._waiting: queue.Queue[bytes | None] = queue.Queue(self._max_lines)
        self._thread = threading.Thread(target=self._run, name="tidegauge-jsonl", daemon=True)
        self._thread.start()

    @guarded(_WHERE, default=None)
    def _restart(self) -> None:
        with contextlib.suppress(OSError):
            self._open()
        self._start()

    def _run(self) -> None:
        for batch in self._batches():
            self._write(batch)
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _batches(self) -> Iterator[list[bytes]]:
        while not (self._closed.is_set() and self._waiting.empty()):
            batch: list[bytes] = []
            line = self._waiting.get()
            while line is not None:
                batch.append(line)
                if len(batch) >= _BATCH_LINES:
                    break
                try:
                    line = self._waiting.get_nowait()
                except queue.Empty:
                    break
            if batch:
                yield batch

    def _write(self, batch: list[bytes]) -> None:
        try:
            if self._file < 0:
                self._open()
            for line in batch:
                if b"\n" in line:
                    line = line.replace(b"\n", b" ")  # noqa: PLW2901 -- a line is one line
                if self._size and self._size + len(line) >= self._max_bytes:
                    self._rotate()
                self._append(line)
                self.written += 1
        except OSError as error:
            self.dropped["write_failed"] += len(batch)
            internal_errors.record(_WHERE, error)
            self._give_up_file()

    def _append(self, line: bytes) -> None:
        data = b"\n" + line + b"\n" if self._broken else line + b"\n"
        self._broken = True
        view = memoryview(data)
        while view:
            count = os.write(self._file, view)
            self._size += count
            view = view[count:]
        self._broken = False

    def _open(self) -> None:
        path = self.path
        path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        self._file = os.open(path, flags, 0o640)
        self._size = os.fstat(self._file).st_size
        if self._size:
            os.lseek(self._file, -1, os.SEEK_END)
            self._broken = os.read(self._file, 1) != b"\n"

    def _rotate(self) -> None:
        os.close(self._file)
        self._file = -1
        path = self.path
        names = [path, *(path.with_name(f"{path.name}.{n}") for n in range(1, self._backups + 1))]
        for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
            with contextlib.suppress(FileNotFoundError):
                os.replace(newer, older)
        if not self._backups:
            path.unlink(missing_ok=True)
        self._open()

    def _give_up_file(self) -> None:
        """Open it anew for the next line: the disk may have room again by then."""
        with contextlib.suppress(OSError):
            if self._file >= 0:
                os.close(self._file)
        self._file = -1

"""A file of lines, written in a separate thread: adding a line never waits for the disk."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from tidegauge import catalog
from tidegauge.catalog import MetricDefinition
from tidegauge.errors import ConfigurationError
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.safety.guard import internal_errors
from tidegauge.safety.private_files import open_private

_logger = logging.getLogger("tidegauge")

_GATHER_SECONDS: Final = 0.05
_WHERE: Final = "jsonl"


class LineWriter:
    """Appends lines to a file that is rotated by size.

    Lines wait for at most 50 ms, so that many are written at once, in whole lines: after a crash
    the file is readable up to its last full line. If a full disk or a killed process cut a line
    short, a newline is added before the next one. A file that was moved or removed is created
    again. Only its owner can read it, and symbolic links are not followed.

    Args:
        path: the file; ``{pid}`` in its name is replaced by the process id, so that each process
            has its own file. Its folder is created.
        max_bytes: size above which it is renamed to ``<path>.1``, that one to ``<path>.2`` and so
            on, and a new file is created.
        backups: number of renamed files.
        max_lines: limit of waiting lines; more are dropped and counted.
        max_waiting_bytes: limit of their bytes; more are dropped and counted.

    Attributes:
        dropped: lines lost, by reason: ``queue_full``, ``write_failed`` or ``closed``.

    Raises:
        ConfigurationError: the file cannot be opened.

    >>> import tempfile
    >>> writer = LineWriter(Path(tempfile.mkdtemp()) / "lines.jsonl")
    >>> writer.add(b'{"type":"start","run":"r1"}')
    >>> writer.close(); writer.written
    1
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int = 100 * 1024 * 1024,
        backups: int = 5,
        max_lines: int = 10_000,
        max_waiting_bytes: int = 64 * 1024 * 1024,
    ) -> None:
        if min(max_bytes, max_lines, max_waiting_bytes) < 1 or backups < 0:
            raise ConfigurationError(
                "A limit of the recording is out of range; use at least 1, for backups at least 0."
            )
        self._awake = self._closing = False
        self._template = os.fspath(path)
        self._max_lines = max_lines
        self._max_waiting_bytes = max_waiting_bytes
        self.written = 0
        self.dropped = {"queue_full": 0, "write_failed": 0, "closed": 0}
        self._file = _File(self.path, max_bytes=max_bytes, backups=backups)
        try:
            self._file.open()
        except OSError as error:
            why = "the path is a symbolic link" if error.errno == errno.ELOOP else error.strerror
            raise ConfigurationError(f"Cannot record to {self.path}: {why or error}") from error
        self._begin()
        self._thread.start()
        reset_after_fork(self)

    @property
    def path(self) -> Path:
        """The current file."""
        return Path(self._template.replace("{pid}", str(os.getpid())))

    @property
    def pending(self) -> int:
        """Lines that wait to be written."""
        return len(self._waiting)

    def add(self, line: bytes, once: Iterator[bytes] | None = None) -> None:
        """Add one line, without its newline. Never waits for the disk, never raises.

        Args:
            once: see :class:`~tidegauge.recordings.run_lines.Lines`.
        """
        size = len(line)
        with here.critical, self._lock:
            if self._closing:
                self.dropped["closed"] += 1
                return
            if (
                len(self._waiting) >= self._max_lines
                or self._waiting_bytes + size > self._max_waiting_bytes
            ):
                self.dropped["queue_full"] += 1
                return
            if once is None:
                self._waiting.append(line)
            else:
                self._waiting.extend(once)
            self._waiting_bytes += size
            if not self._awake:
                self._awake = True
                self._wake.put(None)

    def counts(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float]]:
        """Lines written and lost, as metrics."""
        dropped: dict[tuple[str, ...], float] = {(why,): n for why, n in self.dropped.items()}
        return {catalog.RECORDED_LINES: {(): self.written}, catalog.DROPPED_LINES: dropped}

    def flush(self, deadline: float) -> bool:
        """Write the waiting lines now; returns whether they, and all others so far, are written.

        Args:
            deadline: give up at this moment of the monotonic clock.
        """
        done = threading.Event()
        with here.critical, self._lock:
            lost = sum(self.dropped.values())
            if self._closing:
                return not self._waiting
            self._flushes.append(done)
            self._hurry.put(None)
            self._wake.put(None)
        written = done.wait(max(deadline - time.monotonic(), 0.0))
        return written and sum(self.dropped.values()) == lost

    def close(self, seconds: float = 5.0) -> None:
        """Write the waiting lines and close the file; after ``seconds``, count the rest as lost."""
        with here.critical, self._lock:
            self._closing = True
            self._hurry.put(None)
            self._wake.put(None)
        self._thread.join(seconds)
        if self._thread.is_alive():  # the disk is stalled
            with here.critical, self._lock:
                self._taken += len(self._waiting)
                self._waiting.clear()
            if lost := self._settle("closed"):
                _logger.error(
                    "tidegauge: lost %d lines that could not be written to %s within %g s",
                    lost,
                    self.path,
                    seconds,
                )

    def _begin(self) -> None:
        self._lock = threading.Lock()  # of the waiting lines
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._taken = 0  # lines of the thread's batch that are neither written nor lost yet
        self._aborted = False
        self._flushes: list[threading.Event] = []  # set when what waits with them is written
        # Queues written in C: an exception that arrives in Event.set() leaves its lock locked.
        self._wake: SimpleQueue[None] = SimpleQueue()
        self._awake = False  # whether what wakes the thread is in the queue
        self._hurry: SimpleQueue[None] = SimpleQueue()  # do not wait for more lines
        self._closing = False
        self._thread: threading.Thread = threading.Thread(
            target=self._run, name="tidegauge-jsonl", daemon=True
        )

    def _reset_after_fork(self) -> None:
        """Continue after a fork: the child has the file, but neither the thread nor its lines."""
        self.written = self._file.lines = 0
        self.dropped = dict.fromkeys(self.dropped, 0)
        closed = self._closing
        self._begin()
        if closed:
            self._closing = True
            return
        self._file.move_to(self.path)
        self._thread.start()

    def _run(self) -> None:
        while True:
            self._wake.get()
            with contextlib.suppress(Empty):
                self._hurry.get(timeout=_GATHER_SECONDS)
            with here.critical, self._lock:
                self._awake = False
                closing = self._closing
                flushes, self._flushes = self._flushes, []
                batch = list(self._waiting)
                self._taken = len(batch)
                self._waiting.clear()
                self._waiting_bytes = 0
            if batch:
                self._write(batch)
            for done in flushes:
                done.set()
            if closing:
                break
        self._file.close()

    def _write(self, batch: list[bytes]) -> None:
        try:
            self._file.write(batch)
        except OSError as error:
            why = str(error.strerror or error)
            if error.errno is not None:  # else it says itself what to do
                why += "; make room, or make the folder writable"
            internal_errors.of_environment(
                _WHERE, "lines of the recording %s are lost: %s", self.path, why
            )
            self._file.close()  # opened again for the next lines: there may be room then
        finally:
            self._settle("write_failed")

    def _settle(self, reason: str) -> int:
        """Count the batch as written, the rest as lost for this reason; returns the number lost.

        ``close`` may time out while the thread still writes: the first of the two counts.
        """
        with here.critical, self._lock:
            if self._aborted:
                return 0
            self._aborted = reason == "closed"
            written = self._file.lines - self.written
            lost, self._taken = self._taken - written, 0
            self.written += written
            self.dropped[reason] += lost
            return lost


class _File:
    """The file itself, for one thread. ``lines`` counts the whole lines written."""

    def __init__(self, path: Path, *, max_bytes: int, backups: int) -> None:
        self.lines = 0
        self._path = path
        self._max_bytes = max_bytes
        self._backups = backups
        self._descriptor = -1
        self._size = 0
        self._broken = False  # the last line is not whole

    def open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._descriptor = open_private(self._path)
        found = os.fstat(self._descriptor)
        self._regular = stat.S_ISREG(found.st_mode)
        self._identity = (found.st_dev, found.st_ino)
        self._size = found.st_size if self._regular else 0
        self._broken = False
        if self._size:
            os.lseek(self._descriptor, -1, os.SEEK_END)
            self._broken = os.read(self._descriptor, 1) != b"\n"

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def move_to(self, path: Path) -> None:
        self.close()
        self._path = path

    def write(self, lines: list[bytes]) -> None:
        """Append lines, and rotate the file when it is full."""
        if self._descriptor >= 0 and self._moved():
            self.close()
        if self._descriptor < 0:
            self.open()
        chunk, size = ([b""], 1) if self._broken else ([], 0)
        for line in lines:
            if b"\n" in line:
                line = line.replace(b"\n", b" ")  # noqa: PLW2901 -- a line is one line
            if self._regular and self._size + size + len(line) + 1 > self._max_bytes:
                self._append(chunk)
                chunk, size = [], 0
                if self._size:
                    self._rotate()
            chunk.append(line)
            size += len(line) + 1
        self._append(chunk)

    def _append(self, chunk: list[bytes]) -> None:
        if not chunk:
            return
        data = b"\n".join(chunk) + b"\n"
        mended = self._broken
        done = 0
        self._broken = True
        try:
            while done < len(data):
                done += os.write(self._descriptor, memoryview(data)[done:])
            self._broken = False
        finally:
            self._size += done
            self.lines += max(data.count(b"\n", 0, done) - mended, 0)

    def _moved(self) -> bool:
        """Whether the file was renamed or removed."""
        try:
            found = os.stat(self._path)
        except FileNotFoundError:
            return True
        return (found.st_dev, found.st_ino) != self._identity

    def _rotate(self) -> None:
        self.close()
        path = self._path
        names = [path, *(path.with_name(f"{path.name}.{n}") for n in range(1, self._backups + 1))]
        for older, newer in zip(reversed(names), reversed(names[:-1]), strict=False):
            with contextlib.suppress(FileNotFoundError):
                os.replace(newer, older)
        if not self._backups:
            path.unlink(missing_ok=True)
        self.open()

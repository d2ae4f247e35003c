"""Runs in an SQLite file, for the processes of one machine."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tidegauge.errors import ConfigurationError
from tidegauge.safety.private_files import open_private

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS tidegauge_runs (
    key TEXT PRIMARY KEY, place TEXT NOT NULL, state BLOB NOT NULL, expires REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS tidegauge_runs_place ON tidegauge_runs (place, key);
CREATE INDEX IF NOT EXISTS tidegauge_runs_expires ON tidegauge_runs (expires);
"""
_IS_READY: Final = "SELECT 1 FROM sqlite_master WHERE name = 'tidegauge_runs_expires'"
_SAVE: Final = "INSERT OR REPLACE INTO tidegauge_runs VALUES (?, ?, ?, ?)"
_DISPLACE: Final = """
UPDATE tidegauge_runs SET key = key || hex(randomblob(16)), place = '', expires = 0
WHERE key = ? AND state <> x''
"""
_FIND: Final = "SELECT key, state, expires FROM tidegauge_runs WHERE key = ?"
_FIND_BEFORE: Final = """
SELECT key, state, expires FROM tidegauge_runs
WHERE place = ? AND key < ? AND state <> x'' ORDER BY key LIMIT 2
"""
_FIND_EXPIRED: Final = """
SELECT key, state FROM tidegauge_runs WHERE expires < ? AND state <> x'' ORDER BY expires LIMIT 10
"""
_REMOVE: Final = "DELETE FROM tidegauge_runs WHERE key = ?"
_REMOVE_TAKEN: Final = "DELETE FROM tidegauge_runs WHERE expires < ? AND state = x''"


class SqliteRunStore:
    """Stores runs in an SQLite file that only its owner can read.

    Each call opens a connection: a forked process must not use its parent's. The file is in WAL
    mode, so that it must be on a local disk.

    Args:
        path: the file; its folder must exist.
        timeout: seconds that a call waits for another process.

    Raises:
        ConfigurationError: the file cannot be used.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 5.0) -> None:
        self._path = Path(path).absolute()
        self._timeout = timeout
        try:
            os.close(open_private(self._path))
            with self._connection():
                pass
        except sqlite3.OperationalError:
            pass  # a full disk, or another process that writes: each call tries again
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(
                f"run_store cannot be {self._path}: {error}; use a file in an existing folder"
            ) from error

    def save(self, key: str, place: str, state: bytes, expires: float) -> None:
        """Store a state; see :class:`~tidegauge.run_stores.RunStore`."""
        with self._writing() as connection:
            connection.execute(_DISPLACE, (key,))
            connection.execute(_SAVE, (key, place, state, expires))

    def take(self, key: str, place: str) -> bytes | None:
        """Take a state; that it was taken is kept until it would have expired."""
        with self._writing() as connection:
            found = connection.execute(_FIND, (key,)).fetchall()
            if not found:
                found = connection.execute(_FIND_BEFORE, (place, key)).fetchall()
            if len(found) != 1 or not found[0][1]:
                return None
            ((waited_at, state, expires),) = found
            for taken in {waited_at, key}:
                connection.execute(_SAVE, (taken, place, b"", expires))
            return bytes(state)

    def take_expired(self, now: float) -> list[bytes]:
        """Remove some states that expired before ``now``, and return them."""
        with self._writing() as connection:
            connection.execute(_REMOVE_TAKEN, (now,))
            found = connection.execute(_FIND_EXPIRED, (now,)).fetchall()
            connection.executemany(_REMOVE, [(key,) for key, _ in found])
            return [state for _, state in found]

    def close(self) -> None:
        """Nothing is held."""

    @contextlib.contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that no other process interrupts."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            with connection:
                yield connection

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        if not self._path.exists():
            os.close(open_private(self._path))
        connection = sqlite3.connect(self._path, timeout=self._timeout, isolation_level=None)
        with contextlib.closing(connection):
            if not connection.execute(_IS_READY).fetchall():
                connection.execute("PRAGMA journal_mode=WAL")
                connection.executescript(_TABLE)
            yield connection

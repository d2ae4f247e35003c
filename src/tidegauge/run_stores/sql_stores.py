"""Runs in an SQLite file, for the processes of one machine, or in a Postgres database, for several.

Each call opens a connection, as a person takes longer: nothing is held between, and a forked
process does not use its parent's.
"""

from __future__ import annotations

import abc
import contextlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from tidegauge.errors import ConfigurationError, MissingExtraError
from tidegauge.safety.private_files import open_private


class _SqlStore(abc.ABC):
    """What both databases have in common: see :class:`~tidegauge.run_stores.RunStore`.

    That a state was taken is kept until it would have expired: as a row with an empty state.
    """

    _displace: str
    _save: str
    _find: str
    _find_before: str

    @abc.abstractmethod
    def _locked(self, place: str) -> AbstractContextManager[Any]:
        """A connection in a transaction, that no other process interrupts at this place."""

    def save(self, key: str, place: str, state: bytes, expires: float) -> None:
        """Store a state."""
        with self._locked(place) as connection:
            connection.execute(self._displace, (key,))
            connection.execute(self._save, (key, place, state, expires))

    def take(self, key: str, place: str) -> bytes | None:
        """Remove a state and return it."""
        with self._locked(place) as connection:
            found = connection.execute(self._find, (key,)).fetchall()
            if not found:
                found = connection.execute(self._find_before, (place, key)).fetchall()
            if len(found) != 1 or not found[0][1]:
                return None
            ((waited_at, state, expires),) = found
            for taken in {waited_at, key}:
                connection.execute(self._save, (taken, place, b"", expires))
            return bytes(state)

    def close(self) -> None:  # noqa: B027 -- only Postgres holds anything
        """Nothing is held."""


_SQLITE_TABLE: Final = """
CREATE TABLE IF NOT EXISTS tidegauge_runs (
    key TEXT PRIMARY KEY, place TEXT NOT NULL, state BLOB NOT NULL, expires REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS tidegauge_runs_place ON tidegauge_runs (place, key);
CREATE INDEX IF NOT EXISTS tidegauge_runs_expires ON tidegauge_runs (expires);
"""
_SQLITE_IS_READY: Final = "SELECT 1 FROM sqlite_master WHERE name = 'tidegauge_runs_expires'"
_SQLITE_FIND_EXPIRED: Final = """
SELECT key, state FROM tidegauge_runs WHERE expires < ? AND state <> x'' ORDER BY expires LIMIT 10
"""
_SQLITE_REMOVE: Final = "DELETE FROM tidegauge_runs WHERE key = ?"
_SQLITE_REMOVE_TAKEN: Final = "DELETE FROM tidegauge_runs WHERE expires < ? AND state = x''"


class SqliteRunStore(_SqlStore):
    """Stores runs in an SQLite file that only its owner can read.

    The file is in WAL mode, so that it must be on a local disk.

    Args:
        path: the file; its folder must exist.
        timeout: seconds that a call waits for another process.

    Raises:
        ConfigurationError: the file cannot be used.
    """

    _displace = """
    UPDATE tidegauge_runs SET key = key || hex(randomblob(16)), place = '', expires = 0
    WHERE key = ? AND state <> x''
    """
    _save = "INSERT OR REPLACE INTO tidegauge_runs VALUES (?, ?, ?, ?)"
    _find = "SELECT key, state, expires FROM tidegauge_runs WHERE key = ?"
    _find_before = """
    SELECT key, state, expires FROM tidegauge_runs
    WHERE place = ? AND key < ? AND state <> x'' ORDER BY key LIMIT 2
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

    def take_expired(self, now: float) -> list[bytes]:
        """Remove some states that expired before ``now``, and return them."""
        with self._locked("") as connection:
            connection.execute(_SQLITE_REMOVE_TAKEN, (now,))
            found = connection.execute(_SQLITE_FIND_EXPIRED, (now,)).fetchall()
            connection.executemany(_SQLITE_REMOVE, [(key,) for key, _ in found])
            return [state for _, state in found]

    @contextlib.contextmanager
    def _locked(self, place: str) -> Iterator[sqlite3.Connection]:
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")  # of the whole file: SQLite has one writer
            with connection:
                yield connection

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        if not self._path.exists():
            os.close(open_private(self._path))
        connection = sqlite3.connect(self._path, timeout=self._timeout, isolation_level=None)
        with contextlib.closing(connection):
            if not connection.execute(_SQLITE_IS_READY).fetchall():
                connection.execute("PRAGMA journal_mode=WAL")
                connection.executescript(_SQLITE_TABLE)
            yield connection


_POSTGRES_TABLE: Final = """
CREATE TABLE IF NOT EXISTS tidegauge_runs (
    key text COLLATE "C" PRIMARY KEY,
    place text NOT NULL,
    state bytea NOT NULL,
    expires double precision NOT NULL
);
CREATE INDEX IF NOT EXISTS tidegauge_runs_place ON tidegauge_runs (place, key);
CREATE INDEX IF NOT EXISTS tidegauge_runs_expires ON tidegauge_runs (expires);
"""
_POSTGRES_TAKE_EXPIRED: Final = """
DELETE FROM tidegauge_runs WHERE key IN (
    SELECT key FROM tidegauge_runs WHERE expires < %s AND state <> ''
    ORDER BY expires LIMIT 10 FOR UPDATE SKIP LOCKED
) RETURNING expires, state
"""
_POSTGRES_REMOVE_TAKEN: Final = """
DELETE FROM tidegauge_runs WHERE key IN (
    SELECT key FROM tidegauge_runs WHERE expires < %s AND state = '' FOR UPDATE SKIP LOCKED
)
"""
_POSTGRES_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext('tidegauge_runs'))"
_POSTGRES_LOCK_PLACE: Final = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"


class PostgresRunStore(_SqlStore):
    """Stores runs in the table ``tidegauge_runs``, which it creates if it is missing.

    Args:
        url: of the database, as libpq takes it; ``connect_timeout`` and ``options`` override those
            below.
        timeout: seconds that a call waits for a connection, and for each statement.

    Raises:
        ConfigurationError: the URL cannot be read.
        MissingExtraError: psycopg is not installed.
    """

    _displace = """
    UPDATE tidegauge_runs SET key = key || gen_random_uuid(), place = '', expires = 0
    WHERE key = %s AND state <> ''
    """
    _save = """
    INSERT INTO tidegauge_runs VALUES (%s, %s, %s, %s) ON CONFLICT (key) DO UPDATE
    SET place = excluded.place, state = excluded.state, expires = excluded.expires
    """
    _find = "SELECT key, state, expires FROM tidegauge_runs WHERE key = %s FOR UPDATE"
    _find_before = """
    SELECT key, state, expires FROM tidegauge_runs
    WHERE place = %s AND key < %s AND state <> '' ORDER BY key LIMIT 2 FOR UPDATE
    """

    def __init__(self, url: str, *, timeout: int = 5) -> None:
        try:
            import psycopg
        except ImportError as error:  # also without libpq
            raise MissingExtraError("psycopg", extra="postgres") from error
        self._connect = psycopg.connect
        limits = {
            "connect_timeout": str(timeout),
            "options": f"-c statement_timeout={timeout}s",
            "application_name": "tidegauge",
        }
        try:
            given: dict[str, Any] = psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            raise ConfigurationError(
                "run_store is no URL of a database; use postgresql://user@host/database"
            ) from error.with_traceback(None)
        self._url = psycopg.conninfo.make_conninfo(**{**limits, **given})

    def take_expired(self, now: float) -> list[bytes]:
        """Remove some states that expired before ``now``, and return them."""
        with self._connection() as connection:
            connection.execute(_POSTGRES_REMOVE_TAKEN, (now,))
            found = connection.execute(_POSTGRES_TAKE_EXPIRED, (now,)).fetchall()
            return [state for _, state in sorted(found)]

    @contextlib.contextmanager
    def _locked(self, place: str) -> Iterator[Any]:
        with self._connection() as connection:
            connection.execute(_POSTGRES_LOCK_PLACE, (place,))  # missing rows cannot be locked
            yield connection

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Any]:
        with self._connect(self._url) as connection:
            if connection.execute("SELECT to_regclass('tidegauge_runs')").fetchone() == (None,):
                connection.execute(_POSTGRES_LOCK)  # two processes cannot create one table at once
                connection.execute(_POSTGRES_TABLE)
                connection.commit()
            yield connection

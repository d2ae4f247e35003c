"""Runs in a Postgres database, for the processes of several machines."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from tidegauge.errors import ConfigurationError, MissingExtraError

try:
    import psycopg
except ImportError as error:  # also without libpq
    raise MissingExtraError("psycopg", extra="postgres") from error

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS tidegauge_runs (
    key text COLLATE "C" PRIMARY KEY,
    place text NOT NULL,
    state bytea NOT NULL,
    expires double precision NOT NULL
);
CREATE INDEX IF NOT EXISTS tidegauge_runs_place ON tidegauge_runs (place, key);
CREATE INDEX IF NOT EXISTS tidegauge_runs_expires ON tidegauge_runs (expires);
"""
_SAVE: Final = """
INSERT INTO tidegauge_runs VALUES (%s, %s, %s, %s) ON CONFLICT (key) DO UPDATE
SET place = excluded.place, state = excluded.state, expires = excluded.expires
"""
_DISPLACE: Final = """
UPDATE tidegauge_runs SET key = key || gen_random_uuid(), place = '', expires = 0
WHERE key = %s AND state <> ''
"""
_FIND: Final = "SELECT key, state, expires FROM tidegauge_runs WHERE key = %s FOR UPDATE"
_FIND_BEFORE: Final = """
SELECT key, state, expires FROM tidegauge_runs
WHERE place = %s AND key < %s AND state <> '' ORDER BY key LIMIT 2 FOR UPDATE
"""
_TAKE_EXPIRED: Final = """
DELETE FROM tidegauge_runs WHERE key IN (
    SELECT key FROM tidegauge_runs WHERE expires < %s AND state <> ''
    ORDER BY expires LIMIT 10 FOR UPDATE SKIP LOCKED
) RETURNING expires, state
"""
_REMOVE_TAKEN: Final = """
DELETE FROM tidegauge_runs WHERE key IN (
    SELECT key FROM tidegauge_runs WHERE expires < %s AND state = '' FOR UPDATE SKIP LOCKED
)
"""
_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtext('tidegauge_runs'))"
_LOCK_PLACE: Final = "SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))"


class PostgresRunStore:
    """Stores runs in the table ``tidegauge_runs``, which it creates if it is missing.

    Each call opens a connection, as a person takes longer: nothing is held between, and nothing is
    shared with a forked process.

    Args:
        url: of the database, as libpq takes it; ``connect_timeout`` and ``options`` override those
            below.
        timeout: seconds that a call waits for a connection, and for each statement.

    Raises:
        ConfigurationError: the URL cannot be read.
    """

    def __init__(self, url: str, *, timeout: int = 5) -> None:
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

    def save(self, key: str, place: str, state: bytes, expires: float) -> None:
        """Store a state; see :class:`~tidegauge.run_stores.RunStore`."""
        with self._connection() as connection:
            connection.execute(_LOCK_PLACE, (place,))
            connection.execute(_DISPLACE, (key,))
            connection.execute(_SAVE, (key, place, state, expires))

    def take(self, key: str, place: str) -> bytes | None:
        """Take a state; that it was taken is kept until it would have expired."""
        with self._connection() as connection:
            connection.execute(_LOCK_PLACE, (place,))  # rows that are missing cannot be locked
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
        with self._connection() as connection:
            connection.execute(_REMOVE_TAKEN, (now,))
            found = connection.execute(_TAKE_EXPIRED, (now,)).fetchall()
            return [state for _, state in sorted(found)]

    def close(self) -> None:
        """Nothing is held."""

    @contextlib.contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
        with psycopg.connect(self._url) as connection:
            if connection.execute("SELECT to_regclass('tidegauge_runs')").fetchone() == (None,):
                connection.execute(_LOCK)  # two processes cannot create one table at once
                connection.execute(_TABLE)
                connection.commit()
            yield connection

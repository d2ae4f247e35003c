"""Where runs that wait for a person are saved, so that another process can resume them.

:class:`RunStore` is what a store is asked; :func:`open_run_store` opens one of ours:
:class:`~tidegauge.run_stores.sql_stores.SqliteRunStore`, a file that the processes of one machine
share, and :class:`~tidegauge.run_stores.sql_stores.PostgresRunStore`, a table in a database.
"""

from __future__ import annotations

from typing import Protocol

__all__ = ["RunStore", "open_run_store"]


_POSTGRES = ("postgresql://", "postgres://")


class RunStore(Protocol):
    """Stores the states of runs. Several threads and processes use it at once.

    An error may be of any class: it is counted and logged, and the agent continues.
    """

    def save(self, key: str, place: str, state: bytes, expires: float) -> None:
        """Store a state. One with the same key expires at once: two runs wait at one checkpoint.

        Args:
            key: the checkpoint that the run waits at. Later checkpoints have greater keys.
            place: the thread and the agent, as a digest.
            expires: when nothing resumes it any more, in seconds since the epoch.
        """

    def take(self, key: str, place: str) -> bytes | None:
        """Remove a state and return it: of several processes, one receives it.

        Without a state of this key, it is the state at this place with a smaller key, if there is
        only one: the thread was written to while the run waited. But if one was taken for this key
        before, there is none: another process resumes the same checkpoint. The store knows that for
        as long as the state would have been kept, or until one is saved with this key again.
        """

    def take_expired(self, now: float) -> list[bytes]:
        """Remove some states that expired before ``now``, and return them."""

    def close(self) -> None:
        """Release what it holds."""


def open_run_store(place: str) -> RunStore:
    """Open a store.

    Args:
        place: the path of an SQLite file, or the URL of a Postgres database.

    Raises:
        ConfigurationError: the file cannot be used.
        MissingExtraError: psycopg is not installed.
    """
    from tidegauge.run_stores.sql_stores import PostgresRunStore, SqliteRunStore

    return PostgresRunStore(place) if place.startswith(_POSTGRES) else SqliteRunStore(place)

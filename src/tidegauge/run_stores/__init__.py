"""Where runs that wait for a person are saved, so that another process can resume them.

:class:`RunStore` is what a store is asked; :func:`open_run_store` opens one of ours:
:class:`~tidegauge.run_stores.sqlite_store.SqliteRunStore`, a file that the processes of one machine
share, and
:class:`~tidegauge.run_stores.postgres_store.PostgresRunStore`, a table in a database.
"""

from tidegauge.run_stores.run_store import RunStore, open_run_store

__all__ = ["RunStore", "open_run_store"]

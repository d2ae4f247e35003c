"""What runs share of budgets, in the run store: it survives a restart."""

from __future__ import annotations

import threading
from typing import Final

import orjson

from tidegauge.pipeline.stored_runs import StoredRuns
from tidegauge.policies.budget import LiveBudgets
from tidegauge.safety.critical import reset_after_fork
from tidegauge.safety.guard import guarded

_KEY: Final = "tidegauge budgets"
_EVERY: Final = 1.0
_KEPT_SECONDS: Final = 365 * 86_400.0


class StoredBudgets:
    """Saves budgets in a separate thread, once a second while they change, and at the end.

    Of several processes with one store, the last one that saves is the one whose counts are read.

    Args:
        stored: asks the store.
        budgets: what was spent; what was saved is read at once.
    """

    def __init__(self, stored: StoredRuns, budgets: LiveBudgets) -> None:
        self._stored = stored
        self._budgets = budgets
        self._read()
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        # A child of a fork leaves the store to its parent, which has the same counts.
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Save from now on."""
        self._thread = threading.Thread(target=self._work, name="tidegauge-budgets", daemon=True)
        self._thread.start()

    def flush(self) -> None:
        """Save what has changed."""
        if self._thread is not None and self._budgets.changed:
            self._save()

    def close(self, seconds: float) -> None:
        """Save what has changed, and end, within so long."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(seconds)

    def _work(self) -> None:
        while not self._ended.wait(_EVERY):
            self.flush()
        self.flush()

    @guarded("run_store.budgets", default=None)
    def _save(self) -> None:
        data = orjson.dumps(self._budgets.state())
        # What has this key would expire, and be taken for a run that nothing resumed.
        self._stored.ask(lambda store: store.take(_KEY, _KEY), None)
        self._stored.put(_KEY, _KEY, data, _KEPT_SECONDS)

    @guarded("run_store.budgets", default=None)
    def _read(self) -> None:
        data = self._stored.ask(lambda store: store.take(_KEY, _KEY), None)
        if data is None:
            return
        self._stored.put(_KEY, _KEY, data, _KEPT_SECONDS)
        try:
            self._budgets.load(orjson.loads(data))
        except (TypeError, ValueError) as error:
            self._stored.failed(f"budgets cannot be read: {error}")

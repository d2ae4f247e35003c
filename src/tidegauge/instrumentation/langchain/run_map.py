"""Which run a callback belongs to: from the ids of LangChain's callbacks to our runs.

Inside, ids are the integers that they stand for: a ``UUID`` is hashed in Python at every look-up.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final
from uuid import UUID

from tidegauge.instrumentation.langchain.agent_run import AgentRun, Scope

__all__ = ["RunMap"]

_MAX_OPEN_IDS: Final = 10_000


class RunMap:
    """The open runs of one handler, and the scope of every open chain and tool in them.

    A run is taken out when its root chain ends. One whose end never comes is ended as unknown,
    when it has been idle for too long or too many others are open.

    Args:
        max_runs: open runs held; one more ends the one idle for longest.
        idle_seconds: a run without a model call for so long is ended when the next one opens.
        clock: seconds.
    """

    def __init__(
        self,
        *,
        max_runs: int = 10_000,
        idle_seconds: float = 3_600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_runs = max_runs
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._scopes: dict[int, Scope] = {}
        self._runs: OrderedDict[int, AgentRun] = OrderedDict()  # least recently seen first

    def __len__(self) -> int:
        """How many runs, chains and tools are open."""
        return len(self._scopes)

    def find(self, run_id: UUID | None) -> Scope | None:
        """The scope of an open chain or tool."""
        return None if run_id is None else self._scopes.get(run_id.int)

    def open(self, run: AgentRun) -> None:
        """Take a run in, and end those that it displaces."""
        now = self._clock()
        displaced: list[tuple[AgentRun, str]] = []
        with self._lock:
            run.last_seen = now
            run.held = True
            self._runs[run.root] = run
            self._scopes[run.root] = Scope(run)
            for oldest in self._oldest(now):
                reason = "idle" if now - oldest.last_seen > self._idle_seconds else "too many runs"
                displaced.append((oldest, reason))
                self._take_out(oldest)
        for oldest, reason in displaced:
            oldest.end(outcome="unknown", reason=reason)

    def seen(self, run: AgentRun) -> None:
        """The run is alive."""
        with self._lock:
            if run.held:
                run.last_seen = self._clock()
                self._runs.move_to_end(run.root)

    def enter(self, run_id: UUID, scope: Scope) -> None:
        """A chain or a tool began in ``scope``; nothing when its run has ended."""
        run, key = scope.run, run_id.int
        with self._lock:
            if not run.held:
                return
            self._scopes[key] = scope
            run.open_ids[key] = None
            if len(run.open_ids) > _MAX_OPEN_IDS:
                oldest = next(iter(run.open_ids))
                del run.open_ids[oldest]
                self._scopes.pop(oldest, None)

    def leave(self, run_id: UUID) -> Scope | None:
        """A chain or a tool has ended: its scope, if it was open."""
        key = run_id.int
        with self._lock:
            scope = self._scopes.pop(key, None)
            if scope is not None:
                scope.run.open_ids.pop(key, None)
            return scope

    def close(self, run: AgentRun) -> None:
        """Take a run out, with all that is open in it."""
        with self._lock:
            self._take_out(run)

    def _oldest(self, now: float) -> list[AgentRun]:
        """The runs that are to go: idle for too long, or one too many."""
        gone: list[AgentRun] = []
        for run in self._runs.values():
            crowded = len(self._runs) - len(gone) > self._max_runs
            if not crowded and now - run.last_seen <= self._idle_seconds:
                break
            gone.append(run)
        return gone

    def _take_out(self, run: AgentRun) -> None:
        run.held = False
        self._runs.pop(run.root, None)
        self._scopes.pop(run.root, None)
        for key in run.open_ids:
            self._scopes.pop(key, None)
        run.open_ids.clear()

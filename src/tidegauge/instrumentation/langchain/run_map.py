"""Which run a callback belongs to: from the ids of LangChain's callbacks to our runs.

Inside, ids are the integers that they stand for: a ``UUID`` is hashed in Python at every look-up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

from tidegauge._critical import here
from tidegauge.instrumentation import run_map
from tidegauge.instrumentation.langchain.agent_run import AgentRun, Scope, WaitingKey

__all__ = ["RunMap"]


class RunMap(run_map.RunMap[int, Scope]):
    """The open runs of one handler, and the scope of every open chain and tool in them.

    Runs that wait for a person are held among the others, and are ended as unknown like them when
    they wait for too long or too many others are open.

    Args:
        max_runs: runs held; one more ends the one idle for longest.
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
        super().__init__(max_runs=max_runs, idle_seconds=idle_seconds, clock=clock)

    def _reset_after_fork(self) -> None:
        super()._reset_after_fork()
        self._waiting: dict[WaitingKey, AgentRun] = {}

    @property
    def waiting(self) -> int:
        """How many runs wait for a person."""
        return len(self._waiting)

    def scope_of(self, run_id: UUID | None) -> Scope | None:
        """The scope of an open chain or tool."""
        return None if run_id is None else self._scopes.get(run_id.int)

    def wait(self, run: AgentRun) -> AgentRun | None:
        """A run's invocation has ended, but not the run: hold it until :meth:`take_waiting`.

        Returns:
            A run that waited at the same place, which nobody will resume any more.
        """
        with here.critical, self._lock:
            if run.key is None or not run.held:
                return None
            before = self._waiting.get(run.key)
            if before is not None:
                self._take_out(before)
            self._forget_ids(run)
            self._waiting[run.key] = run
            return before

    def take_waiting(self, key: WaitingKey) -> AgentRun | None:
        """The run that waits at this place, which is held no more: it is resumed or ended."""
        with here.critical, self._lock:
            run = self._waiting.get(key)
            if run is not None:
                self._take_out(run)
            return run

    def is_idle(self, run: AgentRun) -> bool:
        """Whether a run that waited did so for too long: its record may be closed by now."""
        return self._clock() - run.last_seen > self._idle_seconds

    def _take_out(self, run: Any) -> None:
        super()._take_out(run)
        key = run.key
        if key is not None and self._waiting.get(key) is run:
            del self._waiting[key]

    def _forget_ids(self, run: AgentRun) -> None:
        self._scopes.pop(run.root, None)
        for key in run.open_ids:
            self._scopes.pop(key, None)
        run.open_ids.clear()

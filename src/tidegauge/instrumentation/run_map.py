"""Which run something happens in: from a framework's ids to the scopes of open runs."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, Protocol, TypeVar

from tidegauge._critical import here, reset_after_fork

__all__ = ["HeldRun", "RunMap", "RunScope"]

_MAX_OPEN_IDS: Final = 10_000

Id = TypeVar("Id", bound=Hashable)


class HeldRun(Protocol[Id]):
    """A run that a map can hold.

    Attributes:
        root: id of what opened it.
        held: whether the map holds it.
        last_seen: when it was last known to be alive, by the clock of the map.
        open_ids: ids that the map holds for it, oldest first.
    """

    root: Id
    held: bool
    last_seen: float
    open_ids: OrderedDict[Id, None]

    def end(self, **told: Any) -> None:
        """Report its end."""


class RunScope(Protocol[Id]):
    """Where something happens: in which run."""

    @property
    def run(self) -> HeldRun[Id]:
        """The run."""


Scope = TypeVar("Scope", bound=RunScope[Any])


class RunMap(Generic[Id, Scope]):
    """The open runs of one adapter, and the scope of everything open in them.

    A run is taken out when its root ends. One whose end never comes is ended as unknown, when it
    has been idle for too long or too many others are open.

    Args:
        max_runs: open runs held; one more ends the one idle for longest.
        idle_seconds: a run not seen for so long is ended when the next one opens.
        clock: seconds.

    Attributes:
        inherited: ids that were open in the process that this one was forked from.
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
        self._scopes: dict[Id, Scope] = {}
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self.inherited = frozenset(self._scopes)
        self._lock = threading.Lock()
        self._scopes = {}
        self._runs: OrderedDict[Id, HeldRun[Id]] = OrderedDict()  # least recently seen first

    def __len__(self) -> int:
        """How many scopes are open."""
        return len(self._scopes)

    def find(self, key: Id | None) -> Scope | None:
        """The scope of something open."""
        return None if key is None else self._scopes.get(key)

    def open(self, scope: Scope) -> None:
        """Take a run in by its outermost scope, and end those that it displaces."""
        run, now = scope.run, self._clock()
        displaced: list[tuple[HeldRun[Id], str]] = []
        with here.critical, self._lock:
            run.last_seen, run.held = now, True
            self._runs[run.root] = run
            self._scopes[run.root] = scope
            for oldest in self._oldest(now):
                reason = "idle" if now - oldest.last_seen > self._idle_seconds else "too many runs"
                displaced.append((oldest, reason))
                self._take_out(oldest)
        for oldest, reason in displaced:
            oldest.end(outcome="unknown", reason=reason)

    def seen(self, run: HeldRun[Id]) -> None:
        """The run is alive."""
        with here.critical, self._lock:
            if run.held:
                run.last_seen = self._clock()
                self._runs.move_to_end(run.root)

    def enter(self, key: Id, scope: Scope) -> None:
        """Something began in ``scope``; nothing when its run has ended."""
        run = scope.run
        with here.critical, self._lock:
            if not run.held:
                return
            self._scopes[key] = scope
            run.open_ids[key] = None
            if len(run.open_ids) > _MAX_OPEN_IDS:
                oldest, _ = run.open_ids.popitem(last=False)
                self._scopes.pop(oldest, None)

    def leave(self, key: Id) -> Scope | None:
        """Something has ended: its scope, if it was open."""
        with here.critical, self._lock:
            scope = self._scopes.pop(key, None)
            if scope is not None:
                scope.run.open_ids.pop(key, None)
            return scope

    def close(self, run: HeldRun[Id]) -> None:
        """Take a run out, with all that is open in it."""
        with here.critical, self._lock:
            self._take_out(run)

    def _oldest(self, now: float) -> list[HeldRun[Id]]:
        """The runs that are to go: idle for too long, or one too many."""
        gone: list[HeldRun[Id]] = []
        for run in self._runs.values():
            crowded = len(self._runs) - len(gone) > self._max_runs
            if not crowded and now - run.last_seen <= self._idle_seconds:
                break
            gone.append(run)
        return gone

    def _take_out(self, run: HeldRun[Id]) -> None:
        run.held = False
        self._runs.pop(run.root, None)
        self._scopes.pop(run.root, None)
        for key in run.open_ids:
            self._scopes.pop(key, None)
        run.open_ids.clear()

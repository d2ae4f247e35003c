"""Runs that wait for a person, whichever handler continues them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Protocol

from tidegauge._critical import here, reset_after_fork

__all__ = ["WaitingRun", "WaitingRuns"]


class WaitingRun(Protocol):
    """A run that can wait.

    Attributes:
        key: the place where it waits.
        unique: whether no other graph has this place.
        checkpoint: id of the checkpoint from which its graph continues; ``None``, not known. Later
            checkpoints have greater ids.
        checkpointer: refers weakly to what stores its checkpoints; ``None``, not known.
        idle_seconds: it waits for at most so long.
        last_seen: when it was last known to be alive, by the clock of the runs that wait.
    """

    checkpoint: str | None
    checkpointer: Callable[[], object] | None
    idle_seconds: float
    last_seen: float

    @property
    def key(self) -> Hashable: ...

    @property
    def unique(self) -> bool: ...

    def end(self, **ending: Any) -> None:
        """Report its end, and that of what waits inside it."""


class WaitingRuns:
    """The runs of one pipeline that wait for a person.

    A run is found by its place (thread, agent) and by its checkpoint, whose id no other
    checkpointer has: two graphs may have equal threads. If someone has written to the thread
    meanwhile, its checkpoint is a new one; then the run is found if it is the only one at its place
    that waited before. Two checkpointers are confused only there: both have a thread and an agent
    of the same name, and the run of one of them was lost.

    A run that waits for too long, or while too many others do, is ended as unknown.

    Args:
        max_runs: limit of the runs; one more ends the one that has waited for longest.
        clock: seconds.
    """

    def __init__(
        self, *, max_runs: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_runs = max_runs
        self._clock = clock
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[int, Any] = OrderedDict()  # by identity, longest waiting first
        self._places: dict[Hashable, list[Any]] = {}
        self._closed = False

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: WaitingRun) -> None:
        """Let a run wait, and end those that it displaces."""
        now = self._clock()
        with here.critical, self._lock:
            displaced = [
                (other, "not resumed")
                for other in self._places.get(run.key, ())
                if run.unique or run.checkpoint is other.checkpoint is None
            ]
            for other, _ in displaced:
                self._remove(other)
            run.last_seen = now
            self._places.setdefault(run.key, []).append(run)
            self._runs[id(run)] = run
            while self._runs:
                oldest = next(iter(self._runs.values()))
                idle = now - oldest.last_seen > oldest.idle_seconds
                if not idle and not self._closed and len(self._runs) <= self._max_runs:
                    break
                displaced.append((oldest, "idle" if idle else "too many runs"))
                self._remove(oldest)
        _end(displaced)

    def take(self, key: Hashable, checkpoint: str | None) -> Any:
        """The run that continues, which waits no more; ``None``, there is none.

        Args:
            key: its place.
            checkpoint: id of the checkpoint from which the graph continues; ``None``, not known.
        """
        with here.critical, self._lock:
            run = _match(self._places.get(key, ()), checkpoint)
            if run is not None:
                self._remove(run)
            return run

    def is_idle(self, run: WaitingRun) -> bool:
        """Whether a run waited for too long: its record may be closed by now."""
        return self._clock() - run.last_seen > run.idle_seconds

    def give_up(self, key: Hashable, checkpointer: object) -> None:
        """End the runs at a place whose thread continues without them.

        Args:
            key: the place.
            checkpointer: what stores the thread's checkpoints.
        """
        with here.critical, self._lock:
            over = [
                run
                for run in self._places.get(key, ())
                if run.checkpointer is not None and run.checkpointer() is checkpointer
            ]
            for run in over:
                self._remove(run)
        _end([(run, "not resumed") for run in over])

    def discard(self, run: WaitingRun) -> None:
        """The run waits no more, if it did."""
        with here.critical, self._lock:
            self._remove(run)

    def close(self) -> None:
        """End all runs; those that are added later are ended at once."""
        with here.critical, self._lock:
            self._closed = True
            over = list(self._runs.values())
            self._runs.clear()
            self._places.clear()
        _end([(run, "not resumed") for run in over])

    def _remove(self, run: WaitingRun) -> None:
        if self._runs.pop(id(run), None) is None:
            return
        at_place = self._places[run.key]
        at_place.remove(run)
        if not at_place:
            del self._places[run.key]


def _match(runs: Any, checkpoint: str | None) -> Any:
    if checkpoint is None:
        return runs[-1] if runs else None
    for run in runs:
        if run.checkpoint == checkpoint:
            return run
    before = [run for run in runs if run.checkpoint is None or run.checkpoint < checkpoint]
    return before[0] if len(before) == 1 else None


def _end(displaced: list[tuple[Any, str]]) -> None:
    for run, reason in displaced:
        run.end(outcome="unknown", reason=reason)

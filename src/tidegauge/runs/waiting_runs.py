"""Runs that wait for a person, whichever handler continues them."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from tidegauge.events import RunStarted
from tidegauge.safety.critical import here, reset_after_fork

_NOT_RESUMED: Final = "not resumed"


class SavedRun(NamedTuple):
    """A run from another process, which the sink has restored.

    Attributes:
        state: the adapter's part of its state.
        starts: how it and those inside it began, by their ids.
        waited: seconds that it waited.
    """

    state: Mapping[str, Any]
    starts: Mapping[str, RunStarted]
    waited: float


class SavedRuns(Protocol):
    """Saves runs that wait, so that any process can resume them."""

    def save(self, run: Any, state: Callable[[], Mapping[str, Any]]) -> None:
        """Save a run later, in another thread; it then waits only there.

        Args:
            state: returns the adapter's part of its state.
        """

    def settle(self, checkpoint: str) -> float:
        """Wait until the run of a checkpoint is saved, if it is being saved now.

        Returns:
            Until when the agent waits at most, by the monotonic clock.
        """

    def take(self, key: Hashable, checkpoint: str, until: float) -> SavedRun | None:
        """The run that waits at a place for a checkpoint."""


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
    of the same name, and the run of one of them was lost. Of two that resume one checkpoint, the
    second finds no run.

    A run that waits for too long, or while too many others do, is ended as unknown.

    Args:
        max_runs: limit of the runs; one more ends the one that has waited for longest.
        clock: seconds.

    Attributes:
        saved: saves the runs; ``None``, they wait in this process only.
        unknown: how often none was found.
    """

    def __init__(
        self, *, max_runs: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_runs = max_runs
        self._clock = clock
        self.saved: SavedRuns | None = None
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._runs: OrderedDict[int, Any] = OrderedDict()  # by identity, longest waiting first
        self._places: dict[Hashable, list[Any]] = {}
        self._resumed: OrderedDict[tuple[Hashable, str], None] = OrderedDict()
        self._closed = False
        self.unknown = 0

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, run: object) -> bool:
        return id(run) in self._runs

    def add(self, run: WaitingRun, state: Callable[[], Mapping[str, Any]] | None = None) -> None:
        """Let a run wait, and end those that it displaces.

        Args:
            state: returns its state, to be saved with those that wait inside it.
        """
        now = self._clock()
        with here.critical, self._lock:
            displaced = [
                (other, _NOT_RESUMED)
                for other in self._places.get(run.key, ())
                if run.unique or run.checkpoint is other.checkpoint is None
            ]
            for other, _ in displaced:
                self._remove(other)
            run.last_seen = now
            self._places.setdefault(run.key, []).append(run)
            self._runs[id(run)] = run
            if run.checkpoint is not None:
                self._resumed.pop((run.key, run.checkpoint), None)
            while self._runs:
                oldest = next(iter(self._runs.values()))
                idle = now - oldest.last_seen > oldest.idle_seconds
                crowded = len(self._runs) > self._max_runs
                if not idle and not crowded and not self._closed:
                    break
                reason = "idle" if idle else "too many runs" if crowded else _NOT_RESUMED
                displaced.append((oldest, reason))
                self._remove(oldest)
            wanted = run in self and run.checkpoint is not None and not run.unique
        _end(displaced)
        if wanted and self.saved is not None and state is not None:
            self.saved.save(run, state)

    def take(self, key: Hashable, checkpoint: str | None, load: Callable[[SavedRun], Any]) -> Any:
        """The run that continues, which waits no more; ``None``, there is none.

        Args:
            checkpoint: id of the checkpoint from which the graph continues; ``None``, not known.
            load: makes a run of one that was saved.
        """
        if checkpoint is None:
            return self._counted(self._take(key, None))
        with here.critical, self._lock:
            resumed = (key, checkpoint) in self._resumed
            self._resumed[key, checkpoint] = None
            if len(self._resumed) > self._max_runs:
                self._resumed.popitem(last=False)
        run = None if resumed else self._find(key, checkpoint, load)
        if run is None and not resumed:
            with here.critical, self._lock:
                self._resumed.pop((key, checkpoint), None)
        return self._counted(run)

    def _find(self, key: Hashable, checkpoint: str, load: Callable[[SavedRun], Any]) -> Any:
        if self.saved is not None:
            until = self.saved.settle(checkpoint)
            run = self._take(key, checkpoint, exact=True)
            saved = self.saved.take(key, checkpoint, until) if run is None else None
            if saved is not None:
                run = load(saved)
                run.last_seen = self._clock() - saved.waited
            if run is not None:
                return run
        return self._take(key, checkpoint)

    def _counted(self, run: Any) -> Any:
        with here.critical, self._lock:
            self.unknown += run is None
        return run

    def _take(self, key: Hashable, checkpoint: str | None, *, exact: bool = False) -> Any:
        with here.critical, self._lock:
            run = _match(self._places.get(key, ()), checkpoint, exact=exact)
            if run is not None:
                self._remove(run)
            return run

    def is_idle(self, run: WaitingRun) -> bool:
        """Whether a run waited for too long: its record may be closed by now."""
        return self._clock() - run.last_seen > run.idle_seconds

    def give_up(self, key: Hashable, checkpointer: object) -> None:
        """End the runs at a place whose thread continues without them."""
        with here.critical, self._lock:
            over = [
                run
                for run in self._places.get(key, ())
                if run.checkpointer is not None and run.checkpointer() is checkpointer
            ]
            for run in over:
                self._remove(run)
        _end([(run, _NOT_RESUMED) for run in over])

    def discard(self, run: WaitingRun) -> bool:
        """The run waits no more. Returns whether it did."""
        with here.critical, self._lock:
            waited = run in self
            self._remove(run)
            return waited

    def close(self) -> None:
        """End all runs; those that are added later are ended at once."""
        with here.critical, self._lock:
            self._closed = True
            over = list(self._runs.values())
            self._runs.clear()
            self._places.clear()
        _end([(run, _NOT_RESUMED) for run in over])

    def _remove(self, run: WaitingRun) -> None:
        if self._runs.pop(id(run), None) is None:
            return
        at_place = self._places[run.key]
        at_place.remove(run)
        if not at_place:
            del self._places[run.key]


def _match(runs: Any, checkpoint: str | None, *, exact: bool) -> Any:
    if checkpoint is None:
        return runs[-1] if runs else None
    for run in runs:
        if run.checkpoint == checkpoint:
            return run
    if exact:
        return None
    before = [run for run in runs if run.checkpoint is None or run.checkpoint < checkpoint]
    return before[0] if len(before) == 1 else None


def _end(displaced: list[tuple[Any, str]]) -> None:
    for run, reason in displaced:
        run.end(outcome="unknown", reason=reason, evicted=reason != _NOT_RESUMED)

"""Runs that wait in a store: they leave the engine, and come back to the one that resumes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable, Iterator, Mapping
from queue import SimpleQueue
from typing import Any, Final, TypeVar

import orjson

from tidegauge.catalog import RUN_STORE_FAILURES, UNKNOWN_RESUMES, MetricDefinition
from tidegauge.events import ABSENT, Absent, RunEnded, RunStarted
from tidegauge.pipeline.engine_sink import EngineSink
from tidegauge.run_stores import RunStore
from tidegauge.runs.waiting_runs import SavedRun, WaitingRuns
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.safety.guard import arrived_from_outside, guarded, internal_errors
from tidegauge.streaming_metrics.saved_run import load_run, save_run, saved_start
from tidegauge.values import failure_text
from tidegauge.values.safe_reading import text_digest

R = TypeVar("R")
D = TypeVar("D")

_VERSION: Final = 1
_MAX_QUEUED: Final = 1_000
_MAX_BYTES: Final = 16 * 1024 * 1024
_TAKE_SECONDS: Final = 1.0
_QUIET_SECONDS: Final = 30.0
_WHERE: Final = "run_store"


class StoredRuns:
    """Moves runs that wait between an engine and a store.

    A run is saved by a separate thread, a moment after its graph was interrupted. From then on it
    is in the store only: whichever process resumes it, takes it from there. If the store fails, the
    run keeps waiting in this process.

    The agent waits for the store when it resumes a run, for a second at most. If the store fails
    then, it is not asked again for 30 seconds, and the agent continues in a new run.

    Runs that nothing resumes are ended as unknown by the next process that saves one.

    Args:
        sink: measures them; takes the ends of those that nothing resumed.
        idle_seconds: a run waits for at most so long.

    Attributes:
        failures: how often the store failed, or had something that cannot be read.
    """

    def __init__(
        self,
        store: RunStore,
        sink: EngineSink,
        waiting: WaitingRuns,
        *,
        idle_seconds: float,
    ) -> None:
        self._store = store
        self._engine = sink.engine
        self._sink = sink
        self._waiting = waiting
        self._idle_seconds = idle_seconds
        self._quiet_until = 0.0
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._queue: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._saving: tuple[str, threading.Event] | None = None
        self.failures = 0

    def save(self, run: Any, state: Callable[[], Mapping[str, Any]]) -> None:
        """Save a run later; see :class:`~tidegauge.runs.waiting_runs.SavedRuns`."""
        if self._queue.qsize() >= _MAX_QUEUED:
            self.failed("more than 1,000 runs wait to be saved")
            return
        self._queue.put(lambda: self._save(run, state))
        try:
            with here.critical, self._lock:
                if self._thread is None or not self._thread.is_alive():  # or could not start
                    self._thread = threading.Thread(
                        target=self._work, name="tidegauge-run-store", daemon=True
                    )
                    self._thread.start()
        except RuntimeError as error:  # the system starts no more threads
            self._thread = None
            self.failed(str(error))

    @guarded(_WHERE, default=0.0)
    def settle(self, checkpoint: str) -> float:
        """See :class:`~tidegauge.runs.waiting_runs.SavedRuns`.

        In the middle, the run is in this process and in the store: two would continue it.
        """
        until, saving = time.monotonic() + _TAKE_SECONDS, self._saving
        if saving is not None and saving[0] == checkpoint:
            saving[1].wait(_TAKE_SECONDS)
        return until

    @guarded(_WHERE, default=None)
    def take(self, key: Hashable, checkpoint: str, until: float) -> SavedRun | None:
        """The run that waits at a place for a checkpoint, restored in the engine."""
        now = time.monotonic()
        if now < self._quiet_until:
            return None
        fetch = _Fetch(self, checkpoint, _place(key))
        data = fetch.result(max(until - now, 0.0))
        if not fetch.answered:
            self._quiet_until = time.monotonic() + _QUIET_SECONDS
        return None if data is None else self._read(data)

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float]]:
        """How often the store failed, and how often a run was not found."""
        return {
            RUN_STORE_FAILURES: {(): self.failures},
            UNKNOWN_RESUMES: {(): self._waiting.unknown},
        }

    def ask(self, call: Callable[[RunStore], R], otherwise: D) -> R | D:
        """The answer of the store, or what stands for it if the store fails."""
        try:
            return call(self._store)
        except Exception as error:
            if arrived_from_outside(error):
                raise
            self.failed(failure_text(error))
            return otherwise

    def failed(self, why: str) -> None:
        """Count a failure of the store, and log it."""
        self.failures += 1
        internal_errors.of_environment(
            _WHERE,
            "the run store failed: %s; runs wait in this process only, or continue as new ones",
            why,
        )

    def flush(self, deadline: float) -> bool:
        """Save the runs that wait to be saved, up to a moment of the monotonic clock.

        Returns:
            Whether they are.
        """
        if self._thread is None:
            return self._queue.empty()
        done, failures = threading.Event(), self.failures
        self._queue.put(done.set)
        saved = done.wait(max(deadline - time.monotonic(), 0.0))
        return saved and self.failures == failures

    def close(self, seconds: float = 5.0) -> None:
        """Save the runs that wait to be saved, for at most ``seconds``; close the store."""
        self._queue.put(None)
        if self._thread is not None and self._thread.is_alive():  # it may not have started
            self._thread.join(seconds)
        self._store.close()

    def _work(self) -> None:
        with here.critical, self._lock:
            if self._thread is not threading.current_thread():
                return  # an exception has interrupted its start, and there is another one
        while (job := self._queue.get()) is not None:
            job()

    @guarded(_WHERE, default=None)
    def _save(self, run: Any, state: Callable[[], Mapping[str, Any]]) -> None:
        done = threading.Event()
        self._saving = (run.checkpoint, done)
        try:
            self._move(run, state)
        finally:
            self._saving = None
            done.set()
        self._end_expired()

    def _move(self, run: Any, state: Callable[[], Mapping[str, Any]]) -> None:
        key, place = run.checkpoint, _place(run.key)
        if run not in self._waiting:
            return  # it was resumed meanwhile
        saved = state()
        if any(self._engine.get(run_id) is None for run_id in _ids(saved)):
            self._waiting.discard(run)  # it was ended to make room, or was idle
            return
        idle_seconds = min(run.idle_seconds, self._idle_seconds)
        data = self._encoded(saved)
        if not self.put(key, place, data, idle_seconds):
            return
        if not self._waiting.discard(run):
            self.ask(lambda store: store.take(key, place), None)  # as above
            return
        for inside in _inside(run):
            self._waiting.discard(inside)
        for run_id in _ids(saved):
            self._engine.detach(run_id)
            self._sink.run_detached(run_id)

    def put(self, key: str, place: str, data: bytes, idle_seconds: float | None = None) -> bool:
        """Save a state. Returns whether it is saved."""
        seconds = self._idle_seconds if idle_seconds is None else idle_seconds

        def save(store: RunStore) -> bool:
            store.save(key, place, data, time.time() + seconds)
            return True

        return self.ask(save, False)

    def _encoded(self, saved: Mapping[str, Any]) -> bytes:
        runs = []
        for run_id in _ids(saved):
            run = self._engine.get(run_id)
            if run is not None:
                with here.critical, run.lock:
                    runs.append(save_run(run))
        document = {"version": _VERSION, "since": time.time(), "agent": saved, "runs": runs}
        data = orjson.dumps(document)
        if len(data) > _MAX_BYTES:
            raise ValueError(f"the state of a run has {len(data)} bytes; at most {_MAX_BYTES}")
        return data

    def _read(self, data: bytes) -> SavedRun | None:
        try:
            return self._restored(data)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if arrived_from_outside(error):
                raise
            self.failed(f"a state cannot be read: {failure_text(error)}")
            return None

    def _restored(self, data: bytes) -> SavedRun:
        """Restore a run and those inside it in the engine.

        Raises:
            ValueError: the state has another version or form, or the run is open here.
        """
        document = orjson.loads(data)
        if document["version"] != _VERSION:
            raise ValueError(f"the state of a run has version {document['version']}")
        starts: dict[str, RunStarted] = {}
        try:
            for state in document["runs"]:
                start = saved_start(state)
                if not self._engine.restore(start):
                    raise ValueError("the run is open in this process")
                starts[start.run] = start
                run = self._engine.get(start.run)
                if run is not None:
                    with here.critical, run.lock:
                        load_run(run, state)
                    self._sink.run_restored(run)
        except BaseException:
            for run_id in starts:
                self._engine.detach(run_id)
            raise
        waited = max(time.time() - document["since"], 0.0)
        return SavedRun(document["agent"], starts, waited)

    def _end_expired(self) -> None:
        for data in self.ask(lambda store: store.take_expired(time.time()), ()):
            found = self._read(data)
            for run_id in reversed(list(found.starts if found is not None else ())):
                ended = RunEnded(run=run_id, outcome="unknown", reason="not resumed", evicted=True)
                self._sink.run_ended(ended)


class _Fetch:
    """Takes a state from a store in a separate thread, which nothing waits for too long.

    Attributes:
        answered: whether the store has answered in time.
    """

    def __init__(self, stored: StoredRuns, key: str, place: str) -> None:
        self._stored = stored
        self._key = key
        self._place = place
        self._lock = threading.Lock()
        self._data: bytes | None = None
        self.answered = False
        self._late = False
        self._thread = threading.Thread(
            target=self._run, name="tidegauge-run-store-take", daemon=True
        )

    def result(self, seconds: float) -> bytes | None:
        """The state; ``None``, there is none, or the store does not answer."""
        try:
            self._thread.start()
        except RuntimeError as error:  # the system starts no more threads
            self._stored.failed(str(error))
            return None
        self._thread.join(seconds)
        with here.critical, self._lock:
            self._late = not self.answered
            hangs = self._late and self._thread.is_alive()
        if hangs:
            self._stored.failed(f"no answer within {seconds:g} s")
        return self._data

    @guarded(_WHERE, default=None)
    def _run(self) -> None:
        data = self._stored.ask(lambda store: store.take(self._key, self._place), ABSENT)
        if isinstance(data, Absent):
            return
        with here.critical, self._lock:
            if not self._late:
                self._data, self.answered = data, True
                return
        if data is not None:  # its run has become a new one: it ends when it has expired
            self._stored.put(self._key, self._place, data)


def _place(key: Hashable) -> str:
    return text_digest(repr(key))


def _ids(saved: Mapping[str, Any]) -> Iterator[str]:
    """The run of a state, and those inside it."""
    yield saved["run"]
    for inside in saved["inside"]:
        yield from _ids(inside)


def _inside(run: Any) -> Iterator[Any]:
    for inside in run.waiting:
        yield inside
        yield from _inside(inside)

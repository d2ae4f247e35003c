"""The decisions of all runs: one thread reads records, many answer requests, some of which wait.

Records arrive at least once and in any order. For each run, one record holds: that the run ended,
whatever else is known; else its first stop; else the newest by step and time. Each is the greatest
in one order, so duplicates, replays and overtaking change nothing.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

import orjson

from tidegauge.fleet.brokers import ThrottledLog
from tidegauge.fleet.fleet_messages import MessageError, Reason
from tidegauge.fleet.kafka_records import DecisionAction, DecisionRecord, read_decision

_SEVERITY: Final[dict[DecisionAction, int]] = {
    "ended": 0,
    "go_on": 1,
    "nudge": 2,
    "block": 3,
    "stop": 4,
}


class DecisionTable:
    """The decisions that hold, by run and by trace. Not thread-safe.

    Args:
        max_runs: limit of the runs. Beyond it, ended runs are forgotten first, then the runs whose
            decision has not changed for longest.
        ended_seconds: how long an ended run is remembered.

    Attributes:
        dropped: runs that were forgotten because of the limit.

    >>> table = DecisionTable()
    >>> table.take(DecisionRecord("r1", "stop", step=4), now=0.0)
    True
    >>> table.take(DecisionRecord("r1", "nudge", step=5), now=1.0)
    False
    >>> table.find("r1").action
    'stop'
    """

    def __init__(self, *, max_runs: int = 100_000, ended_seconds: float = 3_600.0) -> None:
        self._max_runs = max_runs
        self._ended_seconds = ended_seconds
        # the run without a change for longest first; the run that ended first
        self._open: OrderedDict[str, DecisionRecord] = OrderedDict()
        self._ended: OrderedDict[str, tuple[DecisionRecord, float]] = OrderedDict()
        self._traces: dict[str, set[str]] = {}
        self.dropped = 0

    def __len__(self) -> int:
        return len(self._open) + len(self._ended)

    def __iter__(self) -> Iterator[DecisionRecord]:
        """The decisions of the runs that have not ended."""
        return iter(self._open.values())

    def take(self, record: DecisionRecord, now: float) -> bool:
        """Take a record; whether the decision of the run changed."""
        held = self._of_run(record.run)
        if held is not None and _order(record) <= _order(held):
            return False
        if held is not None:
            self._forget(held)
        if record.action == "ended":
            self._ended[record.run] = (record, now)
        else:
            self._open[record.run] = record
        if record.trace_id is not None:
            self._traces.setdefault(record.trace_id, set()).add(record.run)
        self.forget_ended(now)
        while len(self) > self._max_runs:
            self._forget(self._oldest())
            self.dropped += 1
        return True

    def find(self, run_or_trace: str) -> DecisionRecord | None:
        """The decision of a run, or the severest of a trace's runs; ``None``: unknown.

        The outermost run of a trace has the trace's id, so a request for it includes the runs
        inside. Of two equally severe decisions, the first counts.
        """
        found = list(self.of_trace(run_or_trace))
        own = self._of_run(run_or_trace)
        if own is not None and own.trace_id != run_or_trace:
            found.append(own)
        return min(
            found,
            key=lambda record: (-_SEVERITY[record.action], _when(record), record.run),
            default=None,
        )

    def of_trace(self, trace_id: str) -> Iterator[DecisionRecord]:
        """The decisions of a trace's runs, in no order."""
        for run in self._traces.get(trace_id, ()):
            record = self._of_run(run)
            if record is not None:
                yield record

    def forget_ended(self, now: float) -> None:
        """Forget the runs that ended too long ago."""
        while self._ended:
            record, since = next(iter(self._ended.values()))
            if now - since < self._ended_seconds:
                return
            self._forget(record)

    def _of_run(self, run: str) -> DecisionRecord | None:
        held = self._open.get(run)
        return held if held is not None else self._ended.get(run, (None,))[0]

    def _oldest(self) -> DecisionRecord:
        if self._ended:
            return next(iter(self._ended.values()))[0]
        return next(iter(self._open.values()))

    def _forget(self, record: DecisionRecord) -> None:
        self._open.pop(record.run, None)
        self._ended.pop(record.run, None)
        if record.trace_id is not None:
            runs = self._traces[record.trace_id]
            runs.discard(record.run)
            if not runs:
                del self._traces[record.trace_id]


def _order(record: DecisionRecord) -> tuple[Any, ...]:
    """Of two records of a run, the greater holds.

    Of two at the same moment it is the severer: which one came later is unknown.
    """
    step, time = _when(record)
    rest = (_SEVERITY[record.action], record.reason or "", record.message or "")
    if record.action == "ended":
        return (2, step, time, *rest)
    if record.action == "stop":
        return (1, -step, -time, *rest)
    return (0, step, time, *rest)


def _when(record: DecisionRecord) -> tuple[int, float]:
    return (
        -1 if record.step is None else record.step,
        0.0 if record.time is None else record.time,
    )


@dataclass(frozen=True, slots=True)
class DecisionCounts:
    """Counts of valid records, of invalid ones by reason, and of runs held and dropped."""

    read: int
    skipped: Mapping[str, int]
    known: int
    dropped: int


class DecisionCache:
    """The decisions that hold, for any number of threads."""

    def __init__(self, table: DecisionTable | None = None) -> None:
        self._table = DecisionTable() if table is None else table
        self._on_change: Callable[[DecisionRecord], object] | None = None
        self._lock = threading.Lock()
        self._waiting: dict[str, set[threading.Event]] = {}
        self._closed = False
        self._read = 0
        self._skipped: Counter[str] = Counter(dict.fromkeys(get_args(Reason), 0))
        self._log = ThrottledLog()

    @property
    def counts(self) -> DecisionCounts:
        """Counts so far."""
        with self._lock:
            self._table.forget_ended(time.monotonic())
            return DecisionCounts(
                self._read, dict(self._skipped), len(self._table), self._table.dropped
            )

    def follow(self, on_change: Callable[[DecisionRecord], object]) -> list[DecisionRecord]:
        """The decisions of the runs that have not ended; from now on, ``on_change`` gets changes.

        It must not block.
        """
        with self._lock:
            self._on_change = on_change
            return list(self._table)

    def take(self, key: bytes | None, value: bytes | None, where: str) -> None:
        """Take a record of the topic; an invalid one is counted, logged with ``where``, skipped."""
        try:
            record = read_decision(key, value)
        except MessageError as error:
            self._skip(error, where)
            return
        with self._lock:
            self._read += 1
            if not self._table.take(record, time.monotonic()):
                return
            for name in {record.run, record.trace_id or record.run}:
                for changed in self._waiting.get(name, ()):
                    changed.set()
            if self._on_change is not None:
                self._on_change(record)

    def answer(self, ids: Sequence[str]) -> dict[str, Any]:
        """The current decisions, by id of a run or trace, as the server sends them.

        >>> DecisionCache().answer(["r1"])["r1"]["action"]
        'go_on'
        """
        with self._lock:
            self._table.forget_ended(time.monotonic())
            return {name: _answer(name, self._table.find(name)) for name in ids}

    def wait(
        self, ids: Sequence[str], known: Callable[[str], bool], seconds: float
    ) -> dict[str, Any]:
        """The current decisions, as soon as the client does not know them, or after a while.

        Args:
            known: whether the client knows the answer with this :func:`etag`.
        """
        until = time.monotonic() + seconds
        changed = threading.Event()
        with self._lock:
            for name in ids:
                self._waiting.setdefault(name, set()).add(changed)
        try:
            while True:
                changed.clear()
                answer = self.answer(ids)
                left = until - time.monotonic()
                if left <= 0 or self._closed or not known(etag(answer)):
                    return answer
                changed.wait(left)
        finally:
            with self._lock:
                for name in ids:
                    waiting = self._waiting.get(name, set())
                    waiting.discard(changed)
                    if not waiting:
                        self._waiting.pop(name, None)

    def close(self) -> None:
        """End all waiting."""
        with self._lock:
            self._closed = True
            for waiting in self._waiting.values():
                for changed in waiting:
                    changed.set()

    def _skip(self, error: MessageError, where: str) -> None:
        with self._lock:
            self._skipped[error.reason] += 1
        self._log.log("skipped", f"tidegauge: skipped the record at {where}: {error}")


def etag(answer: Mapping[str, Any]) -> str:
    """The HTTP entity tag of an answer: the same for the same answer, on every server."""
    body = orjson.dumps(answer, option=orjson.OPT_SORT_KEYS)
    digest = hashlib.blake2b(body, digest_size=12)
    return f'"{digest.hexdigest()}"'


def _answer(name: str, record: DecisionRecord | None) -> dict[str, Any]:
    known = record is not None
    if record is None:
        record = DecisionRecord(name, "go_on")
    return {
        "run": record.run,
        "known": known,
        "action": record.action,
        "reason": record.reason,
        "message": record.message,
        "step": record.step,
    }

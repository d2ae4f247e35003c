"""The table of decisions among threads: one reads the topic, many ask, some of them wait."""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

import orjson

from tidegauge.fleet.decision_record import DecisionRecord, read_record
from tidegauge.fleet.decision_table import DecisionTable
from tidegauge.fleet.message import Reason, UnreadableError

__all__ = ["BoardCounts", "DecisionBoard", "etag"]

_logger = logging.getLogger("tidegauge")
_QUIET_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class BoardCounts:
    """Counts of records and runs.

    Args:
        read: records that were taken.
        skipped: records that were not, by reason.
        known: runs that something is known of now.
        dropped: runs that were forgotten because there were too many.
    """

    read: int
    skipped: Mapping[str, int]
    known: int
    dropped: int


class DecisionBoard:
    """What holds for each run; for any number of threads.

    Args:
        table: holds it.
    """

    def __init__(self, table: DecisionTable | None = None) -> None:
        self._table = DecisionTable() if table is None else table
        self._on_change: Callable[[DecisionRecord], object] | None = None
        self._lock = threading.Lock()
        self._waiting: dict[str, set[threading.Event]] = {}
        self._closed = False
        self._read = 0
        self._skipped: Counter[str] = Counter(dict.fromkeys(get_args(Reason), 0))
        self._told = float("-inf")

    @property
    def counts(self) -> BoardCounts:
        """What was read, and what is known, so far."""
        with self._lock:
            self._table.forget_ended(time.monotonic())
            return BoardCounts(
                self._read, dict(self._skipped), len(self._table), self._table.dropped
            )

    def follow(self, on_change: Callable[[DecisionRecord], object]) -> list[DecisionRecord]:
        """What holds for the runs that have not ended, and from here on every change.

        Args:
            on_change: called with each record that changes what holds; is not to wait.
        """
        with self._lock:
            self._on_change = on_change
            return list(self._table)

    def post(self, key: bytes | None, value: bytes | None, where: str) -> None:
        """Take a record of the topic in; one that cannot be taken is counted and skipped.

        Args:
            key: its key.
            value: its value.
            where: where it is, for the log.
        """
        try:
            record = read_record(key, value)
        except UnreadableError as error:
            self._skip(error, where)
            return
        with self._lock:
            self._read += 1
            if not self._table.take(record, time.monotonic()):
                return
            for name in {record.run, record.trace_id or record.run}:
                for news in self._waiting.get(name, ()):
                    news.set()
            if self._on_change is not None:
                self._on_change(record)

    def answer(self, ids: Sequence[str]) -> dict[str, Any]:
        """What holds now, by id of a run or trace, as it is told to whoever asks.

        >>> DecisionBoard().answer(["r1"])["r1"]["action"]
        'go_on'
        """
        with self._lock:
            self._table.forget_ended(time.monotonic())
            return {name: _told(name, self._table.find(name)) for name in ids}

    def wait_for_news(
        self, ids: Sequence[str], known: Callable[[str], bool], seconds: float
    ) -> dict[str, Any]:
        """What holds as soon as it is not known yet, or when the time is over.

        Args:
            ids: of runs or traces.
            known: whether whoever asks knows the answer of this :func:`etag`.
            seconds: for so long it waits at most.
        """
        until = time.monotonic() + seconds
        news = threading.Event()
        with self._lock:
            for name in ids:
                self._waiting.setdefault(name, set()).add(news)
        try:
            while True:
                news.clear()
                answer = self.answer(ids)
                left = until - time.monotonic()
                if left <= 0 or self._closed or not known(etag(answer)):
                    return answer
                news.wait(left)
        finally:
            with self._lock:
                for name in ids:
                    asking = self._waiting.get(name, set())
                    asking.discard(news)
                    if not asking:
                        self._waiting.pop(name, None)

    def close(self) -> None:
        """Nobody waits any longer."""
        with self._lock:
            self._closed = True
            for asking in self._waiting.values():
                for news in asking:
                    news.set()

    def _skip(self, error: UnreadableError, where: str) -> None:
        now = time.monotonic()
        with self._lock:
            self._skipped[error.reason] += 1
            quiet = now - self._told < _QUIET_SECONDS
            if not quiet:
                self._told = now
        if not quiet:
            _logger.warning("tidegauge: skipped the record at %s: %s", where, error)


def etag(answer: Mapping[str, Any]) -> str:
    """An HTTP entity tag of an answer: the same for the same answer, whoever gives it."""
    body = orjson.dumps(answer, option=orjson.OPT_SORT_KEYS)
    digest = hashlib.blake2b(body, digest_size=12)
    return f'"{digest.hexdigest()}"'


def _told(name: str, record: DecisionRecord | None) -> dict[str, Any]:
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

"""The runs of one partition of the topic, and what the next worker needs to continue them.

The state follows from the log alone: the messages, their order and their times. The changelog has
a snapshot of each run, and the messages since then. A worker that restores both has the same state
as the worker that wrote them, and continues from there.
"""

from __future__ import annotations

import operator
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from tidegauge._span_counts import span_faults
from tidegauge.errors import StepEventError
from tidegauge.fleet.fleet_messages import MessageError
from tidegauge.fleet.kafka_records import (
    CLOCK_KEY,
    NAMES_KEY,
    ChangelogRecord,
    Message,
    ended_run,
    is_snapshot,
    load_changelog_record,
    marker_key,
    read_message,
    record_key,
    snapshot_key,
)
from tidegauge.fleet.sink import FleetSink
from tidegauge.fleet.snapshots import RunSnapshot
from tidegauge.fleet.step_runs import StepRuns
from tidegauge.foreign_spans.external_run import RunDefaults
from tidegauge.foreign_spans.span import SpanData
from tidegauge.receivers.assembly import ASSEMBLY_LIMITS, Assembly, AssemblyLimits
from tidegauge.safety.guard import guarded, internal_errors

Changes: TypeAlias = Mapping[bytes, bytes | None]
"""Changes of the changelog by key; ``None``: delete the record."""

MAX_STATE_BYTES: Final = 512 * 1024 * 1024
MAX_RECORD_BYTES: Final = 1_000_000
_MAX_ENDED: Final = 50_000
_MAX_LOG_BYTES: Final = 16_384
"""A run with so many bytes of messages, and twice those of its snapshot, gets another one."""

_QUIET_SECONDS: Final = 5.0
_MIN_LOG_BYTES: Final = 1_000
_MIN_LOG_SHARE: Final = 0.5
"""So does a run without a message for this long, if its messages have so many bytes and so large a
share of its last snapshot."""

_SNAPSHOT_SECONDS: Final = 0.005
"""Limit of the time for snapshots of quiet runs, and to read those that were restored, whenever
changes are written."""

_HEXADECIMAL: Final = frozenset("0123456789abcdef")
_LATE_SECONDS: Final = 3_600.0
"""How long an ended run is remembered."""


class PartitionCounts(NamedTuple):
    """Counts of messages; duplicate and late spans and step events; runs aborted as too large.

    >>> PartitionCounts(3, 1).plus(PartitionCounts(2))
    PartitionCounts(messages=5, duplicates=1, late=0, aborted=0)
    """

    messages: int = 0
    duplicates: int = 0
    late: int = 0
    aborted: int = 0

    def plus(self, other: PartitionCounts) -> PartitionCounts:
        """The sum."""
        return PartitionCounts(*map(operator.add, self, other))


@dataclass(slots=True)
class _Kept:
    """What the changelog has of a run or a trace."""

    snapshot: int = 0  # size of the snapshot; 0: there is none
    offsets: list[int] = field(default_factory=list)  # of the messages since then
    since: int = 0  # size of these messages
    tried: int = 0  # what that was when a snapshot was too large for a record
    last: int = -1  # offset of the last message
    seen: float = 0.0  # when it was processed

    @property
    def size(self) -> int:
        return self.snapshot + self.since


class Partition:
    """One partition. One thread at a time.

    Args:
        sink: takes the runs' steps; shared by all partitions of a worker.
        reject: called with messages that turn out to be invalid after they were processed.
        max_state_bytes: limit of the changelog; beyond it, the run with the largest part is ended.
        max_record_bytes: limit of a record of it; instead of a larger snapshot, the messages stay.

    Attributes:
        position: the offset after the last message.
        state_bytes: size of the changelog.
    """

    def __init__(
        self,
        sink: FleetSink,
        reject: Callable[[Message, str], None],
        *,
        defaults: RunDefaults | None = None,
        limits: AssemblyLimits = ASSEMBLY_LIMITS,
        max_state_bytes: int = MAX_STATE_BYTES,
        max_record_bytes: int = MAX_RECORD_BYTES,
    ) -> None:
        self._max_state_bytes = max_state_bytes
        self._max_record_bytes = max_record_bytes
        self.position = 0
        self.state_bytes = 0
        self._sink = sink
        self._reject = reject
        self._now = 0.0
        self._saved = 0.0
        self._messages = self._late = self._aborted = 0
        self._baseline = PartitionCounts()  # counts of the restored part
        self._forgotten: list[str] = []  # keys that are no longer held
        self._assembly = Assembly(
            defaults,
            limits,
            across_traces=False,
            on_forgotten=lambda trace_id: self._forgotten.append(f"{trace_id:032x}"),
        )
        self._steps = StepRuns(
            sink,
            self._rejected,
            allowed_lateness=limits.allowed_lateness,
            idle_seconds=limits.idle_seconds,
            max_runs=limits.runs,
            on_forgotten=self._forgotten.append,
        )
        self._ended_seconds = max(_LATE_SECONDS, limits.idle_seconds)
        self._records: dict[str, _Kept] = {}
        # keys with messages since their snapshots, least recently seen first
        self._unsaved: OrderedDict[str, None] = OrderedDict()
        self._ran: set[str] = set()  # keys in the changelog of which a run has ended
        self._ended: OrderedDict[str, float] = OrderedDict()  # ended keys, and since when
        self._changes: dict[bytes, bytes | None] = {}

    def __len__(self) -> int:
        """The number of keys with records in the changelog."""
        return len(self._records)

    @property
    def keys(self) -> Iterable[str]:
        """The keys with records in the changelog."""
        return self._records.keys()

    @property
    def counts(self) -> PartitionCounts:
        """Counts so far, without the restored part."""
        baseline, assembly = self._baseline, self._assembly
        return PartitionCounts(
            self._messages,
            self._steps.duplicates + assembly.duplicates - baseline.duplicates,
            self._late + assembly.late - baseline.late,
            self._aborted,
        )

    def take(self, offset: int, key: bytes | None, value: bytes | None, now: float) -> None:
        """Process a message; ``now`` is its time, which does not go back.

        Raises:
            MessageError: it is invalid, and nothing has changed.
        """
        self.position = offset + 1
        message = read_message(key, value, offset)
        self.tick(now)
        try:
            if message.run in self._ended:
                self._late += 1 if message.spans is None else len(message.spans)
            elif self._apply(message) and value is not None:
                record = ChangelogRecord(offset, self._now, message.run, value).encoded()
                self._changes[record_key(offset)] = record
                kept = self._add(message.run, offset, len(record), self._now)
                if kept.since > max(_MAX_LOG_BYTES, 2 * kept.snapshot, 2 * kept.tried):
                    self._take_snapshot(message.run, kept)
                if self.state_bytes > self._max_state_bytes:
                    self._abort(max(self._records, key=lambda run: self._records[run].size))
            self._messages += 1
        finally:
            self._clean()

    def tick(self, now: float) -> None:
        """Time has passed: emit what waited for long enough, end what was idle for too long."""
        self._now = self._sink.now = max(self._now, now)
        self._assembly.expire(self._now)
        self._steps.expire(self._now)
        while self._ended:
            run, since = next(iter(self._ended.items()))
            if len(self._ended) <= _MAX_ENDED and self._now - since <= self._ended_seconds:
                break
            del self._ended[run]
            self._changes[marker_key(run)] = None
            trace_id = _trace_id(run)
            if trace_id is not None:
                self._assembly.unfinish(trace_id)
        self._clean()

    @span_faults.paused()  # faults of spans were counted when they arrived
    def restore(self, changelog: Iterable[tuple[bytes, bytes]]) -> None:
        """Restore the state from the changelog, in the order of its keys.

        If the limits have changed, another run may have to make room, and a message that was valid
        may be invalid now: it goes with its run.

        Raises:
            ValueError: the changelog has another version.
        """
        ended: list[tuple[float, str]] = []
        records: list[tuple[int, bool, bytes]] = []  # offset, whether it is a message, encoded
        now = 0.0
        for key, data in changelog:
            run = ended_run(key)
            if run is not None:
                ended.append((float(data), run))
            elif key == CLOCK_KEY:
                now = float(data)
            elif key == NAMES_KEY:
                self._assembly.names.load(data.decode())
            else:
                offset = load_changelog_record(data).offset
                records.append((offset, not is_snapshot(key), data))
        for since, run in sorted(ended):
            self._mark_ended(since, run)
        self._sink.restoring = True
        try:
            for _, is_message, data in sorted(records):
                self._restore(load_changelog_record(data), len(data), is_message=is_message)
            self._assembly.in_order()
            self._steps.in_order()
            self._saved = now
            self.tick(now)
            self._sink.restored(self._records)
        finally:
            self._sink.restoring = False
        self._baseline = self.counts

    def changes(self) -> Changes:
        """The changes of the changelog since the last call."""
        until = time.perf_counter() + _SNAPSHOT_SECONDS
        self._assembly.wake(until)
        self._take_snapshots(until)
        changes, self._changes = self._changes, {}
        if self._assembly.names.changed:
            changes[NAMES_KEY] = self._assembly.names.saved().encode()
        if self._records and self._now != self._saved:
            # The output up to now must not be produced again; no message says how far it is.
            self._saved = self._now
            changes[CLOCK_KEY] = repr(self._now).encode()
        elif self._saved and not self._records:
            self._saved = 0.0
            changes[CLOCK_KEY] = None
        return changes

    def is_current(self, clock: bytes | None) -> bool:
        """Whether its last changes are in the changelog, and no other worker has changed it since.

        ``clock`` is the changelog's value of ``CLOCK_KEY``.
        """
        return self._saved == (0.0 if clock is None else float(clock))

    def drop(self) -> None:
        """Detach the runs: the partition goes to another worker."""
        self._sink.drop(self._records)

    def _restore(self, record: ChangelogRecord, size: int, *, is_message: bool) -> None:
        key, offset = record.key, record.offset
        self.position = offset + 1
        self.tick(record.now)
        kept = self._records.get(key)
        if is_message and kept is not None and offset <= kept.last:
            self._changes[record_key(offset)] = None  # the snapshot has it
            return
        if key in self._ended:  # it was ended just now, to make room
            self._changes[record_key(offset) if is_message else snapshot_key(key)] = None
            return
        if not is_message:
            self._load(key, record.value)
            self._records[key] = _Kept(snapshot=size, last=offset, seen=record.now)
            self.state_bytes += size
            return
        self._add(key, offset, size, record.now)
        try:
            self._apply(read_message(key.encode(), record.value, offset))
        except MessageError:
            self._forgotten.append(key)
        except Exception as error:  # noqa: BLE001 -- one message must not stop the others
            internal_errors.record("fleet.restore", error)
        self._clean()

    def _take_snapshots(self, until: float) -> None:
        """Replace the messages of runs that have been quiet by snapshots, for a short while."""
        while self._unsaved:
            key = next(iter(self._unsaved))
            kept = self._records[key]
            if self._now - kept.seen < _QUIET_SECONDS or time.perf_counter() > until:
                break
            if kept.since > max(_MIN_LOG_BYTES, _MIN_LOG_SHARE * kept.snapshot):
                self._take_snapshot(key, kept)
            else:
                del self._unsaved[key]

    def _take_snapshot(self, key: str, kept: _Kept) -> None:
        """Keep a snapshot of a key instead of its messages; if that fails, the messages stay."""
        self._unsaved.pop(key, None)
        snapshot = self._snapshot(key)
        if snapshot is None:
            return
        record = ChangelogRecord(kept.last, kept.seen, key, snapshot).encoded()
        if len(record) > self._max_record_bytes:  # no broker would take it
            kept.tried = kept.since
            return
        self._changes[snapshot_key(key)] = record
        self._changes.update((record_key(offset), None) for offset in kept.offsets)
        self.state_bytes += len(record) - kept.size
        kept.snapshot, kept.since, kept.tried, kept.offsets = len(record), 0, 0, []

    @guarded("fleet.snapshot", default=None)
    def _snapshot(self, key: str) -> bytes | None:
        trace_id = _trace_id(key)
        head: dict[str, Any] = {
            "steps": self._steps.saved(key),
            "runs": self._sink.saved(key),
            "ran": key in self._ran,
            "trace": None,
        }
        parts = None
        if trace_id is not None:
            trace = dict(self._assembly.saved(trace_id, self._sink.open_runs(key)))
            parts = trace.pop("parts")
            head["trace"] = trace
        return RunSnapshot(head, lambda: parts).written()

    def _load(self, key: str, data: bytes) -> None:
        """Continue the runs of a key where a snapshot was taken.

        Raises:
            ValueError: it has another version or form.
        """
        head, parts = RunSnapshot.read(data)
        try:
            trace_id = _trace_id(key)
            if trace_id is not None and head["trace"] is not None:
                self._assembly.load(trace_id, **head["trace"], parts=parts)
            if head["steps"] is not None:
                self._steps.load(key, head["steps"])
            self._sink.load(head["runs"])
            if head["ran"]:
                self._ran.add(key)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"a snapshot has another form: {error}") from error

    def _apply(self, message: Message) -> bool:
        """Whether it has anything new."""
        if message.spans is not None:
            return self._assemble(message.spans)
        try:
            return self._steps.take(message, self._now)
        except StepEventError as error:
            raise MessageError("invalid", str(error)) from error

    def _assemble(self, spans: list[SpanData]) -> bool:
        before = self._assembly.duplicates
        self._assembly.take(spans, now=self._now)
        return self._assembly.duplicates - before < len(spans)

    def _rejected(self, message: Message, why: str) -> None:
        if not self._sink.restoring:  # else it was rejected when it arrived
            self._reject(message, why)

    def _add(self, key: str, offset: int, size: int, now: float) -> _Kept:
        """The changelog has another message."""
        kept = self._records.get(key)
        if kept is None:
            kept = self._records[key] = _Kept()
        kept.offsets.append(offset)
        kept.since += size
        kept.last, kept.seen = offset, now
        self.state_bytes += size
        self._unsaved[key] = None
        self._unsaved.move_to_end(key)
        return kept

    def _abort(self, run: str) -> None:
        """End the run, or the trace without a run, with the largest part of the changelog."""
        self._aborted += 1
        trace_id = _trace_id(run)
        if trace_id is not None:
            self._assembly.abort(trace_id)
        self._steps.abort(run)
        self._sink.abort(run, "too large")
        self._ran.add(run)
        self._forgotten.append(run)

    def _clean(self) -> None:
        """Delete what is kept of ended runs; a marker remains."""
        ended, forgotten = self._sink.ended(), tuple(self._forgotten)
        if not ended and not forgotten:
            return
        self._ran.update(ended)
        self._forgotten.clear()
        for run in dict.fromkeys((*ended, *forgotten)):
            if self._is_live(run):
                continue
            kept = self._records.pop(run, None)
            if kept is not None:
                self._unsaved.pop(run, None)
                self.state_bytes -= kept.size
                self._changes.update((record_key(offset), None) for offset in kept.offsets)
                # Also without one: a worker that died may have written it.
                self._changes[snapshot_key(run)] = None
            if run in self._ran:
                self._ran.discard(run)
                self._mark_ended(self._now, run)
                self._changes[marker_key(run)] = repr(self._now).encode()

    def _is_live(self, run: str) -> bool:
        if self._sink.is_open(run) or self._steps.holds(run):
            return True
        trace_id = _trace_id(run)
        return trace_id is not None and self._assembly.holds(trace_id)

    def _mark_ended(self, since: float, run: str) -> None:
        self._ended[run] = since
        trace_id = _trace_id(run)
        if trace_id is not None:
            self._assembly.finish(trace_id)


def _trace_id(run: str) -> int | None:
    """The trace id in a key, if it is one."""
    return int(run, 16) if len(run) == 32 and _HEXADECIMAL.issuperset(run) else None

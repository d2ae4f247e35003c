"""The runs of one partition of the topic, and the part of its log that they still need.

The state follows from the log alone: the messages, their order and their times. So a worker that
restores the changelog has the same state as the worker that wrote it, and continues from there.
"""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from tidegauge._guard import internal_errors
from tidegauge._span_faults import span_faults
from tidegauge.errors import StepEventError
from tidegauge.fleet.kafka_records import (
    CLOCK_KEY,
    NAMES_KEY,
    ChangelogRecord,
    Message,
    ended_run,
    load_changelog_record,
    marker_key,
    read_message,
    record_key,
)
from tidegauge.fleet.sink import FleetSink
from tidegauge.fleet.step_runs import StepRuns
from tidegauge.instrumentation.spans.external_run import RunDefaults
from tidegauge.instrumentation.spans.span import SpanData
from tidegauge.receivers.kafka.fields import MessageError
from tidegauge.receivers.otlp.assembly import ASSEMBLY_LIMITS, Assembly, AssemblyLimits

__all__ = ["MAX_STATE_BYTES", "Changes", "Partition", "PartitionCounts"]

Changes: TypeAlias = Mapping[bytes, bytes | None]
"""Changes of the changelog by key; ``None``: delete the record."""

MAX_STATE_BYTES: Final = 512 * 1024 * 1024
_MAX_ENDED: Final = 50_000
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
class _Records:
    offsets: list[int] = field(default_factory=list)
    size: int = 0


class Partition:
    """One partition. One thread at a time.

    Args:
        sink: takes the runs' steps; shared by all partitions of a worker.
        reject: called with messages that turn out to be invalid after they were processed.
        defaults: attributes of runs whose spans do not give them.
        limits: how much is held, and for how long.
        max_state_bytes: limit of the changelog; beyond it, the run with the largest part is ended.

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
    ) -> None:
        self._max_state_bytes = max_state_bytes
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
        self._records: dict[str, _Records] = {}
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
                self._add(message.run, offset, len(record))
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
        now = 0.0
        self._sink.restoring = True
        try:
            for key, data in changelog:
                if key == CLOCK_KEY:
                    now = float(data)
                    continue
                if key == NAMES_KEY:
                    self._assembly.names.load(data.decode())
                    continue
                run = ended_run(key)
                if run is not None:  # markers come before all records
                    ended.append((float(data), run))
                    continue
                self._mark_all_ended(ended)
                self._restore(load_changelog_record(data), len(data))
            self._mark_all_ended(ended)
            self._saved = now
            self.tick(now)
            self._sink.restored(self._records)
        finally:
            self._sink.restoring = False
        self._baseline = self.counts

    def changes(self) -> Changes:
        """The changes of the changelog since the last call."""
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

    def _restore(self, record: ChangelogRecord, size: int) -> None:
        message = read_message(record.key.encode(), record.value, record.offset)
        self.position = record.offset + 1
        self.tick(record.now)
        if message.run in self._ended:  # it was ended just now, to make room
            self._changes[record_key(record.offset)] = None
            return
        self._add(message.run, record.offset, size)
        try:
            self._apply(message)
        except MessageError:
            self._forgotten.append(message.run)
        except Exception as error:  # noqa: BLE001 -- one message must not stop the others
            internal_errors.record("fleet.restore", error)
        self._clean()

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

    def _add(self, run: str, offset: int, size: int) -> None:
        records = self._records.get(run)
        if records is None:
            records = self._records[run] = _Records()
        records.offsets.append(offset)
        records.size += size
        self.state_bytes += size

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
        """Delete the records of ended runs; a marker remains."""
        ended, forgotten = self._sink.ended(), tuple(self._forgotten)
        if not ended and not forgotten:
            return
        self._ran.update(ended)
        self._forgotten.clear()
        for run in dict.fromkeys((*ended, *forgotten)):
            if self._is_live(run):
                continue
            records = self._records.pop(run, None)
            if records is not None:
                self.state_bytes -= records.size
                self._changes.update((record_key(offset), None) for offset in records.offsets)
            if run in self._ran:
                self._ran.discard(run)
                self._mark_ended(self._now, run)
                self._changes[marker_key(run)] = repr(self._now).encode()

    def _is_live(self, run: str) -> bool:
        if self._sink.is_open(run) or self._steps.holds(run):
            return True
        trace_id = _trace_id(run)
        return trace_id is not None and self._assembly.holds(trace_id)

    def _mark_all_ended(self, ended: list[tuple[float, str]]) -> None:
        for since, run in sorted(ended):
            self._mark_ended(since, run)
        ended.clear()

    def _mark_ended(self, since: float, run: str) -> None:
        self._ended[run] = since
        trace_id = _trace_id(run)
        if trace_id is not None:
            self._assembly.finish(trace_id)


def _trace_id(run: str) -> int | None:
    """The trace id in a key, if it is one."""
    return int(run, 16) if len(run) == 32 and _HEXADECIMAL.issuperset(run) else None

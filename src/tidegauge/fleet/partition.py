"""The runs of one partition of the topic: what its log tells, and what of it is still needed.

Everything here follows from the log: what came, in its order, and when. So whoever goes through the
records that are kept stands where the one stood who kept them, and goes on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from tidegauge._guard import internal_errors
from tidegauge._span_faults import span_faults
from tidegauge.errors import StepEventError
from tidegauge.fleet.kept_record import (
    CLOCK_KEY,
    KeptRecord,
    dump_record,
    load_record,
    mark_key,
    marked,
    record_key,
)
from tidegauge.fleet.message import Message, UnreadableError, read_message
from tidegauge.fleet.sink import FleetSink
from tidegauge.fleet.step_runs import StepRuns
from tidegauge.instrumentation.otlp.assembling import Assembly
from tidegauge.instrumentation.otlp.limits import ASSEMBLY_LIMITS, AssemblyLimits
from tidegauge.instrumentation.spans.span import SpanData
from tidegauge.instrumentation.spans.watched import RunDefaults

__all__ = ["MAX_KEPT_BYTES", "Changes", "Partition", "PartitionCounts"]

Changes: TypeAlias = Mapping[bytes, bytes | None]
"""What is to be kept from now on, by key; ``None``: not any more."""

MAX_KEPT_BYTES: Final = 512 * 1024 * 1024
_MAX_MARKS: Final = 50_000
_HEXADECIMAL: Final = frozenset("0123456789abcdef")
_LATE_SECONDS: Final = 3_600.0
"""For so long it is known of a run that it has ended."""


@dataclass(slots=True)
class PartitionCounts:
    """What came.

    Args:
        messages: messages that were taken.
        duplicates: spans and step events that came again.
        late: spans and step events that came after the end of their run.
        given_up: runs, and traces that were none yet, that were ended because too much was kept.
    """

    messages: int = 0
    duplicates: int = 0
    late: int = 0
    given_up: int = 0

    def __add__(self, other: PartitionCounts) -> PartitionCounts:
        """What came here and there.

        >>> PartitionCounts(3, 1) + PartitionCounts(2)
        PartitionCounts(messages=5, duplicates=1, late=0, given_up=0)
        """
        return PartitionCounts(
            self.messages + other.messages,
            self.duplicates + other.duplicates,
            self.late + other.late,
            self.given_up + other.given_up,
        )


@dataclass(slots=True)
class _Kept:
    offsets: list[int] = field(default_factory=list)
    size: int = 0


class Partition:
    """One partition. One thread at a time.

    Args:
        sink: takes the runs' steps; shared by all partitions of a worker.
        refuse: told of messages that turn out to be of no use after they were taken.
        defaults: what runs are known by where their spans don't say.
        limits: how much is held, and for how long.
        max_kept_bytes: how large the records may be that are kept; of more, the run of which most
            is kept is ended.

    Attributes:
        position: where the next message is, one after the last that came.
        kept_bytes: how large the records are that are kept.
    """

    def __init__(
        self,
        sink: FleetSink,
        refuse: Callable[[Message, str], None],
        *,
        defaults: RunDefaults | None = None,
        limits: AssemblyLimits = ASSEMBLY_LIMITS,
        max_kept_bytes: int = MAX_KEPT_BYTES,
    ) -> None:
        self._max_kept_bytes = max_kept_bytes
        self.position = 0
        self.kept_bytes = 0
        self._sink = sink
        self._refuse = refuse
        self._now = 0.0
        self._saved = 0.0
        self._counts = PartitionCounts()
        self._before = PartitionCounts()  # what the past has told, when it was gone through
        self._forgotten: list[str] = []  # keys of which nothing is awaited any more
        self._assembly = Assembly(
            defaults,
            limits,
            across_traces=False,
            on_forgotten=lambda trace_id: self._forgotten.append(f"{trace_id:032x}"),
        )
        self._steps = StepRuns(
            sink,
            self._refused,
            settle_seconds=limits.settle_seconds,
            idle_seconds=limits.idle_seconds,
            max_runs=limits.runs,
            on_forgotten=self._forgotten.append,
        )
        self._mark_seconds = max(_LATE_SECONDS, limits.idle_seconds)
        self._kept: dict[str, _Kept] = {}
        self._ran: set[str] = set()  # kept keys of which a run has ended
        self._marks: OrderedDict[str, float] = OrderedDict()  # ended keys, and since when
        self._changes: dict[bytes, bytes | None] = {}

    def __len__(self) -> int:
        """How many keys something is kept of."""
        return len(self._kept)

    @property
    def keys(self) -> Iterable[str]:
        """The keys that something is kept of."""
        return self._kept.keys()

    @property
    def counts(self) -> PartitionCounts:
        """What came."""
        came, before, assembled = self._counts, self._before, self._assembly.counts
        return PartitionCounts(
            came.messages,
            self._steps.duplicates + assembled.duplicates - before.duplicates,
            came.late + assembled.late - before.late,
            came.given_up,
        )

    def take(self, offset: int, key: bytes | None, value: bytes | None, now: float) -> None:
        """Take a message.

        Args:
            offset: its place.
            key: its key.
            value: it.
            now: when it came, in seconds since the epoch; a clock that goes back stands still.

        Raises:
            UnreadableError: it cannot be taken, and nothing of it is.
        """
        self.position = offset + 1
        message = read_message(key, value, offset)
        self.tick(now)
        try:
            if message.run in self._marks:
                self._counts.late += 1 if message.spans is None else len(message.spans)
            elif self._apply(message) and value is not None:
                record = dump_record(offset, self._now, message.run, value)
                self._changes[record_key(offset)] = record
                self._keep(message.run, offset, len(record))
                if self.kept_bytes > self._max_kept_bytes:
                    self._give_up(max(self._kept, key=lambda run: self._kept[run].size))
            self._counts.messages += 1
        finally:
            self._clean()

    def tick(self, now: float) -> None:
        """Time has passed: tell what has settled, end what nothing was heard of for too long."""
        self._now = self._sink.now = max(self._now, now)
        self._assembly.expire(self._now)
        self._steps.expire(self._now)
        while self._marks:
            run, since = next(iter(self._marks.items()))
            if len(self._marks) <= _MAX_MARKS and self._now - since <= self._mark_seconds:
                break
            del self._marks[run]
            self._changes[mark_key(run)] = None
            trace_id = _trace_id(run)
            if trace_id is not None:
                self._assembly.unfinish(trace_id)
        self._clean()

    @span_faults.paused()  # what is wrong with a span was counted when it came
    def restore(self, kept: Iterable[tuple[bytes, bytes]]) -> int:
        """Go through what was kept, in the order of its keys; how many messages.

        With other limits than it was kept under, another run may have to make room, and a message
        that was taken then may be of no use now: it goes with its run.

        Raises:
            ValueError: it is of another version.
        """
        restored = 0
        marks: list[tuple[float, str]] = []
        now = 0.0
        self._sink.restoring = True
        try:
            for key, data in kept:
                if key == CLOCK_KEY:
                    now = float(data)
                    continue
                run = marked(key)
                if run is not None:  # they come before all records
                    marks.append((float(data), run))
                    continue
                self._mark_all(marks)
                self._again(load_record(data), len(data))
                restored += 1
            self._mark_all(marks)
            self._saved = now
            self.tick(now)
            self._sink.restored(self._kept)
        finally:
            self._sink.restoring = False
        self._before = self.counts
        return restored

    def changes(self) -> Changes:
        """What has changed since this was asked last, to be kept."""
        changes, self._changes = self._changes, {}
        if self._kept and self._now != self._saved:
            # What was told up to now is not told again, though no message says it was.
            self._saved = self._now
            changes[CLOCK_KEY] = repr(self._now).encode()
        elif self._saved and not self._kept:
            self._saved = 0.0
            changes[CLOCK_KEY] = None
        return changes

    def stands_where(self, clock: bytes | None) -> bool:
        """Whether what it handed over last was kept, and nobody has changed it since.

        Args:
            clock: what is kept under ``CLOCK_KEY``.
        """
        return self._saved == (0.0 if clock is None else float(clock))

    def drop(self) -> None:
        """The partition goes to another worker."""
        self._sink.drop(self._kept)

    def _again(self, record: KeptRecord, size: int) -> None:
        message = read_message(record.key.encode(), record.value, record.offset)
        self.position = record.offset + 1
        self.tick(record.now)
        if message.run in self._marks:  # it had to make room just now
            self._changes[record_key(record.offset)] = None
            return
        self._keep(message.run, record.offset, size)
        try:
            self._apply(message)
        except UnreadableError:
            self._forgotten.append(message.run)
        except Exception as error:  # noqa: BLE001 -- one message must not stop the others
            internal_errors.record("fleet.restore", error)
        self._clean()

    def _apply(self, message: Message) -> bool:
        """Whether there was anything new in it."""
        if message.spans is not None:
            return self._assemble(message.spans)
        try:
            return self._steps.take(message, self._now)
        except StepEventError as error:
            raise UnreadableError("invalid", str(error)) from error

    def _assemble(self, spans: list[SpanData]) -> bool:
        before = self._assembly.counts.duplicates
        self._assembly.take(spans, now=self._now)
        return self._assembly.counts.duplicates - before < len(spans)

    def _refused(self, message: Message, why: str) -> None:
        if not self._sink.restoring:  # else it was when it came
            self._refuse(message, why)

    def _keep(self, run: str, offset: int, size: int) -> None:
        kept = self._kept.get(run)
        if kept is None:
            kept = self._kept[run] = _Kept()
        kept.offsets.append(offset)
        kept.size += size
        self.kept_bytes += size

    def _give_up(self, run: str) -> None:
        """A run that would take all the room, or the spans of no run that do."""
        self._counts.given_up += 1
        trace_id = _trace_id(run)
        if trace_id is not None:
            self._assembly.give_up(trace_id)
        self._steps.give_up(run)
        self._sink.give_up(run, "too large")
        self._ran.add(run)
        self._forgotten.append(run)

    def _clean(self) -> None:
        """Keep nothing of what is over but that it is."""
        ended, forgotten = self._sink.ended(), tuple(self._forgotten)
        if not ended and not forgotten:
            return
        self._ran.update(ended)
        self._forgotten.clear()
        for run in dict.fromkeys((*ended, *forgotten)):
            if self._is_live(run):
                continue
            kept = self._kept.pop(run, None)
            if kept is not None:
                self.kept_bytes -= kept.size
                self._changes.update((record_key(offset), None) for offset in kept.offsets)
            if run in self._ran:
                self._ran.discard(run)
                self._mark(self._now, run)
                self._changes[mark_key(run)] = repr(self._now).encode()

    def _is_live(self, run: str) -> bool:
        if self._sink.is_open(run) or self._steps.holds(run):
            return True
        trace_id = _trace_id(run)
        return trace_id is not None and self._assembly.holds(trace_id)

    def _mark_all(self, marks: list[tuple[float, str]]) -> None:
        for since, run in sorted(marks):
            self._mark(since, run)
        marks.clear()

    def _mark(self, since: float, run: str) -> None:
        self._marks[run] = since
        trace_id = _trace_id(run)
        if trace_id is not None:
            self._assembly.finish(trace_id)


def _trace_id(run: str) -> int | None:
    """The trace that a key is the id of, if it is one."""
    return int(run, 16) if len(run) == 32 and _HEXADECIMAL.issuperset(run) else None

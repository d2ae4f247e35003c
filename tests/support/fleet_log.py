"""The log of a fleet in a test's own process, and workers that read it, crash and hand over."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import pytest

from support.wire_runs import WireRun, request
from tidegauge import testing
from tidegauge.fleet import partition
from tidegauge.fleet.fleet_messages import MessageError, encode_spans
from tidegauge.fleet.kafka_records import Message
from tidegauge.fleet.partition import Partition
from tidegauge.fleet.sink import FleetSink
from tidegauge.foreign_spans.span import SpanData
from tidegauge.policies import Policy, parse_rules
from tidegauge.receivers.assembly import AssemblyLimits
from tidegauge.receivers.decoding import READ_LIMITS, decode_protobuf
from tidegauge.recordings import ContentEncoder
from tidegauge.runs.current import set_recorder
from tidegauge.runs.recorder import Recorder
from tidegauge.streaming_metrics import Engine, RunReport

POLICY = Policy(parse_rules("loop_repeats=2,failed_rounds=3"))
A_WHILE = 0.3
"""Seconds: less than it takes to settle."""
LIMITS = AssemblyLimits(idle_seconds=50.0)
DIGESTS = ContentEncoder(bytes.hex, plain=False)


class Sent(NamedTuple):
    """A message in the log."""

    key: bytes
    value: bytes
    time: float


def spans_of(run: WireRun) -> list[SpanData]:
    """The spans of a run, as a gateway reads them."""
    return decode_protobuf(request(run.spans).SerializeToString(), READ_LIMITS).spans


def spans_message(spans: Sequence[SpanData], time: float) -> Sent:
    """What a gateway sends of spans of one trace."""
    trace_id = spans[0].trace_id
    return Sent(f"{trace_id:032x}".encode(), encode_spans(trace_id, spans, DIGESTS), time)


def event_message(event: dict[str, Any], time: float) -> Sent:
    """A step event."""
    return Sent(str(event["run"]).encode(), json.dumps(event).encode(), time)


class Produced(NamedTuple):
    """What a worker has produced, in its order."""

    summaries: list[dict[str, Any]]
    decisions: list[dict[str, Any]]
    dead: list[str]

    @classmethod
    def nothing(cls) -> Produced:
        return cls([], [], [])


class WorkerHere:
    """One partition with an engine of its own, on a store that outlives it.

    Args:
        produced: what it produces is added to this.
        store: what was kept by the worker that had the partition before.
        position: up to where that had been committed.
        limits: of what it holds; left out, ``LIMITS``.
    """

    def __init__(
        self,
        produced: Produced,
        store: dict[bytes, bytes],
        position: int,
        limits: AssemblyLimits | None = None,
    ) -> None:
        self.produced = produced
        self.store = store
        self.engine = Engine(clock=None, max_runs=10**9, on_finished=self._finished)
        self.sink = FleetSink(self.engine, POLICY, self._produce)
        self._recorder = Recorder(self.sink, testing_spans())
        self.partition = Partition(self.sink, self._refuse, limits=limits or LIMITS)
        self.use()
        self.partition.restore(sorted(store.items()))
        self.partition.position = position

    def use(self) -> None:
        """Spans go to the recorder in use: let it be this worker's."""
        set_recorder(self._recorder)

    def take(self, log: Sequence[Sent]) -> None:
        """Take the next message of the log."""
        self.use()
        offset = self.partition.position
        sent = log[offset]
        try:
            self.partition.take(offset, sent.key, sent.value, sent.time)
        except MessageError as error:
            self.produced.dead.append(error.reason)

    def commit(self) -> int:
        """Make what was done last; the position that is committed."""
        for key, value in self.partition.changes().items():
            if value is None:
                self.store.pop(key, None)
            else:
                self.store[key] = value
        return self.partition.position

    def _finished(self, report: RunReport) -> None:
        self.sink.run_finished(report)

    def _produce(self, kind: str, key: str, encoded: bytes) -> None:
        record = json.loads(encoded)
        assert record["run"] == key
        records = self.produced.summaries if kind == "summary" else self.produced.decisions
        records.append({name: value for name, value in record.items() if name != "time"})

    def _refuse(self, message: Message, why: str) -> None:
        self.produced.dead.append("invalid")


@contextlib.contextmanager
def snapshots(of: Literal["all", "none", "some"]) -> Iterator[None]:
    """Which runs get a snapshot whenever a worker commits; ``some``: as in production."""
    values = {"all": (0.0, -1, math.inf), "none": (math.inf, 0, 0.0)}
    with pytest.MonkeyPatch.context() as patch:
        if of != "some":
            quiet, small, seconds = values[of]
            patch.setattr(partition, "_QUIET_SECONDS", quiet)
            patch.setattr(partition, "_MIN_LOG_BYTES", small)
            patch.setattr(partition, "_MIN_LOG_SHARE", 0.0)
            patch.setattr(partition, "_SNAPSHOT_SECONDS", seconds)
        yield


def testing_spans() -> Any:
    """Spans that go nowhere."""
    from opentelemetry._logs import NoOpLogger
    from opentelemetry.trace import NoOpTracer

    from tidegauge.tracer import SpanFactory

    return SpanFactory(NoOpTracer(), NoOpLogger("none"))


@contextlib.contextmanager
def nothing_configured() -> Iterator[None]:
    """Whatever recorder a worker used is not used afterwards."""
    with testing.capture():
        yield


def uninterrupted(
    log: Sequence[Sent], ticks: Container[int] = (), limits: AssemblyLimits | None = None
) -> tuple[Produced, WorkerHere]:
    """What one worker produces that reads the whole log, and then waits.

    Args:
        log: it.
        ticks: after which messages some time passes.
        limits: of what it holds.
    """
    produced = Produced.nothing()
    worker = WorkerHere(produced, {}, 0, limits)
    for at, sent in enumerate(log):
        worker.take(log)
        if at in ticks:
            worker.partition.tick(sent.time + A_WHILE)
    finish(worker, log)
    return produced, worker


def finish(worker: WorkerHere, log: Sequence[Sent]) -> None:
    """Time passes until nothing is open any more."""
    worker.use()
    end = max((sent.time for sent in log), default=0.0)
    for seconds in (1.0, LIMITS.orphan_seconds + 1.0, LIMITS.idle_seconds * 3):
        worker.partition.tick(end + seconds)


def by_run(records: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Records by their runs, each of a run's once, in their order."""
    found: dict[str, list[dict[str, Any]]] = {}
    for record in records:
        of_run = found.setdefault(record["run"], [])
        if record not in of_run:
            of_run.append(record)
    return found

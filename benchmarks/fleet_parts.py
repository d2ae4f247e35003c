"""The parts of a measured fleet: its processes, and a filled topic.

The broker is Apache Kafka, as in the tests, whose support starts it and the rest.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.otlp_load import Load
from tidegauge.fleet.fleet_messages import encode_spans
from tidegauge.foreign_spans.span import SpanData
from tidegauge.receivers.decoding import decode_protobuf
from tidegauge.recordings import ContentEncoder

__all__ = ["PARTITIONS", "Messages", "Topic", "missing", "support", "wait_until", "workers"]

PARTITIONS: Final = 8
PATIENCE: Final = 120.0
_TESTS: Final = Path(__file__).parents[1] / "tests"
_MARK: Final = b"\xf1wave\xf2\xf3\xf4".hex().encode()
"""Replaced by the number of the wave in the trace ids of a load."""


def missing() -> str | None:
    """What has to be installed to measure a fleet."""
    if not any((_TESTS.parent / ".kafka").glob("kafka_*.jar")):
        return "Apache Kafka (make .kafka/.ready)"
    needed = {
        "confluent_kafka": "confluent-kafka",
        "quixstreams": "quixstreams",
    }
    return next((name for at, name in needed.items() if not importlib.util.find_spec(at)), None)


def support(name: str) -> Any:
    """A module of what supports the tests."""
    if str(_TESTS) not in sys.path:
        sys.path.insert(0, str(_TESTS))
    return importlib.import_module(f"support.{name}")


class Messages(NamedTuple):
    """One wave of a load, as gateways would have written it.

    Args:
        written: keys and values, with a mark in the place of the wave's number.
        spans: how many spans they have.
        steps: how many steps those are.
    """

    written: list[tuple[bytes, bytes]]
    spans: int
    steps: int

    @classmethod
    def of(cls, load: Load) -> Messages:
        """The messages that a gateway makes of a load's requests."""
        written: list[tuple[bytes, bytes]] = []
        for body in load.bodies:
            spans = decode_protobuf(body).spans
            written += _written(sorted(spans, key=lambda span: span.trace_id))
        return cls(written, load.spans, load.steps)

    @classmethod
    def of_live_runs(cls, load: Load, spans_each: int) -> Messages:
        """Those of runs that do not end, so many spans of their agents at a time."""
        runs: dict[int, list[SpanData]] = {}
        for body in load.bodies:
            for span in decode_protobuf(body).spans:
                if span.parent_id is not None:
                    runs.setdefault(span.trace_id, []).append(span)
        parts = [
            spans[first : first + spans_each]
            for first in range(0, max(map(len, runs.values())), spans_each)
            for spans in runs.values()
        ]
        written = [message for part in parts for message in _written(part)]
        return cls(written, sum(map(len, runs.values())), load.steps)

    def wave(self, number: int) -> Iterator[tuple[bytes, bytes]]:
        """The same of other traces."""
        wave = number.to_bytes(8).hex().encode()
        for key, value in self.written:
            yield key.replace(_MARK, wave), value.replace(_MARK, wave)


class Topic:
    """A topic of a broker, and those beside it.

    Args:
        broker: the tests' one.
        name: its name.
    """

    def __init__(self, broker: Any, name: str) -> None:
        self.broker = broker
        self.name = name
        for beside in ("", ".summaries", ".decisions", ".dead-letters"):
            broker.create(name + beside, PARTITIONS)

    def fill(self, messages: Iterable[tuple[bytes, bytes]]) -> int:
        """Write messages; how many bytes they have."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.broker.address, "linger.ms": 20})
        size = 0
        for key, value in messages:
            while True:
                try:
                    producer.produce(self.name, value, key)
                    break
                except BufferError:
                    producer.poll(0.1)
            size += len(key) + len(value)
        if producer.flush(PATIENCE):
            raise TimeoutError(f"{self.name} was not filled")
        return size

    def committed(self) -> int:
        """How many messages its workers have committed."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.broker.address, "group.id": self.name})
        try:
            asked = [TopicPartition(self.name, number) for number in range(PARTITIONS)]
            return sum(max(part.offset, 0) for part in consumer.committed(asked, PATIENCE))
        finally:
            consumer.close()

    def changelog_bytes(self) -> int:
        """How large all is that its workers have written about their state."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.broker.address})
        [name] = [
            topic
            for topic in admin.list_topics(timeout=PATIENCE).topics
            if topic.startswith("changelog__") and f"--{self.name}--" in topic
        ]
        return sum(
            len(part or b"")
            for message in self.broker.read(name)
            for part in (message.key(), message.value())
        )


@contextlib.contextmanager
def workers(
    folder: Path, topic: Topic, count: int, *flags: str, **options: Any
) -> Iterator[list[Any]]:
    """So many workers that hold all partitions of a topic."""
    fleet = support("fleet")
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(
                fleet.working(
                    folder, topic.broker, topic.name, *flags, name=f"worker-{n}", **options
                )
            )
            for n in range(count)
        ]
        # Not by their metrics alone: a scrape takes time from a worker that restores many runs.
        wait_until(
            lambda: all(worker.get("/readyz").status == 200 for worker in started),
            seconds=10 * PATIENCE,
        )
        wait_until(
            lambda: (
                [worker.value("tidegauge_worker_partitions") for worker in started]
                == [PARTITIONS / count] * count
            )
        )
        yield started


def wait_until(holds: Callable[[], bool], every: float = 0.05, seconds: float = PATIENCE) -> None:
    """Wait for something that must come to be within so many seconds."""
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(every)


def _written(spans: Iterable[SpanData]) -> Iterator[tuple[bytes, bytes]]:
    shown = ContentEncoder(bytes.hex, plain=False)
    for trace_id, together in groupby(spans, key=lambda span: span.trace_id):
        yield f"{trace_id:032x}".encode(), encode_spans(trace_id, list(together), shown)

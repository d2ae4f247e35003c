"""Quix Streams' application around partitions, on a broker: what comes back, and what is said."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Producer, TopicPartition

from support.fleet_log import nothing_configured
from support.kafka import Kafka
from tidegauge.fleet import application
from tidegauge.fleet.partition_worker import Worker, WorkerSettings

pytestmark = pytest.mark.system

CONFIG = {"session.timeout.ms": 6000, "heartbeat.interval.ms": 200}
TOO_LARGE = 1_100_000


@pytest.fixture
def topic(kafka: Kafka, topic: str) -> str:
    """It is there, and so are those beside it: Quix Streams takes a second to make one."""
    for name in (f"{topic}.summaries", f"{topic}.decisions", f"{topic}.dead-letters"):
        kafka.create(name, 1)
    return kafka.create(topic, 1, max_message_bytes=str(2 * TOO_LARGE))


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    with nothing_configured():
        yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def worker(kafka: Kafka, topic: str, directory: Path, *, exactly_once: bool = False) -> Worker:
    settings = WorkerSettings(
        brokers=kafka.address,
        topic=topic,
        group=topic,
        state_dir=directory,
        config=CONFIG,
        exactly_once=exactly_once,
    )
    return Worker(settings)


def run(one: Worker) -> None:
    """Until nothing has come for a while."""
    one._application.run(timeout=3.0)


def send(kafka: Kafka, topic: str, *events: dict[str, object] | tuple[bytes, bytes]) -> None:
    producer = Producer({"bootstrap.servers": kafka.address, "message.max.bytes": 2_000_000})
    for event in events:
        if isinstance(event, tuple):
            key, value = event
        else:
            key, value = str(event["run"]).encode(), orjson.dumps(event)
        producer.produce(topic, value, key, partition=0)
    assert producer.flush(30) == 0


def walk(run: str, *, ends: bool) -> list[dict[str, object]]:
    events: list[dict[str, object]] = [{"type": "start", "run": run}]
    events += [{"type": "step", "run": run, "action": f"go {n}", "t": n} for n in range(3)]
    return [*events, {"type": "end", "run": run, "success": True}] if ends else events


def test_a_message_that_is_too_large_stops_nobody(kafka, topic, tmp_path) -> None:
    large = b'{"type":"start","run":"r","agent":"' + b"x" * TOO_LARGE + b'"}'
    send(kafka, topic, (b"r", large), (b"r", b"x" * TOO_LARGE), *walk("r", ends=True))
    one = worker(kafka, topic, tmp_path)
    run(one)
    assert one._application.output.dead_letters == {"invalid": 2}
    assert one._application.output.produced == {"summary": 1}
    letters = kafka.read(f"{topic}.dead-letters", until=2)
    headers = [dict(letter.headers()) for letter in letters]
    assert [(each["reason"], each["offset"]) for each in headers] == [
        (b"invalid", b"0"),
        (b"invalid", b"1"),
    ]
    assert b"larger than" in headers[0]["detail"]


def test_a_worker_that_goes_on_where_nothing_is_left_to_read(kafka, topic, tmp_path) -> None:
    """Nothing is kept of what has ended: where it stands is what was committed."""
    send(kafka, topic, *walk("ended", ends=True))
    run(worker(kafka, topic, tmp_path / "one"))
    again = worker(kafka, topic, tmp_path / "two")
    run(again)
    [partition] = again._application.partitions.values()
    assert (partition.position, len(partition)) == (5, 0)
    assert again._application.output.produced == {}


def test_a_run_goes_on_in_another_folder(kafka, topic, tmp_path) -> None:
    send(kafka, topic, *walk("r", ends=False))
    first = worker(kafka, topic, tmp_path / "one")
    run(first)
    assert first._application.output.produced == {}
    send(kafka, topic, {"type": "end", "run": "r", "success": True})
    second = worker(kafka, topic, tmp_path / "two")
    run(second)
    assert second._application.restored_runs == 1
    [summary] = [orjson.loads(message.value()) for message in kafka.read(f"{topic}.summaries")]
    assert (summary["run"], summary["steps"], summary["success"]) == ("r", 3, True)


def test_a_worker_without_partitions_is_ready(kafka, topic, tmp_path) -> None:
    application = worker(kafka, topic, tmp_path)._application
    assert not application.ready
    application._on_assign(None, [])
    assert application.ready


def test_what_was_lost_is_not_committed(kafka, topic, tmp_path) -> None:
    application = worker(kafka, topic, tmp_path)._application
    application._processing_context.init_checkpoint()
    application._processing_context.store_offset(topic, 0, 7)
    application._on_lost(None, [TopicPartition(topic, 0)])
    assert application._processing_context.checkpoint.empty()
    assert application.partitions == {}


def test_what_could_not_be_produced_is_not_committed(kafka, topic, tmp_path, monkeypatch) -> None:
    application = worker(kafka, topic, tmp_path)._application

    def fail(*_: object, **__: object) -> None:
        raise ConnectionError("no")

    monkeypatch.setattr(application._producer, "produce", fail)
    with pytest.raises(ConnectionError):
        application.output.produce("summary", "r", b"{}")
    with pytest.raises(ConnectionError):  # though the caller goes on
        application.save()


def test_a_worker_waits_for_transactions_of_its_changelog(
    kafka, topic, tmp_path, monkeypatch
) -> None:
    """An open one hides what was committed after it, also what the state on disk has."""
    first = worker(kafka, topic, tmp_path, exactly_once=True)
    send(kafka, topic, *walk("one", ends=False))
    run(first)
    config = {"bootstrap.servers": kafka.address, "transactional.id": f"{topic}-open"}
    other = Producer(config)
    other.init_transactions()
    other.begin_transaction()
    other.produce(f"changelog__{topic}--{topic}--default", b"", b"", partition=0)
    assert other.flush(30) == 0
    monkeypatch.setattr(application, "_TRANSACTION_SECONDS", 0.0)
    send(kafka, topic, *walk("two", ends=False))
    run(worker(kafka, topic, tmp_path, exactly_once=True))
    with pytest.raises(Exception, match="changelog highwater"):
        run(worker(kafka, topic, tmp_path, exactly_once=True))
    monkeypatch.undo()
    ends = threading.Timer(1.0, other.abort_transaction)
    ends.start()
    last = worker(kafka, topic, tmp_path, exactly_once=True)
    run(last)
    ends.join()
    assert last._application.restored_runs == 2

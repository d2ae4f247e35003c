"""Gateways and workers as processes around a broker, and what a fleet reports of its runs."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import orjson
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.far_host import FarHost
from support.kafka import Kafka
from support.processes import PATIENCE, stopped_in_the_end, wait_until_ready
from support.prometheus import free_port
from support.serve import Ports, Server, serving
from tidegauge import catalog

BUSY = 503
"""What a sender is answered that is to try again."""

CONFIG = {
    # A worker that was killed is missed after so long.
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 500,
}

PARTITIONS = 8
STEPS = "tidegauge_steps_total"
ALLOWED_LATENESS = 3.0
"""On a machine that is busy, what comes over two gateways is seconds apart."""

LATENESS = f"--allowed-lateness={ALLOWED_LATENESS}"
NOT_OF_THE_ENTRY = ("type", "version", "outcome", "trace_id", "parent")
"""What a summary says beside what ``tidegauge replay`` does."""


class Worker(Server):
    """A ``tidegauge worker`` that runs: it listens to scrapes, and to nothing else."""


def gateway(
    directory: Path, kafka: Kafka, topic: str, *flags: str
) -> contextlib.AbstractContextManager[Server]:
    """A ``tidegauge serve`` that sends what it takes to a topic."""
    return serving(directory, f"--kafka={kafka.address}", f"--topic={topic}", *flags)


def worker_command(
    directory: Path,
    kafka: Kafka,
    topic: str,
    *flags: str,
    name: str = "worker",
    config: Mapping[str, object] = CONFIG,
    before: str = "pass",
) -> list[str]:
    """How a worker is started.

    Args:
        directory: where its settings are kept, and its state, in a folder of its name.
        kafka: where the topic is.
        topic: what it reads, and the name of its group.
        flags: what the command line says beside that.
        name: of its files.
        config: properties of librdkafka.
        before: Python that its process runs before.
    """
    settings = directory / f"{name}.toml"
    settings.write_text("".join(f'"{key}" = {json.dumps(one)}\n' for key, one in config.items()))
    return [
        *(sys.executable, "-c", f"{before}\nfrom tidegauge.cli.main import main; main()"),
        "worker",
        f"--kafka={kafka.address}",
        f"--topic={topic}",
        f"--group={topic}",
        f"--kafka-config={settings}",
        f"--state-dir={directory / name}",
        *flags,
    ]


@contextlib.contextmanager
def working(
    directory: Path,
    kafka: Kafka,
    topic: str,
    *flags: str,
    name: str = "worker",
    host: FarHost | None = None,
    **fields: Any,
) -> Iterator[Worker]:
    """Start a worker, wait until it answers, and stop it; see :func:`worker_command`.

    Args:
        host: where it runs; left out, here.
    """
    port, log = free_port(), directory / f"{name}.log"
    flags = (f"--metrics-port={port}", *flags)
    if host is not None:
        flags = (f"--host={host.address}", *flags)
    command = worker_command(directory, kafka, topic, *flags, name=name, **fields)
    with log.open("ab") as output:
        process = subprocess.Popen(
            command if host is None else [*host.command, *command],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(os.environ),
        )
    worker = Worker(process, Ports(0, 0, port), log)
    if host is not None:
        worker.metrics_url = f"http://{host.address}:{port}/metrics"
    with stopped_in_the_end(process):
        wait_until_ready(process, log, lambda: worker.get("/healthz").status == 200)
        with worker.explained():
            yield worker


@contextlib.contextmanager
def restarted_when_it_exits(
    directory: Path, kafka: Kafka, topic: str, *flags: str, name: str, before: str = "pass"
) -> Iterator[list[str]]:
    """A worker under a supervisor, as in production; yields the error of each exit."""
    log = directory / f"{name}.log"
    flags = ("--metrics-port=0", *flags)
    command = worker_command(directory, kafka, topic, *flags, name=name, before=before)
    over, errors = threading.Event(), list[str]()

    def supervise() -> None:
        while not over.is_set():
            with log.open("ab") as output:
                process = subprocess.Popen(
                    command, stdout=output, stderr=subprocess.STDOUT, env=dict(os.environ)
                )
            with stopped_in_the_end(process):
                while process.poll() is None and not over.wait(0.2):
                    pass
            if process.returncode:
                errors.append(log.read_text().splitlines()[-1])

    supervisor = threading.Thread(target=supervise)
    supervisor.start()
    try:
        yield errors
    finally:
        over.set()
        supervisor.join()


def packed(ways: Sequence[Sequence[ExportTraceServiceRequest]]) -> list[list[bytes]]:
    """Requests as they go over the wire."""
    return [
        [gzip.compress(request.SerializeToString(), 1) for request in requests] for requests in ways
    ]


def deal(
    gateways: Sequence[Server], ways: Sequence[Sequence[bytes]], *, pause: float = 0.0
) -> None:
    """Send what is on each way to its gateway, in turns, until all of it was taken.

    Args:
        gateways: they.
        ways: what is sent to each.
        pause: seconds between two turns.
    """
    for bodies in zip_longest(*ways):
        for server, body in zip(gateways, bodies, strict=True):
            if body is not None:
                _send(server, body)
        time.sleep(pause)


class Sending:
    """What is being sent by a thread."""

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread

    def wait(self) -> None:
        """Wait until all of it was taken."""
        self._thread.join(4 * PATIENCE)
        assert not self._thread.is_alive()


@contextlib.contextmanager
def sending(
    gateways: Sequence[Server], ways: Sequence[Sequence[bytes]], *, pause: float
) -> Iterator[Sending]:
    """Send meanwhile; see :func:`deal`."""
    thread = threading.Thread(target=deal, args=(gateways, ways), kwargs={"pause": pause})
    thread.start()
    sent = Sending(thread)
    try:
        yield sent
    finally:
        sent.wait()


def _send(server: Server, body: bytes) -> None:
    until = time.monotonic() + PATIENCE
    while (answer := server.post(body, Content_Encoding="gzip")).status == BUSY:
        assert time.monotonic() < until, answer
        time.sleep(0.1)
    assert answer.status == 200, answer


def records(
    kafka: Kafka, topic: str, runs: int, *, seconds: float = 120.0, **config: Any
) -> dict[str, list[dict[str, Any]]]:
    """All records of a topic by their runs, as soon as none comes after so many runs have some.

    Args:
        kafka: where the topic is.
        topic: of summaries, or of decisions.
        runs: how many have one in the end.
        seconds: give up when nothing has come for so long.
        config: of the consumer, with ``_`` for a dot.
    """
    from confluent_kafka import Consumer, TopicPartition

    fields = {name.replace("_", "."): value for name, value in config.items()}
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.address,
            "group.id": "tests",
            "log_level": 0,
            **fields,
        }
    )
    found: dict[str, list[dict[str, Any]]] = {}
    try:
        known = consumer.list_topics(topic, PATIENCE).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in known])
        last = time.monotonic()
        while len(found) < runs or time.monotonic() - last < 2.0:
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                record = orjson.loads(message.value())
                assert message.key() == record["run"].encode()
                found.setdefault(record["run"], []).append(record)
                last = time.monotonic()
            assert time.monotonic() - last < seconds, f"{len(found)} of {runs} runs in {topic}"
    finally:
        consumer.close()
    return found


def entries(summaries: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """What they say of each run, as ``tidegauge replay`` says it; all of a run say the same."""
    found = {}
    for run, one in summaries.items():
        assert all(other == one[0] for other in one), one
        found[run] = {name: value for name, value in one[0].items() if name not in NOT_OF_THE_ENTRY}
    return found


def create_topics(kafka: Kafka, topic: str, **config: Any) -> str:
    """A topic and those beside it, as the documentation creates them."""
    for name in (f"{topic}.summaries", f"{topic}.decisions", f"{topic}.dead-letters"):
        kafka.create(name, PARTITIONS, **config)
    return kafka.create(topic, PARTITIONS, message_timestamp_type="LogAppendTime", **config)


def steps(*workers: Worker) -> float:
    """How many they have counted together."""
    return sum(worker.value(STEPS) for worker in workers)


def messages(*workers: Worker) -> float:
    """How many they have taken together."""
    return sum(worker.value(catalog.WORKER_MESSAGES.name) for worker in workers)


def holds(worker: Worker, partitions: int) -> None:
    """Wait until a worker has so many partitions."""
    name = catalog.WORKER_PARTITIONS.name
    worker.wait_for(name, lambda found: found == partitions, seconds=4 * PATIENCE)


def wait_for_commits(kafka: Kafka, topic: str, messages: int) -> None:
    """Wait until the workers of a topic have committed so many messages."""
    until = time.monotonic() + 4 * PATIENCE
    while (found := sum(kafka.committed(topic, topic, PARTITIONS).values())) < messages:
        assert time.monotonic() < until, f"{found} of {messages} messages of {topic}"
        time.sleep(0.2)


def halves(ways: list[list[bytes]]) -> tuple[list[list[bytes]], list[list[bytes]]]:
    """What is sent first on each way, and what after that."""
    middle = len(ways[0]) // 2
    return [way[:middle] for way in ways], [way[middle:] for way in ways]

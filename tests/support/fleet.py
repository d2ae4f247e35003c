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

from support.broker import QUICK, Broker
from support.processes import PATIENCE, stopped_in_the_end, wait_until_ready
from support.prometheus import free_port
from support.serve import Ports, Server, serving

COMMAND = (sys.executable, "-c", "from tidegauge.cli.main import main; main()")
BUSY = 503
"""What a sender is answered that is to try again."""

CONFIG = {
    # Tansu answers with what it has found until then: of many small batches, in less, nothing.
    "fetch.wait.max.ms": 100,
    # A worker that was killed is missed after so long.
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 500,
    # Tansu says that a partition ends one after the first record of its last batch, and a
    # changelog is read up to its end: each of its records has to be a batch of its own.
    "batch.num.messages": 1,
}
_READ_AGAIN_SECONDS = 20.0
"""Of records that Tansu has taken, a busy one has skipped some for a consumer."""

NOT_OF_THE_ENTRY = ("type", "version", "outcome", "trace_id", "parent")
"""What a summary says beside what ``tidegauge replay`` does."""


class Worker(Server):
    """A ``tidegauge worker`` that runs: it listens to scrapes, and to nothing else."""


def gateway(
    directory: Path, broker: Broker, topic: str, *flags: str
) -> contextlib.AbstractContextManager[Server]:
    """A ``tidegauge serve`` that sends what it takes to a topic."""
    return serving(directory, f"--kafka={broker.address}", f"--topic={topic}", *flags)


def worker_command(
    directory: Path,
    broker: Broker,
    topic: str,
    *flags: str,
    name: str = "worker",
    config: Mapping[str, object] = CONFIG,
) -> list[str]:
    """How a worker is started.

    Args:
        directory: where its settings are kept, and its state, in a folder of its name.
        broker: where the topic is.
        topic: what it reads, and the name of its group.
        flags: what the command line says beside that.
        name: of its files.
        config: properties of librdkafka.
    """
    settings = directory / f"{name}.toml"
    settings.write_text("".join(f'"{key}" = {json.dumps(one)}\n' for key, one in config.items()))
    return [
        *COMMAND,
        "worker",
        f"--kafka={broker.address}",
        f"--topic={topic}",
        f"--group={topic}",
        f"--kafka-config={settings}",
        f"--state-dir={directory / name}",
        *flags,
    ]


@contextlib.contextmanager
def working(
    directory: Path, broker: Broker, topic: str, *flags: str, name: str = "worker", **fields: Any
) -> Iterator[Worker]:
    """Start a worker, wait until it answers, and stop it; see :func:`worker_command`."""
    port, log = free_port(), directory / f"{name}.log"
    flags = (f"--metrics-port={port}", *flags)
    with log.open("ab") as output:
        process = subprocess.Popen(
            worker_command(directory, broker, topic, *flags, name=name, **fields),
            stdout=output,
            stderr=subprocess.STDOUT,
            env=dict(os.environ),
        )
    worker = Worker(process, Ports(0, 0, port), log)
    with stopped_in_the_end(process):
        wait_until_ready(process, log, lambda: worker.get("/healthz").status == 200)
        with worker.explained():
            yield worker


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
    broker: Broker, topic: str, runs: int, *, seconds: float = 120.0, **config: Any
) -> dict[str, list[dict[str, Any]]]:
    """All records of a topic by their runs, as soon as none comes after so many runs have some.

    Args:
        broker: where the topic is.
        topic: of summaries, or of decisions.
        runs: how many have one in the end.
        seconds: give up when nothing has come for so long.
        config: of the consumer, with ``_`` for a dot.
    """
    from confluent_kafka import Consumer, TopicPartition

    fields = {name.replace("_", "."): value for name, value in config.items()}
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": "tests",
            "log_level": 0,
            **QUICK,
            **fields,
        }
    )
    found: dict[str, list[dict[str, Any]]] = {}
    try:
        known = consumer.list_topics(topic, PATIENCE).topics[topic].partitions
        beginning = [TopicPartition(topic, number, 0) for number in known]
        consumer.assign(beginning)
        last = begun = time.monotonic()
        while len(found) < runs or time.monotonic() - last < 2.0:
            if len(found) < runs and time.monotonic() - max(last, begun) > _READ_AGAIN_SECONDS:
                found.clear()  # the broker has what was acknowledged: read from the beginning
                consumer.assign(beginning)
                begun = time.monotonic()
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

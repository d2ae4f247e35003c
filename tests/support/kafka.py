"""Apache Kafka in KRaft mode: one broker, or a cluster of three, on this machine."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from support.processes import PATIENCE, stopped_in_the_end, wait_until_ready
from support.prometheus import free_port
from support.requirements import missing

__all__ = ["Broker", "Kafka", "connecting", "running_kafka"]

_JARS: Final = Path(__file__).parents[2] / ".kafka"
_JAVA_FLAGS: Final = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_CLUSTER_ID: Final = "dGlkZWdhdWdlLXRlc3RzAA"
_SESSION_MILLISECONDS: Final = 3_000
"""After this long without a heartbeat, a broker is taken for dead."""

_CONFIG: Final = {
    "process.roles": "broker,controller",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "BROKERS",
    "broker.session.timeout.ms": _SESSION_MILLISECONDS,
    "broker.heartbeat.interval.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 8,
    "transaction.state.log.num.partitions": 8,
    "num.network.threads": 2,
    "num.io.threads": 4,
}


class Broker:
    """A broker of a cluster, which is a controller, too.

    Args:
        number: its id, from 1.
        folder: where its log and its settings are.
        host: the address that clients reach it at.
    """

    def __init__(self, number: int, folder: Path, host: str) -> None:
        self.number = number
        self.folder = folder
        self.host = host
        self.ports = {name: free_port() for name in ("CLIENTS", "BROKERS", "CONTROLLER")}
        self.log = folder / "log.txt"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Where clients find it."""
        return f"{self.host}:{self.ports['CLIENTS']}"

    def format(self, peers: Sequence[Broker]) -> subprocess.Popen[bytes]:
        """Start to make its folder ready, once."""
        self.folder.mkdir(parents=True)
        replicas = len(peers)
        listening = {
            name: f"{name}://{self.host if name == 'CLIENTS' else '127.0.0.1'}:{port}"
            for name, port in self.ports.items()
        }
        config = {
            **_CONFIG,
            "node.id": self.number,
            "log.dirs": self.folder / "data",
            "listeners": ",".join(listening.values()),
            "advertised.listeners": f"{listening['CLIENTS']},{listening['BROKERS']}",
            "controller.quorum.voters": ",".join(
                f"{peer.number}@127.0.0.1:{peer.ports['CONTROLLER']}" for peer in peers
            ),
            "default.replication.factor": replicas,
            "min.insync.replicas": max(1, replicas - 1),
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": max(1, replicas - 1),
        }
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in config.items()))
        return self._java("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c")

    def start(self) -> None:
        """Start it, for the first time or again with all that it has written."""
        self.process = self._java("kafka.Kafka")

    def wait(self) -> None:
        """Wait until it answers."""
        assert self.process is not None
        wait_until_ready(self.process, self.log, self._answers, 4 * PATIENCE)

    def stop(self) -> None:
        """Let it end: others become the leaders of its partitions before (SIGTERM)."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(2 * PATIENCE)
        self.process = None

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Nothing is answered until :meth:`resume`, and nothing is lost."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """It goes on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    @property
    def _settings(self) -> Path:
        return self.folder / "server.properties"

    def _java(self, *arguments: str) -> subprocess.Popen[bytes]:
        flags = (*_JAVA_FLAGS, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        with self.log.open("ab") as output:
            return subprocess.Popen(
                [*_command(), *flags, *arguments, str(self._settings)],
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
            return self.number in admin.list_topics(timeout=2.0).brokers
        except KafkaException:
            return False


class Kafka:
    """A cluster that runs.

    Args:
        brokers: its brokers.
    """

    def __init__(self, brokers: Sequence[Broker]) -> None:
        from confluent_kafka.admin import AdminClient

        self.brokers = tuple(brokers)
        self.address = ",".join(broker.address for broker in brokers)
        self._admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def create(
        self, topic: str, partitions: int = 4, *, replicas: int | None = None, **config: str
    ) -> str:
        """A new topic; its name."""
        from confluent_kafka.admin import NewTopic

        fields = {name.replace("_", "."): value for name, value in config.items()}
        new = NewTopic(topic, partitions, replicas or len(self.brokers), config=fields)
        for made in self._admin.create_topics([new]).values():
            made.result(PATIENCE)
        return topic

    def add_partitions(self, topic: str, total: int) -> None:
        """Let a topic have more partitions."""
        from confluent_kafka.admin import NewPartitions

        for made in self._admin.create_partitions([NewPartitions(topic, total)]).values():
            made.result(PATIENCE)

    def topics(self) -> set[str]:
        """The names of all, but for those that the brokers keep for themselves."""
        known = self._admin.list_topics(timeout=PATIENCE).topics
        return {name for name in known if not name.startswith("__")}

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
        consumer = Consumer({"bootstrap.servers": self.address, "group.id": "tests", **fields})
        try:
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

    def committed(self, group: str, topic: str, partitions: int) -> dict[int, int]:
        """The offset of each partition that a group has committed."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.address, "group.id": group})
        try:
            asked = [TopicPartition(topic, number) for number in range(partitions)]
            return {
                one.partition: max(one.offset, 0) for one in consumer.committed(asked, PATIENCE)
            }
        finally:
            consumer.close()

    def leaders(self, topic: str) -> dict[int, int]:
        """The number of the broker that leads each partition."""
        known = self._admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        return {number: one.leader for number, one in known.items()}

    def replicas(self, topic: str) -> dict[int, set[int]]:
        """The numbers of the brokers that have each partition."""
        known = self._admin.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
        return {number: set(one.replicas) for number, one in known.items()}

    def wait_in_sync(self, seconds: float = 4 * PATIENCE) -> None:
        """Wait until every replica of every partition has all that its leader has."""
        until = time.monotonic() + seconds
        while behind := self._behind():
            assert time.monotonic() < until, f"not in sync: {behind}"
            time.sleep(0.2)

    def move(self, topic: str, replicas: Mapping[int, Sequence[int]], folder: Path) -> None:
        """Move partitions to other brokers, and wait until they are there.

        Args:
            topic: the topic.
            replicas: the numbers of the brokers that are to have each partition.
            folder: where the plan is written.
        """
        plan = folder / "plan.json"
        moves = [
            {"topic": topic, "partition": number, "replicas": list(brokers)}
            for number, brokers in replicas.items()
        ]
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))
        command = [
            *(*_command(), "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"),
            *("--bootstrap-server", self.address, "--reassignment-json-file", str(plan)),
        ]
        subprocess.run([*command, "--execute"], check=True, capture_output=True, timeout=60)
        until = time.monotonic() + 4 * PATIENCE
        while self.replicas(topic) != {number: set(one) for number, one in replicas.items()}:
            assert time.monotonic() < until, self.replicas(topic)
            time.sleep(0.2)
        self.wait_in_sync()

    def _behind(self) -> list[tuple[str, int]]:
        topics = self._admin.list_topics(timeout=PATIENCE).topics
        return [
            (name, number)
            for name, topic in topics.items()
            for number, one in topic.partitions.items()
            if set(one.isrs) != set(one.replicas)
        ]

    def wait_for_groups(self) -> None:
        """Wait until there is a coordinator of groups: the first request for one takes seconds."""
        from confluent_kafka import KafkaException

        until = time.monotonic() + 2 * PATIENCE
        while True:
            try:
                self.committed("tests", "any", 1)
            except KafkaException:
                assert time.monotonic() < until, "no coordinator of groups"
                time.sleep(0.2)
            else:
                return

    def pause(self) -> None:
        """Nothing is answered until :meth:`resume`, and nothing is lost."""
        for broker in self.brokers:
            broker.pause()

    def resume(self) -> None:
        """It goes on."""
        for broker in self.brokers:
            broker.resume()


@contextlib.contextmanager
def running_kafka(folder: Path, brokers: int = 1, *, host: str = "127.0.0.1") -> Iterator[Kafka]:
    """Start a cluster, wait until all of it answers, and end it.

    Args:
        folder: where its data is.
        brokers: how many.
        host: the address that clients reach them at.
    """
    each = [Broker(number, folder / f"kafka-{number}", host) for number in range(1, brokers + 1)]
    try:
        for broker, formatting in [(broker, broker.format(each)) for broker in each]:
            assert formatting.wait(2 * PATIENCE) == 0, broker.log.read_text()
        for broker in each:
            broker.start()
        for broker in each:
            broker.wait()
        kafka = Kafka(each)
        kafka.wait_for_groups()
        yield kafka
    finally:
        for broker in each:
            broker.kill()  # nothing has to be kept


@contextlib.contextmanager
def connecting(
    folder: Path, worker: Path, *connectors: Path, changes: Mapping[str, str]
) -> Iterator[None]:
    """Run a standalone worker of Kafka Connect.

    Args:
        folder: where its files are.
        worker: the properties of the worker.
        connectors: those of each connector.
        changes: what a test has instead of parts of the properties.
    """

    def changed(path: Path) -> Path:
        text = path.read_text()
        for old, new in changes.items():
            text = text.replace(old, new)
        file = folder / path.name
        file.write_text(text)
        return file

    files = [changed(path) for path in (worker, *connectors)]
    log = folder / "connect.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*_command(), *_JAVA_FLAGS, "org.apache.kafka.connect.cli.ConnectStandalone", *files],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    with stopped_in_the_end(process):
        try:
            yield
        except BaseException as error:
            error.add_note(log.read_text(errors="replace")[-4_000:])
            raise


def _command() -> tuple[str, ...]:
    """How Java is started: required in CI, elsewhere the test is skipped without it."""
    java = shutil.which("java")
    if java is None or not any(_JARS.glob("kafka_*.jar")):
        missing("Apache Kafka is missing: install Java 17 and Maven, then make .kafka/.ready")
    return java, "-cp", str(_JARS / "*")

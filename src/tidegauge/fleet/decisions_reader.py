"""Reads the whole topic of decisions, and then new records, in a separate thread.

It joins no consumer group and commits nothing: every reader reads the topic from its beginning, so
a restarted process has the same decisions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from tidegauge.errors import ConfigurationError, MissingExtraError
from tidegauge.safety.guard import guarded

try:
    from confluent_kafka import (
        OFFSET_BEGINNING,
        Consumer,
        KafkaError,
        KafkaException,
        Message,
        TopicPartition,
    )
except ImportError as error:
    raise MissingExtraError("confluent_kafka", extra="kafka") from error

from tidegauge.fleet.brokers import ThrottledLog
from tidegauge.fleet.decision_cache import DecisionCache

_PROPERTIES: Final = {
    "group.id": "tidegauge-decisions",  # the library requires one; no group is joined
    "fetch.wait.max.ms": 50,  # some brokers respond after this time, even with data
    "socket.timeout.ms": 10_000,  # leave a broker that no longer responds
    "reconnect.backoff.max.ms": 2_000,
    "log_level": 0,  # logged below, once a minute
}
_FIXED: Final = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
}
_WAIT_SECONDS: Final = 0.2
_LOOK_SECONDS: Final = 1.0
_BATCH: Final = 1_000


class DecisionsReader:
    """Puts every record of a topic into a cache, from its construction until :meth:`stop`.

    If the brokers cannot be reached, it retries forever; the cache does not change meanwhile.

    Args:
        follow_seconds: interval of the search for new partitions.

    Raises:
        ConfigurationError: librdkafka rejects a property.
    """

    def __init__(
        self,
        cache: DecisionCache,
        brokers: str,
        topic: str,
        config: Mapping[str, str | int | float | bool] | None = None,
        *,
        follow_seconds: float = 30.0,
    ) -> None:
        self._cache = cache
        self._topic = topic
        self._follow_seconds = follow_seconds
        self._log = ThrottledLog()
        self.records = 0
        properties: dict[str, Any] = {**_PROPERTIES, **(config or {}), **_FIXED}
        properties |= {"bootstrap.servers": brokers, "error_cb": self._failed}
        try:
            self._consumer = Consumer(properties)
        except KafkaException as error:
            raise ConfigurationError(f"Kafka: {error.args[0].str()}") from error
        self._assigned: set[int] = set()
        self._behind: set[int] | None = None  # partitions not read to their ends yet
        self._caught_up = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidegauge-decisions", daemon=True)
        self._thread.start()

    @property
    def caught_up(self) -> bool:
        """Whether all records were read that existed at the start."""
        return self._caught_up.is_set()

    def wait_until_caught_up(self, seconds: float) -> bool:
        """Wait at most this long to catch up; whether it has."""
        return self._caught_up.wait(seconds)

    def stop(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._follow()
                self._read(self._follow_seconds if self._assigned else _WAIT_SECONDS)
        finally:
            self._consumer.close()

    def _follow(self) -> None:
        """Start reading new partitions, from their beginnings."""
        try:
            topic = self._consumer.list_topics(self._topic, _LOOK_SECONDS).topics[self._topic]
            if topic.error is not None:
                raise KafkaException(topic.error)
            new = set(topic.partitions) - self._assigned
            if new:
                found = [TopicPartition(self._topic, number, OFFSET_BEGINNING) for number in new]
                self._consumer.incremental_assign(found)
        except KafkaException as error:
            self._failed(error.args[0])
            return
        self._assigned |= new
        if self._behind is None:
            self._behind = new

    def _read(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stop.is_set() and time.monotonic() < until:
            try:
                messages = self._consumer.consume(_BATCH, _WAIT_SECONDS)
            except KafkaException as error:
                self._failed(error.args[0])
            else:
                for message in messages:
                    self._take(message)

    @guarded("fleet.decisions", default=None)
    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self.records += 1
            where = f"{self._topic}[{message.partition()}] offset {message.offset()}"
            self._cache.take(message.key(), message.value(), where)
        elif error.code() != KafkaError._PARTITION_EOF:
            self._failed(error)
        elif self._behind is not None and not self._caught_up.is_set():
            self._behind.discard(message.partition())
            if not self._behind:
                self._caught_up.set()

    def _failed(self, error: KafkaError) -> None:
        self._log.log("topic", f"Kafka: cannot read topic {self._topic} now: {error.str()}")

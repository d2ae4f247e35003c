"""Reads the topic of decisions, all of it, and then what comes: a thread of its own.

It belongs to no consumer group and commits nothing: every reader reads everything from the
beginning of what the broker keeps, so that one that was started again knows the same.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from tidegauge._guard import guarded, log
from tidegauge.errors import ConfigurationError, MissingExtraError

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

from tidegauge.fleet.decision_board import DecisionBoard

__all__ = ["DecisionsReader"]

_PROPERTIES: Final = {
    "group.id": "tidegauge-decisions",  # asked for by the library; no group is joined
    "fetch.wait.max.ms": 50,  # some brokers answer after this time, whatever came meanwhile
    "socket.timeout.ms": 10_000,  # a broker that went away without a word is left
    "reconnect.backoff.max.ms": 2_000,
    "log_level": 0,  # told below, once a minute
}
_FIXED: Final = {
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
}
_QUIET_SECONDS: Final = 60.0
_WAIT_SECONDS: Final = 0.2
_LOOK_SECONDS: Final = 1.0
_BATCH: Final = 1_000


class DecisionsReader:
    """Posts every record of a topic to a board, from its making until :meth:`stop`.

    A broker that cannot be reached is tried again for ever; meanwhile what is known stays.

    Args:
        board: where the records go.
        brokers: ``host:port``, several with commas between.
        topic: of the decisions.
        config: further properties of librdkafka, such as those of SASL and TLS.
        follow_seconds: how often it looks for new partitions.

    Attributes:
        records: how many records have come.

    Raises:
        ConfigurationError: librdkafka does not take a property.
    """

    def __init__(
        self,
        board: DecisionBoard,
        brokers: str,
        topic: str,
        config: Mapping[str, str | int | float | bool] | None = None,
        *,
        follow_seconds: float = 30.0,
    ) -> None:
        self._board = board
        self._topic = topic
        self._follow_seconds = follow_seconds
        self._told = float("-inf")
        self.records = 0
        properties: dict[str, Any] = {**_PROPERTIES, **(config or {}), **_FIXED}
        properties |= {"bootstrap.servers": brokers, "error_cb": self._complain}
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
        """Whether everything was read once that was there at the beginning."""
        return self._caught_up.is_set()

    def wait_until_caught_up(self, seconds: float) -> bool:
        """Wait for it, for so many seconds at most; whether it has."""
        return self._caught_up.wait(seconds)

    def stop(self) -> None:
        """Read no more."""
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
        """Take up partitions that are new, from their beginnings."""
        try:
            topic = self._consumer.list_topics(self._topic, _LOOK_SECONDS).topics[self._topic]
            if topic.error is not None:
                raise KafkaException(topic.error)
            new = set(topic.partitions) - self._assigned
            if new:
                found = [TopicPartition(self._topic, number, OFFSET_BEGINNING) for number in new]
                self._consumer.incremental_assign(found)
        except KafkaException as error:
            self._complain(error.args[0])
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
                self._complain(error.args[0])
            else:
                for message in messages:
                    self._take(message)

    @guarded("fleet.decisions", default=None)
    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self.records += 1
            where = f"{self._topic}[{message.partition()}] offset {message.offset()}"
            self._board.post(message.key(), message.value(), where)
        elif error.code() != KafkaError._PARTITION_EOF:
            self._complain(error)
        elif self._behind is not None and not self._caught_up.is_set():
            self._behind.discard(message.partition())
            if not self._behind:
                self._caught_up.set()

    def _complain(self, error: KafkaError) -> None:
        """Log what is wrong with the broker, once a minute."""
        now = time.monotonic()
        if now - self._told >= _QUIET_SECONDS:
            self._told = now
            log(logging.WARNING, "tidegauge: %s cannot be read now: %s", self._topic, error.str())

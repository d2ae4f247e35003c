"""The Quix Streams application of a worker: passes messages, time and rebalances to partitions.

A :class:`Partition` gives changes of its state. Quix Streams stores them in RocksDB and in a
changelog topic, commits them together with the topic's offset, and restores them on the worker that
gets the partition next.
"""

from __future__ import annotations

import functools
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec
from quixstreams import Application
from quixstreams.models import TopicConfig
from quixstreams.sinks import BaseSink
from quixstreams.state.rocksdb import RocksDBStorePartition

from tidegauge.errors import ConfigurationError
from tidegauge.fleet.fleet_messages import MessageError
from tidegauge.fleet.kafka_records import CLOCK_KEY, Message
from tidegauge.fleet.partition import MAX_RECORD_BYTES, Partition, PartitionCounts
from tidegauge.safety.guard import internal_errors


class ConsumedMessage(NamedTuple):
    """A message as it was consumed."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Topics(NamedTuple):
    """The names of the topic that is read, and of those that are written."""

    source: str
    summary: str
    decision: str
    dead_letters: str


class WorkerProducer:
    """Writes with the application's producer: delivered before offsets are committed.

    Attributes:
        dead_letters: number of dead letters by reason.
        produced: number of summaries and decisions.
    """

    def __init__(self, producer: Any, topics: Topics) -> None:
        self.dead_letters: dict[str, int] = {}
        self.produced: dict[str, int] = {}
        self._producer = producer
        self._topics = topics
        self._fault: Exception | None = None

    def produce(self, kind: str, key: str, record: bytes) -> None:
        """Write a summary or a decision."""
        self.produced[kind] = self.produced.get(kind, 0) + 1
        topic = self._topics.summary if kind == "summary" else self._topics.decision
        try:
            self._producer.produce(topic, value=record, key=key.encode())
        except Exception as error:
            # The caller suppresses it, but the offset of a lost record must not be committed.
            if not _too_large(error):
                self._fault = error
            raise

    def dead_letter(self, message: ConsumedMessage, error: MessageError) -> None:
        """Write a message that cannot be processed, unchanged, to the topic of dead letters."""
        self.dead_letters[error.reason] = self.dead_letters.get(error.reason, 0) + 1
        headers = {
            "reason": error.reason,
            "detail": error.detail,
            "topic": self._topics.source,
            "partition": str(message.partition),
            "offset": str(message.offset),
        }
        encoded = [(name, utf8(value)) for name, value in headers.items()]
        topic, key, value = self._topics.dead_letters, message.key, message.value
        try:
            self._producer.produce(topic, value=value, key=key, headers=encoded)
        except KafkaException as fault:
            if not _too_large(fault):
                raise
            self._producer.produce(topic, headers=encoded)  # the message stays in its topic

    def check(self) -> None:
        """Raise the error of a record that was not written, if there is one."""
        if self._fault is not None:
            raise self._fault


def utf8(text: str) -> bytes:
    """Any text in UTF-8, lone surrogates included."""
    return text.encode("utf-8", "surrogatepass")


def _too_large(error: Exception) -> bool:
    return (
        isinstance(error, KafkaException) and error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    )


_TICK_SECONDS: Final = 0.05
_QUIET_SECONDS: Final = 5.0
"""After this long without a message a log has been read to its end, whatever its offsets say: some
offsets are not messages but markers of transactions."""

_FETCH_SECONDS: Final = 2.0
"""Within this time after an assignment, the known ends of logs may be outdated."""

_LIBRDKAFKA_MAX_MESSAGE: Final = 1_000_000_000
_OVERHEAD: Final = 16_384
"""Limit of the bytes that a changelog record adds to its message."""

_POLL_SECONDS: Final = 0.05
_MAX_POLL_MILLISECONDS: Final = 900_000
"""Limit of the time to restore partitions; beyond it, the group removes the worker."""

_SESSION_MILLISECONDS: Final = 10_000
"""After this long without a heartbeat of a worker, the other workers continue its runs."""

_TRANSACTION_SECONDS: Final = 10.0
"""Limit of the wait for transactions of the changelog that are not finished."""

_REQUEST_SECONDS: Final = 10.0

_FETCH_MILLISECONDS: Final = 50
"""How long a broker holds a request for messages if there are none. It answers no other request on
the connection meanwhile, and a restore asks for the ends of two logs for each partition."""

_QUIET: Final = {"log_level": 2}  # librdkafka writes its log to standard error
_NEWEST_OF_A_RUN: Final = {"cleanup.policy": "compact,delete"}


class _Sink(BaseSink):
    """Gets the messages from Quix Streams, and a call before every commit."""

    def __init__(self, application: FleetApplication) -> None:
        super().__init__(on_client_connect_success=lambda: None)
        self._application = application

    def add(  # noqa: PLR0917 -- as the base class has it
        self,
        value: Any,
        key: Any,
        timestamp: int,
        headers: Any,
        topic: str,
        partition: int,
        offset: int,
    ) -> None:
        self._application.take(ConsumedMessage(partition, offset, key, value), timestamp / 1000)

    def flush(self) -> None:
        self._application.save()


class FleetApplication(Application):
    """Runs in the main thread, until SIGTERM or Ctrl-C.

    Args:
        topic: the topic to read; ``.summaries``, ``.decisions`` and ``.dead-letters`` are written.
        exactly_once: write output in the transaction that commits its input.
        convert: makes the value of a gateway's message of a message's key and value; left out,
            gateways have written the messages. It may raise MessageError.

    Attributes:
        max_message: limit of the bytes of a message.
        output: writes summaries, decisions and dead letters.
        restored_runs: number of live runs restored from them.
        restore_seconds: duration of the last restore, from the assignment on.
        beat: time of the last iteration of the main loop, on the monotonic clock.
    """

    def __init__(
        self,
        brokers: str,
        topic: str,
        group: str,
        *,
        state_dir: Path,
        make_partition: Callable[[Callable[[Message, str], None]], Partition],
        commit_seconds: float = 1.0,
        exactly_once: bool = False,
        config: Mapping[str, Any] | None = None,
        convert: Callable[[bytes | None, bytes | None], bytes] | None = None,
    ) -> None:
        self._convert = convert
        self.max_message = int((config or {}).get("message.max.bytes", MAX_RECORD_BYTES))
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)  # what messages say is in it
        super().__init__(
            brokers,
            consumer_group=group,
            state_dir=state_dir,
            auto_offset_reset="earliest",
            commit_interval=commit_seconds,
            consumer_poll_timeout=_POLL_SECONDS,
            processing_guarantee="exactly-once" if exactly_once else "at-least-once",
            consumer_extra_config={
                **_QUIET,
                "max.poll.interval.ms": _MAX_POLL_MILLISECONDS,
                "session.timeout.ms": _SESSION_MILLISECONDS,
                "fetch.wait.max.ms": _FETCH_MILLISECONDS,
                **(config or {}),
            },
            producer_extra_config={
                **_QUIET,
                "linger.ms": 5,
                **(config or {}),
                "message.max.bytes": min(self.max_message + _OVERHEAD, _LIBRDKAFKA_MAX_MESSAGE),
            },
            loglevel=None,
        )
        self.partitions: dict[int, Partition] = {}
        self._revoked_counts = PartitionCounts()  # of partitions that are no longer assigned
        self._counting = threading.Lock()  # moves counts between the two at once
        self.restored_runs = 0
        self.restore_seconds: float | None = None
        self.beat = time.monotonic()
        self._make_partition = make_partition
        self._assigned = False
        self._assigned_at: float | None = None
        self._unsure: set[int] = set()  # held before; another worker may have changed them
        self._starts: dict[int, int] = {}  # committed offsets by partition
        self._revoked = False
        self._arrived_at = self._known_at = self.beat
        self._next_tick = 0.0
        source = self.topic(topic, value_deserializer="bytes", key_deserializer="bytes")
        self._source = source.name
        topics = Topics(
            source.name,
            summary=self._output_topic(source, "summaries", _NEWEST_OF_A_RUN),
            decision=self._output_topic(source, "decisions", _NEWEST_OF_A_RUN),
            dead_letters=self._output_topic(source, "dead-letters", {}),
        )
        self.output = WorkerProducer(self._producer, topics)
        stream = self.dataframe(source)
        stream.register_store()
        stream.sink(_Sink(self))
        self._stream_id = stream.stream_id
        self._dataframe_registry.register_periodic_task(self._tick)

    @property
    def ready(self) -> bool:
        """Whether it has its partitions, possibly none, and has restored them."""
        return self._assigned and not self.restoring

    @property
    def restoring(self) -> bool:
        """Whether it restores its partitions."""
        return self._assigned_at is not None or self._recovering

    @property
    def counts(self) -> PartitionCounts:
        """Counts of all partitions that were ever assigned."""
        with self._counting:
            held = [one.counts for one in self.partitions.values()]
            return functools.reduce(PartitionCounts.plus, held, self._revoked_counts)

    @property
    def lag(self) -> int:
        """The number of messages to process in the assigned partitions, as far as known."""
        return sum([self._behind(number) or 0 for number in tuple(self.partitions)])

    def take(self, message: ConsumedMessage, sent: float) -> None:
        """Process a message that was sent at a time in seconds since the epoch."""
        self._arrived_at = time.monotonic()
        partition = self._partition(message.partition)
        if len(message.value or b"") > self.max_message:
            partition.position = message.offset + 1
            self._reject(message, f"larger than {self.max_message} bytes")
            return
        try:
            # A sender's clock that is ahead must not make time pass for other runs.
            now = min(sent, time.time())
            value = message.value
            if self._convert is not None:
                partition.position = message.offset + 1
                value = self._convert(message.key, value)
            partition.take(message.offset, message.key, value, now)
        except MessageError as error:
            self.output.dead_letter(message, error)
        except Exception as error:  # noqa: BLE001 -- one message must not stop the others
            internal_errors.record("fleet.take", error)
            self._reject(message, f"internal error: {error!r}")

    def save(self) -> None:
        """Write the changes of all partitions to the checkpoint."""
        self.output.check()
        for number, partition in self.partitions.items():
            self._save(number, partition)

    def _output_topic(self, source: Any, suffix: str, config: dict[str, str]) -> str:
        like = source.broker_config
        retention = {
            name: value
            for name, value in like.extra_config.items()
            if name in ("retention.ms", "retention.bytes")
        }
        made = TopicConfig(like.num_partitions, like.replication_factor, {**retention, **config})
        return str(self.topic(f"{source.name}.{suffix}", config=made).name)

    @property
    def _recovering(self) -> bool:
        return bool(self._state_manager.recovery_required)

    def _tick(self) -> None:
        """Let time pass where the log has been read to its end; elsewhere, the log gives it."""
        now = self.beat = time.monotonic()
        if now < self._next_tick or self._recovering:
            return
        self._next_tick = now + _TICK_SECONDS
        quiet = now - self._arrived_at > _QUIET_SECONDS
        store = self._state_manager.get_store(self._stream_id)
        for number in tuple(store.partitions):
            partition = self._partition(number)
            behind = None if now < self._known_at else self._behind(number)
            if behind == 0 or (quiet and behind is not None):
                partition.tick(time.time())
                self._save(number, partition)
        if self._assigned_at is not None:
            self.restore_seconds = time.monotonic() - self._assigned_at
            self._assigned_at = None
            self._arrived_at = time.monotonic()
            self._known_at = self._arrived_at + _FETCH_SECONDS

    def _behind(self, number: int) -> int | None:
        """The number of messages to process in a partition; ``None``: unknown."""
        place = TopicPartition(self._source, number)
        _, end = self._consumer.get_watermark_offsets(place, cached=True)
        partition = self.partitions.get(number)
        return None if partition is None or end < 0 else max(0, end - partition.position)

    def _partition(self, number: int) -> Partition:
        partition = self.partitions.get(number)
        if partition is not None and number not in self._unsure:
            return partition
        store = self._state_manager.get_store(self._stream_id).partitions[number]
        assert isinstance(store, RocksDBStorePartition)  # noqa: S101 -- for the type checker
        self._unsure.discard(number)
        if partition is not None:
            clock = store.get(CLOCK_KEY)
            if not partition.is_current(clock if isinstance(clock, bytes) else None):
                self._drop(number, partition)
                partition = None
        if partition is None:
            partition = self._make_partition(functools.partial(self._reject_later, number))
            try:
                partition.restore(store.iter_items(lower_bound=b""))
            except ValueError as error:
                raise ConfigurationError(
                    f"state of partition {number} in {self.config.state_dir}: {error}; start the "
                    "release that has written it, or use another group"
                ) from error
            partition.position = max(partition.position, self._starts.get(number, 0))
            self.restored_runs += len(partition)
            self.partitions[number] = partition
        return partition

    def _reject(self, message: ConsumedMessage, why: str) -> None:
        self.output.dead_letter(message, MessageError("invalid", why))

    def _reject_later(self, number: int, message: Message, why: str) -> None:
        """A message that was processed turns out to be invalid."""
        key, value = utf8(message.run), message.value
        self._reject(ConsumedMessage(number, message.offset, key, value), why)

    def _save(self, number: int, partition: Partition) -> None:
        changes = partition.changes()
        if not changes:
            return
        store = self._processing_context.checkpoint.get_store_transaction(
            stream_id=self._stream_id, partition=number
        )
        for key, value in changes.items():
            if value is None:
                store.delete(key, prefix=b"")
            else:
                store.set_bytes(key, value, prefix=b"")

    def _on_assign(self, consumer: Any, places: list[TopicPartition]) -> None:
        self._assigned = True
        if places or self._revoked:
            self._revoked = False
            self._assigned_at = time.monotonic()
            self._known_at = math.inf
            self._wait_for_transactions([one for one in places if one.topic != self._source])
            super()._on_assign(consumer, places)
            self._drop_but([place for place in places if place.topic == self._source])

    def _wait_for_transactions(self, changelog: list[TopicPartition]) -> None:
        """Wait until all records of these partitions of the changelog are readable.

        A transaction is committed before its markers are in every partition. Until then, readers
        of committed records see an earlier end of the changelog than the state on disk has, and
        Quix Streams would exit. A worker that died may have left a transaction open: do not wait
        for its end.
        """
        until = time.monotonic() + _TRANSACTION_SECONDS
        while self.config.exactly_once and self._has_open_transactions(changelog):
            if time.monotonic() > until:
                break
            time.sleep(_POLL_SECONDS)

    def _has_open_transactions(self, places: list[TopicPartition]) -> bool:
        admin = self._topic_manager._admin.admin_client
        asked = {TopicPartition(one.topic, one.partition): OffsetSpec.latest() for one in places}
        levels = (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED)
        try:
            committed, all_records = (
                [
                    found.result().offset
                    for found in admin.list_offsets(
                        asked, isolation_level=level, request_timeout=_REQUEST_SECONDS
                    ).values()
                ]
                for level in levels
            )
        except KafkaException:  # such as a partition without a leader
            return True
        return committed != all_records

    def _on_revoke(self, consumer: Any, places: list[TopicPartition]) -> None:
        self._revoked = True
        if not self._failed:
            self.save()
        super()._on_revoke(consumer, places)

    def _on_lost(self, consumer: Any, places: list[TopicPartition]) -> None:
        self._revoked = True
        self._drop_but([])
        super()._on_lost(consumer, places)
        # Other workers continue from the last commit, so later changes must not be written.
        self._processing_context.checkpoint.close(revoking=True)
        self._processing_context.init_checkpoint()  # type: ignore[no-untyped-call]

    def _drop_but(self, assigned: Iterable[TopicPartition]) -> None:
        """Keep the assigned partitions, unless another worker has continued them meanwhile."""
        places = list(assigned)
        committed = self._consumer.committed(places, timeout=30) if places else []
        self._starts = {place.partition: place.offset for place in committed}
        for number, partition in tuple(self.partitions.items()):
            if self._starts.get(number) != partition.position:
                self._drop(number, partition)
        self._unsure = set(self.partitions)

    def _drop(self, number: int, partition: Partition) -> None:
        partition.drop()
        with self._counting:
            self._revoked_counts = self._revoked_counts.plus(partition.counts)
            del self.partitions[number]

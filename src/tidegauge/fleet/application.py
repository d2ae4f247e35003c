"""Quix Streams' application around partitions: messages, time, rebalances reach them here.

A :class:`Partition` says what is to be kept. Quix Streams keeps it in RocksDB and in a changelog,
commits that together with the place up to which the topic was read, and hands it to whichever
worker has the partition next.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from confluent_kafka import TopicPartition
from quixstreams import Application
from quixstreams.models import TopicConfig
from quixstreams.sinks import BaseSink
from quixstreams.state.rocksdb import RocksDBStorePartition

from tidegauge._guard import internal_errors
from tidegauge.errors import ConfigurationError
from tidegauge.fleet.kept_record import CLOCK_KEY
from tidegauge.fleet.message import Message, UnreadableError
from tidegauge.fleet.outlet import Letter, Outlet, Topics, utf8
from tidegauge.fleet.partition import Partition, PartitionCounts

__all__ = ["FleetApplication"]

_TICK_SECONDS: Final = 0.05
_QUIET_SECONDS: Final = 5.0
"""After so long without any message a log has been read to its end, whatever its offsets say: some
of them may be no messages, as the marks of transactions."""

_FETCH_SECONDS: Final = 2.0
"""After an assignment, until then, what is known of the ends of logs may be from long before it."""

_MAX_MESSAGE: Final = 1_000_000
_MOST: Final = 1_000_000_000  # that librdkafka takes
_AROUND: Final = 16_384
"""Bytes that a message is kept with, at most."""

_POLL_SECONDS: Final = 0.05
_MAX_POLL_MILLISECONDS: Final = 900_000
"""So long the past of a worker's partitions may take before the group gives it up."""

_SESSION_MILLISECONDS: Final = 10_000
"""After so long without a sign of life of a worker the others go on with its runs."""

_QUIET: Final = {"log_level": 2}  # of librdkafka, which writes to standard error by itself
_NEWEST_OF_A_RUN: Final = {"cleanup.policy": "compact,delete"}


class _Into(BaseSink):
    """Where Quix Streams puts messages, and what it asks to be ready before it commits."""

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
        self._application.take(Letter(partition, offset, key, value), timestamp / 1000)

    def flush(self) -> None:
        self._application.save()


class FleetApplication(Application):
    """Runs in the main thread, until SIGTERM or Ctrl-C.

    Args:
        brokers: addresses of some of the brokers.
        topic: what is read; ``.summaries``, ``.decisions`` and ``.dead-letters`` are written.
        group: the workers that share the topic.
        state_dir: where state is kept.
        make_partition: makes a partition that nothing is known of.
        commit_seconds: how often what was done is made to last.
        exactly_once: write what is told in the transaction that commits what it follows from.
        config: properties of the clients.

    Attributes:
        partitions: those that are held.
        outlet: what was told, and what could not be taken.
        restored_messages: how many kept messages were gone through again.
        restored_runs: how many live runs came out of them.
        restore_seconds: how long it took the last time, from the assignment on.
        beat: when the loop went round last, on the monotonic clock.
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
    ) -> None:
        self._largest = int((config or {}).get("message.max.bytes", _MAX_MESSAGE))
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
                **(config or {}),
            },
            producer_extra_config={
                **_QUIET,
                "linger.ms": 5,
                **(config or {}),
                "message.max.bytes": min(self._largest + _AROUND, _MOST),
            },
            loglevel=None,
        )
        self.partitions: dict[int, Partition] = {}
        self._gone = PartitionCounts()  # of partitions that are not held any more
        self._counting = threading.Lock()  # a partition is held, or gone, for those who count
        self.restored_messages = 0
        self.restored_runs = 0
        self.restore_seconds: float | None = None
        self.beat = time.monotonic()
        self._make_partition = make_partition
        self._assigned = False
        self._assigned_at: float | None = None
        self._unsure: set[int] = set()  # what was held before, and somebody may have changed
        self._starts: dict[int, int] = {}  # where the partitions were gone on with
        self._revoked = False
        self._came = 0
        self._came_at = self._known_at = self.beat
        self._next_tick = 0.0
        source = self.topic(topic, value_deserializer="bytes", key_deserializer="bytes")
        self._source = source.name
        topics = Topics(
            source.name,
            summary=self._written(source, "summaries", _NEWEST_OF_A_RUN),
            decision=self._written(source, "decisions", _NEWEST_OF_A_RUN),
            dead_letters=self._written(source, "dead-letters", {}),
        )
        self.outlet = Outlet(self._producer, topics)
        stream = self.dataframe(source)
        stream.register_store()
        stream.sink(_Into(self))
        self._stream_id = stream.stream_id
        self._dataframe_registry.register_periodic_task(self._tick)

    @property
    def ready(self) -> bool:
        """Whether it has its share of the partitions, which may be none, and knows their past."""
        return self._assigned and not self.restoring

    @property
    def restoring(self) -> bool:
        """Whether it gathers the past of its partitions."""
        return self._assigned_at is not None or self._recovering

    @property
    def counts(self) -> PartitionCounts:
        """What came, in all partitions that were held."""
        with self._counting:
            return sum([one.counts for one in self.partitions.values()], self._gone)

    @property
    def lag(self) -> int:
        """How many messages of the partitions that are held were not taken yet, as far as known."""
        return sum([self._behind(number) or 0 for number in tuple(self.partitions)])

    def take(self, letter: Letter, sent: float) -> None:
        """Take a message that was sent at a time in seconds since the epoch."""
        self._came += 1
        self._came_at = time.monotonic()
        partition = self._partition(letter.partition)
        if len(letter.value or b"") > self._largest:
            partition.position = letter.offset + 1
            self.outlet.bury(letter, "invalid", f"larger than {self._largest} bytes")
            return
        try:
            # A clock that is ahead must not make time pass for the others.
            now = min(sent, time.time())
            partition.take(letter.offset, letter.key, letter.value, now)
        except UnreadableError as error:
            self.outlet.bury(letter, error.reason, error.detail)
        except Exception as error:  # noqa: BLE001 -- one message must not stop the others
            internal_errors.record("fleet.take", error)
            self.outlet.bury(letter, "invalid", f"a fault of ours: {error!r}")

    def save(self) -> None:
        """Hand what is to be kept to the checkpoint."""
        self.outlet.check()
        for number, partition in self.partitions.items():
            self._save(number, partition)

    def _written(self, source: Any, suffix: str, config: dict[str, str]) -> str:
        told = source.broker_config
        kept = {
            name: value
            for name, value in told.extra_config.items()
            if name in ("retention.ms", "retention.bytes")
        }
        made = TopicConfig(told.num_partitions, told.replication_factor, {**kept, **config})
        return str(self.topic(f"{source.name}.{suffix}", config=made).name)

    @property
    def _recovering(self) -> bool:
        return bool(self._state_manager.recovery_required)

    def _tick(self) -> None:
        """Time passes in partitions whose log has been read to its end: elsewhere the log tells."""
        now = self.beat = time.monotonic()
        if now < self._next_tick or self._recovering:
            return
        self._next_tick = now + _TICK_SECONDS
        quiet = now - self._came_at > _QUIET_SECONDS
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
            self._came_at = time.monotonic()
            self._known_at = self._came_at + _FETCH_SECONDS

    def _behind(self, number: int) -> int | None:
        """How many messages of a partition were not taken yet; ``None``, nobody has said."""
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
            if not partition.stands_where(clock if isinstance(clock, bytes) else None):
                self._drop(number, partition)
                partition = None
        if partition is None:
            partition = self._make_partition(partial(self._refuse, number))
            try:
                self.restored_messages += partition.restore(store.iter_items(lower_bound=b""))
            except ValueError as error:
                raise ConfigurationError(
                    f"state of partition {number} in {self.config.state_dir}: {error}; start the "
                    "version that has written it, or another group"
                ) from error
            partition.position = max(partition.position, self._starts.get(number, 0))
            self.restored_runs += len(partition)
            self.partitions[number] = partition
        return partition

    def _refuse(self, number: int, message: Message, why: str) -> None:
        """A message that was taken turns out to be of no use."""
        letter = Letter(number, message.offset, utf8(message.run), message.value)
        self.outlet.bury(letter, "invalid", why)

    def _save(self, number: int, partition: Partition) -> None:
        changes = partition.changes()
        if not changes:
            return
        kept = self._processing_context.checkpoint.get_store_transaction(
            stream_id=self._stream_id, partition=number
        )
        for key, value in changes.items():
            if value is None:
                kept.delete(key, prefix=b"")
            else:
                kept.set_bytes(key, value, prefix=b"")

    def _on_assign(self, consumer: Any, places: list[TopicPartition]) -> None:
        self._assigned = True
        if places or self._revoked:
            self._revoked = False
            self._assigned_at = time.monotonic()
            self._known_at = math.inf
            super()._on_assign(consumer, places)
            self._drop_but([place for place in places if place.topic == self._source])

    def _on_revoke(self, consumer: Any, places: list[TopicPartition]) -> None:
        self._revoked = True
        if not self._failed:
            self.save()
        super()._on_revoke(consumer, places)

    def _on_lost(self, consumer: Any, places: list[TopicPartition]) -> None:
        self._revoked = True
        self._drop_but([])
        super()._on_lost(consumer, places)
        # Others go on from what was committed: what was done since is theirs, and not to be kept.
        self._processing_context.checkpoint.close(revoking=True)
        self._processing_context.init_checkpoint()  # type: ignore[no-untyped-call]

    def _drop_but(self, assigned: Iterable[TopicPartition]) -> None:
        """Go on with the partitions that have stayed, if nobody else has gone on with them."""
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
            self._gone += partition.counts
            del self.partitions[number]

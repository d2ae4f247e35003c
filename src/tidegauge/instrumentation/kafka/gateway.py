"""Spans to a topic: a message for each trace of a request, delivered in the background.

What was taken is kept until the brokers have it. While they cannot be reached the queue fills up;
then senders wait for a second, and are told to try again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from tidegauge import catalog
from tidegauge._guard import guarded
from tidegauge.catalog import MetricDefinition
from tidegauge.instrumentation.kafka.brokers import (
    Complaints,
    check_topic,
    client_config,
    failure,
    new_producer,
)
from tidegauge.instrumentation.kafka.messages import message
from tidegauge.instrumentation.kafka.written import Shown, written_span
from tidegauge.instrumentation.spans.span import SpanData

__all__ = ["Gateway", "GatewayCounts", "GatewaySettings"]

_logger = logging.getLogger("tidegauge")
_POLL_SECONDS: Final = 0.1
_PURGE_SECONDS: Final = 2.0
_MAX_MESSAGE: Final = 1_000_000
_UNBOUNDED: Final = (1 << 31) - 1
_AROUND: Final = 512
"""Bytes of a message that are no span, and what the protocol adds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """What a gateway is made from.

    Args:
        brokers: addresses of some of the brokers, ``host:port`` with commas between.
        topic: takes the messages; it is not created.
        shown: gives contents the form in which they are written.
        digests: the same, for a span that is too large for a message.
        config: more properties of librdkafka, for security or other limits.
        queue_bytes: of messages that wait to be delivered.
        queue_messages: how many may wait.
        patience: seconds that a sender waits for room.
        start_seconds: how long to try to reach the brokers at the start.
    """

    brokers: str
    topic: str
    shown: Shown
    digests: Shown
    config: Mapping[str, Any] = field(default_factory=dict)
    queue_bytes: int = 64 * 1024 * 1024
    queue_messages: int = 100_000
    patience: float = 1.0
    start_seconds: float = 10.0


@dataclass(slots=True)
class GatewayCounts:
    """What became of the messages.

    Args:
        messages: that were delivered.
        spans: in these.
        failed: messages that were given up, by reason.
        failed_spans: spans in these.
    """

    messages: int = 0
    spans: int = 0
    failed: dict[str, int] = field(default_factory=dict)
    failed_spans: int = 0


class _Message(NamedTuple):
    key: str
    value: bytes
    spans: int


class Gateway:
    """Delivers from its making on, until :meth:`close`.

    Args:
        settings: what it is made from.

    Raises:
        ConfigurationError: a property is not known, the brokers refuse who asks, or there is no
            such topic.
        MissingExtraError: confluent-kafka is not installed.
        OSError: the brokers cannot be reached.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._complaints = Complaints()
        config = client_config(
            settings.brokers,
            settings.config,
            self._complaints,
            enable_idempotence=True,  # a message that is tried again is there once
            acks="all",
            linger_ms=5,
            compression_type="lz4",
            message_timeout_ms=0,  # what was taken is tried until it is delivered
            message_max_bytes=_MAX_MESSAGE,
            # Our own bounds hold: one request may be larger than they are.
            queue_buffering_max_messages=0,
            queue_buffering_max_kbytes=_UNBOUNDED,
        )
        self._producer = new_producer(config)
        self._most = max(1, int(config["message.max.bytes"]) - _AROUND)
        self._changed = threading.Condition()
        self._counts = GatewayCounts()
        self._waiting = 0
        self._waiting_bytes = 0
        self._closing = False
        self._closed = False
        check_topic(
            self._producer,
            settings.brokers,
            settings.topic,
            self._complaints,
            settings.start_seconds,
        )
        self._thread = threading.Thread(target=self._work, name="tidegauge-gateway", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether spans are taken, and somebody delivers them."""
        return self._thread.is_alive() and not self._closing and self._complaints.fatal is None

    @property
    def waiting(self) -> int:
        """How many messages wait to be delivered."""
        return self._waiting

    @property
    def counts(self) -> GatewayCounts:
        """What became of the messages, so far."""
        with self._changed:
            told = self._counts
            return GatewayCounts(told.messages, told.spans, dict(told.failed), told.failed_spans)

    def offer(self, spans: Sequence[SpanData], size: int = 0) -> bool:
        """Queue these spans, all or none; ``False``, there was no room for them in time.

        More at once than may ever wait are taken when nothing waits, or they never would be.

        Args:
            spans: what has arrived together.
            size: bytes of the request that they came in; what counts here are those of the
                messages.
        """
        if not spans:
            return True
        messages = list(self._messages(spans))
        count, size = len(messages), sum([len(each.value) for each in messages])
        with self._changed:
            has_room = self._changed.wait_for(
                lambda: not self.alive or self._has_room(count, size), self._settings.patience
            )
            if not has_room or not self.alive:
                return False
            self._waiting += count
            self._waiting_bytes += size
        for number, each in enumerate(messages):
            if not self._produce(each):
                with self._changed:
                    self._release(messages[number:])
                return False
        return True

    def close(self, timeout: float | None = None) -> bool:
        """Take no more, and deliver what waits.

        Args:
            timeout: seconds to wait for that; left out, as long as it takes.

        Returns:
            Whether all of it was delivered in time; what was not is counted and logged.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._waiting or self._complaints.fatal, timeout)
            left, lost = self._waiting, self._counts.failed_spans
        if left:
            self._complaints.quiet = True  # one line says it
            self._producer.purge()
            with self._changed:
                self._changed.wait_for(lambda: not self._waiting, _PURGE_SECONDS)
                lost = self._counts.failed_spans - lost
            _logger.error(
                "Kafka: %d messages with %d spans could not be delivered before the end", left, lost
            )
        self._closed = True
        self._thread.join(_PURGE_SECONDS)
        return not left

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float]]:
        """Its health, as the catalogue's metrics."""
        counts, failed = self.counts, catalog.GATEWAY_FAILED_MESSAGES
        return {
            catalog.GATEWAY_MESSAGES: {(): counts.messages},
            failed: {(reason,): counts.failed.get(reason, 0) for reason in failed.values},
            catalog.GATEWAY_QUEUED_MESSAGES: {(): self._waiting},
        }

    def _messages(self, spans: Sequence[SpanData]) -> Iterator[_Message]:
        """The messages that tell these spans: one a trace, more where it would be too large."""
        traces: dict[int, list[bytes]] = {}
        for span in spans:
            written = self._written(span)
            if written is not None:
                traces.setdefault(span.trace_id, []).append(written)
        for trace_id, of_trace in traces.items():
            batch: list[bytes] = []
            room = self._most
            for written in of_trace:
                room -= len(written) + 1
                if room < 0 and batch:
                    yield _message(trace_id, batch)
                    batch, room = [], self._most - len(written) - 1
                batch.append(written)
            yield _message(trace_id, batch)

    @guarded("kafka.gateway", default=None)
    def _written(self, span: SpanData) -> bytes | None:
        written = written_span(span, self._settings.shown)
        if len(written) > self._most:
            written = written_span(span, self._settings.digests)
        return written

    def _has_room(self, count: int, size: int) -> bool:
        if not self._waiting:
            return True
        settings = self._settings
        return (
            self._waiting + count <= settings.queue_messages
            and self._waiting_bytes + size <= settings.queue_bytes
        )

    def _produce(self, told: _Message) -> bool:
        """Hand a message over; ``False``, bounds that the user has set are reached."""
        from confluent_kafka import KafkaException

        done = partial(self._done, told)
        try:
            self._producer.produce(self._settings.topic, told.value, told.key, on_delivery=done)
        except BufferError:
            return False
        except KafkaException as error:
            done(error.args[0])
        return True

    def _done(self, told: _Message, error: Any, _: object = None) -> None:
        """A message was delivered, or never will be."""
        with self._changed:
            counts = self._counts
            if error is None:
                counts.messages += 1
                counts.spans += told.spans
            else:
                reason = failure(error)
                counts.failed[reason] = counts.failed.get(reason, 0) + 1
                counts.failed_spans += told.spans
            self._release([told])
        if error is not None:
            self._complaints.log(reason, f"Kafka: a message was not delivered: {error.str()}")

    def _release(self, told: Sequence[_Message]) -> None:
        self._waiting -= len(told)
        self._waiting_bytes -= sum([len(each.value) for each in told])
        self._changed.notify_all()

    def _work(self) -> None:
        """Hear what became of the messages."""
        while not self._closed:
            self._producer.poll(_POLL_SECONDS)


def _message(trace_id: int, written: Sequence[bytes]) -> _Message:
    return _Message(f"{trace_id:032x}", message(trace_id, written), len(written))

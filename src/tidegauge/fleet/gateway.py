"""The gateway of a fleet: writes received spans to a topic, a message per trace and request.

Messages are delivered in the background, and kept until the brokers have acknowledged them. While
the brokers are unreachable, the queue fills up; then senders wait for a second and are asked to try
again.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from tidegauge import catalog
from tidegauge.catalog import MetricDefinition
from tidegauge.fleet.brokers import (
    BrokerErrors,
    check_topic,
    client_config,
    failure,
    new_producer,
)
from tidegauge.fleet.fleet_messages import MessageError, encode_span, encode_spans, spans_message
from tidegauge.foreign_spans.span import SpanData
from tidegauge.receivers.decoding import MalformedRequestError, decode_protobuf
from tidegauge.recordings.encoding import ContentEncoder
from tidegauge.safety.guard import guarded

_POLL_SECONDS: Final = 0.1
_PURGE_SECONDS: Final = 2.0
_MAX_MESSAGE: Final = 1_000_000
_UNBOUNDED: Final = (1 << 31) - 1
_OVERHEAD: Final = 512
"""Bytes that a message and the protocol add to its spans."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewaySettings:
    """Settings of a gateway.

    Args:
        brokers: addresses of some of the brokers, ``host:port``, separated by commas.
        topic: the topic of the messages, which must exist.
        digests: encodes the contents of a span that is too large for a message.
        config: more properties of librdkafka, for security or other limits.
        queue_bytes: limit of the size of the waiting messages.
        queue_messages: limit of the number of waiting messages.
        max_wait: seconds that a sender waits for room.
        start_seconds: how long to try to reach the brokers at the start.
    """

    brokers: str
    topic: str
    encoder: ContentEncoder
    digests: ContentEncoder
    config: Mapping[str, Any] = field(default_factory=dict)
    queue_bytes: int = 64 * 1024 * 1024
    queue_messages: int = 100_000
    max_wait: float = 1.0
    start_seconds: float = 10.0


class _Message(NamedTuple):
    key: str
    value: bytes
    spans: int


class Gateway:
    """Delivers messages from its construction until :meth:`close`.

    Attributes:
        messages: number of delivered messages.
        failed: number of messages that could not be delivered, by reason.

    Raises:
        ConfigurationError: a property is unknown, the brokers reject the credentials, or the topic
            does not exist.
        MissingExtraError: confluent-kafka is not installed.
        OSError: the brokers cannot be reached.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._errors = BrokerErrors()
        config = client_config(
            settings.brokers,
            settings.config,
            self._errors,
            enable_idempotence=True,  # a retried message is stored once
            acks="all",
            linger_ms=5,
            compression_type="lz4",
            message_timeout_ms=0,  # retry until it is delivered
            message_max_bytes=_MAX_MESSAGE,
            # The gateway has its own limits, which a single request may exceed.
            queue_buffering_max_messages=0,
            queue_buffering_max_kbytes=_UNBOUNDED,
        )
        self._producer = new_producer(config)
        self._most = max(1, int(config["message.max.bytes"]) - _OVERHEAD)
        self._changed = threading.Condition()
        self.messages = self.spans = self.failed_spans = 0
        self.failed: Counter[str] = Counter()
        self._waiting = 0
        self._waiting_bytes = 0
        self._closing = False
        self._closed = False
        check_topic(
            self._producer,
            settings.brokers,
            settings.topic,
            self._errors,
            settings.start_seconds,
        )
        self._thread = threading.Thread(target=self._work, name="tidegauge-gateway", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether the gateway accepts spans and delivers messages."""
        return self._thread.is_alive() and not self._closing and self._errors.fatal is None

    @property
    def waiting(self) -> int:
        """The number of messages that wait to be delivered."""
        return self._waiting

    def offer(self, spans: Sequence[SpanData], size: int = 0) -> bool:
        """Queue the spans of a request; ``False``: there was no room in time.

        A batch beyond the limits is accepted when the queue is empty; otherwise it never would be.
        The size of the request does not matter, because the limits are for messages.
        """
        if not spans:
            return True
        messages = list(self._messages(spans))
        count, size = len(messages), sum([len(each.value) for each in messages])
        with self._changed:
            has_room = self._changed.wait_for(
                lambda: not self.alive or self._has_room(count, size), self._settings.max_wait
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

    def close(self, timeout: float | None = None) -> list[str]:
        """Accept no more spans, and deliver the waiting messages in time.

        Others are counted.

        Returns:
            How many were lost, in words.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._waiting or self._errors.fatal, timeout)
            left, lost = self._waiting, self.failed_spans
        if left:
            self._errors.quiet = True  # what is returned is enough
            self._producer.purge()
            with self._changed:
                self._changed.wait_for(lambda: not self._waiting, _PURGE_SECONDS)
                lost = self.failed_spans - lost
        self._closed = True
        self._thread.join(_PURGE_SECONDS)
        return [f"{left:,} messages with {lost:,} spans were not delivered in time"] if left else []

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float]]:
        """Its health, as metrics of the catalogue."""
        failed = catalog.GATEWAY_FAILED_MESSAGES
        return {
            catalog.GATEWAY_MESSAGES: {(): self.messages},
            failed: {(reason,): self.failed[reason] for reason in failed.values},
            catalog.GATEWAY_QUEUED_MESSAGES: {(): self._waiting},
        }

    def _messages(self, spans: Sequence[SpanData]) -> Iterator[_Message]:
        """The messages with these spans: one per trace, or more if one would be too large."""
        traces: dict[int, list[bytes]] = {}
        for span in spans:
            encoded = self._encoded(span)
            if encoded is not None:
                traces.setdefault(span.trace_id, []).append(encoded)
        for trace_id, of_trace in traces.items():
            batch: list[bytes] = []
            room = self._most
            for encoded in of_trace:
                room -= len(encoded) + 1
                if room < 0 and batch:
                    yield _message(trace_id, batch)
                    batch, room = [], self._most - len(encoded) - 1
                batch.append(encoded)
            yield _message(trace_id, batch)

    @guarded("kafka.gateway", default=None)
    def _encoded(self, span: SpanData) -> bytes | None:
        encoded = encode_span(span, self._settings.encoder)
        if len(encoded) > self._most:
            encoded = encode_span(span, self._settings.digests)
        return encoded

    def _has_room(self, count: int, size: int) -> bool:
        if not self._waiting:
            return True
        settings = self._settings
        return (
            self._waiting + count <= settings.queue_messages
            and self._waiting_bytes + size <= settings.queue_bytes
        )

    def _produce(self, message: _Message) -> bool:
        """Give a message to librdkafka; ``False``: limits that the user has set are reached."""
        from confluent_kafka import KafkaException

        done = partial(self._done, message)
        try:
            self._producer.produce(
                self._settings.topic, message.value, message.key, on_delivery=done
            )
        except BufferError:
            return False
        except KafkaException as error:
            done(error.args[0])
        return True

    def _done(self, message: _Message, error: Any, _: object = None) -> None:
        """A message was delivered, or never will be."""
        with self._changed:
            if error is None:
                self.messages += 1
                self.spans += message.spans
            else:
                reason = failure(error)
                self.failed[reason] += 1
                self.failed_spans += message.spans
            self._release([message])
        if error is not None:
            self._errors.log(reason, f"Kafka: a message was not delivered: {error.str()}")

    def _release(self, messages: Sequence[_Message]) -> None:
        self._waiting -= len(messages)
        self._waiting_bytes -= sum([len(each.value) for each in messages])
        self._changed.notify_all()

    def _work(self) -> None:
        """Receive the delivery reports."""
        while not self._closed:
            self._producer.poll(_POLL_SECONDS)


def _message(trace_id: int, spans: Sequence[bytes]) -> _Message:
    return _Message(f"{trace_id:032x}", spans_message(trace_id, spans), len(spans))


def from_otlp(key: bytes | None, value: bytes | None, encoder: ContentEncoder) -> bytes:
    """The message that a gateway would have written, from one of an OpenTelemetry Collector.

    Its Kafka exporter writes requests of OTLP in protobuf. With ``partition_traces_by_id``, each
    has spans of one trace. So all spans of a run are in one partition, as those of a gateway.

    Args:
        key: the id of the trace, in hexadecimal digits.

    Raises:
        MessageError: it is not such a message.

    >>> from_otlp(b"1" * 32, b"", ContentEncoder(bytes.hex, plain=False))[:30]
    b'{"type":"spans","version":1,"r'
    """
    try:
        trace_id = int(key or b"", 16)
    except ValueError as error:
        raise MessageError(
            "key",
            "the key is not the id of a trace; set partition_traces_by_id: true in the exporter",
        ) from error
    try:
        spans = decode_protobuf(value or b"").spans
    except MalformedRequestError as error:
        raise MessageError("malformed", str(error)) from error
    if any(span.trace_id != trace_id for span in spans):
        raise MessageError("key", "the key is not the id of the trace of all spans")
    return encode_spans(trace_id, spans, encoder)

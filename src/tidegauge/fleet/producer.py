"""What a worker writes to Kafka: summaries, decisions and dead letters."""

from __future__ import annotations

from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException

from tidegauge.fleet.message_json import MessageError


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

    Args:
        producer: the producer of Quix Streams.
        topics: the topics.

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

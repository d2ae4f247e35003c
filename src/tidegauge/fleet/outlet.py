"""What a worker writes: summaries, decisions, and what it could not take."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException

__all__ = ["Letter", "Outlet", "Topics", "utf8"]

_LONGEST_DETAIL: Final = 200


class Letter(NamedTuple):
    """A message as it stands in the topic."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Topics(NamedTuple):
    """Names of topics.

    Args:
        source: that is read.
        summary: for summaries.
        decision: for decisions.
        dead_letters: for messages that could not be taken.
    """

    source: str
    summary: str
    decision: str
    dead_letters: str


class Outlet:
    """Writes with the producer of the application: delivered before anything is committed.

    Args:
        producer: Quix Streams' own.
        topics: where to.

    Attributes:
        dead_letters: how many messages could not be taken, by reason.
        told: how many summaries and decisions were told.
    """

    def __init__(self, producer: Any, topics: Topics) -> None:
        self.dead_letters: dict[str, int] = {}
        self.told: dict[str, int] = {}
        self._producer = producer
        self._topics = topics
        self._fault: Exception | None = None

    def tell(self, kind: str, key: str, record: bytes) -> None:
        """Write a summary or a decision."""
        self.told[kind] = self.told.get(kind, 0) + 1
        topic = self._topics.summary if kind == "summary" else self._topics.decision
        try:
            self._producer.produce(topic, value=record, key=key.encode())
        except Exception as error:
            # Whoever tells swallows it, but what was not told is not to be committed.
            if not _too_large(error):
                self._fault = error
            raise

    def bury(self, letter: Letter, reason: str, detail: str) -> None:
        """Pass on what could not be taken, unchanged.

        Args:
            letter: the message.
            reason: why, in one word.
            detail: and in a line.
        """
        self.dead_letters[reason] = self.dead_letters.get(reason, 0) + 1
        headers = {
            "reason": reason,
            "detail": " ".join(detail[:_LONGEST_DETAIL].split()),
            "topic": self._topics.source,
            "partition": str(letter.partition),
            "offset": str(letter.offset),
        }
        told = [(name, utf8(said)) for name, said in headers.items()]
        topic, key, value = self._topics.dead_letters, letter.key, letter.value
        try:
            self._producer.produce(topic, value=value, key=key, headers=told)
        except KafkaException as error:
            if not _too_large(error):
                raise
            self._producer.produce(topic, headers=told)  # it stays where it came from

    def check(self) -> None:
        """Raise what went wrong while something was told, if anything did."""
        if self._fault is not None:
            raise self._fault


def utf8(text: str) -> bytes:
    """A text as it is written, whatever it holds."""
    return text.encode("utf-8", "surrogatepass")


def _too_large(error: Exception) -> bool:
    return (
        isinstance(error, KafkaException) and error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    )

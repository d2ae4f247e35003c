"""The brokers: how they are reached, what they complain of, and whether a topic is there."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from tidegauge.errors import ConfigurationError, MissingExtraError

__all__ = ["Complaints", "check_topic", "client_config", "failure", "new_producer"]

_logger = logging.getLogger("tidegauge")
_QUIET_SECONDS: Final = 60.0
_HOPELESS: Final = frozenset({"_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED"})
"""Errors that trying again does not mend."""

_DETAILS: Final = re.compile(r" \(after \d+ms in state .*\)$")
_FAILURES: Final = {
    "MSG_SIZE_TOO_LARGE": "too_large",
    "RECORD_LIST_TOO_LARGE": "too_large",
    "_MSG_TIMED_OUT": "timed_out",
    "_PURGE_INFLIGHT": "shutdown",
    "_PURGE_QUEUE": "shutdown",
    "TOPIC_AUTHORIZATION_FAILED": "unauthorized",
    "CLUSTER_AUTHORIZATION_FAILED": "unauthorized",
    "_UNKNOWN_PARTITION": "no_topic",
    "_UNKNOWN_TOPIC": "no_topic",
    "UNKNOWN_TOPIC_OR_PART": "no_topic",
}


class Complaints:
    """What the client library says goes wrong: logged once a minute and kind, the last one kept.

    Attributes:
        last: the last of them, in words.
        hopeless: one that trying again does not mend.
        fatal: one after which nothing more can be produced.
        quiet: log nothing.
    """

    def __init__(self) -> None:
        self.last: str | None = None
        self.hopeless: str | None = None
        self.fatal: str | None = None
        self.quiet = False
        self._lock = threading.Lock()
        self._logged: dict[str, float] = {}

    def hear(self, error: Any) -> None:
        """An error of the client, as its ``error_cb`` is given it."""
        name, told = error.name(), _DETAILS.sub("", error.str())
        if name == "_ALL_BROKERS_DOWN":
            return  # what came before it says more
        self.last = told
        if name in _HOPELESS:
            self.hopeless = told
        if error.fatal():
            self.fatal = told
        self.log(name, f"Kafka: {told}")

    def log(self, kind: str, message: str) -> None:
        """Log a warning, unless one of this kind was logged within the last minute."""
        now = time.monotonic()
        with self._lock:
            before = self._logged.get(kind)
            if self.quiet or (before is not None and now - before < _QUIET_SECONDS):
                return
            self._logged[kind] = now
        _logger.warning("%s", message)


def client_config(
    brokers: str, config: Mapping[str, Any], complaints: Complaints, **defaults: Any
) -> dict[str, Any]:
    """The properties of a client.

    Args:
        brokers: addresses of some of the brokers.
        config: what the user says, which goes before ours.
        complaints: hears of what goes wrong.
        defaults: ours, with ``_`` for a dot.
    """
    ours = {name.replace("_", "."): value for name, value in defaults.items()}
    return {
        "log_level": 2,  # the rest is told by complaints
        "reconnect.backoff.max.ms": 1_000,
        **ours,
        **config,
        "bootstrap.servers": brokers,
        "error_cb": complaints.hear,
    }


def new_producer(config: Mapping[str, Any]) -> Any:
    """A producer.

    Raises:
        ConfigurationError: a property is not known, or cannot be.
        MissingExtraError: confluent-kafka is not installed.
    """
    try:
        from confluent_kafka import (
            KafkaException,
            Producer,
        )
    except ImportError as error:
        raise MissingExtraError("confluent_kafka", extra="kafka") from error
    try:
        return Producer(dict(config))
    except (KafkaException, TypeError, ValueError) as error:
        told = error.args[0].str() if isinstance(error, KafkaException) else error
        raise ConfigurationError(f"Kafka: {told}") from error


def check_topic(
    client: Any, brokers: str, topic: str, complaints: Complaints, seconds: float
) -> int:
    """Wait until the brokers answer, and look whether they have a topic.

    Args:
        client: a producer, or another that has ``list_topics`` and ``poll``.
        brokers: their addresses, for messages.
        topic: its name.
        complaints: what the client hears.
        seconds: how long to try.

    Returns:
        The number of its partitions.

    Raises:
        ConfigurationError: they refuse who asks, or have no such topic.
        OSError: they cannot be reached.
    """
    from confluent_kafka import KafkaException

    until = time.monotonic() + seconds
    complaints.quiet = True  # one line will say it
    while True:
        try:
            # All of them: to ask for one would create it.
            found = client.list_topics(timeout=1.0).topics.get(topic)
            break
        except KafkaException as error:
            client.poll(0)
            if complaints.hopeless is not None:
                raise ConfigurationError(f"{brokers}: {complaints.hopeless}") from error
            if time.monotonic() >= until:
                why = complaints.last or error.args[0].str()
                raise OSError(f"the brokers at {brokers} cannot be reached: {why}") from error
    complaints.quiet = False
    if found is None or found.error is not None:
        raise ConfigurationError(
            f"there is no topic {topic!r} at {brokers}, or it must not be seen; create it first, "
            f"as in: kafka-topics.sh --bootstrap-server {brokers} --create --topic {topic} "
            "--partitions 12"
        )
    return len(found.partitions)


def failure(error: Any) -> str:
    """Why a message was not delivered, in the words of the catalogue."""
    return _FAILURES.get(error.name(), "refused")

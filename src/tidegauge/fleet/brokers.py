"""Kafka clients: their configuration, their errors, and the check that a topic exists."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from tidegauge.errors import ConfigurationError, MissingExtraError

_logger = logging.getLogger("tidegauge")
_QUIET_SECONDS: Final = 60.0
_HOPELESS: Final = frozenset({"_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED"})
"""Errors that a retry does not resolve."""

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


class ThrottledLog:
    """Logs warnings, at most one of each kind a minute; ``quiet``: none."""

    def __init__(self) -> None:
        self.quiet = False
        self._lock = threading.Lock()
        self._logged: dict[str, float] = {}

    def log(self, kind: str, message: str) -> None:
        """Log a warning, unless one of this kind was logged within the last minute."""
        now = time.monotonic()
        with self._lock:
            before = self._logged.get(kind)
            if self.quiet or (before is not None and now - before < _QUIET_SECONDS):
                return
            self._logged[kind] = now
        _logger.warning("%s", message)


class BrokerErrors(ThrottledLog):
    """Errors that a Kafka client reports.

    Attributes:
        last: text of the last error.
        hopeless: text of an error that a retry does not resolve.
        fatal: text of an error after which nothing more can be produced.
    """

    def __init__(self) -> None:
        super().__init__()
        self.last: str | None = None
        self.hopeless: str | None = None
        self.fatal: str | None = None

    def record(self, error: Any) -> None:
        """Record an error: the client's ``error_cb``."""
        name, text = error.name(), _DETAILS.sub("", error.str())
        if name == "_ALL_BROKERS_DOWN":
            return  # the errors before it say more
        self.last = text
        if name in _HOPELESS:
            self.hopeless = text
        if error.fatal():
            self.fatal = text
        self.log(name, f"Kafka: {text}")


def client_config(
    brokers: str, config: Mapping[str, Any], errors: BrokerErrors, **defaults: Any
) -> dict[str, Any]:
    """The properties of a client: the user's override the defaults, which have ``_`` for a dot."""
    known = {name.replace("_", "."): value for name, value in defaults.items()}
    return {
        "log_level": 2,  # BrokerErrors logs the rest
        "reconnect.backoff.max.ms": 1_000,
        **known,
        **config,
        "bootstrap.servers": brokers,
        "error_cb": errors.record,
    }


def new_producer(config: Mapping[str, Any]) -> Any:
    """A producer.

    Raises:
        ConfigurationError: a property is unknown or invalid.
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
        why = error.args[0].str() if isinstance(error, KafkaException) else error
        raise ConfigurationError(f"Kafka: {why}") from error


def check_topic(
    client: Any, brokers: str, topic: str, errors: BrokerErrors, seconds: float
) -> None:
    """Wait until the brokers respond, and check that a topic exists.

    Args:
        client: a producer, or another client with ``list_topics`` and ``poll``.
        seconds: how long to try.

    Raises:
        ConfigurationError: the brokers reject the credentials, or the topic does not exist.
        OSError: the brokers cannot be reached.
    """
    from confluent_kafka import KafkaException

    until = time.monotonic() + seconds
    errors.quiet = True  # the exception is enough
    while True:
        try:
            # All topics: a request for one would create it.
            found = client.list_topics(timeout=1.0).topics.get(topic)
            break
        except KafkaException as error:
            client.poll(0)
            if errors.hopeless is not None:
                raise ConfigurationError(f"{brokers}: {errors.hopeless}") from error
            if time.monotonic() >= until:
                why = errors.last or error.args[0].str()
                raise OSError(f"the brokers at {brokers} cannot be reached: {why}") from error
    errors.quiet = False
    if found is None or found.error is not None:
        raise ConfigurationError(
            f"topic {topic!r} does not exist at {brokers}, or you may not describe it; create it: "
            f"kafka-topics.sh --bootstrap-server {brokers} --create --topic {topic} "
            "--partitions 12"
        )


def failure(error: Any) -> str:
    """Why a message was not delivered: the value of the catalogue's label ``reason``."""
    return _FAILURES.get(error.name(), "refused")

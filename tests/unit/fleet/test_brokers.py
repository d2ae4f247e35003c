"""What is made of what the client library says: one line a minute and kind, a reason each."""

from __future__ import annotations

import logging
import sys
import time

import pytest
from confluent_kafka import KafkaError

from tidegauge import catalog
from tidegauge.errors import ConfigurationError, MissingExtraError
from tidegauge.fleet.brokers import (
    BrokerErrors,
    client_config,
    failure,
    new_producer,
)


def test_a_complaint_is_logged_once_a_minute_and_kind(caplog, monkeypatch) -> None:
    errors, now = BrokerErrors(), 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    refused = KafkaError(
        KafkaError._TRANSPORT, "b:9092: Connection refused (after 0ms in state CONNECT)"
    )
    with caplog.at_level(logging.WARNING, "tidegauge"):
        for _ in range(3):
            errors.record(refused)
        errors.record(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
        errors.record(KafkaError(KafkaError._RESOLVE, "no such host"))
        now += 61.0
        errors.record(refused)
    reported = ["Kafka: b:9092: Connection refused", "Kafka: no such host"]
    assert caplog.messages == [*reported, reported[0]]
    assert errors.last == "b:9092: Connection refused"
    assert (errors.hopeless, errors.fatal) == (None, None)


def test_what_is_hopeless_and_what_is_fatal_is_kept() -> None:
    errors = BrokerErrors()
    errors.record(KafkaError(KafkaError._AUTHENTICATION, "who are you?"))
    errors.record(KafkaError(KafkaError.INVALID_PRODUCER_EPOCH, "fenced", fatal=True))
    assert (errors.hopeless, errors.fatal) == ("who are you?", "fenced")


def test_every_reason_is_in_the_catalogue() -> None:
    codes = [
        getattr(KafkaError, name)
        for name in dir(KafkaError)
        if name.isupper() and isinstance(getattr(KafkaError, name), int)
    ]
    reasons = {failure(KafkaError(code)) for code in codes}
    assert reasons == set(catalog.GATEWAY_FAILED_MESSAGES.values)


def test_what_the_user_says_goes_before_what_we_do_but_for_the_brokers() -> None:
    fields = {"linger.ms": 7, "acks": "1"}
    config = client_config("b:9092", fields, BrokerErrors(), linger_ms=5, compression_type="lz4")
    assert (config["linger.ms"], config["acks"], config["compression.type"]) == (7, "1", "lz4")
    assert config["bootstrap.servers"] == "b:9092"


@pytest.mark.parametrize("given", [{"no.such": 1}, {"acks": "hidden"}, {"linger.ms": "hidden"}])
def test_an_invalid_property_is_reported_by_its_name(given) -> None:
    with pytest.raises(ConfigurationError, match="Kafka: ") as caught:
        new_producer(client_config("b:9092", given, BrokerErrors()))
    assert "hidden" not in str(caught.value)


def test_what_is_missing_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[kafka\]' in a clone"):
        new_producer({})

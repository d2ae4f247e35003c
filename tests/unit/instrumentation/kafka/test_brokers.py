"""What is made of what the client library says: one line a minute and kind, a reason each."""

from __future__ import annotations

import logging
import sys
import time

import pytest
from confluent_kafka import KafkaError

from tidegauge import catalog
from tidegauge.errors import ConfigurationError, MissingExtraError
from tidegauge.instrumentation.kafka.brokers import (
    Complaints,
    client_config,
    failure,
    new_producer,
)


def test_a_complaint_is_logged_once_a_minute_and_kind(caplog, monkeypatch) -> None:
    complaints, now = Complaints(), 1_000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    refused = KafkaError(
        KafkaError._TRANSPORT, "b:9092: Connection refused (after 0ms in state CONNECT)"
    )
    with caplog.at_level(logging.WARNING, "tidegauge"):
        for _ in range(3):
            complaints.hear(refused)
        complaints.hear(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
        complaints.hear(KafkaError(KafkaError._RESOLVE, "no such host"))
        now += 61.0
        complaints.hear(refused)
    told = ["Kafka: b:9092: Connection refused", "Kafka: no such host"]
    assert caplog.messages == [*told, told[0]]
    assert complaints.last == "b:9092: Connection refused"
    assert (complaints.hopeless, complaints.fatal) == (None, None)


def test_what_is_hopeless_and_what_is_fatal_is_kept() -> None:
    complaints = Complaints()
    complaints.hear(KafkaError(KafkaError._AUTHENTICATION, "who are you?"))
    complaints.hear(KafkaError(KafkaError.INVALID_PRODUCER_EPOCH, "fenced", fatal=True))
    assert (complaints.hopeless, complaints.fatal) == ("who are you?", "fenced")


def test_every_reason_is_in_the_catalogue() -> None:
    codes = [
        getattr(KafkaError, name)
        for name in dir(KafkaError)
        if name.isupper() and isinstance(getattr(KafkaError, name), int)
    ]
    reasons = {failure(KafkaError(code)) for code in codes}
    assert reasons == set(catalog.GATEWAY_FAILED_MESSAGES.values)


def test_what_the_user_says_goes_before_what_we_do_but_for_the_brokers() -> None:
    told = {"linger.ms": 7, "acks": "1"}
    config = client_config("b:9092", told, Complaints(), linger_ms=5, compression_type="lz4")
    assert (config["linger.ms"], config["acks"], config["compression.type"]) == (7, "1", "lz4")
    assert config["bootstrap.servers"] == "b:9092"


@pytest.mark.parametrize("told", [{"no.such": 1}, {"acks": "hidden"}, {"linger.ms": "hidden"}])
def test_a_property_that_cannot_be_is_told_by_its_name(told) -> None:
    with pytest.raises(ConfigurationError, match="Kafka: ") as caught:
        new_producer(client_config("b:9092", told, Complaints()))
    assert "hidden" not in str(caught.value)


def test_what_is_missing_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'tidegauge\[kafka\]'"):
        new_producer({})

"""Variables of OpenTelemetry that cannot be read: one line in the log, and the agent runs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from opentelemetry.sdk import environment_variables

from support.otlp_receiver import grpc_receiver, http_receiver
from tidegauge.safety.guard import internal_errors
from tidegauge.tracer import open_telemetry, provider
from tidegauge.tracer.provider import unreadable_variables

VARIABLES = sorted(name for name in vars(environment_variables) if name.startswith("OTEL_"))
LOGGED_BY_THE_SDK = {"OTEL_EXPERIMENTAL_RESOURCE_DETECTORS"}  # with a traceback, as it always does


@pytest.fixture(scope="module")
def collectors() -> Iterator[dict[str, str]]:
    """Where to send, by protocol."""
    with http_receiver() as http, grpc_receiver() as grpc:
        yield {"http/protobuf": http.endpoint, "grpc": grpc.endpoint}


@pytest.fixture(autouse=True)
def exporting(monkeypatch: pytest.MonkeyPatch, collectors: dict[str, str]) -> None:
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collectors["http/protobuf"])
    monkeypatch.setattr(provider, "_CLOSING_SECONDS", 0.2)  # for addresses where nothing answers


def opens(pushes: bool = True) -> int:
    """Opens all signals; returns how many of them are exported."""
    before = dict(os.environ)
    telemetry = open_telemetry(push_metrics=(lambda exporter: exporter) if pushes else None)
    assert dict(os.environ) == before
    telemetry.tracer.start_span("s").end()
    telemetry.shutdown()
    assert internal_errors.counts() == {}
    return len(telemetry.owned)


@pytest.mark.parametrize(
    ("protocol", "name"),
    [
        (protocol, name)
        for name in VARIABLES
        for protocol in ("http/protobuf", *(["grpc"] if "OTLP" in name else []))
    ],
)
@pytest.mark.parametrize("value", ["abc", "-5", ""])
def test_any_value_of_any_variable_costs_one_line_at_most(
    name: str,
    value: str,
    protocol: str,
    collectors: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collectors[protocol])
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setenv(name, value)
    opens()
    ours = [each.getMessage() for each in caplog.records if each.name == "tidegauge"]
    assert len(ours) <= (3 if "OTLP" in name else 1), "one line a signal"
    if name in unreadable_variables() and value:
        assert f"{name}={value!r}" in ours[0]
    if name not in LOGGED_BY_THE_SDK:
        tracebacks = [each for each in caplog.records if each.exc_info]
        assert not [each for each in tracebacks if "xport" not in each.getMessage()]


NUMBERS = [
    ("OTEL_BSP_SCHEDULE_DELAY", "5000", "1.5"),
    ("OTEL_BLRP_MAX_QUEUE_SIZE", "2048", "0"),
    ("OTEL_BSP_MAX_QUEUE_SIZE", "2048", "9" * 30),
    ("OTEL_METRIC_EXPORT_INTERVAL", "10000", "10_000"),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5", "10s"),
    ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "0", "-1"),
    ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "unset", "none"),
]


@pytest.mark.parametrize(("name", "good", "bad"), NUMBERS)
def test_a_number_that_is_none_counts_as_not_set(
    name: str,
    good: str,
    bad: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv(name, good)
    assert unreadable_variables() == {}
    monkeypatch.setenv(name, bad)
    assert unreadable_variables() == {name: bad}
    assert opens() == 3
    (line,) = [each.getMessage() for each in caplog.records if each.name == "tidegauge"]
    assert line == (
        f"tidegauge: {name}={bad!r}: the default is used, because that is not a number above 0; "
        "correct the variable, or unset it"
    )


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "smoke signals"},
            "OTEL_EXPORTER_OTLP_PROTOCOL='smoke signals' is not supported; use grpc or http/protob",
        ),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector"}, "ENDPOINT is no URL; use http://HOST:4318"),
        ({"OTEL_EXPORTER_OTLP_CERTIFICATE": "/no/ca.pem"}, "CERTIFICATE='/no/ca.pem' cannot be re"),
        (
            {"OTEL_EXPORTER_OTLP_COMPRESSION": "lz4", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            'Invalid value "lz4" for compression envvar OTEL_EXPORTER_OTLP_COMPRESSION; correct',
        ),
        ({"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "9000"}, "max_export_batch_size must be less than or"),
    ],
)
def test_without_what_an_exporter_needs_its_signal_is_not_exported(
    variables: dict[str, str],
    why: str,
    collectors: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert opens(pushes=False) == 0
    (line,) = [each.getMessage() for each in caplog.records if each.name == "tidegauge"]
    assert line.startswith("tidegauge: spans are not exported: ")
    assert why in line


def test_one_signal_is_lost_and_the_others_are_exported(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "smoke signals")
    assert opens() == 2
    assert "tidegauge: metrics are not exported: OTEL_EXPORTER_OTLP_METRICS_PROTOCOL" in caplog.text

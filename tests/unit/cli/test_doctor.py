"""``tidegauge doctor``: what it shows, what it checks, and what it never prints."""

from __future__ import annotations

import os
import socket

import pytest

import tidegauge as package
from tidegauge.cli import doctor as doctor_module
from tidegauge.net.listener import Listener
from tidegauge.receivers.receiver import Receiver, ReceiverSettings


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("OTEL_", "TIDEGAUGE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", "0")


@pytest.fixture
def collector():
    receiver = Receiver(ReceiverSettings(grpc=None, http=Listener(port=0), token="right"))
    yield receiver.urls["http"].removesuffix("/v1/traces")
    receiver.stop(0.0)


def test_everything_works(tidegauge):
    done = tidegauge("doctor")
    assert done.code == 0
    assert f"tidegauge {package.__version__} in " in done.out
    assert "FAIL" not in done.out
    assert "  opentelemetry-sdk 1." in done.out
    assert "  grpcio 1." in done.out
    assert "  backtest: numpy " in done.out


def test_missing_extras_say_what_to_install(tidegauge, monkeypatch):
    version = doctor_module._version
    monkeypatch.setattr(
        doctor_module, "_version", lambda name: None if name == "numpy" else version(name)
    )
    assert "  backtest: no numpy; pip install '.[backtest]' in a clone" in tidegauge("doctor").out


def test_secrets_are_not_shown(tidegauge, monkeypatch, collector):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20right")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://me:hidden@127.0.0.1:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector)
    done = tidegauge("doctor")
    assert done.code == 0
    assert "takes spans" in done.out
    assert "OTEL_EXPORTER_OTLP_HEADERS is set" in done.out
    assert "right" not in done.out
    assert "hidden" not in done.out


def test_a_collector_that_refuses(tidegauge, monkeypatch, collector):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector)
    done = tidegauge("doctor")
    assert done.code == 1
    assert f"FAIL  the collector at {collector} answers 401" in done.out


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_a_collector_that_is_gone(tidegauge, monkeypatch, protocol):
    with socket.create_server(("127.0.0.1", 0)) as free:
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    done = tidegauge("doctor")
    assert done.code == 1
    assert f"FAIL  the collector at {endpoint} does not answer" in done.out


def test_a_collector_over_grpc(tidegauge, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        monkeypatch.setenv(
            "OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{listening.getsockname()[1]}"
        )
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
        done = tidegauge("doctor")
    assert done.code == 0
    assert "accepts connections" in done.out


@pytest.mark.parametrize("endpoint", ["collector:4318", "ftp://collector", "http://[", ""])
def test_endpoints_of_no_collector(tidegauge, monkeypatch, endpoint):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
    done = tidegauge("doctor")
    assert done.code == (1 if endpoint else 0)
    assert done.err == ""


@pytest.mark.parametrize("port", ["text", "99999", "-1"])
def test_ports_that_are_none(tidegauge, monkeypatch, port):
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", port)
    done = tidegauge("doctor")
    assert done.code == 1
    assert f"FAIL  127.0.0.1:{port}" in done.out
    assert done.err == ""


def test_a_port_in_use(tidegauge, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(taken.getsockname()[1]))
        done = tidegauge("doctor")
    assert done.code == 1
    assert "cannot be used: Address already in use; set OTEL_EXPORTER_PROMETHEUS_PORT" in done.out


def test_numbers_that_are_none(tidegauge, monkeypatch):
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "soon")
    done = tidegauge("doctor")
    assert done.code == 1
    assert "FAIL  OTEL_BSP_SCHEDULE_DELAY='soon' is not a number above 0" in done.out


def test_policies(tidegauge, monkeypatch, tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text('format = 2\n[[rule]]\nsignal = "loop_repeats"\nthreshold = 3\n')
    monkeypatch.setenv("TIDEGAUGE_POLICY", str(path))
    assert f"ok    TIDEGAUGE_POLICY: {path} is a policy" in tidegauge("doctor").out
    path.write_text("[[rule]]\nsignal = 3\n")
    done = tidegauge("doctor")
    assert done.code == 1
    assert "FAIL  TIDEGAUGE_POLICY stops nothing" in done.out

"""/metrics over TLS: certificates of clients, clients that say nothing, files that are wrong."""

from __future__ import annotations

import contextlib
import socket
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tidegauge
from support.certificates import Authority
from tidegauge.errors import ConfigurationError
from tidegauge.exporters.prometheus import MetricsServer
from tidegauge.exporters.reading import Reader
from tidegauge.streaming_metrics import Engine
from tidegauge.testing import capture

CA = "tidegauge test ca"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, CA)


@contextlib.contextmanager
def serving(**tls: Path) -> Iterator[str]:
    files: dict[str, Any] = {name: str(path) for name, path in tls.items()}
    server = MetricsServer(port=0, **files)
    server.start(Reader(Engine()))
    try:
        yield server.url
    finally:
        server.close()


def get(url: str, authority: Authority, client: tuple[Path, Path] | None = None) -> str:
    trust = ssl.create_default_context(cafile=str(authority.certificate))
    if client is not None:
        trust.load_cert_chain(*client)
    with urllib.request.urlopen(url, context=trust, timeout=10) as response:
        text: str = response.read().decode()
        return text


def test_the_metrics_are_served_over_tls(authority: Authority) -> None:
    certificate, key = authority.sign("server")
    with capture(
        serve_metrics=True,
        metrics_port=0,
        metrics_certificate=str(certificate),
        metrics_key=str(key),
    ) as seen:
        with tidegauge.run(agent="a"):
            pass
        url = seen.pipeline.metrics_url
        assert url is not None
        assert url.startswith("https://127.0.0.1:")
        assert 'tidegauge_runs_started_total{agent="a",task_group=""} 1.0' in get(url, authority)
        with pytest.raises(ConnectionResetError):  # nothing is answered in clear
            urllib.request.urlopen(url.replace("https", "http"), timeout=10)
        assert get(url, authority)


def test_only_clients_with_a_certificate_are_answered(
    authority: Authority, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    certificate, key = authority.sign("server")
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other").sign("stranger")
    with serving(certificate=certificate, key=key, client_ca=authority.certificate) as url:
        for refused in (None, stranger):
            with pytest.raises((ssl.SSLError, ConnectionError, urllib.error.URLError)):
                get(url, authority, refused)
        assert "# HELP" in get(url, authority, authority.sign("prometheus"))
    assert capfd.readouterr() == ("", "")  # what strangers do is no news on the terminal


def test_a_client_that_never_shakes_hands_keeps_nobody_waiting(authority: Authority) -> None:
    certificate, key = authority.sign("server")
    with serving(certificate=certificate, key=key) as url:
        place = urllib.parse.urlsplit(url)
        with contextlib.ExitStack() as silent:
            for _ in range(20):
                silent.enter_context(socket.create_connection((place.hostname, place.port)))
            assert "# HELP" in get(url, authority)


def test_a_client_that_says_nothing_is_let_go(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tidegauge.exporters.prometheus.server._REQUEST_SECONDS", 0.05)
    certificate, key = authority.sign("server")
    for tls in ({}, {"certificate": certificate, "key": key}):
        with serving(**tls) as url:
            place = urllib.parse.urlsplit(url)
            with socket.create_connection((place.hostname, place.port), timeout=10) as silent:
                assert silent.recv(1) == b""


def test_files_that_are_wrong_are_reported_by_configure(
    authority: Authority, tmp_path: Path
) -> None:
    certificate, key = map(str, authority.sign("server"))
    encrypted = tuple(map(str, authority.sign("locked", password=b"word")))
    other = str(authority.sign("other")[1])
    no_file, no_pem = str(tmp_path / "missing"), str(tmp_path / "text")
    Path(no_pem).write_text("no certificate")
    for wrong in (
        {"metrics_certificate": certificate},
        {"metrics_key": key},
        {"metrics_client_ca": certificate},
        {"metrics_certificate": no_file, "metrics_key": key},
        {"metrics_certificate": no_pem, "metrics_key": key},
        {"metrics_certificate": certificate, "metrics_key": other},
        {"metrics_certificate": encrypted[0], "metrics_key": encrypted[1]},
        {"metrics_certificate": certificate, "metrics_key": key, "metrics_client_ca": no_pem},
    ):
        with pytest.raises(ConfigurationError):
            tidegauge.configure(metrics_port=0, **wrong)

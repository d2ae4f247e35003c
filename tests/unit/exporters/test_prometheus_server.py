"""The server of /metrics: where it listens, what it answers, and that it leaves nothing behind."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics

import tidegauge
from support.requirements import missing, needs_fork
from tidegauge.events import RunStarted
from tidegauge.exporters.prometheus import MetricsServer
from tidegauge.exporters.reading import Reader
from tidegauge.safety.guard import internal_errors
from tidegauge.streaming_metrics import Engine
from tidegauge.testing import capture


def get(url: str, **headers: str) -> tuple[int, str, str]:
    """Status, content type and text."""
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=10) as response:
        return response.status, response.headers["Content-Type"], response.read().decode()


@contextlib.contextmanager
def serving(engine: Engine, **where: object) -> Iterator[MetricsServer]:
    server = MetricsServer(**({"port": 0} | where))  # type: ignore[arg-type]
    server.start(Reader(engine))
    try:
        yield server
    finally:
        server.close()


@pytest.fixture
def engine() -> Engine:
    engine = Engine()
    engine.run_started(RunStarted(run="r", agent="a"))
    return engine


def test_the_url_is_where_the_metrics_are(engine: Engine) -> None:
    with serving(engine) as server:
        status, kind, text = get(server.url)
    assert server.url.startswith("http://127.0.0.1:")
    assert (status, kind.split(";")[0]) == (200, "text/plain")
    assert 'tidegauge_runs_active{agent="a",task_group=""} 1.0\n' in text


def test_openmetrics_when_it_is_asked_for(engine: Engine) -> None:
    with serving(engine) as server:
        _, kind, text = get(server.url, Accept="application/openmetrics-text;version=1.0.0")
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    names = [family.name for family in parse_openmetrics(text)]
    assert "tidegauge_runs_started" in names


def test_a_filter_by_name_is_answered(engine: Engine) -> None:
    with serving(engine) as server:
        _, _, text = get(f"{server.url}?name[]=tidegauge_runs_active")
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert samples == ['tidegauge_runs_active{agent="a",task_group=""} 1.0']


@pytest.mark.parametrize("path", ["/", "/favicon.ico"])
def test_other_paths_are_answered_by_the_client(engine: Engine, path: str) -> None:
    with serving(engine) as server:
        assert get(server.url.removesuffix("/metrics") + path)[0] == 200


def test_an_ipv6_address_can_be_served_and_read(engine: Engine) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        missing("this machine has no IPv6")
    with serving(engine, host="::1") as server:
        assert server.url.startswith("http://[::1]:")
        assert get(server.url)[0] == 200


def test_stop_frees_the_port_and_ends_the_thread(engine: Engine) -> None:
    before = set(threading.enumerate())
    server = MetricsServer(port=0)
    server.start(Reader(engine))
    port = int(server.url.split(":")[2].removesuffix("/metrics"))
    server.close()
    server.close()
    assert set(threading.enumerate()) <= before
    with serving(engine, port=port) as again:
        assert get(again.url)[0] == 200


@pytest.mark.usefixtures("faults_are_swallowed")
def test_a_scrape_of_a_failing_engine_is_answered_and_counts_the_fault() -> None:
    class Failing(Engine):
        def snapshot(self):
            raise RuntimeError("out of order")

    with serving(Failing()) as server:
        for count in (1, 2):
            status, _, text = get(server.url)
            assert status == 200
            assert f'tidegauge_internal_errors_total{{where="exporters"}} {count}.0\n' in text


def test_a_port_that_is_taken_leaves_the_agent_alone(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        with (
            caplog.at_level(logging.WARNING, "tidegauge"),
            capture(serve_metrics=True, metrics_port=taken) as seen,
        ):
            with tidegauge.run(agent="a") as run:
                run.act("look")
            url = seen.pipeline.metrics_url
            assert url is not None
            assert "tidegauge_steps_total" in get(url)[2]
    (message,) = caplog.messages
    assert f"port {taken} is in use, so the metrics are at {url}" in message
    assert internal_errors.counts() == {}


def test_configuring_again_keeps_the_port(engine: Engine) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (
        capture(serve_metrics=True, metrics_port=port),
        capture(serve_metrics=True, metrics_port=port) as second,
    ):
        with tidegauge.run(agent="second"):
            pass
        assert second.pipeline.metrics_url is not None
        assert 'agent="second"' in get(second.pipeline.metrics_url)[2]


def test_the_process_ends_while_it_is_served_and_says_nothing() -> None:
    program = """
import urllib.request
from tidegauge.exporters.prometheus import MetricsServer
from tidegauge.exporters.reading import Reader
from tidegauge.streaming_metrics import Engine
server = MetricsServer(port=0)
server.start(Reader(Engine()))
for _ in range(3):
    urllib.request.urlopen(server.url).read()
"""
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


@needs_fork
def test_a_forked_child_does_not_keep_the_port() -> None:
    program = """
import os, socket, time
import tidegauge
pipeline = tidegauge.configure(metrics_port=0)
port = pipeline.metrics_server._server.server_port
parent = os.getpid()
if os.fork():
    os._exit(0)  # at once, as one that is killed: nothing is stopped
while os.getppid() == parent:
    time.sleep(0.01)
with socket.socket() as probe:
    print("free" if probe.connect_ex(("127.0.0.1", port)) else "taken")
"""
    environment = os.environ | {"OTEL_SDK_DISABLED": "true"}
    ended = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", program],  # fork with threads
        capture_output=True,
        timeout=60,
        check=False,
        env=environment,
        text=True,
    )
    assert (ended.stdout, ended.stderr) == ("free\n", "")


def test_further_paths_say_whether_all_is_well(engine: Engine) -> None:
    well = [True]
    with serving(engine, probes={"/healthz": lambda: well[0]}) as server:
        url = server.url.replace("/metrics", "/healthz")
        assert get(url) == (200, "text/plain; charset=utf-8", "ok\n")
        well[0] = False
        with pytest.raises(urllib.error.HTTPError, match="503"):
            get(url)
        assert "tidegauge_runs_active" in get(server.url)[2]


def test_metrics_beyond_this_machine_are_said_to_be(caplog: pytest.LogCaptureFixture) -> None:
    for host, warned in (("0.0.0.0", 1), ("127.0.0.1", 0)):
        caplog.clear()
        with (
            caplog.at_level(logging.WARNING, "tidegauge"),
            capture(serve_metrics=True, metrics_host=host, metrics_port=0),
        ):
            assert len(caplog.messages) == warned
    with capture(serve_metrics=True, metrics_port=0, metrics_allowed_hosts=["gauge"]) as seen:
        assert get(str(seen.pipeline.metrics_url), Host="gauge:9464")[0] == 200
        with pytest.raises(urllib.error.HTTPError, match="421"):
            get(str(seen.pipeline.metrics_url), Host="evil.example")


@pytest.mark.parametrize("listed", ["gauge", ["http://gauge"]])
def test_hosts_that_cannot_be_meant_are_said_at_once(listed: object) -> None:
    with pytest.raises(tidegauge.ConfigurationError, match="name"):
        tidegauge.configure(metrics_allowed_hosts=listed)


def test_connections_have_a_highest_number(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidegauge.exporters.prometheus.server._MAX_CONNECTIONS", 2)
    with serving(engine) as server, contextlib.ExitStack() as silent:
        port = server._server.server_port
        clients = [
            silent.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            for _ in range(5)
        ]
        assert get(server.url)[0] == 200
        assert [client.recv(100) for client in clients[:3]] == [b""] * 3  # they made room

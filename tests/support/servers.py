"""Servers that all tests of a session share, which is one of each in every worker of xdist.

What tests do there is kept apart: by topics of a test's own, and by what Prometheus forgets.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import socket
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from support.kafka import Kafka, running_kafka
from support.processes import PATIENCE
from support.prometheus import Prometheus, scraping

__all__ = ["SharedPrometheus", "kafka", "prometheus", "topic"]

_RESERVED = range(20_000, 32_000)
"""Ports that the system gives to nobody who asks for a free one."""


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker. A test that lets it stand still lets it go on; each topic has its own name."""
    with running_kafka(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A name that is no other test's, for a topic, those beside it, and a group."""
    name = f"{request.node.path.stem.removeprefix('test_')}.{request.node.name}"
    return re.sub("[^A-Za-z0-9._-]+", "-", name).strip("-")


class SharedPrometheus(Prometheus):
    """It scrapes one address, all the time, where one test after the other serves.

    Attributes:
        port: of that address.
        since: when it last forgot all that it knew, in seconds of the epoch.
    """

    def __init__(self, url: str, port: int, config: Path) -> None:
        super().__init__(url)
        self.port = port
        self.since = time.time()
        self._config = config

    def forget(self) -> None:
        """Delete all samples; of exemplars, which it keeps, those after ``since`` are new."""
        self._post("/api/v1/admin/tsdb/delete_series", **{"match[]": '{__name__=~".+"}'})
        self.since = time.time()

    @contextlib.contextmanager
    def evaluating(self, directory: Path, rules: Mapping[str, str]) -> Iterator[None]:
        """Let it evaluate rules meanwhile; it sends no alerts.

        Args:
            directory: where to write them.
            rules: the text of each file, by its name.
        """
        for name, text in rules.items():
            (directory / name).write_text(text)
        self._evaluate([directory / name for name in rules])
        try:
            yield
        finally:
            self._evaluate([])

    def _evaluate(self, files: list[Path]) -> None:
        config = json.loads(self._config.read_text())
        config["rule_files"] = [str(file) for file in files]
        self._config.write_text(json.dumps(config))
        self._post("/-/reload")

    def _post(self, path: str, **parameters: str) -> None:
        query = urllib.parse.urlencode(parameters)
        request = urllib.request.Request(f"{self.url}{path}?{query}", method="POST")
        with urllib.request.urlopen(request, timeout=PATIENCE):
            pass


@pytest.fixture(scope="session")
def _scraping(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedPrometheus]:
    directory = tmp_path_factory.mktemp("prometheus")
    port = _reserved_port()
    flags = (
        "--web.enable-lifecycle",
        "--web.enable-admin-api",
        "--enable-feature=exemplar-storage",
    )
    url = f"http://127.0.0.1:{port}/metrics"
    with scraping(url, directory, flags=flags) as running:
        yield SharedPrometheus(running.url, port, directory / "prometheus.json")


@pytest.fixture(scope="module")
def prometheus(_scraping: SharedPrometheus) -> SharedPrometheus:
    """The Prometheus, which knows nothing of what tests of other files served."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", _scraping.port), 1):
        pytest.fail("a test has left a server where Prometheus scrapes")
    _scraping.forget()
    return _scraping


def _reserved_port() -> int:
    """One that is kept for later: nobody listens there now, and nobody is given it."""
    draw = random.SystemRandom()  # every worker of xdist seeds the other one alike
    while True:
        port = draw.choice(_RESERVED)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port

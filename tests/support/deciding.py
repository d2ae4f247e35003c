"""A decisions server in this process, and raw requests to it."""

from __future__ import annotations

import contextlib
import http.client
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from support.processes import PATIENCE
from tidegauge.fleet.decision_cache import DecisionCache
from tidegauge.fleet.decisions_server import DecisionsServer
from tidegauge.fleet.kafka_records import DecisionAction, DecisionRecord
from tidegauge.net.listener import Listener


class Response(NamedTuple):
    """An HTTP answer."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def json(self) -> Any:
        """The body's JSON."""
        return orjson.loads(self.body)

    @property
    def tag(self) -> str:
        """Its entity tag."""
        return self.headers["ETag"]


class Deciding:
    """A server, and who writes the decisions."""

    def __init__(self, server: DecisionsServer, cache: DecisionCache) -> None:
        self.server = server
        self.cache = cache
        self.url = server.url
        parts = urlsplit(server.url)
        self.address = (parts.hostname or "", parts.port or 0)

    def decide(self, run: str, action: DecisionAction, step: int = 0, **more: Any) -> None:
        """Post a decision."""
        record = DecisionRecord(run, action, step, **more)
        self.cache.take(run.encode(), record.encoded(), "here")

    def get(self, path: str, *, method: str = "GET", **headers: str) -> Response:
        """Ask; ``If_None_Match="..."`` names a header."""
        connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE)
        with contextlib.closing(connection):
            fields = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=fields)
            response = connection.getresponse()
            return Response(response.status, response.headers, response.read())

    def count(self, answer: str) -> float:
        """How many requests were answered so."""
        line = f'tidegauge_decisions_requests_total{{answer="{answer}"}} '
        page = self.get("/metrics").body.decode()
        return next(float(found[len(line) :]) for found in page.split("\n") if line in found)

    def wait_until_asked(self, run: str) -> None:
        """Until somebody waits for news of this run."""
        until_true(lambda: run in self.cache._waiting)


@contextlib.contextmanager
def deciding(
    *, token: str | None = None, ready: Callable[[], bool] = lambda: True, **listening: Any
) -> Iterator[Deciding]:
    """A server, until it is left."""
    cache = DecisionCache()
    server = DecisionsServer(cache, Listener(**listening), ready=ready, token=token)
    server.start()
    try:
        yield Deciding(server, cache)
    finally:
        server.stop(1.0)


def until_true(holds: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait for it."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it never was so"
        time.sleep(0.01)

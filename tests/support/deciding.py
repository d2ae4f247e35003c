"""A decisions server in this process, and raw requests to it."""

from __future__ import annotations

import contextlib
import http.client
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import orjson

from support.serve import PATIENCE
from tidegauge.fleet.decision_board import DecisionBoard
from tidegauge.fleet.decision_record import DecisionAction, DecisionRecord
from tidegauge.fleet.decisions_server import DecisionsServer
from tidegauge.instrumentation.otlp.listening import Listening


class Told(NamedTuple):
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

    def __init__(self, server: DecisionsServer, board: DecisionBoard) -> None:
        self.server = server
        self.board = board
        self.url = server.url
        parts = urlsplit(server.url)
        self.address = (parts.hostname or "", parts.port or 0)

    def decide(self, run: str, action: DecisionAction, step: int = 0, **more: Any) -> None:
        """Post a decision."""
        record = DecisionRecord(run, action, step, **more)
        self.board.post(run.encode(), record.encoded(), "here")

    def get(self, path: str, *, method: str = "GET", **headers: str) -> Told:
        """Ask; ``If_None_Match="..."`` names a header."""
        connection = http.client.HTTPConnection(*self.address, timeout=PATIENCE)
        with contextlib.closing(connection):
            told = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, headers=told)
            response = connection.getresponse()
            return Told(response.status, response.headers, response.read())

    def count(self, answer: str) -> float:
        """How many requests were answered so."""
        line = f'tidegauge_decisions_requests_total{{answer="{answer}"}} '
        page = self.get("/metrics").body.decode()
        return next(float(found[len(line) :]) for found in page.split("\n") if line in found)

    def wait_until_asked(self, run: str) -> None:
        """Until somebody waits for news of this run."""
        until_true(lambda: run in self.board._waiting)


@contextlib.contextmanager
def deciding(
    *, token: str | None = None, ready: Callable[[], bool] = lambda: True, **listening: Any
) -> Iterator[Deciding]:
    """A server, until it is left."""
    board = DecisionBoard()
    server = DecisionsServer(board, Listening(**listening), ready=ready, token=token)
    try:
        yield Deciding(server, board)
    finally:
        server.stop(1.0)


def until_true(holds: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait for it."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until, "it never was so"
        time.sleep(0.01)

"""Decisions over HTTP, for agents that poll: what holds for a run, now or as soon as it changes."""

from __future__ import annotations

import math
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs, unquote

import orjson

from tidegauge import catalog
from tidegauge._guard import internal_errors
from tidegauge._net.head import RejectedRequestError
from tidegauge._net.token import BearerToken
from tidegauge.exporters.prometheus.families import Family, Row
from tidegauge.exporters.prometheus.text import write_text
from tidegauge.fleet.decision_board import DecisionBoard, etag
from tidegauge.fleet.limits import MAX_ID_BYTES, MAX_IDS, MAX_WAIT_SECONDS
from tidegauge.instrumentation.otlp.connections import (
    Answer,
    BoundedHandler,
    BoundedServer,
    Request,
)
from tidegauge.instrumentation.otlp.listening import Listening, Tls

__all__ = ["DecisionsServer"]

_DECISIONS: Final = "/v1/decisions"
_JSON: Final = "application/json"
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class DecisionsServer:
    """Answers from its making on.

    Args:
        board: knows the decisions.
        listening: where, and how many connections; each that waits for news is one.
        ready: whether the board has been told all that there was; until then nobody is answered.
        token: what whoever asks is to show; left out, everybody is answered.
        tls: speak TLS.

    Attributes:
        url: where it listens.

    Raises:
        ConfigurationError: the files of TLS cannot be used, or the token is empty.
        OSError: the address cannot be listened on.
    """

    def __init__(
        self,
        board: DecisionBoard,
        listening: Listening,
        *,
        ready: Callable[[], bool],
        token: str | None = None,
        tls: Tls | None = None,
    ) -> None:
        self._board = board
        context = None if tls is None else tls.context()
        try:
            self._server = _Server(board, listening, ready, token, context)
        except OSError as error:
            address = f"{listening.host_in_url}:{listening.port}"
            why = error.strerror or error
            raise OSError(f"cannot listen on {address} for decisions: {why}") from error
        self._server.start()
        self.url = listening.url(self._server.server_port, tls)

    def stop(self, grace: float = 5.0) -> None:
        """Answer those who wait, and take no new connections."""
        self._server.stopping = True  # connections end with the answer to those who wait
        self._board.close()
        self._server.stop(grace)


class _Server(BoundedServer):
    where = "fleet.decisions"

    def __init__(
        self,
        board: DecisionBoard,
        listening: Listening,
        ready: Callable[[], bool],
        token: str | None,
        context: ssl.SSLContext | None,
    ) -> None:
        self.board = board
        self.ready = ready
        self.token = BearerToken(token)
        self._lock = threading.Lock()
        self._requests = Counter(dict.fromkeys(catalog.DECISIONS_REQUESTS.values, 0))
        super().__init__(listening, _Handler, context)

    def connection_rejected(self) -> None:
        self.count("busy")

    def count(self, answer: str) -> None:
        with self._lock:
            self._requests[answer] += 1

    def metrics(self) -> bytes:
        counts = self.board.counts
        with self._lock:
            requests = dict(self._requests)
        by_metric: dict[catalog.MetricDefinition, Sequence[Row]] = {
            catalog.DECISIONS_READ: [((), counts.read)],
            catalog.DECISIONS_SKIPPED: _rows(counts.skipped),
            catalog.DECISIONS_RUNS: [((), counts.known)],
            catalog.DECISIONS_DROPPED_RUNS: [((), counts.dropped)],
            catalog.DECISIONS_REQUESTS: _rows(requests),
            catalog.INTERNAL_ERRORS: _rows({self.where: 0, **internal_errors.counts()}),
        }
        return write_text(Family(metric, rows) for metric, rows in by_metric.items())


class _Handler(BoundedHandler):
    server: _Server

    def answer(self, request: Request) -> Answer:
        """Answer."""
        if request.method not in ("GET", "HEAD"):
            raise RejectedRequestError(HTTPStatus.NOT_IMPLEMENTED, "GET only", "refused")
        if request.has_body:
            raise _malformed("a request has no body here")
        match request.path:
            case "/healthz":
                return _say(HTTPStatus.OK, "ok")
            case "/readyz" if self.server.ready():
                return _say(HTTPStatus.OK, "ok")
            case "/readyz":
                return _say(HTTPStatus.SERVICE_UNAVAILABLE, "no")
            case "/metrics":
                return Answer(HTTPStatus.OK, self.server.metrics(), _METRICS_TYPE)
            case _:
                return self._decisions(request)

    def rejected(self, error: RejectedRequestError) -> Answer:
        """Why, as JSON."""
        known = error.reason in catalog.DECISIONS_REQUESTS.values
        self.server.count(str(error.reason) if known else "refused")
        body = orjson.dumps({"error": str(error)})
        return Answer(error.status, body, _JSON, error.headers)

    def _decisions(self, request: Request) -> Answer:
        under = request.path.removeprefix(_DECISIONS)
        if under == request.path or under[:1] not in ("", "/"):
            raise RejectedRequestError(HTTPStatus.NOT_FOUND, f"it is {_DECISIONS}/RUN", "refused")
        if not self.server.token.authorizes(request.headers.get("authorization")):
            raise RejectedRequestError(
                HTTPStatus.UNAUTHORIZED,
                "a valid bearer token is needed",
                "unauthorized",
                {"WWW-Authenticate": "Bearer"},
            )
        if not self.server.ready():
            raise RejectedRequestError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "the decisions are still being read",
                "not_ready",
                {"Retry-After": "1"},
            )
        try:
            asked = parse_qs(request.query, errors="strict", max_num_fields=MAX_IDS + 8)
            ids = [unquote(under[1:], errors="strict")] if under else asked.get("id", [])
            seconds = float(asked.get("wait", ["0"])[-1])
        except ValueError as error:
            raise _malformed("it cannot be read") from error
        if not 1 <= len(ids) <= MAX_IDS or not all(
            0 < len(i.encode()) <= MAX_ID_BYTES for i in ids
        ):
            raise _malformed(f"1 to {MAX_IDS} ids, each of 1 to {MAX_ID_BYTES} bytes")
        if not 0 <= seconds < math.inf:
            raise _malformed("wait is a number of seconds")
        shown = request.headers.get("if-none-match", "")
        return self._news(ids, shown, min(seconds, MAX_WAIT_SECONDS), alone=bool(under))

    def _news(self, ids: Sequence[str], shown: str, seconds: float, *, alone: bool) -> Answer:
        """What holds; a client that shows what it knows may wait until it is no longer so."""
        tags = {tag.strip().removeprefix("W/") for tag in shown.split(",")}

        def known(tag: str) -> bool:
            return tag in tags or "*" in tags

        answer = self.server.board.wait_for_news(ids, known, seconds)
        tag = etag(answer)
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if known(tag):
            self.server.count("unchanged")
            return Answer(HTTPStatus.NOT_MODIFIED, None, headers=headers)
        self.server.count("told")
        news: Any = answer[ids[0]] if alone else {"decisions": answer}
        return Answer(HTTPStatus.OK, orjson.dumps(news), _JSON, headers)


def _say(status: HTTPStatus, text: str) -> Answer:
    return Answer(status, f"{text}\n".encode())


def _malformed(message: str) -> RejectedRequestError:
    return RejectedRequestError(HTTPStatus.BAD_REQUEST, message, "refused")


def _rows(counts: Mapping[str, int]) -> list[Row]:
    return [((value,), count) for value, count in counts.items()]

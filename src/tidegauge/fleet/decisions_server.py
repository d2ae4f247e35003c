"""The HTTP server of decisions: the decision of a run, now or as soon as it changes."""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import parse_qs, unquote

import orjson

from tidegauge import catalog
from tidegauge.exporters.prometheus.collector import write_text
from tidegauge.exporters.reading import Family, Row
from tidegauge.fleet.client import MAX_ID_BYTES, MAX_IDS, MAX_WAIT_SECONDS
from tidegauge.fleet.decision_cache import DecisionCache, etag
from tidegauge.net.bounded_server import BoundedHandler, BoundedServer, Request, Response
from tidegauge.net.head import BearerToken, RejectedRequestError
from tidegauge.net.listener import Listener, Tls
from tidegauge.safety.guard import internal_errors

_DECISIONS: Final = "/v1/decisions"
_JSON: Final = "application/json"
_METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class DecisionsServer(BoundedServer):
    """Responds to requests for decisions, after :meth:`start`.

    Args:
        listener: address and limits; every request that waits for news occupies a connection.
        ready: whether the cache has read the whole topic; until then the server responds 503.
        token: bearer token that clients must send; ``None``: clients need none.
        tls: files of TLS; ``None``: plain HTTP.

    Raises:
        ConfigurationError: the TLS files cannot be used, or the token is empty.
        OSError: the server cannot listen on the address.
    """

    where = "fleet.decisions"
    serves = "decisions"

    def __init__(
        self,
        cache: DecisionCache,
        listener: Listener,
        *,
        ready: Callable[[], bool],
        token: str | None = None,
        tls: Tls | None = None,
    ) -> None:
        self.cache = cache
        self.ready = ready
        self.token = BearerToken(token)
        self._lock = threading.Lock()
        self._requests = Counter(dict.fromkeys(catalog.DECISIONS_REQUESTS.values, 0))
        super().__init__(listener, _Handler, tls)

    def stop(self, grace: float = 5.0) -> None:
        """Respond to the requests that wait, and accept no new connections."""
        self.stopping = True  # connections end with the response to those that wait
        self.cache.close()
        super().stop(grace)

    def connection_rejected(self) -> None:
        """Count it."""
        self.count("busy")

    def count(self, answer: str) -> None:
        """Count a request by how it was answered."""
        with self._lock:
            self._requests[answer] += 1

    def metrics(self) -> bytes:
        """The text of ``/metrics``."""
        counts = self.cache.counts
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
    server: DecisionsServer

    def answer(self, request: Request) -> Response:
        """The response to a request."""
        if request.method not in ("GET", "HEAD"):
            raise RejectedRequestError(HTTPStatus.NOT_IMPLEMENTED, "use GET", "refused")
        request.check_no_body()
        match request.path:
            case "/healthz":
                return _say(HTTPStatus.OK, "ok")
            case "/readyz" if self.server.ready():
                return _say(HTTPStatus.OK, "ok")
            case "/readyz":
                return _say(HTTPStatus.SERVICE_UNAVAILABLE, "not ready")
            case "/metrics":
                return Response(HTTPStatus.OK, self.server.metrics(), _METRICS_TYPE)
            case _:
                return self._decisions(request)

    def rejected(self, error: RejectedRequestError) -> Response:
        """The reason, as JSON."""
        known = error.reason in catalog.DECISIONS_REQUESTS.values
        self.server.count(str(error.reason) if known else "refused")
        body = orjson.dumps({"error": str(error)})
        return Response(error.status, body, _JSON, error.headers)

    def _decisions(self, request: Request) -> Response:
        under = request.path.removeprefix(_DECISIONS)
        if under == request.path or under[:1] not in ("", "/"):
            raise RejectedRequestError(
                HTTPStatus.NOT_FOUND, f"not found; use {_DECISIONS}/RUN", "refused"
            )
        self.server.token.check(request.headers.get("authorization"))
        if not self.server.ready():
            raise RejectedRequestError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "the topic of decisions is still being read; try again",
                "not_ready",
                {"Retry-After": "1"},
            )
        try:
            query = parse_qs(request.query, errors="strict", max_num_fields=MAX_IDS + 8)
            ids = [unquote(under[1:], errors="strict")] if under else query.get("id", [])
            seconds = float(query.get("wait", ["0"])[-1])
        except ValueError as error:
            raise _malformed("the query is malformed; use id=RUN and wait=SECONDS") from error
        if not 1 <= len(ids) <= MAX_IDS or not all(
            0 < len(i.encode()) <= MAX_ID_BYTES for i in ids
        ):
            raise _malformed(f"send 1 to {MAX_IDS} ids, each of 1 to {MAX_ID_BYTES} bytes")
        if not 0 <= seconds < math.inf:
            raise _malformed("wait must be a number of seconds, 0 or more")
        known_tags = request.headers.get("if-none-match", "")
        return self._current(ids, known_tags, min(seconds, MAX_WAIT_SECONDS), alone=bool(under))

    def _current(
        self, ids: Sequence[str], known_tags: str, seconds: float, *, alone: bool
    ) -> Response:
        """The current decisions; a client that sends the tag it knows may wait for a change."""
        tags = {tag.strip().removeprefix("W/") for tag in known_tags.split(",")}

        def known(tag: str) -> bool:
            return tag in tags or "*" in tags

        answer = self.server.cache.wait(ids, known, seconds)
        tag = etag(answer)
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if known(tag):
            self.server.count("unchanged")
            return Response(HTTPStatus.NOT_MODIFIED, None, headers=headers)
        self.server.count("sent")
        body: Any = answer[ids[0]] if alone else {"decisions": answer}
        return Response(HTTPStatus.OK, orjson.dumps(body), _JSON, headers)


def _say(status: HTTPStatus, text: str) -> Response:
    return Response(status, f"{text}\n".encode())


def _malformed(message: str) -> RejectedRequestError:
    return RejectedRequestError(HTTPStatus.BAD_REQUEST, message, "refused")


def _rows(counts: Mapping[str, int]) -> list[Row]:
    return [((value,), count) for value, count in counts.items()]

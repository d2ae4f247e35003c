"""HTTP requests of the client to ``tidegauge decisions``, over one connection that stays open."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode, urlsplit

from tidegauge.errors import ConfigurationError

MAX_IDS: Final = 64
"""Limit of the ids in a request; client and server obey it."""

MAX_ID_BYTES: Final = 512
"""Limit of the id of a run or trace, in UTF-8."""

MAX_WAIT_SECONDS: Final = 30.0
"""Limit of the time that a request waits for a change."""

Decisions: TypeAlias = Mapping[str, Mapping[str, Any]]
"""The decisions in a response, by the id in the request."""

_PATH: Final = "/v1/decisions"
_MAX_RESPONSE: Final = 1 << 20


class RequestFailedError(Exception):
    """There was no response, or none that can be read; the message says why."""


class DecisionsTransport:
    """Sends requests in one thread; another thread may interrupt it.

    Args:
        timeout: seconds to wait for a response, including the time that the server waits for a
            change.

    Attributes:
        server: host and port of the server, for the log.

    Raises:
        ConfigurationError: ``url`` is not an HTTP URL.
    """

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError as error:
            raise ConfigurationError(
                f"{url!r} is not a valid URL: {error}; use http://HOST:PORT"
            ) from error
        if host is None or parts.scheme not in ("http", "https"):
            raise ConfigurationError(f"{url!r} is not an HTTP URL; use http://HOST:PORT")
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        self._kind = kinds[parts.scheme]
        self._host, self._port, self._timeout = host, port, timeout
        self._path = parts.path.rstrip("/") + _PATH
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._connection: http.client.HTTPConnection | None = None
        self._interrupted = False
        self.server = parts.netloc.rpartition("@")[2]

    def get(
        self, ids: Sequence[str], wait: float, tag: str | None
    ) -> tuple[Decisions | None, str | None]:
        """Get the decisions for these runs or traces, and their entity tag; or RequestFailedError.

        If ``tag`` of the last response is still current, the server waits at most ``wait`` seconds
        for a change; without a change, the result is ``None`` and the same tag.
        """
        query = urlencode([*(("id", name) for name in ids), ("wait", f"{wait:g}")])
        headers = self._headers if tag is None else {**self._headers, "If-None-Match": tag}
        try:
            response, body = self._send(f"{self._path}?{query}", headers)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise RequestFailedError(f"{error}" or type(error).__name__) from error
        if response.status == HTTPStatus.NOT_MODIFIED:
            return None, tag
        if response.status != HTTPStatus.OK:
            raise RequestFailedError(f"{response.status} {response.reason}")
        return _parsed(body), response.headers["ETag"]

    def interrupt(self) -> None:
        """From another thread: end a request that waits."""
        self._interrupted = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection, if there is one; the next request opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _send(
        self, target: str, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        if self._connection is not None:
            try:
                return self._send_over(self._connection, target, headers)
            except ConnectionError:  # the server closed it between two requests
                self.close()
                if self._interrupted:
                    raise
        self._connection = self._kind(self._host, self._port, timeout=self._timeout)
        return self._send_over(self._connection, target, headers)

    def _send_over(
        self, connection: http.client.HTTPConnection, target: str, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection.request("GET", target, headers=dict(headers))
        response = connection.getresponse()
        body = response.read(_MAX_RESPONSE + 1)
        if len(body) > _MAX_RESPONSE:
            raise ValueError(f"the response is larger than {_MAX_RESPONSE} bytes")
        return response, body


def _parsed(body: bytes) -> Decisions:
    with contextlib.suppress(ValueError, AttributeError, RecursionError):
        decisions = json.loads(body).get("decisions")
        if isinstance(decisions, dict) and all(map(_is_decision, decisions.values())):
            return decisions
    raise RequestFailedError("the response is not from tidegauge decisions")


def _is_decision(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    texts = [value.get(name) for name in ("reason", "message")]
    return (
        isinstance(value.get("run"), str)
        and isinstance(value.get("action"), str)
        and all(text is None or isinstance(text, str) for text in texts)
    )

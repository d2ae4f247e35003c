"""One connection to ``tidegauge decisions``, kept open between requests."""

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

__all__ = ["Answers", "DecisionsConnection", "UnansweredError"]

Answers: TypeAlias = Mapping[str, Mapping[str, Any]]
"""What holds, by the id that was asked for."""

_PATH: Final = "/v1/decisions"
_MAX_ANSWER: Final = 1 << 20


class UnansweredError(Exception):
    """There was no answer, or none that can be read; its text says why."""


class DecisionsConnection:
    """Asks, in one thread; another may interrupt it.

    Args:
        url: where ``tidegauge decisions`` serves.
        token: bearer token to show.
        timeout: seconds until a server that says nothing is given up, waiting for news included.

    Attributes:
        server: its host and port, for the log.

    Raises:
        ConfigurationError: ``url`` is none of HTTP.
    """

    def __init__(self, url: str, token: str | None, timeout: float) -> None:
        try:
            told = urlsplit(url)
            host, port = told.hostname, told.port
        except ValueError as error:
            raise ConfigurationError(f"{url!r} is no URL: {error}") from error
        if host is None or told.scheme not in ("http", "https"):
            raise ConfigurationError(f"decisions are asked for at http://HOST:PORT, not {url!r}")
        kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
        self._kind = kinds[told.scheme]
        self._host, self._port, self._timeout = host, port, timeout
        self._path = told.path.rstrip("/") + _PATH
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._connection: http.client.HTTPConnection | None = None
        self._interrupted = False
        self.server = told.netloc.rpartition("@")[2]

    def ask(
        self, ids: Sequence[str], wait: float, tag: str | None
    ) -> tuple[Answers | None, str | None]:
        """What holds for these runs.

        Args:
            ids: of runs or traces.
            wait: seconds that the server waits for news at most, if ``tag`` is still right.
            tag: of the last answer to the same question; ``None``, it is asked for the first time.

        Returns:
            The answers and their tag; ``None`` and the same tag, nothing new.

        Raises:
            UnansweredError: there is no answer.
        """
        query = urlencode([*(("id", name) for name in ids), ("wait", f"{wait:g}")])
        headers = self._headers if tag is None else {**self._headers, "If-None-Match": tag}
        try:
            response, body = self._get(f"{self._path}?{query}", headers)
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.close()
            raise UnansweredError(f"{error}" or type(error).__name__) from error
        if response.status == HTTPStatus.NOT_MODIFIED:
            return None, tag
        if response.status != HTTPStatus.OK:
            raise UnansweredError(f"{response.status} {response.reason}")
        return _read(body), response.headers["ETag"]

    def interrupt(self) -> None:
        """From another thread, at the end: wait for no answer any longer."""
        self._interrupted = True
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection, if there is one; the next question makes another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _get(
        self, target: str, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        if self._connection is not None:
            try:
                return self._get_over(self._connection, target, headers)
            except ConnectionError:  # it was closed while nothing was asked
                self.close()
                if self._interrupted:
                    raise
        self._connection = self._kind(self._host, self._port, timeout=self._timeout)
        return self._get_over(self._connection, target, headers)

    def _get_over(
        self, connection: http.client.HTTPConnection, target: str, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        connection.request("GET", target, headers=dict(headers))
        response = connection.getresponse()
        body = response.read(_MAX_ANSWER + 1)
        if len(body) > _MAX_ANSWER:
            raise ValueError(f"an answer of more than {_MAX_ANSWER} bytes")
        return response, body


def _read(body: bytes) -> Answers:
    with contextlib.suppress(ValueError, AttributeError, RecursionError):
        answers = json.loads(body).get("decisions")
        if isinstance(answers, dict) and all(map(_is_told, answers.values())):
            return answers
    raise UnansweredError("it is no tidegauge decisions")


def _is_told(told: object) -> bool:
    if not isinstance(told, dict):
        return False
    texts = [told.get(name) for name in ("reason", "message")]
    return (
        isinstance(told.get("run"), str)
        and isinstance(told.get("action"), str)
        and all(text is None or isinstance(text, str) for text in texts)
    )

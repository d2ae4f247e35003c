"""Requests to an endpoint that speaks OTLP over HTTP."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import ssl
from collections.abc import Mapping
from io import BufferedReader
from typing import Any, Final

from tidegauge._net.deadline import TimedSocket
from tidegauge.instrumentation.otlp.reception import Encoding
from tidegauge.instrumentation.otlp.sending import Forwarding, RefusedError, RetryError

__all__ = ["HttpSender"]

_CONTENT_TYPES: Final[Mapping[Encoding, str]] = {
    "protobuf": "application/x-protobuf",
    "json": "application/json",
}
_RETRYABLE_STATUS: Final = frozenset({429, 502, 503, 504})
_MAX_ANSWER: Final = 64 * 1024


class HttpSender:
    """Sends on one connection, as long as that lasts.

    Args:
        host: the endpoint's.
        port: the endpoint's.
        path: where to; left empty, ``/v1/traces``.
        secure: speak TLS.
        told: the rest of it.

    Raises:
        OSError: the file of certificates cannot be used.
    """

    def __init__(self, host: str, port: int, path: str, secure: bool, told: Forwarding) -> None:
        self._path = path or "/v1/traces"
        self._told = told
        self._connection: http.client.HTTPConnection
        if secure:
            self._connection = http.client.HTTPSConnection(
                host, port, timeout=told.timeout, context=ssl.create_default_context(cafile=told.ca)
            )
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=told.timeout)
        self._connection.response_class = self._response  # type: ignore[assignment]

    def send(self, body: bytes, encoding: Encoding) -> None:
        """Send one request; see :class:`Sender`."""
        headers = {
            **self._told.headers,
            "Content-Type": _CONTENT_TYPES[encoding],
            "Content-Encoding": "gzip",
        }
        try:
            if self._connection.sock is not None:
                self._connection.sock.settimeout(self._told.timeout)
            self._connection.request("POST", self._path, gzip.compress(body, 1), headers)
            answer = self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise RetryError from error
        self._finish(answer)
        if answer.status in _RETRYABLE_STATUS:
            after = answer.headers.get("Retry-After", "")
            raise RetryError(float(after) if after.isdecimal() else None)
        if not 200 <= answer.status < 300:
            raise RefusedError

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _finish(self, answer: http.client.HTTPResponse) -> None:
        """Read the rest of an answer, if that is possible: its status has said what counts."""
        whole = False
        with contextlib.suppress(OSError, http.client.HTTPException):
            answer.read(_MAX_ANSWER)
            whole = answer.isclosed()
        if not whole:
            self._connection.close()
            answer.close()

    def _response(self, sock: Any, **told: Any) -> http.client.HTTPResponse:
        """An answer that has to be there in time, however slowly it is sent."""
        return http.client.HTTPResponse(_Timed(sock, self._told.timeout), **told)  # type: ignore[arg-type]


class _Timed(TimedSocket):
    """As much of a socket as an answer is read from.

    It holds the socket open until it is closed: the connection closes it before the answer is read,
    if that is the last one.
    """

    def __init__(self, sock: Any, seconds: float) -> None:
        super().__init__(sock)
        self._held = sock.makefile("rb", buffering=0)
        self.allow(seconds)

    def makefile(self, mode: str) -> BufferedReader:
        return BufferedReader(self)

    def close(self) -> None:
        self._held.close()
        super().close()

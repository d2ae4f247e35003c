"""One request to an endpoint: where that is, and what may become of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from tidegauge.instrumentation.otlp.reception import Encoding

__all__ = ["Forwarding", "RefusedError", "RetryError", "Sender"]

_NO_HEADERS: Final[Mapping[str, str]] = {}


class Forwarding(NamedTuple):
    """Where requests are passed on to, and what is spent on that.

    Args:
        url: ``http://host:4318`` for OTLP over HTTP (``/v1/traces`` is added where there is no
            path), ``grpc://host:4317`` for gRPC; ``https``, ``grpcs`` speak TLS.
        headers: sent along.
        queued_bytes: of requests that wait; more are dropped.
        timeout: seconds for one attempt.
        give_up_after: seconds after which a request that is not taken is dropped.
        ca: file of the certificates, in PEM, by one of which the endpoint's is to be signed; left
            out, those that the system trusts.
    """

    url: str
    headers: Mapping[str, str] = _NO_HEADERS
    queued_bytes: int = 64 * 1024 * 1024
    timeout: float = 10.0
    give_up_after: float = 60.0
    ca: str | None = None


class RetryError(Exception):
    """It was not taken, and may be taken later.

    Args:
        after: seconds that the endpoint asks to wait.
    """

    def __init__(self, after: float | None = None) -> None:
        super().__init__(after)
        self.after = after


class RefusedError(Exception):
    """It was not taken, and never will be."""


class Sender(Protocol):
    """Sends requests to one endpoint, from one thread."""

    def send(self, body: bytes, encoding: Encoding) -> None:
        """Send one request.

        Raises:
            RetryError: it was not taken, and may be taken later.
            RefusedError: it was not taken, and never will be.
        """

    def close(self) -> None:
        """Close the connection."""

"""Forwards requests unchanged to another OTLP endpoint, from a separate thread.

Requests wait in a queue with a limit, so receivers never block. A request that does not fit, or is
not accepted in time, is dropped and counted.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import http.client
import random
import ssl
import threading
import time
import urllib.parse
from collections import Counter, deque
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from tidegauge.errors import ConfigurationError
from tidegauge.net.bounded_server import TimedSocket
from tidegauge.receivers.decoding import Encoding
from tidegauge.safety.guard import guarded

_NO_HEADERS: Final[Mapping[str, str]] = {}
_CONTENT_TYPES: Final[Mapping[Encoding, str]] = {
    "protobuf": "application/x-protobuf",
    "json": "application/json",
}
_RETRYABLE_STATUS: Final = frozenset({429, 502, 503, 504})
_MAX_RESPONSE: Final = 64 * 1024


class Forwarding(NamedTuple):
    """The endpoint that requests are forwarded to, and the limits of forwarding.

    Args:
        url: ``http://host:4318`` for OTLP over HTTP (without a path, ``/v1/traces`` is added),
            ``grpc://host:4317`` for gRPC; ``https`` and ``grpcs`` use TLS.
        queued_bytes: limit of the waiting requests; further ones are dropped.
        timeout: seconds for one attempt.
        give_up_after: seconds after which a request is dropped.
        ca: file of the certificates, in PEM, that may have signed the endpoint's certificate;
            ``None``: those that the system trusts.
    """

    url: str
    headers: Mapping[str, str] = _NO_HEADERS
    queued_bytes: int = 64 * 1024 * 1024
    timeout: float = 10.0
    give_up_after: float = 60.0
    ca: str | None = None


class RetryError(Exception):
    """The request was not accepted; try again later.

    Args:
        after: seconds that the endpoint asks to wait.
    """

    def __init__(self, after: float | None = None) -> None:
        super().__init__(after)
        self.after = after


class RejectedError(Exception):
    """The endpoint rejected the request for good."""


def new_sender(settings: Forwarding) -> HttpSender | GrpcSender:
    """The sender for an endpoint. It is not thread-safe; ``send`` raises one of the above.

    Raises:
        ConfigurationError: the URL is invalid, or the certificates cannot be used.
    """
    try:
        parts = urllib.parse.urlsplit(settings.url)
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"forward_to {settings.url!r}: {error}") from error
    if not parts.hostname or parts.scheme not in ("http", "https", "grpc", "grpcs"):
        raise ConfigurationError(
            f"forward_to {settings.url!r} is not an OTLP endpoint; use http://HOST:PORT or "
            "grpc://HOST:PORT (https or grpcs for TLS)"
        )
    secure = parts.scheme.endswith("s")
    try:
        if settings.ca is not None:  # gRPC would not say what is wrong with the file
            ssl.create_default_context(cafile=settings.ca)
        if parts.scheme.startswith("grpc"):
            return GrpcSender(f"{parts.hostname}:{port or 4317}", secure, settings)
        return HttpSender(parts.hostname, port or 4318, parts.path.rstrip("/"), secure, settings)
    except OSError as error:
        why = error.strerror or error
        raise ConfigurationError(f"forward_ca {settings.ca!r}: {why}") from error


class HttpSender:
    def __init__(self, host: str, port: int, path: str, secure: bool, settings: Forwarding) -> None:
        self._path = path or "/v1/traces"
        self._settings = settings
        self._connection: http.client.HTTPConnection
        timeout = settings.timeout
        if secure:
            context = ssl.create_default_context(cafile=settings.ca)
            self._connection = http.client.HTTPSConnection(
                host, port, timeout=timeout, context=context
            )
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=timeout)
        self._connection.response_class = self._response  # type: ignore[assignment]

    def send(self, body: bytes, encoding: Encoding) -> None:
        headers = {
            **self._settings.headers,
            "Content-Type": _CONTENT_TYPES[encoding],
            "Content-Encoding": "gzip",
        }
        try:
            if self._connection.sock is not None:
                self._connection.sock.settimeout(self._settings.timeout)
            self._connection.request("POST", self._path, gzip.compress(body, 1), headers)
            response = self._connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise RetryError from error
        self._finish(response)
        if response.status in _RETRYABLE_STATUS:
            after = response.headers.get("Retry-After", "")
            raise RetryError(float(after) if after.isdecimal() else None)
        if not 200 <= response.status < 300:
            raise RejectedError

    def close(self) -> None:
        self._connection.close()

    def _finish(self, response: http.client.HTTPResponse) -> None:
        """Read the rest of a response, if possible: its status is all that counts."""
        whole = False
        with contextlib.suppress(OSError, http.client.HTTPException):
            response.read(_MAX_RESPONSE)
            whole = response.isclosed()
        if not whole:
            self._connection.close()
            response.close()

    def _response(self, sock: Any, **options: Any) -> http.client.HTTPResponse:
        """A response with a deadline, however slowly the endpoint sends it."""
        return http.client.HTTPResponse(_Timed(sock, self._settings.timeout), **options)  # type: ignore[arg-type]


class _Timed(TimedSocket):
    """The part of a socket that a response is read from.

    It keeps the socket open until it is closed: the connection closes the socket before the last
    response is read.
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


class GrpcSender:
    def __init__(self, address: str, secure: bool, settings: Forwarding) -> None:
        import grpc  # type: ignore[import-untyped]

        self._grpc = grpc
        self._settings = settings
        if secure:
            trusted = None if settings.ca is None else Path(settings.ca).read_bytes()
            self._channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(trusted))
        else:
            self._channel = grpc.insecure_channel(address)
        self._export = self._channel.unary_unary(
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
        )
        self._metadata = tuple((name.lower(), value) for name, value in settings.headers.items())
        codes = grpc.StatusCode
        self._retryable = {
            codes.CANCELLED,
            codes.DEADLINE_EXCEEDED,
            codes.RESOURCE_EXHAUSTED,
            codes.ABORTED,
            codes.OUT_OF_RANGE,
            codes.UNAVAILABLE,
            codes.DATA_LOSS,
        }

    def send(self, body: bytes, encoding: Encoding) -> None:
        if encoding == "json":
            body = _as_protobuf(body)
        try:
            self._export(
                body,
                timeout=self._settings.timeout,
                metadata=self._metadata,
                compression=self._grpc.Compression.Gzip,
            )
        except self._grpc.RpcError as error:
            if error.code() in self._retryable:
                raise RetryError from error
            raise RejectedError from error

    def close(self) -> None:
        self._channel.close()


def _as_protobuf(body: bytes) -> bytes:
    """A request in OTLP's JSON as protobuf: slow, and seldom needed."""
    from google.protobuf.json_format import ParseDict, ParseError  # type: ignore[import-untyped]
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    try:
        request = _with_base64_ids(orjson.loads(body))
        message = ParseDict(request, ExportTraceServiceRequest(), ignore_unknown_fields=True)
    except (ParseError, ValueError, RecursionError) as error:
        raise RejectedError from error
    return bytes(message.SerializeToString())


def _with_base64_ids(value: Any) -> Any:
    """The same with ids in base64, as in protobuf's JSON; OTLP's JSON has hexadecimal ids."""
    if isinstance(value, list):
        return [_with_base64_ids(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        key: base64.b64encode(bytes.fromhex(item)).decode()
        if key in ("traceId", "spanId", "parentSpanId") and isinstance(item, str)
        else _with_base64_ids(item)
        for key, item in value.items()
    }


_FIRST_BACKOFF: Final = 0.5
_LONGEST_BACKOFF: Final = 8.0


class Forwarder:
    """Forwards requests from its construction until :meth:`close`.

    Attributes:
        dropped: number of dropped spans by reason.

    Raises:
        ConfigurationError: the URL is invalid, or the certificates cannot be used.
    """

    def __init__(self, settings: Forwarding) -> None:
        self._settings = settings
        self._sender = new_sender(settings)
        self._changed = threading.Condition()
        self._requests: deque[tuple[bytes, Encoding, int]] = deque()
        self._bytes = 0
        self._closing = False
        self._until = float("inf")  # when closing is over
        self.forwarded = 0
        self.dropped: Counter[str] = Counter()
        self._thread = threading.Thread(target=self._work, name="tidegauge-forward", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return len(self._requests)

    def offer(self, body: bytes, encoding: Encoding, spans: int) -> None:
        """Queue a request; never blocks."""
        with self._changed:
            if self._closing:
                self.dropped["shutdown"] += spans
            elif self._bytes + len(body) > self._settings.queued_bytes:
                self.dropped["queue_full"] += spans
            else:
                self._requests.append((body, encoding, spans))
                self._bytes += len(body)
                self._changed.notify()

    def begin_close(self, until: float) -> None:
        """Accept no more requests, and forward the waiting ones.

        Args:
            until: a moment of the monotonic clock, after which they are dropped.
        """
        with self._changed:
            self._closing = True
            self._until = until
            self._changed.notify()

    def end_close(self) -> list[str]:
        """Wait until that is done; what was dropped, in words."""
        self._thread.join(max(self._until - time.monotonic(), 0.0))
        with self._changed:
            left = list(self._requests)
            self._requests.clear()
            for _, _, spans in left:
                self.dropped["shutdown"] += spans
            lost = self.dropped["shutdown"]
        return [f"{lost:,} spans were not forwarded"] if lost else []

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._requests or self._closing)
                if not self._requests:
                    break
                body, encoding, spans = self._requests[0]
            dropped = self._forward(body, encoding)
            with self._changed:
                if self._requests:  # close() may have dropped it
                    self._requests.popleft()
                    self._bytes -= len(body)
                    if dropped is None:
                        self.forwarded += spans
                    else:
                        self.dropped[dropped] += spans
        self._sender.close()

    @guarded("otlp.forward", default="refused")
    def _forward(self, body: bytes, encoding: Encoding) -> str | None:
        """Send one request, with retries; returns why it was dropped, if it was."""
        deadline = time.monotonic() + self._settings.give_up_after
        backoff = _FIRST_BACKOFF
        while True:
            try:
                self._sender.send(body, encoding)
            except RejectedError:
                return "refused"
            except RetryError as error:
                jitter = random.uniform(0.8, 1.2)  # noqa: S311 -- not a secret
                wait = backoff * jitter if error.after is None else error.after
                backoff = min(2 * backoff, _LONGEST_BACKOFF)
            else:
                return None
            if time.monotonic() + wait > deadline:
                return "unreachable"
            with self._changed:
                self._changed.wait_for(lambda: self._closing, wait)
                if self._closing and time.monotonic() + wait > self._until:
                    return "shutdown"

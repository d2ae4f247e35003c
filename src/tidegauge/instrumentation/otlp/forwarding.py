"""Passing requests on to another OTLP endpoint, as they came, from a thread of its own.

Nobody waits for it: requests queue up to a limit, and what does not fit, or is not taken in time,
is dropped and counted.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import random
import ssl
import threading
import time
import urllib.parse
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from io import BufferedReader
from typing import Any, Final, NamedTuple, Protocol

import orjson

from tidegauge._guard import guarded
from tidegauge.errors import ConfigurationError, MissingExtraError
from tidegauge.instrumentation.otlp.deadline import TimedSocket
from tidegauge.instrumentation.otlp.reception import Encoding

__all__ = ["Forwarder", "Forwarding", "ForwardingCounts"]

_CONTENT_TYPES: Final[Mapping[Encoding, str]] = {
    "protobuf": "application/x-protobuf",
    "json": "application/json",
}
_RETRYABLE_STATUS: Final = frozenset({429, 502, 503, 504})
_MAX_ANSWER: Final = 64 * 1024
_FIRST_BACKOFF, _LONGEST_BACKOFF = 0.5, 8.0


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
    """

    url: str
    headers: Mapping[str, str] = _NO_HEADERS
    queued_bytes: int = 64 * 1024 * 1024
    timeout: float = 10.0
    give_up_after: float = 60.0


@dataclass(slots=True)
class ForwardingCounts:
    """Counts of spans.

    Args:
        forwarded: that were taken.
        dropped: that were not, by reason.
    """

    forwarded: int = 0
    dropped: dict[str, int] = field(default_factory=dict)


class _RetryError(Exception):
    """It was not taken, and may be taken later."""

    def __init__(self, after: float | None = None) -> None:
        super().__init__(after)
        self.after = after


class _RefusedError(Exception):
    """It was not taken, and never will be."""


class _Sender(Protocol):
    def send(self, body: bytes, encoding: Encoding) -> None:
        """Raises :class:`_RetryError` or :class:`_RefusedError` when it is not taken."""

    def close(self) -> None: ...


class Forwarder:
    """Passes requests on, from its making on until :meth:`close`.

    Args:
        forwarding: where to.

    Raises:
        ConfigurationError: the address is none.
        MissingExtraError: gRPC is to be spoken, and grpcio is not installed.
    """

    def __init__(self, forwarding: Forwarding) -> None:
        self._told = forwarding
        self._sender = _sender(forwarding)
        self._changed = threading.Condition()
        self._requests: deque[tuple[bytes, Encoding, int]] = deque()
        self._bytes = 0
        self._closing = False
        self._until = float("inf")  # when closing is over
        self._counts = ForwardingCounts()
        self._thread = threading.Thread(target=self._work, name="tidegauge-forward", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._requests)

    @property
    def counts(self) -> ForwardingCounts:
        """What was passed on and what was not, so far."""
        with self._changed:
            return ForwardingCounts(self._counts.forwarded, dict(self._counts.dropped))

    def offer(self, body: bytes, encoding: Encoding, spans: int) -> None:
        """Pass a request on, later; never waits."""
        with self._changed:
            if self._closing:
                self._drop("shutdown", spans)
            elif self._bytes + len(body) > self._told.queued_bytes:
                self._drop("queue_full", spans)
            else:
                self._requests.append((body, encoding, spans))
                self._bytes += len(body)
                self._changed.notify()

    def close(self, timeout: float) -> bool:
        """Pass on what waits, for so many seconds; drop the rest.

        Returns:
            Whether nothing was dropped for it.
        """
        with self._changed:
            self._closing = True
            self._until = time.monotonic() + timeout
            self._changed.notify()
        self._thread.join(timeout)
        with self._changed:
            left = list(self._requests)
            self._requests.clear()
            for _, _, spans in left:
                self._drop("shutdown", spans)
            return not self._counts.dropped.get("shutdown")

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._requests or self._closing)
                if not self._requests:
                    break
                body, encoding, spans = self._requests[0]
            dropped = self._pass_on(body, encoding)
            with self._changed:
                if self._requests:  # closing may have given it up
                    self._requests.popleft()
                    self._bytes -= len(body)
                    if dropped is None:
                        self._counts.forwarded += spans
                    else:
                        self._drop(dropped, spans)
        self._sender.close()

    @guarded("otlp.forward", default="refused")
    def _pass_on(self, body: bytes, encoding: Encoding) -> str | None:
        """Send one request until it is taken or given up; why it was dropped."""
        give_up = time.monotonic() + self._told.give_up_after
        backoff = _FIRST_BACKOFF
        while True:
            try:
                self._sender.send(body, encoding)
            except _RefusedError:
                return "refused"
            except _RetryError as error:
                jitter = random.uniform(0.8, 1.2)  # noqa: S311 -- nobody gains by guessing it
                wait = backoff * jitter if error.after is None else error.after
                backoff = min(2 * backoff, _LONGEST_BACKOFF)
            else:
                return None
            if time.monotonic() + wait > give_up:
                return "unreachable"
            with self._changed:
                self._changed.wait_for(lambda: self._closing, wait)
                if self._closing and time.monotonic() + wait > self._until:
                    return "shutdown"

    def _drop(self, reason: str, spans: int) -> None:
        self._counts.dropped[reason] = self._counts.dropped.get(reason, 0) + spans


def _sender(told: Forwarding) -> _Sender:
    parts = urllib.parse.urlsplit(told.url)
    try:
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"forward_to {told.url!r}: {error}") from error
    if not parts.hostname or parts.scheme not in ("http", "https", "grpc", "grpcs"):
        raise ConfigurationError(
            f"forward_to {told.url!r} is to be http://HOST:PORT, or grpc://HOST:PORT "
            "(https, grpcs for TLS)"
        )
    secure = parts.scheme.endswith("s")
    if parts.scheme.startswith("grpc"):
        return _GrpcSender(f"{parts.hostname}:{port or 4317}", secure, told)
    return _HttpSender(parts.hostname, port or 4318, parts.path.rstrip("/"), secure, told)


class _HttpSender:
    """OTLP over HTTP, on one connection as long as that lasts."""

    def __init__(self, host: str, port: int, path: str, secure: bool, told: Forwarding) -> None:
        self._path = path or "/v1/traces"
        self._told = told
        self._connection: http.client.HTTPConnection
        if secure:
            self._connection = http.client.HTTPSConnection(
                host, port, timeout=told.timeout, context=ssl.create_default_context()
            )
        else:
            self._connection = http.client.HTTPConnection(host, port, timeout=told.timeout)
        self._connection.response_class = self._response  # type: ignore[assignment]

    def send(self, body: bytes, encoding: Encoding) -> None:
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
            answer.read(_MAX_ANSWER)
            if not answer.isclosed():
                self._connection.close()  # it had more to say
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise _RetryError from error
        if answer.status in _RETRYABLE_STATUS:
            after = answer.headers.get("Retry-After", "")
            raise _RetryError(float(after) if after.isdecimal() else None)
        if not 200 <= answer.status < 300:
            raise _RefusedError

    def close(self) -> None:
        self._connection.close()

    def _response(self, sock: Any, **told: Any) -> http.client.HTTPResponse:
        """An answer that has to be there in time, however slowly it is sent."""
        return http.client.HTTPResponse(_Timed(sock, self._told.timeout), **told)  # type: ignore[arg-type]


class _Timed:
    """As much of a socket as an answer is read from."""

    def __init__(self, sock: Any, seconds: float) -> None:
        self._timed = TimedSocket(sock)
        self._timed.allow(seconds)

    def makefile(self, mode: str) -> BufferedReader:
        return BufferedReader(self._timed)


class _GrpcSender:
    """OTLP over gRPC."""

    def __init__(self, address: str, secure: bool, told: Forwarding) -> None:
        try:
            import grpc  # type: ignore[import-untyped]
        except ModuleNotFoundError as error:
            raise MissingExtraError("grpcio", extra="serve") from error
        self._grpc = grpc
        self._told = told
        if secure:
            self._channel = grpc.secure_channel(address, grpc.ssl_channel_credentials())
        else:
            self._channel = grpc.insecure_channel(address)
        self._export = self._channel.unary_unary(
            "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
        )
        self._metadata = tuple((name.lower(), value) for name, value in told.headers.items())
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
                timeout=self._told.timeout,
                metadata=self._metadata,
                compression=self._grpc.Compression.Gzip,
            )
        except self._grpc.RpcError as error:
            if error.code() in self._retryable:
                raise _RetryError from error
            raise _RefusedError from error

    def close(self) -> None:
        self._channel.close()


def _as_protobuf(body: bytes) -> bytes:
    """A request in OTLP's JSON, as protobuf: slow, and seldom needed."""
    from google.protobuf.json_format import ParseDict, ParseError  # type: ignore[import-untyped]
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    try:
        request = _with_base64_ids(orjson.loads(body))
        message = ParseDict(request, ExportTraceServiceRequest(), ignore_unknown_fields=True)
    except (ParseError, ValueError) as error:
        raise _RefusedError from error
    return bytes(message.SerializeToString())


def _with_base64_ids(told: Any) -> Any:
    """Ids as protobuf's own JSON has them; OTLP's has them in hexadecimal."""
    if isinstance(told, list):
        return [_with_base64_ids(item) for item in told]
    if not isinstance(told, dict):
        return told
    return {
        key: base64.b64encode(bytes.fromhex(value)).decode()
        if key in ("traceId", "spanId", "parentSpanId") and isinstance(value, str)
        else _with_base64_ids(value)
        for key, value in told.items()
    }

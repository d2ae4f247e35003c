"""OTLP over HTTP: ``POST /v1/traces``, protobuf or JSON, compressed or not.

The standard library's threading server: a connection is a thread, there is a highest number of
them, and each has to be done with its request by a time, however slowly it sends.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader
from typing import Any, Final

import orjson
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tidegauge._guard import internal_errors
from tidegauge.instrumentation.otlp.deadline import TimedSocket
from tidegauge.instrumentation.otlp.decoded import Decoded, MalformedRequestError
from tidegauge.instrumentation.otlp.listening import Listening, Tls
from tidegauge.instrumentation.otlp.reception import (
    RETRY_SECONDS,
    BusyError,
    Encoding,
    Reception,
    TooLargeError,
)

__all__ = ["HttpServer"]

_TRACES: Final = "/v1/traces"
_IGNORED: Final = ("/v1/logs", "/v1/metrics")
_TYPES: Final[dict[str, Encoding]] = {
    "application/x-protobuf": "protobuf",
    "application/protobuf": "protobuf",
    "application/json": "json",
}
_CONTENT_TYPES: Final[dict[Encoding, str]] = {
    "protobuf": "application/x-protobuf",
    "json": "application/json",
}
_INVALID_ARGUMENT, _RESOURCE_EXHAUSTED, _UNAVAILABLE, _UNAUTHENTICATED = 3, 8, 14, 16
_MAX_CHUNK_LINE: Final = 1_024
_MAX_LOOK: Final = 65_536
_BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)


class HttpServer:
    """Listens for OTLP over HTTP, from its making on.

    Args:
        reception: takes the requests.
        listening: where, and how many.
        tls: speak TLS.

    Attributes:
        url: where it listens.

    Raises:
        ConfigurationError: the files of TLS cannot be used.
        OSError: the address cannot be listened on.
    """

    def __init__(self, reception: Reception, listening: Listening, tls: Tls | None = None) -> None:
        try:
            self._server = _Server(reception, listening, None if tls is None else tls.context())
        except OSError as error:
            address = f"{listening.host_in_url}:{listening.port}"
            why = error.strerror or error
            raise OSError(f"cannot listen on {address} for OTLP over HTTP: {why}") from error
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="tidegauge-http", daemon=True
        )
        self._thread.start()
        self.url = listening.url(self._server.server_port, tls)

    def stop(self, grace: float = 5.0) -> None:
        """Take no new connections, and let requests that are under way end for so many seconds."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server.end_connections(grace)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(
        self, reception: Reception, listening: Listening, context: ssl.SSLContext | None
    ) -> None:
        if ":" in listening.host:
            self.address_family = socket.AF_INET6
        self.reception = reception
        self.listening = listening
        self.context = context
        self.stopping = False
        self._changed = threading.Condition()
        self._connections: dict[socket.socket, bool] = {}  # whether a request is under way
        super().__init__((listening.host, listening.port), _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            full = len(self._connections) >= self.listening.max_connections
            if not full:
                self._connections[request] = False
        if full:
            self.reception.refuse("busy")
            if self.context is None:
                with contextlib.suppress(OSError):
                    request.setblocking(False)
                    request.send(_BUSY)
                    request.shutdown(socket.SHUT_WR)
                    request.recv(_MAX_LOOK)  # what is left unread takes the answer with it
            super().shutdown_request(request)
            return
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """In the connection's thread: whoever never shakes hands keeps nobody else waiting."""
        request.settimeout(self.listening.request_seconds)
        if self.context is None:
            super().finish_request(request, client_address)
            return
        with self.context.wrap_socket(request, server_side=True) as connection:
            self.mark(connection, busy=False)
            try:
                super().finish_request(connection, client_address)
            finally:
                self._gone(connection)

    def shutdown_request(self, request: Any) -> None:
        self._gone(request)
        super().shutdown_request(request)

    def mark(self, connection: socket.socket, *, busy: bool) -> None:
        """Whether a request is under way on this connection."""
        with self._changed:
            self._connections[connection] = busy

    def _gone(self, connection: socket.socket) -> None:
        with self._changed:
            self._connections.pop(connection, None)
            self._changed.notify_all()

    def end_connections(self, grace: float) -> None:
        """Let requests end, then end the connections that are left."""
        self.stopping = True  # connections end with their request
        with self._changed:
            for connection, busy in self._connections.items():
                if not busy:
                    _end(connection)
            self._changed.wait_for(lambda: not self._connections, grace)
            for connection in self._connections:
                _end(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is its sender's business; the rest is a fault of ours."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            internal_errors.record("otlp.http", error)


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _RefusedError(Exception):
    def __init__(self, status: HTTPStatus, code: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "tidegauge"
    sys_version = ""
    server: _Server
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self._timed = TimedSocket(self.connection)
        self._reader = BufferedReader(self._timed)
        self.rfile = self._reader

    def handle_one_request(self) -> None:
        listening = self.server.listening
        self._timed.allow(listening.idle_seconds)
        self.close_connection = True
        with contextlib.suppress(OSError):  # it was silent for too long, or went away
            if not self._reader.peek(1):
                return
            self.server.mark(self.connection, busy=True)
            self._timed.allow(listening.request_seconds)
            super().handle_one_request()
            self.close_connection |= self.server.stopping
            self.server.mark(self.connection, busy=False)

    def do_POST(self) -> None:
        """Take a request."""
        encoding: Encoding = "protobuf"
        try:
            encoding = self._encoding()
            body = self._body()
            if self.path.partition("?")[0] == _TRACES:
                self._answer(encoding, self._take(body, encoding))
            else:
                self._answer(encoding, Decoded([]))
        except _RefusedError as refused:
            self._refuse(encoding, refused)

    def do_GET(self) -> None:
        """Nothing is to be had here."""
        path = self.path.partition("?")[0]
        known = path == _TRACES or path in _IGNORED
        status = HTTPStatus.METHOD_NOT_ALLOWED if known else HTTPStatus.NOT_FOUND
        allow = {"Allow": "POST"} if known else {}
        self.close_connection = True  # there may be a body
        self._refuse("protobuf", _RefusedError(status, _INVALID_ARGUMENT, "POST it", **allow))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged: the metrics tell."""

    def _encoding(self) -> Encoding:
        """How the request is written, when it may be read at all."""
        path = self.path.partition("?")[0]
        told = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        encoding = _TYPES.get(told)
        reception = self.server.reception
        if not reception.lets_in(self.headers.get("Authorization")):
            challenge = {"WWW-Authenticate": "Bearer"}
            raise _RefusedError(
                HTTPStatus.UNAUTHORIZED,
                _UNAUTHENTICATED,
                "a valid bearer token is needed",
                **challenge,
            )
        if path != _TRACES and path not in _IGNORED:
            raise _RefusedError(HTTPStatus.NOT_FOUND, _INVALID_ARGUMENT, f"it is {_TRACES}")
        if encoding is None:
            reception.refuse("unsupported")
            types = " or ".join(_CONTENT_TYPES.values())
            raise _RefusedError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, _INVALID_ARGUMENT, f"send {types}"
            )
        return encoding

    def _body(self) -> bytes:
        most, reception = self.server.listening.max_bytes, self.server.reception
        compressed = self.headers.get("Content-Encoding", "identity").strip().lower()
        if compressed not in ("", "identity", "gzip", "deflate"):
            reception.refuse("unsupported")
            raise _RefusedError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, _INVALID_ARGUMENT, "send gzip, or plain"
            )
        try:
            try:
                body = self._raw_body(most)
            except TooLargeError:
                reception.refuse("too_large")
                raise
            except MalformedRequestError:
                reception.refuse("malformed")
                raise
            return body if compressed in ("", "identity") else reception.unpack(body, most)
        except TooLargeError as error:
            raise _RefusedError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                _RESOURCE_EXHAUSTED,
                f"more than {most} bytes",
            ) from error
        except MalformedRequestError as error:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, _INVALID_ARGUMENT, str(error)) from error

    def _raw_body(self, most: int) -> bytes:
        if "Transfer-Encoding" in self.headers:
            if self.headers["Transfer-Encoding"].strip().lower() != "chunked":
                raise MalformedRequestError("no known transfer encoding")
            return self._chunks(most)
        told = self.headers.get("Content-Length", "0")
        if not (told.isascii() and told.isdecimal()):
            raise MalformedRequestError("Content-Length is no number")
        if len(told) > 19 or int(told) > most:
            raise TooLargeError
        return self._exactly(int(told))

    def _chunks(self, most: int) -> bytes:
        found: list[bytes] = []
        room = most
        while True:
            line = self.rfile.readline(_MAX_CHUNK_LINE).partition(b";")[0].strip()
            try:
                size = int(line, 16)
            except ValueError as error:
                raise MalformedRequestError("no size of a chunk") from error
            if size < 0:
                raise MalformedRequestError("no size of a chunk")
            if size > room:
                raise TooLargeError
            room -= size
            if size == 0:
                while self.rfile.readline(_MAX_CHUNK_LINE).strip():
                    room -= _MAX_CHUNK_LINE  # trailers
                    if room < 0:
                        raise TooLargeError
                return b"".join(found)
            found.append(self._exactly(size))
            self.rfile.readline(_MAX_CHUNK_LINE)

    def _exactly(self, size: int) -> bytes:
        body = self.rfile.read(size)
        if len(body) < size:
            raise ConnectionError("it went away")
        return body

    def _take(self, body: bytes, encoding: Encoding) -> Decoded:
        try:
            return self.server.reception.take(body, encoding)
        except MalformedRequestError as error:
            raise _RefusedError(HTTPStatus.BAD_REQUEST, _INVALID_ARGUMENT, str(error)) from error
        except BusyError as error:
            retry = {"Retry-After": str(RETRY_SECONDS)}
            raise _RefusedError(
                HTTPStatus.SERVICE_UNAVAILABLE, _UNAVAILABLE, "no room now, try again", **retry
            ) from error

    def _answer(self, encoding: Encoding, decoded: Decoded) -> None:
        if encoding == "json":
            told: dict[str, Any] = {}
            if decoded.rejected:
                told["partialSuccess"] = {
                    "rejectedSpans": str(decoded.rejected),
                    "errorMessage": decoded.reason,
                }
            self._send(HTTPStatus.OK, encoding, orjson.dumps(told))
            return
        response = ExportTraceServiceResponse()
        if decoded.rejected:
            response.partial_success.rejected_spans = decoded.rejected
            response.partial_success.error_message = decoded.reason or ""
        self._send(HTTPStatus.OK, encoding, response.SerializeToString())

    def _refuse(self, encoding: Encoding, refused: _RefusedError) -> None:
        message = str(refused)
        if encoding == "json":
            body = orjson.dumps({"code": refused.code, "message": message})
        else:
            body = Status(code=refused.code, message=message).SerializeToString()
        if refused.status is not HTTPStatus.SERVICE_UNAVAILABLE:
            self.close_connection = True  # its body may not have been read
        self._send(refused.status, encoding, body, **refused.headers)

    def _send(self, status: HTTPStatus, encoding: Encoding, body: bytes, **headers: str) -> None:
        self.send_response(status)
        headers = {"Content-Type": _CONTENT_TYPES[encoding], **headers}
        if self.close_connection or self.server.stopping:
            headers["Connection"] = "close"
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

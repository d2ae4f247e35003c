"""OTLP over HTTP: ``POST /v1/traces``, protobuf or JSON, compressed or not."""

from __future__ import annotations

import ssl
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

import orjson
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tidegauge.instrumentation.otlp.connections import BoundedHandler, BoundedServer
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
        self._server.start()
        self.url = listening.url(self._server.server_port, tls)

    def stop(self, grace: float = 5.0) -> None:
        """Take no new connections, and let requests that are under way end for so many seconds."""
        self._server.stop(grace)


class _Server(BoundedServer):
    where = "otlp.http"

    def __init__(
        self, reception: Reception, listening: Listening, context: ssl.SSLContext | None
    ) -> None:
        self.reception = reception
        super().__init__(listening, _Handler, context)

    def turned_away(self) -> None:
        self.reception.refuse("busy")


class _RefusedError(Exception):
    def __init__(self, status: HTTPStatus, code: int, message: str, **headers: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers


class _Handler(BoundedHandler, BaseHTTPRequestHandler):
    server: _Server

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

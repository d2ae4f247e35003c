"""OTLP over HTTP: ``POST /v1/traces``, protobuf or JSON, compressed or not."""

from __future__ import annotations

import ssl
from http import HTTPStatus
from typing import Any, Final

import orjson
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tidegauge._net.head import RejectedRequestError
from tidegauge.instrumentation.otlp.connections import (
    Answer,
    BoundedHandler,
    BoundedServer,
    Request,
)
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
_INVALID_ARGUMENT: Final = 3
_CODES: Final = {
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: 8,  # RESOURCE_EXHAUSTED
    HTTPStatus.SERVICE_UNAVAILABLE: 14,  # UNAVAILABLE
    HTTPStatus.UNAUTHORIZED: 16,  # UNAUTHENTICATED
    HTTPStatus.REQUEST_TIMEOUT: 4,  # DEADLINE_EXCEEDED
}
"""gRPC status codes of the HTTP statuses that have a specific one."""


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

    def connection_rejected(self) -> None:
        self.reception.refuse("busy")


class _Handler(BoundedHandler):
    server: _Server
    _encoding: Encoding = "protobuf"

    def answer(self, request: Request) -> Answer:
        """Take a request."""
        self._encoding = "protobuf"
        known = request.path == _TRACES or request.path in _IGNORED
        if request.method != "POST":
            raise RejectedRequestError(
                HTTPStatus.METHOD_NOT_ALLOWED if known else HTTPStatus.NOT_FOUND,
                "POST it",
                reason=None,
                headers={"Allow": "POST"} if known else {},
            )
        reception, most = self.server.reception, self.server.listening.max_bytes
        if not reception.authorizes(request.headers.get("authorization")):
            raise RejectedRequestError(
                HTTPStatus.UNAUTHORIZED,
                "a valid bearer token is needed",
                reason=None,
                headers={"WWW-Authenticate": "Bearer"},
            )
        if not known:
            raise RejectedRequestError(HTTPStatus.NOT_FOUND, f"it is {_TRACES}", reason=None)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in _TYPES:
            raise _unsupported(" or ".join(_CONTENT_TYPES.values()))
        self._encoding = _TYPES[kind]
        packed = request.headers.get("content-encoding", "identity").strip().lower()
        if packed not in ("", "identity", "gzip", "deflate"):
            raise _unsupported("gzip, or plain")
        body = self.body(most)
        try:
            if packed not in ("", "identity"):
                body = reception.unpack(body, most, self.until)
            return self._taken(
                reception.take(body, self._encoding) if request.path == _TRACES else Decoded([])
            )
        except TooLargeError as error:
            raise RejectedRequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {most} bytes", reason=None
            ) from error
        except MalformedRequestError as error:
            raise RejectedRequestError(HTTPStatus.BAD_REQUEST, str(error), reason=None) from error
        except BusyError as error:
            raise RejectedRequestError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "no room now, try again",
                reason=None,
                headers={"Retry-After": str(RETRY_SECONDS)},
            ) from error

    def rejected(self, error: RejectedRequestError) -> Answer:
        """A ``google.rpc.Status``, as OTLP wants it."""
        if error.reason is not None:
            self.server.reception.refuse(error.reason)
        code, message = _CODES.get(error.status, _INVALID_ARGUMENT), str(error)
        if self._encoding == "json":
            body = orjson.dumps({"code": code, "message": message})
        else:
            body = Status(code=code, message=message).SerializeToString()
        return Answer(error.status, body, _CONTENT_TYPES[self._encoding], error.headers)

    def _taken(self, decoded: Decoded) -> Answer:
        if self._encoding == "json":
            response: dict[str, Any] = {}
            if decoded.rejected:
                response["partialSuccess"] = {
                    "rejectedSpans": str(decoded.rejected),
                    "errorMessage": decoded.reason,
                }
            return Answer(HTTPStatus.OK, orjson.dumps(response), _CONTENT_TYPES["json"])
        response = ExportTraceServiceResponse()
        if decoded.rejected:
            response.partial_success.rejected_spans = decoded.rejected
            response.partial_success.error_message = decoded.reason or ""
        return Answer(HTTPStatus.OK, response.SerializeToString(), _CONTENT_TYPES["protobuf"])


def _unsupported(wanted: str) -> RejectedRequestError:
    return RejectedRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"send {wanted}", "unsupported")

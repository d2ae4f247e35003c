"""The listener for OTLP over HTTP: ``POST /v1/traces`` and ``/v1/logs``, protobuf or JSON,
compressed or not."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

import orjson
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from tidegauge.net.bounded_server import BoundedHandler, BoundedServer, Request, Response
from tidegauge.net.head import RejectedRequestError
from tidegauge.net.listener import Listener, Tls
from tidegauge.receivers.decoding import Decoded, Encoding, MalformedRequestError, Signal
from tidegauge.receivers.request_handler import (
    RETRY_SECONDS,
    BusyError,
    RequestHandler,
    TooLargeError,
    decompress,
)

_SIGNALS: Final[dict[str, Signal]] = {"/v1/traces": "traces", "/v1/logs": "logs"}
_IGNORED: Final = ("/v1/metrics",)
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


class HttpServer(BoundedServer):
    """Receives OTLP over HTTP, after :meth:`start`; see :class:`BoundedServer`."""

    where = "otlp.http"
    serves = "OTLP over HTTP"

    def __init__(self, handler: RequestHandler, listener: Listener, tls: Tls | None = None) -> None:
        self.handler = handler
        super().__init__(listener, _Handler, tls)

    def connection_rejected(self) -> None:
        """Count it."""
        self.handler.count_rejected("busy")


class _Handler(BoundedHandler):
    server: HttpServer
    _encoding: Encoding = "protobuf"

    def answer(self, request: Request) -> Response:
        """The response to a request."""
        self._encoding = "protobuf"
        known = request.path in _SIGNALS or request.path in _IGNORED
        if request.method != "POST":
            raise RejectedRequestError(
                HTTPStatus.METHOD_NOT_ALLOWED if known else HTTPStatus.NOT_FOUND,
                "use POST",
                reason=None,
                headers={"Allow": "POST"} if known else {},
            )
        handler, most = self.server.handler, self.server.listener.max_bytes
        handler.token.check(request.headers.get("authorization"))
        if not known:
            raise RejectedRequestError(
                HTTPStatus.NOT_FOUND, f"not found; use {' or '.join(_SIGNALS)}", reason=None
            )
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in _TYPES:
            raise _unsupported("content-type", " or ".join(_CONTENT_TYPES.values()))
        self._encoding = _TYPES[kind]
        packed = request.headers.get("content-encoding", "identity").strip().lower()
        if packed not in ("", "identity", "gzip", "deflate"):
            raise _unsupported("content-encoding", "gzip, deflate or no compression")
        signal = _SIGNALS.get(request.path)
        try:
            with handler.receiving() as share:
                body = self.body(most, share.take)
                if packed not in ("", "identity"):
                    body = decompress(body, most, self.until, share)
                return self._accepted(
                    Decoded([])
                    if signal is None
                    else handler.handle(body, self._encoding, signal, share, self.until)
                )
        except TooLargeError as error:
            raise RejectedRequestError(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error), reason=None
            ) from error
        except MalformedRequestError as error:
            raise RejectedRequestError(HTTPStatus.BAD_REQUEST, str(error), reason=None) from error
        except BusyError as error:
            raise RejectedRequestError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                "the receiver is busy; try again",
                reason=None,
                headers={"Retry-After": str(RETRY_SECONDS)},
            ) from error

    def rejected(self, error: RejectedRequestError) -> Response:
        """A ``google.rpc.Status``, as OTLP requires."""
        if error.reason is not None:
            self.server.handler.count_rejected(error.reason)
        code, message = _CODES.get(error.status, _INVALID_ARGUMENT), str(error)
        if self._encoding == "json":
            body = orjson.dumps({"code": code, "message": message})
        else:
            body = Status(code=code, message=message).SerializeToString()
        return Response(error.status, body, _CONTENT_TYPES[self._encoding], error.headers)

    def _accepted(self, decoded: Decoded) -> Response:
        if self._encoding == "json":
            response: dict[str, Any] = {}
            if decoded.rejected_spans:
                traces = decoded.signal == "traces"
                response["partialSuccess"] = {
                    "rejectedSpans" if traces else "rejectedLogRecords": (
                        str(decoded.rejected_spans)
                    ),
                    "errorMessage": decoded.reason,
                }
            return Response(HTTPStatus.OK, orjson.dumps(response), _CONTENT_TYPES["json"])
        return Response(HTTPStatus.OK, decoded.response(), _CONTENT_TYPES["protobuf"])


def _unsupported(header: str, accepted: str) -> RejectedRequestError:
    message = f"{header} is not supported; use {accepted}"
    return RejectedRequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message, "unsupported")

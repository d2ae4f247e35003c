"""The listener for OTLP over gRPC.

gRPC hands over requests as bytes: the request handler decodes them, and forwards them unchanged.

A message is received only when there is room for the largest: gRPC does not say its size before it
is here, and holds what has arrived of it. So methods take a stream of requests, of which they read
one. On the wire that is the same, and a sender is authorized before anything is received.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import grpc  # type: ignore[import-untyped]
from google.protobuf.any_pb2 import Any as AnyMessage  # type: ignore[import-untyped]
from google.protobuf.duration_pb2 import Duration  # type: ignore[import-untyped]
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from tidegauge.net.listener import Listener, Tls
from tidegauge.receivers.decoding import MalformedRequestError, Signal
from tidegauge.receivers.request_handler import (
    RETRY_SECONDS,
    BusyError,
    RequestHandler,
    RequestShare,
    TooLargeError,
    decompress,
)

_PACKAGE: Final = "opentelemetry.proto.collector"
_GZIP: Final = b"\x1f\x8b"
_DEFLATE: Final = b"\x78"
_KEEPALIVE_SECONDS: Final = 30
_CONNECTION_SECONDS: Final = 60
_LAST_CALL_SECONDS: Final = 10
_CANCELLING_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 0.5
_UNDISTURBED_SECONDS: Final = 2.0
"""How long a request may arrive though others wait for the room that it holds."""
_COUNTED_BYTES: Final = 1024 * 1024
"""Requests up to this much beyond the limit are rejected here, and counted; gRPC rejects larger
ones, without a report."""


@dataclass(slots=True)
class _Arrival:
    """A request that is arriving, in seconds of the monotonic clock."""

    since: float
    until: float


class GrpcServer:
    """Receives OTLP over gRPC, from its construction on.

    A request that takes too long to arrive is cancelled; where others wait for its room, after two
    seconds. After a minute a connection is asked to
    reconnect, and ten seconds later it is closed.

    Raises:
        OSError: the server cannot listen on the address.
    """

    def __init__(self, handler: RequestHandler, listener: Listener, tls: Tls | None = None) -> None:
        self._handler = handler
        self._max_bytes = listener.max_bytes
        self._seconds = listener.request_seconds
        calls = listener.max_connections
        self._server = grpc.server(
            ThreadPoolExecutor(calls, thread_name_prefix="tidegauge-grpc"),
            maximum_concurrent_rpcs=calls,
            options=[
                ("grpc.max_receive_message_length", listener.max_bytes + _COUNTED_BYTES),
                ("grpc.max_metadata_size", 16 * 1024),
                ("grpc.max_concurrent_streams", calls),
                ("grpc.http2.bdp_probe", 0),  # else it holds megabytes that nothing asks for yet
                ("grpc.so_reuseport", 0),  # a port in use is an error, not shared
                ("grpc.per_message_decompression", 0),  # done here, with a limit
                ("grpc.keepalive_time_ms", _KEEPALIVE_SECONDS * 1_000),
                ("grpc.keepalive_timeout_ms", 10_000),
                ("grpc.max_connection_age_ms", _CONNECTION_SECONDS * 1_000),
                ("grpc.max_connection_age_grace_ms", _LAST_CALL_SECONDS * 1_000),
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
            ],
        )
        services = {
            "trace": partial(self._export, "traces"),
            "logs": partial(self._export, "logs"),
            "metrics": self._ignore,
        }
        for name, export in services.items():
            service = f"{_PACKAGE}.{name}.v1.{name.capitalize()}Service"
            method = grpc.stream_unary_rpc_method_handler(export)  # bytes to bytes
            self._server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(service, {"Export": method}),)
            )
        try:
            port = self._listen(listener.address, tls)
        except RuntimeError as error:
            why = OSError("the port is in use, or the address is not one of this machine")
            raise listener.failed("OTLP over gRPC", why) from error
        self._arriving: dict[Any, _Arrival] = {}  # by the context of the request
        self._stopped = threading.Event()
        threading.Thread(target=self._cancel_slow, name="tidegauge-grpc-slow", daemon=True).start()
        self._server.start()
        self.url = listener.url(port, tls)

    def stop(self, grace: float = 5.0) -> None:
        """Accept no new requests, and give active ones ``grace`` seconds to end."""
        self._server.stop(grace).wait(grace + _CANCELLING_SECONDS)
        self._stopped.set()

    def _listen(self, address: str, tls: Tls | None) -> int:
        if tls is None:
            return int(self._server.add_insecure_port(address))
        key, certificate, client_ca = (
            None if path is None else Path(path).read_bytes()
            for path in (tls.key, tls.certificate, tls.client_ca)
        )
        credentials = grpc.ssl_server_credentials(
            [(key, certificate)],
            root_certificates=client_ca,
            require_client_auth=client_ca is not None,
        )
        return int(self._server.add_secure_port(address, credentials))

    def _export(self, signal: Signal, bodies: Iterator[bytes], context: Any) -> bytes:
        self._authorize(context)
        until = time.monotonic() + self._seconds
        try:
            with self._handler.receiving() as share:
                body = self._received(bodies, context, share, until)
                if body[:2] == _GZIP or body[:1] == _DEFLATE:  # no protobuf begins so
                    body = decompress(body, self._max_bytes, until, share)
                decoded = self._handler.handle(body, "protobuf", signal, share, until)
        except TooLargeError as error:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except TimeoutError as error:
            self._handler.count_rejected("too_slow")
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, str(error))
        except MalformedRequestError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except BusyError:
            _ask_to_retry(context)
        return decoded.response()

    def _ignore(self, bodies: Iterator[bytes], context: Any) -> bytes:
        """Accept and drop metrics: exporters send them along with traces."""
        self._authorize(context)
        until = time.monotonic() + self._seconds
        try:
            with self._handler.receiving() as share:
                self._received(bodies, context, share, until)
        except TooLargeError as error:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except TimeoutError as error:
            self._handler.count_rejected("too_slow")
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, str(error))
        except BusyError:
            _ask_to_retry(context)
        return b""

    def _received(
        self, bodies: Iterator[bytes], context: Any, share: RequestShare, until: float
    ) -> bytes:
        """Receive the request, with room for as much as gRPC receives; then it has its size."""
        room = self._max_bytes + _COUNTED_BYTES
        share.take(room)
        self._arriving[context] = _Arrival(time.monotonic(), until)
        try:
            body = next(bodies, b"")  # cancelled, it ends with an error or without one
        finally:
            if self._arriving.pop(context, None) is None:
                raise TimeoutError("the request took too long to arrive") from None
        share.give(room - len(body))
        if len(body) > self._max_bytes:
            raise TooLargeError(f"more than {self._max_bytes} bytes")
        return body

    def _cancel_slow(self) -> None:
        while not self._stopped.wait(_LOOK_SECONDS):
            now = time.monotonic()
            wanted = self._handler.memory.wanted
            for context, arrival in list(self._arriving.items()):  # the oldest first
                slow = wanted and now >= arrival.since + _UNDISTURBED_SECONDS
                late = slow or now >= arrival.until
                if late and self._arriving.pop(context, None) is not None:  # it is not here yet
                    wanted = False  # one makes room
                    context.cancel()

    def _authorize(self, context: Any) -> None:
        sent = dict(context.invocation_metadata()).get("authorization")
        if not self._handler.token.authorizes(sent if isinstance(sent, str) else None):
            self._handler.count_rejected("unauthorized")
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "send a valid bearer token")


def _ask_to_retry(context: Any) -> None:
    message = "the receiver is busy; try again"
    retry = RetryInfo(retry_delay=Duration(seconds=RETRY_SECONDS))
    detail = AnyMessage()
    detail.Pack(retry)
    status = Status(code=grpc.StatusCode.UNAVAILABLE.value[0], message=message, details=[detail])
    context.set_trailing_metadata(
        (
            ("grpc-status-details-bin", status.SerializeToString()),
            ("google.rpc.retryinfo-bin", retry.SerializeToString()),  # what Python's exporter reads
        )
    )
    context.abort(grpc.StatusCode.UNAVAILABLE, message)

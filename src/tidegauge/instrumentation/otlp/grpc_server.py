"""OTLP over gRPC. Needs the extra ``tidegauge[serve]``.

Requests are taken as they are, serialised: the reception reads them, and passes them on unchanged.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from tidegauge.errors import MissingExtraError
from tidegauge.instrumentation.otlp.decoded import MalformedRequestError
from tidegauge.instrumentation.otlp.listening import Listening, Tls
from tidegauge.instrumentation.otlp.reception import (
    RETRY_SECONDS,
    BusyError,
    Reception,
    TooLargeError,
)

try:
    import grpc  # type: ignore[import-untyped]
except ModuleNotFoundError as error:
    raise MissingExtraError("grpcio", extra="serve") from error

from google.protobuf.any_pb2 import Any as AnyMessage  # type: ignore[import-untyped]
from google.protobuf.duration_pb2 import Duration  # type: ignore[import-untyped]
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

__all__ = ["GrpcServer"]

_PACKAGE: Final = "opentelemetry.proto.collector"
_GZIP: Final = b"\x1f\x8b"
_DEFLATE: Final = b"\x78"
_KEEPALIVE_SECONDS: Final = 30
_CONNECTION_SECONDS: Final = 60
_LAST_CALL_SECONDS: Final = 10
_COUNTED_BYTES: Final = 1024 * 1024
"""How much larger than the limit a request may be to be refused here, and counted: beyond it, gRPC
refuses by itself, and tells nobody."""


class GrpcServer:
    """Listens for OTLP over gRPC, from its making on.

    A connection is asked to come again after a minute, and ended ten seconds later: no sender that
    sends too slowly keeps its thread for longer.

    Args:
        reception: takes the requests.
        listening: where, and how many.
        tls: speak TLS.

    Attributes:
        url: where it listens.

    Raises:
        OSError: the address cannot be listened on.
    """

    def __init__(self, reception: Reception, listening: Listening, tls: Tls | None = None) -> None:
        self._reception = reception
        self._max_bytes = listening.max_bytes
        self._seconds = listening.request_seconds
        calls = listening.max_connections
        self._server = grpc.server(
            ThreadPoolExecutor(calls, thread_name_prefix="tidegauge-grpc"),
            maximum_concurrent_rpcs=calls,
            options=[
                ("grpc.max_receive_message_length", listening.max_bytes + _COUNTED_BYTES),
                ("grpc.max_metadata_size", 16 * 1024),
                ("grpc.so_reuseport", 0),  # a port in use is an error, not shared
                ("grpc.per_message_decompression", 0),  # done here, with a limit
                ("grpc.keepalive_time_ms", _KEEPALIVE_SECONDS * 1_000),
                ("grpc.keepalive_timeout_ms", 10_000),
                ("grpc.max_connection_age_ms", _CONNECTION_SECONDS * 1_000),
                ("grpc.max_connection_age_grace_ms", _LAST_CALL_SECONDS * 1_000),
                ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
            ],
        )
        services = {"trace": self._export, "logs": self._ignore, "metrics": self._ignore}
        for name, export in services.items():
            service = f"{_PACKAGE}.{name}.v1.{name.capitalize()}Service"
            method = grpc.unary_unary_rpc_method_handler(export)  # bytes to bytes
            self._server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(service, {"Export": method}),)
            )
        address = f"{listening.host_in_url}:{listening.port}"
        try:
            port = self._listen(address, tls)
        except RuntimeError as error:
            raise OSError(f"cannot listen on {address} for OTLP over gRPC") from error
        self._server.start()
        self.url = listening.url(port, tls)

    def stop(self, grace: float = 5.0) -> None:
        """Take no new requests, and let those that are under way end for so many seconds."""
        self._server.stop(grace).wait(grace + 1.0)

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

    def _export(self, body: bytes, context: Any) -> bytes:
        self._let_in(body, context)
        try:
            if body[:2] == _GZIP or body[:1] == _DEFLATE:  # no trace request begins so
                until = time.monotonic() + self._seconds
                body = self._reception.unpack(body, self._max_bytes, until)
            decoded = self._reception.take(body, "protobuf")
        except TooLargeError:
            message = f"more than {self._max_bytes} bytes"
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
        except TimeoutError as error:
            self._reception.refuse("too_slow")
            context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, str(error))
        except MalformedRequestError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except BusyError:
            _ask_to_retry(context)
        response = ExportTraceServiceResponse()
        if decoded.rejected:
            response.partial_success.rejected_spans = decoded.rejected
            response.partial_success.error_message = decoded.reason or ""
        return bytes(response.SerializeToString())

    def _ignore(self, body: bytes, context: Any) -> bytes:
        """Logs and metrics are not kept; that is no fault of whoever sends them along."""
        self._let_in(body, context)
        return b""

    def _let_in(self, body: bytes, context: Any) -> None:
        shown = dict(context.invocation_metadata()).get("authorization")
        if not self._reception.authorizes(shown if isinstance(shown, str) else None):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "a valid bearer token is needed")
        if len(body) > self._max_bytes:
            self._reception.refuse("too_large")
            message = f"more than {self._max_bytes} bytes"
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, message)


def _ask_to_retry(context: Any) -> None:
    message = "no room now, try again"
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

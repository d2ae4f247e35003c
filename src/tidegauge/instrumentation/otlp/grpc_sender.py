"""Requests to an endpoint that speaks OTLP over gRPC. Needs the extra ``tidegauge[serve]``."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import orjson

from tidegauge.errors import MissingExtraError
from tidegauge.instrumentation.otlp.reception import Encoding
from tidegauge.instrumentation.otlp.sending import Forwarding, RefusedError, RetryError

__all__ = ["GrpcSender"]


class GrpcSender:
    """Sends on one channel.

    Args:
        address: the endpoint's host and port.
        secure: speak TLS.
        told: the rest of it.

    Raises:
        MissingExtraError: grpcio is not installed.
        OSError: the file of certificates cannot be read.
    """

    def __init__(self, address: str, secure: bool, told: Forwarding) -> None:
        try:
            import grpc  # type: ignore[import-untyped]
        except ModuleNotFoundError as error:
            raise MissingExtraError("grpcio", extra="serve") from error
        self._grpc = grpc
        self._told = told
        if secure:
            trusted = None if told.ca is None else Path(told.ca).read_bytes()
            self._channel = grpc.secure_channel(address, grpc.ssl_channel_credentials(trusted))
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
        """Send one request; see :class:`Sender`."""
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
                raise RetryError from error
            raise RefusedError from error

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


def _as_protobuf(body: bytes) -> bytes:
    """A request in OTLP's JSON, as protobuf: slow, and seldom needed."""
    from google.protobuf.json_format import ParseDict, ParseError  # type: ignore[import-untyped]
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    try:
        request = _with_base64_ids(orjson.loads(body))
        message = ParseDict(request, ExportTraceServiceRequest(), ignore_unknown_fields=True)
    except (ParseError, ValueError) as error:
        raise RefusedError from error
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

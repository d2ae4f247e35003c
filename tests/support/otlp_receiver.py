"""A real OTLP collector in the test's own process: gRPC and HTTP, spans, log records, metrics."""

from __future__ import annotations

import contextlib
import gzip
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc  # type: ignore[import-untyped]
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


@dataclass(frozen=True)
class Received:
    """A span or a log record as it came over the wire."""

    name: str
    trace_id: bytes
    span_id: bytes
    parent_id: bytes
    attributes: dict[str, Any]
    resource: dict[str, Any]
    scope: str
    raw: Any


@dataclass(frozen=True)
class ReceivedPoint:
    """A data point of a metric as it came over the wire."""

    metric: str
    unit: str
    kind: str
    temporality: int | None
    monotonic: bool | None
    attributes: dict[str, Any]
    resource: dict[str, Any]
    scope: str
    raw: Any

    @property
    def value(self) -> float:
        """Of a number."""
        return getattr(self.raw, self.raw.WhichOneof("value"))


@dataclass
class OtlpReceiver:
    """Where it listens, and what came in."""

    endpoint: str
    spans: list[Received] = field(default_factory=list)
    logs: list[Received] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    exports: list[list[ReceivedPoint]] = field(default_factory=list)
    """Of metrics: the data points of each request."""

    @property
    def points(self) -> list[ReceivedPoint]:
        """The data points of all requests."""
        return [point for points in list(self.exports) for point in points]

    def wait_until(self, holds: Callable[[], object], seconds: float = 10.0) -> None:
        """Wait until what came in is as it should be."""
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, f"came: {self.paths}"
            time.sleep(0.01)

    def wait_for(self, spans: int, seconds: float = 10.0) -> None:
        """Wait until so many spans came in."""
        deadline = time.monotonic() + seconds
        while len(self.spans) < spans:
            assert time.monotonic() < deadline, f"{len(self.spans)} spans came, not {spans}"
            time.sleep(0.01)

    def take_spans(self, request: trace_service_pb2.ExportTraceServiceRequest) -> None:
        for resource_spans in request.resource_spans:
            resource = _attributes(resource_spans.resource.attributes)
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    self.spans.append(
                        Received(
                            span.name,
                            span.trace_id,
                            span.span_id,
                            span.parent_span_id,
                            _attributes(span.attributes),
                            resource,
                            scope_spans.scope.name,
                            span,
                        )
                    )

    def take_logs(self, request: logs_service_pb2.ExportLogsServiceRequest) -> None:
        for resource_logs in request.resource_logs:
            resource = _attributes(resource_logs.resource.attributes)
            for scope_logs in resource_logs.scope_logs:
                for record in scope_logs.log_records:
                    self.logs.append(
                        Received(
                            record.event_name,
                            record.trace_id,
                            record.span_id,
                            b"",
                            _attributes(record.attributes),
                            resource,
                            scope_logs.scope.name,
                            record,
                        )
                    )

    def take_metrics(self, request: metrics_service_pb2.ExportMetricsServiceRequest) -> None:
        points: list[ReceivedPoint] = []
        for resource_metrics in request.resource_metrics:
            resource = _attributes(resource_metrics.resource.attributes)
            for scope_metrics in resource_metrics.scope_metrics:
                for metric in scope_metrics.metrics:
                    kind = metric.WhichOneof("data")
                    data = getattr(metric, kind)
                    points += [
                        ReceivedPoint(
                            metric.name,
                            metric.unit,
                            kind,
                            getattr(data, "aggregation_temporality", None),
                            getattr(data, "is_monotonic", None),
                            _attributes(point.attributes),
                            resource,
                            scope_metrics.scope.name,
                            point,
                        )
                        for point in data.data_points
                    ]
        self.exports.append(points)


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind)


@contextlib.contextmanager
def grpc_receiver() -> Iterator[OtlpReceiver]:
    """A collector on a free port, over gRPC."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    port = server.add_insecure_port("127.0.0.1:0")
    receiver = OtlpReceiver(f"http://127.0.0.1:{port}")

    class Traces(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request, context):
            receiver.paths.append("trace")
            receiver.take_spans(request)
            return trace_service_pb2.ExportTraceServiceResponse()

    class Logs(logs_service_pb2_grpc.LogsServiceServicer):
        def Export(self, request, context):
            receiver.paths.append("logs")
            receiver.take_logs(request)
            return logs_service_pb2.ExportLogsServiceResponse()

    class Metrics(metrics_service_pb2_grpc.MetricsServiceServicer):
        def Export(self, request, context):
            receiver.paths.append("metrics")
            receiver.take_metrics(request)
            return metrics_service_pb2.ExportMetricsServiceResponse()

    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(), server)
    metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server(Metrics(), server)
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(Logs(), server)
    server.start()
    try:
        yield receiver
    finally:
        server.stop(grace=None).wait()


@contextlib.contextmanager
def http_receiver() -> Iterator[OtlpReceiver]:
    """A collector on a free port, over HTTP with protobuf."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.paths.append(self.path)
            if self.path == "/v1/traces":
                request = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
                receiver.take_spans(request)
            elif self.path == "/v1/logs":
                receiver.take_logs(logs_service_pb2.ExportLogsServiceRequest.FromString(body))
            elif self.path == "/v1/metrics":
                receiver.take_metrics(
                    metrics_service_pb2.ExportMetricsServiceRequest.FromString(body)
                )
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver = OtlpReceiver(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

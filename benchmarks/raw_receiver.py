"""The minimum of a receiver: accepts requests over gRPC and parses them, nothing more.

``python -m benchmarks.raw_receiver PORT`` is a separate process, like the receiver.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from benchmarks.served import free_port

__all__ = ["raw_receiver"]


@contextlib.contextmanager
def raw_receiver() -> Iterator[str]:
    """Start it; its host and port."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.raw_receiver", str(port)])
    try:
        target = f"127.0.0.1:{port}"
        with grpc.insecure_channel(target) as channel:
            grpc.channel_ready_future(channel).result(timeout=30)
        yield target
    finally:
        process.terminate()
        process.wait(30)


def main(port: str) -> None:
    """Listen until the end."""

    def export(body: bytes, context: Any) -> bytes:
        ExportTraceServiceRequest.FromString(body)
        return b""

    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    service = "opentelemetry.proto.collector.trace.v1.TraceService"
    handler: Any = grpc.unary_unary_rpc_method_handler(export)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler(service, {"Export": handler}),)
    )
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    main(sys.argv[1])

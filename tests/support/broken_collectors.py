"""Where spans are passed on to, and what can be wrong with that: real sockets that misbehave."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent import futures

import grpc  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from support.prometheus import free_port

Broken = Callable[[], contextlib.AbstractContextManager[str]]
"""Starts one: its address, as ``--forward-to`` takes it."""


@contextlib.contextmanager
def dead() -> Iterator[str]:
    """Nobody listens."""
    yield f"http://127.0.0.1:{free_port()}"


@contextlib.contextmanager
def half_open() -> Iterator[str]:
    """Connections are taken by the kernel; nobody reads, nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@contextlib.contextmanager
def trickling() -> Iterator[str]:
    """Answers a byte a second and never comes to an end: no silence that a socket would notice."""
    with _answering(b"HTTP/1.1 200 OK\r\n", then=b"x") as url:
        yield url


@contextlib.contextmanager
def hanging_up() -> Iterator[str]:
    """Ends every connection at once."""
    with _answering(b"") as url:
        yield url


@contextlib.contextmanager
def babbling() -> Iterator[str]:
    """Answers, and not in HTTP."""
    with _answering(b"\x00\xff 220 ready\r\n\r\n") as url:
        yield url


@contextlib.contextmanager
def refusing() -> Iterator[str]:
    """gRPC: not now, come again; for ever."""
    with _grpc(grpc.StatusCode.UNAVAILABLE) as url:
        yield url


@contextlib.contextmanager
def rejecting() -> Iterator[str]:
    """gRPC: never."""
    with _grpc(grpc.StatusCode.INVALID_ARGUMENT) as url:
        yield url


@contextlib.contextmanager
def silent() -> Iterator[str]:
    """gRPC: takes the call and does not answer."""
    with _grpc(None) as url:
        yield url


@contextlib.contextmanager
def _grpc(code: grpc.StatusCode | None) -> Iterator[str]:
    over = threading.Event()

    class Traces(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(self, request, context):
            if code is not None:
                context.abort(code, "no")
            over.wait()
            return trace_service_pb2.ExportTraceServiceResponse()

    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    port = server.add_insecure_port("127.0.0.1:0")
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(), server)
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        over.set()
        server.stop(grace=None).wait()


@contextlib.contextmanager
def _answering(first: bytes, then: bytes = b"") -> Iterator[str]:
    """Whatever is said: this, then that again and again, then the end of the connection."""
    over = threading.Event()

    def answer(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            if first:
                connection.recv(1)
                connection.sendall(first)
            while then and not over.wait(1.0):
                connection.sendall(then)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                threads.append(threading.Thread(target=answer, args=(connection,)))
                threads[-1].start()

    threads: list[threading.Thread] = []
    listening = socket.create_server(("127.0.0.1", 0))
    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        over.set()
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        accepting.join()
        for thread in threads:
            thread.join()

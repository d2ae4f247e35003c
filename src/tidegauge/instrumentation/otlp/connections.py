"""The standard library's threading HTTP server, bounded.

A connection is a thread, there is a highest number of them, and each has to be done with its
request by a time, however slowly it sends.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedReader
from typing import Any, ClassVar, Final

from tidegauge._guard import internal_errors
from tidegauge.instrumentation.otlp.deadline import TimedSocket
from tidegauge.instrumentation.otlp.listening import Listening

__all__ = ["BoundedHandler", "BoundedServer"]

_MAX_LOOK: Final = 65_536
_BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)


class BoundedServer(ThreadingHTTPServer):
    """Listens from its making on, and answers from :meth:`start` on.

    Args:
        listening: where, and how many.
        handler: answers the requests of a connection.
        context: speaks TLS.

    Raises:
        OSError: the address cannot be listened on.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    where: ClassVar[str] = "http"
    """Under which name faults of ours are counted."""

    def __init__(
        self,
        listening: Listening,
        handler: type[BoundedHandler],
        context: ssl.SSLContext | None = None,
    ) -> None:
        if ":" in listening.host:
            self.address_family = socket.AF_INET6
        self.listening = listening
        self.context = context
        self.stopping = False
        self._changed = threading.Condition()
        self._connections: dict[socket.socket, bool] = {}  # whether a request is under way
        super().__init__((listening.host, listening.port), handler)
        self._thread = threading.Thread(
            target=self.serve_forever, args=(0.05,), name="tidegauge-http", daemon=True
        )

    def start(self) -> None:
        """Take connections, in a thread."""
        self._thread.start()

    def stop(self, grace: float = 5.0) -> None:
        """Take no new connections, and let requests that are under way end for so many seconds."""
        self.shutdown()
        self._thread.join()
        self.server_close()
        self._end_connections(grace)

    def turned_away(self) -> None:
        """A connection was, because there are too many; to be counted."""

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection its thread, if there is room."""
        with self._changed:
            full = len(self._connections) >= self.listening.max_connections
            if not full:
                self._connections[request] = False
        if full:
            self.turned_away()
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
        """The connection is done with."""
        self._gone(request)
        super().shutdown_request(request)

    def mark(self, connection: socket.socket, *, busy: bool) -> None:
        """Whether a request is under way on this connection."""
        with self._changed:
            self._connections[connection] = busy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that broke is its sender's business; the rest is a fault of ours."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            internal_errors.record(self.where, error)

    def _gone(self, connection: socket.socket) -> None:
        with self._changed:
            self._connections.pop(connection, None)
            self._changed.notify_all()

    def _end_connections(self, grace: float) -> None:
        """Let requests end, then end the connections that are left."""
        self.stopping = True  # connections end with their request
        with self._changed:
            for connection, busy in self._connections.items():
                if not busy:
                    _end(connection)
            self._changed.wait_for(lambda: not self._connections, grace)
            for connection in self._connections:
                _end(connection)


class BoundedHandler(BaseHTTPRequestHandler):
    """Reads the requests of a connection, each until its time is over."""

    protocol_version = "HTTP/1.1"
    server_version = "tidegauge"
    sys_version = ""
    server: BoundedServer
    disable_nagle_algorithm = True

    def setup(self) -> None:
        """Read by the clock."""
        super().setup()
        self._timed = TimedSocket(self.connection)
        self._reader = BufferedReader(self._timed)
        self.rfile = self._reader

    def handle_one_request(self) -> None:
        """Wait for a request, and answer it."""
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

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged: the metrics tell."""


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)

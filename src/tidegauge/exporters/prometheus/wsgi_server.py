"""The standard library's WSGI server with limits: strict parsing, GET only, without bodies."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from http import HTTPStatus
from io import BufferedReader, BytesIO
from socketserver import ThreadingMixIn
from typing import Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from tidegauge._net.deadline import TimedSocket
from tidegauge._net.head import RejectedRequestError, read_head
from tidegauge._net.hosts import AllowedHosts

__all__ = ["BoundedWsgiServer"]

_MAX_CONNECTIONS: Final = 256
_LINGER_SECONDS: Final = 1.0


class BoundedWsgiServer(ThreadingMixIn, WSGIServer):
    """Runs a thread for each connection, at most 256; closes further ones.

    Args:
        host: address to listen on.
        port: port to listen on; 0 takes a free one.
        allowed_hosts: the host names to accept.
        seconds: time limit for a request to arrive.
        context: for TLS. The handshake runs in the thread of the request, so that a client that
            never completes it blocks no other client.

    Raises:
        OSError: the address cannot be listened on.
    """

    daemon_threads = True
    block_on_close = False

    def __init__(
        self,
        host: str,
        port: int,
        *,
        allowed_hosts: AllowedHosts,
        seconds: float,
        context: ssl.SSLContext | None = None,
    ) -> None:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = found[0][0]
        self.allowed_hosts = allowed_hosts
        self.seconds = seconds
        self._context = context
        self._room = threading.BoundedSemaphore(_MAX_CONNECTIONS)
        super().__init__((str(found[0][4][0]), port), _Handler)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept a connection."""
        accepted, address = super().get_request()
        if self._context is not None:
            accepted.settimeout(self.seconds)
            accepted = self._context.wrap_socket(
                accepted, server_side=True, do_handshake_on_connect=False
            )
        return accepted, address

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection its thread, if there is room."""
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """In the connection's thread."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """What a client broke is no news for the agent's terminal."""


class _Handler(WSGIRequestHandler):
    """One request of a connection, within a time."""

    server: BoundedWsgiServer
    error_message_format = "%(explain)s\n"
    error_content_type = "text/plain; charset=utf-8"

    def setup(self) -> None:
        super().setup()
        self._timed = TimedSocket(self.connection)
        self._reader = BufferedReader(self._timed)

    def handle(self) -> None:
        """Read the head, let the standard library parse it, and answer."""
        self._timed.allow(self.server.seconds)
        if not self._reader.peek(1):
            return
        try:
            self._serve(read_head(self._reader))
        except RejectedRequestError as error:
            self._reject(error)
        except TimeoutError:
            slow = f"the request took longer than {self.server.seconds:g} seconds"
            self._reject(RejectedRequestError(HTTPStatus.REQUEST_TIMEOUT, slow))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged."""

    def parse_request(self) -> bool:
        """Parse the head, and refuse what is not for this server.

        Raises:
            RejectedRequestError: it has a body, or comes under a name that is not allowed.
        """
        if not super().parse_request():
            return False
        length = self.headers.get("Content-Length", "").strip(" \t0")  # of any number of digits
        if "Transfer-Encoding" in self.headers or length:
            raise RejectedRequestError(HTTPStatus.BAD_REQUEST, "a request has no body here")
        self.server.allowed_hosts.check(self.headers.get("Host"), self.headers.get("Origin"))
        return True

    def _serve(self, lines: list[bytes]) -> None:
        self.rfile = BytesIO(b"".join(lines))
        super().handle()

    def _reject(self, error: RejectedRequestError) -> None:
        if not hasattr(self, "headers"):  # it was not parsed
            self.requestline, self.request_version, self.command = "", "HTTP/1.0", ""
        self.send_error(error.status, explain=str(error))
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self._timed.drain(_LINGER_SECONDS)

"""The threaded HTTP server of every listener: OTLP, decisions, metrics and the live page.

Each connection has a thread. The number of connections is limited, and so is the time of each
request, however slowly a client sends. h11 parses requests and writes responses;
``docs/performance.md`` compares it with uvicorn and httptools.
"""

from __future__ import annotations

import contextlib
import io
import socket
import ssl
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from email.utils import formatdate
from http import HTTPStatus
from io import BufferedReader
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, TypeAlias

import h11

from tidegauge.net.head import RejectedRequestError, malformed, read_head
from tidegauge.net.listener import AllowedHosts, Listener, Tls
from tidegauge.safety.guard import internal_errors

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class TimedSocket(io.RawIOBase):
    """The reading side of a socket.

    Args:
        connection: the socket; its time-out is set before every read, and left so for writing.

    Attributes:
        until: when reading ends, as ``time.monotonic()`` counts.

    Reading raises ``TimeoutError`` when the time that was allowed last is over.
    """

    def __init__(self, connection: socket.socket) -> None:
        super().__init__()
        self._connection = connection
        self.until = 0.0

    def allow(self, seconds: float) -> None:
        """Reading may go on for so long from now."""
        self.until = time.monotonic() + seconds

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Read what there is."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("it took too long")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)

    def drain(self, seconds: float) -> None:
        """Read and drop what still comes: closed unread, a socket takes back what was answered."""
        self.allow(seconds)
        piece = bytearray(65_536)
        while self.readinto(piece):
            pass


_PIECE: Final = 65_536
_READ: Final = 1_048_576
_MAX_LINE_BYTES: Final = 16_384
"""Limit of the line with a chunk's size and extensions, and of all trailers."""

_MAX_CHUNKS: Final = 65_536
_MAX_FRAMING_BYTES: Final = 1_048_576
"""Limit of what the framing of chunks adds to the size of a body."""

_LINGER_SECONDS: Final = 1.0
_BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\n"
    b"Content-Length: 0\r\nConnection: close\r\n\r\n"
)


Phase: TypeAlias = Literal["idle", "head", "active"]
"""What a connection does: nothing, or shake hands; send the head of a request; all the rest."""


class Request(NamedTuple):
    """The head of a request: the path as sent, and the headers by lower-case name.

    The values of a repeated header are joined with commas.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    has_body: bool

    def check_no_body(self) -> None:
        """Reject a request with a body."""
        if self.has_body:
            raise malformed("send no body")


class Response(NamedTuple):
    """A response; ``body=None``: without a body, not even an empty one."""

    status: HTTPStatus
    body: bytes | None
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = {}


class BoundedServer(ThreadingTCPServer):
    """Listens from its construction on, and responds after :meth:`start`.

    Args:
        listener: address, limits and host names.
        handler: responds to the requests of a connection.
        tls: files of TLS; ``None``: plain HTTP.

    Attributes:
        url: URL of the server's root, without a slash at the end.
        stopping: connections end with their current request.

    Raises:
        ConfigurationError: an allowed host is not a host name, or the TLS files cannot be used.
        OSError: the server cannot listen on the address.
    """

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    where: ClassVar[str] = "http"
    """The label ``where`` of internal errors."""

    serves: ClassVar[str] = "HTTP"
    """What it serves, in error messages."""

    def __init__(
        self,
        listener: Listener,
        handler: type[BoundedHandler],
        tls: Tls | None = None,
    ) -> None:
        self.listener = listener
        self.allowed_hosts = AllowedHosts(listener.host, listener.allowed_hosts)
        self.stopping = False
        self._context: ssl.SSLContext | None = None if tls is None else tls.context()
        self._changed = threading.Condition()
        self._connections: dict[socket.socket, Phase] = {}  # in the order of their last change
        try:
            found = socket.getaddrinfo(
                listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            self.address_family = found[0][0]
            super().__init__((str(found[0][4][0]), listener.port), handler)
        except OSError as error:
            raise listener.failed(self.serves, error) from error
        self.server_port: int = self.socket.getsockname()[1]
        self.url = listener.url(self.server_port, tls)
        self._thread = threading.Thread(
            target=self.serve_forever, name="tidegauge-http", daemon=True
        )

    def start(self) -> None:
        """Accept connections, in a thread.

        Raises:
            OSError: the system starts no more threads.
        """
        try:
            self._thread.start()
        except RuntimeError as error:
            self.server_close()
            raise self.listener.failed(self.serves, OSError(str(error))) from error

    def stop(self, grace: float = 5.0) -> None:
        """Stop accepting connections, and give active requests ``grace`` seconds to end.

        A second call does nothing. In a forked child, which has the socket but not the thread, it
        only closes the socket: otherwise the child keeps the port and never responds.
        """
        if not self._thread.is_alive():
            self.server_close()
            return
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread; else it polls twice a second
        self.shutdown()
        self._thread.join()
        self.server_close()
        self._end_connections(grace)

    def connection_rejected(self) -> None:
        """Count a connection that was closed because there are too many."""

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection its thread, if there is room.

        Connections that wait make room: else a client that sends nothing would keep all others out.
        """
        with self._changed:
            full = len(self._connections) >= self.listener.max_connections and not self._make_room()
            if not full:
                self._connections[request] = "idle"
        if not full:
            try:
                super().process_request(request, client_address)
            except RuntimeError:  # the system starts no more threads
                self._gone(request)
            else:
                return
        self.connection_rejected()
        if self._context is None:
            with contextlib.suppress(OSError):
                request.setblocking(False)
                request.send(_BUSY)
                request.shutdown(socket.SHUT_WR)
                request.recv(_PIECE)  # closing with unread data discards the response
        super().shutdown_request(request)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands in the connection's thread, so that a slow client blocks no other."""
        request.settimeout(self.listener.request_seconds)
        if self._context is None:
            super().finish_request(request, client_address)
            return
        with self._context.wrap_socket(
            request, server_side=True, do_handshake_on_connect=False
        ) as connection:
            with self._changed:
                self._connections.pop(request, None)
                self._connections[connection] = "idle"
            try:
                connection.do_handshake()
                super().finish_request(connection, client_address)
            finally:
                self._gone(connection)

    def shutdown_request(self, request: Any) -> None:
        """Forget and close the connection."""
        self._gone(request)
        super().shutdown_request(request)

    def mark(self, connection: socket.socket, phase: Phase) -> None:
        """Note what a connection does now."""
        with self._changed:
            if self._connections.pop(connection, None) is not None:  # else it made room
                self._connections[connection] = phase

    def _make_room(self) -> bool:
        """Close the connection that has waited the longest for a request, or for its head."""
        for phase in ("idle", "head"):
            for connection, found in self._connections.items():
                if found == phase:
                    del self._connections[connection]
                    _end(connection)
                    return True
        return False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore broken connections; record any other error as internal."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            internal_errors.record(self.where, error)

    def _gone(self, connection: socket.socket) -> None:
        with self._changed:
            self._connections.pop(connection, None)
            self._changed.notify_all()

    def _end_connections(self, grace: float) -> None:
        """Let active requests end, then close the remaining connections."""
        self.stopping = True  # connections end with their request
        with self._changed:
            for connection, phase in self._connections.items():
                if phase == "idle":
                    _end(connection)
            self._changed.wait_for(lambda: not self._connections, grace)
            for connection in self._connections:
                _end(connection)


class BoundedHandler(BaseRequestHandler, ABC):
    """Reads the requests of a connection, each within its time limit.

    A connection serves one request after another. It closes after a request whose body was not
    read, and after a chunked body that is followed by more data, which is never read as a request.
    """

    server: BoundedServer

    @abstractmethod
    def answer(self, request: Request) -> Response:
        """The response to a request, or RejectedRequestError; ``body()`` reads the body."""

    def rejected(self, error: RejectedRequestError) -> Response:
        """The response to a rejected request."""
        return Response(error.status, f"{error}\n".encode(), headers=error.headers)

    @property
    def until(self) -> float:
        """The deadline of the request, as of ``time.monotonic()``."""
        return self._timed.until

    def setup(self) -> None:
        """Read with a deadline."""
        self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)
        self._timed = TimedSocket(self.request)
        self._reader = BufferedReader(self._timed)
        self._unread = False

    def handle(self) -> None:
        """Serve the connection until it ends."""
        with contextlib.suppress(OSError):  # it was idle for too long, or was closed
            while self._serve_one():
                self.server.mark(self.request, "idle")
            self.server.mark(self.request, "idle")  # what it still sends keeps no other out
            self._linger()

    def body(self, most: int, take: Callable[[int], object] = int) -> bytes:
        """The whole body; RejectedRequestError if it has more than ``most`` bytes.

        ``take`` gets the number of bytes that are read next, and may raise.
        """
        if not self._chunked and self._length > most:
            raise _too_large(most)
        if self._protocol.they_are_waiting_for_100_continue:
            going_on = h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[])
            self.request.sendall(self._protocol.send(going_on))
        body = self._chunks(most, take) if self._chunked else self._whole(take)
        self._unread = False
        return body

    def _whole(self, take: Callable[[int], object]) -> bytes:
        """A body of a known length. A sender that stalls holds a megabyte more than it sent."""
        found: list[bytes] = []
        left = self._length
        while left:
            size = min(left, _READ)
            take(size)
            found.append(self._reader.read(size))
            if len(found[-1]) < size:
                raise ConnectionError("the client closed the connection")
            left -= size
        return found[0] if len(found) == 1 else b"".join(found)

    def _serve_one(self) -> bool:
        """Wait for a request and respond; returns whether the connection can serve another."""
        listener = self.server.listener
        self._timed.allow(listener.idle_seconds)
        if not self._reader.peek(1):
            return False
        self.server.mark(self.request, "head")
        self._timed.allow(listener.request_seconds)
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_LINE_BYTES)
        self._unread, self._method = True, ""
        try:
            head = self._head()
            self.server.mark(self.request, "active")
            response = self.answer(head)
        except RejectedRequestError as error:
            response = self.rejected(error)
        except h11.RemoteProtocolError as error:  # its text repeats what was sent
            status = HTTPStatus(error.error_status_hint)
            response = self.rejected(RejectedRequestError(status, "not a valid HTTP/1.1 request"))
        except TimeoutError:
            slow = f"the request took longer than {listener.request_seconds:g} seconds"
            response = self.rejected(
                RejectedRequestError(HTTPStatus.REQUEST_TIMEOUT, slow, "too_slow")
            )
        return self._send(response)

    def _head(self) -> Request:
        self._protocol.receive_data(b"".join(read_head(self._reader)))
        head = self._protocol.next_event()
        assert isinstance(head, h11.Request)  # noqa: S101 -- it is whole
        self._method = head.method.decode()
        headers: dict[str, str] = {}
        for name, value in head.headers:
            key, text = name.decode(), value.decode("latin-1")
            headers[key] = f"{headers[key]}, {text}" if key in headers else text
        self._chunked = "transfer-encoding" in headers
        self._length = int(headers.get("content-length", "0"))
        self._unread = self._chunked or self._length > 0
        self.server.allowed_hosts.check(headers.get("host"), headers.get("origin"))
        path, _, query = head.target.decode().partition("?")
        return Request(self._method, path, query, headers, self._unread)

    def _chunks(self, most: int, take: Callable[[int], object]) -> bytes:
        found: list[bytes] = []
        room, framed, chunks = most, most + _MAX_FRAMING_BYTES, 0
        while True:
            event = self._protocol.next_event()
            if event is h11.NEED_DATA:
                piece = self._reader.read1(_PIECE)
                if not piece:
                    raise ConnectionError("the client closed the connection")
                framed -= len(piece)
                take(len(piece))
                self._protocol.receive_data(piece)
            elif isinstance(event, h11.Data):
                room -= len(event.data)
                chunks += event.chunk_end
                found.append(event.data)
            else:
                return b"".join(found)
            if room < 0 or framed < 0:
                raise _too_large(most)
            if chunks > _MAX_CHUNKS:
                raise malformed(f"more than {_MAX_CHUNKS} chunks")

    def _send(self, response: Response) -> bool:
        """Send a response; returns whether the connection can serve another request."""
        protocol, status, body = self._protocol, response.status, response.body
        self._unread |= bool(protocol.trailing_data[0])
        headers = [("Date", formatdate(usegmt=True)), *response.headers.items()]
        if body is not None:
            headers += [("Content-Type", response.content_type), ("Content-Length", str(len(body)))]
        last = self._unread or self.server.stopping or not self.server.listener.keep_alive
        if last:
            headers.append(("Connection", "close"))
        events: list[h11.Event] = [
            h11.Response(status_code=status, headers=headers, reason=status.phrase)
        ]
        if body and self._method != "HEAD":
            events.append(h11.Data(data=body))
        events.append(h11.EndOfMessage())
        sent = b"".join(protocol.send(event) or b"" for event in events)
        self.request.settimeout(self.server.listener.request_seconds)
        self.request.sendall(sent)
        return protocol.our_state is h11.DONE and not last

    def _linger(self) -> None:
        """Read on for a moment: closing a socket with unread data discards the response."""
        if not self._unread:
            return
        self.request.shutdown(socket.SHUT_WR)
        self._timed.drain(_LINGER_SECONDS)


def _too_large(most: int) -> RejectedRequestError:
    return RejectedRequestError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {most} bytes", "too_large"
    )


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)

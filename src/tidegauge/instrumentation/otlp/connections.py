"""A threaded HTTP server with limits. Needs h11, which ``tidegauge[serve]`` brings.

Each connection has a thread. The number of connections is limited, and so is the time of each
request, however slowly a client sends. h11 parses requests and writes responses.

``docs/performance.md`` compares it with uvicorn and httptools.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from email.utils import formatdate
from http import HTTPStatus
from io import BufferedReader
from socketserver import BaseRequestHandler, ThreadingTCPServer
from typing import Any, ClassVar, Final, NamedTuple

from tidegauge._guard import internal_errors
from tidegauge._net.deadline import TimedSocket
from tidegauge._net.head import RejectedRequestError, read_head
from tidegauge._net.hosts import AllowedHosts
from tidegauge.errors import MissingExtraError
from tidegauge.instrumentation.otlp.listening import Listening

try:
    import h11
except ModuleNotFoundError as error:
    raise MissingExtraError("h11", extra="serve") from error

__all__ = ["Answer", "BoundedHandler", "BoundedServer", "Request"]

_PIECE: Final = 65_536
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


class Request(NamedTuple):
    """The head of a request.

    Args:
        method: its method.
        path: its path, as sent.
        query: what follows the question mark.
        headers: values by lower-case name; values of a repeated name joined with commas.
        has_body: whether a body follows.
    """

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    has_body: bool


class Answer(NamedTuple):
    """A response.

    Args:
        status: its status.
        body: its body; ``None``: no body, not even an empty one.
        content_type: of the body.
        headers: further headers.
    """

    status: HTTPStatus
    body: bytes | None
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = {}


class BoundedServer(ThreadingTCPServer):
    """Listens as soon as it is made, and answers after :meth:`start`.

    Args:
        listening: address, limits and host names.
        handler: answers the requests of a connection.
        context: for TLS.

    Raises:
        ConfigurationError: an allowed host is not a host name.
        OSError: the address cannot be listened on.
    """

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    where: ClassVar[str] = "http"
    """The label ``where`` of internal errors."""

    def __init__(
        self,
        listening: Listening,
        handler: type[BoundedHandler],
        context: ssl.SSLContext | None = None,
    ) -> None:
        if ":" in listening.host:
            self.address_family = socket.AF_INET6
        self.listening = listening
        self.allowed_hosts = AllowedHosts(listening.host, listening.allowed_hosts)
        self.context = context
        self.stopping = False
        self._changed = threading.Condition()
        self._connections: dict[socket.socket, bool] = {}  # whether a request is active
        super().__init__((listening.host, listening.port), handler)
        self.server_port: int = self.socket.getsockname()[1]
        self._thread = threading.Thread(
            target=self.serve_forever, args=(0.05,), name="tidegauge-http", daemon=True
        )

    def start(self) -> None:
        """Accept connections, in a thread."""
        self._thread.start()

    def stop(self, grace: float = 5.0) -> None:
        """Stop accepting connections, and give active requests ``grace`` seconds to end."""
        self.shutdown()
        self._thread.join()
        self.server_close()
        self._end_connections(grace)

    def connection_rejected(self) -> None:
        """Count a connection that was closed because there are too many."""

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection its thread, if there is room."""
        with self._changed:
            full = len(self._connections) >= self.listening.max_connections
            if not full:
                self._connections[request] = False
        if full:
            self.connection_rejected()
            if self.context is None:
                with contextlib.suppress(OSError):
                    request.setblocking(False)
                    request.send(_BUSY)
                    request.shutdown(socket.SHUT_WR)
                    request.recv(_PIECE)  # closing with unread data discards the response
            super().shutdown_request(request)
            return
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands in the connection's thread, so that a slow client blocks no other."""
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
        """Forget and close the connection."""
        self._gone(request)
        super().shutdown_request(request)

    def mark(self, connection: socket.socket, *, busy: bool) -> None:
        """Note whether a request is active on this connection."""
        with self._changed:
            self._connections[connection] = busy

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore broken connections; record anything else as an internal error."""
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
            for connection, busy in self._connections.items():
                if not busy:
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
    def answer(self, request: Request) -> Answer:
        """Answer a request; ``body()`` reads its body.

        Raises:
            RejectedRequestError: the request is not served.
        """

    def rejected(self, error: RejectedRequestError) -> Answer:
        """The response to a rejected request."""
        return Answer(error.status, f"{error}\n".encode(), headers=error.headers)

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
                self.server.mark(self.request, busy=False)
            self._linger()

    def body(self, most: int) -> bytes:
        """The body of the request, whole.

        Raises:
            RejectedRequestError: it is longer than ``most`` bytes, or malformed.
        """
        if not self._chunked and self._length > most:
            raise _too_large(most)
        if self._protocol.they_are_waiting_for_100_continue:
            going_on = h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[])
            self.request.sendall(self._protocol.send(going_on))
        body = self._chunks(most) if self._chunked else self._reader.read(self._length)
        if not self._chunked and len(body) < self._length:
            raise ConnectionError("the client closed the connection")
        self._unread = False
        return body

    def _serve_one(self) -> bool:
        """Wait for a request and answer it; returns whether the connection can serve another."""
        listening = self.server.listening
        self._timed.allow(listening.idle_seconds)
        if not self._reader.peek(1):
            return False
        self.server.mark(self.request, busy=True)
        self._timed.allow(listening.request_seconds)
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_LINE_BYTES)
        self._unread, self._method = True, ""
        try:
            answer = self.answer(self._head())
        except RejectedRequestError as error:
            answer = self.rejected(error)
        except h11.RemoteProtocolError as error:  # its text repeats what was sent
            status = HTTPStatus(error.error_status_hint)
            answer = self.rejected(RejectedRequestError(status, "not a valid HTTP/1.1 request"))
        except TimeoutError:
            slow = f"the request took longer than {listening.request_seconds:g} seconds"
            answer = self.rejected(
                RejectedRequestError(HTTPStatus.REQUEST_TIMEOUT, slow, "too_slow")
            )
        return self._send(answer)

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

    def _chunks(self, most: int) -> bytes:
        found: list[bytes] = []
        room, framed, chunks = most, most + _MAX_FRAMING_BYTES, 0
        while True:
            event = self._protocol.next_event()
            if event is h11.NEED_DATA:
                piece = self._reader.read1(_PIECE)
                if not piece:
                    raise ConnectionError("the client closed the connection")
                framed -= len(piece)
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
                raise _malformed(f"more than {_MAX_CHUNKS} chunks")

    def _send(self, answer: Answer) -> bool:
        """Send a response; returns whether the connection can serve another request."""
        protocol, status, body = self._protocol, answer.status, answer.body
        self._unread |= bool(protocol.trailing_data[0])
        headers = [("Date", formatdate(usegmt=True)), *answer.headers.items()]
        if body is not None:
            headers += [("Content-Type", answer.content_type), ("Content-Length", str(len(body)))]
        if self._unread or self.server.stopping:
            headers.append(("Connection", "close"))
        events: list[h11.Event] = [
            h11.Response(status_code=status, headers=headers, reason=status.phrase)
        ]
        if body and self._method != "HEAD":
            events.append(h11.Data(data=body))
        events.append(h11.EndOfMessage())
        sent = b"".join(protocol.send(event) or b"" for event in events)
        self.request.settimeout(self.server.listening.request_seconds)
        self.request.sendall(sent)
        return protocol.our_state is h11.DONE and not self.server.stopping

    def _linger(self) -> None:
        """Read on for a moment: closing a socket with unread data discards the response."""
        if not self._unread:
            return
        self.request.shutdown(socket.SHUT_WR)
        self._timed.drain(_LINGER_SECONDS)


def _malformed(message: str) -> RejectedRequestError:
    return RejectedRequestError(HTTPStatus.BAD_REQUEST, message)


def _too_large(most: int) -> RejectedRequestError:
    return RejectedRequestError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {most} bytes", "too_large"
    )


def _end(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)

"""Raw requests of every wrong shape to all our HTTP servers: each is answered, soon, and once."""

from __future__ import annotations

import contextlib
import gzip
import re
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import grpc  # type: ignore[import-untyped]
import pytest

from support.deciding import deciding
from support.receiving import HERE, receiving, refused
from tidegauge import testing
from tidegauge.errors import ConfigurationError
from tidegauge.exporters.prometheus import MetricsServer
from tidegauge.exporters.reading import Reader
from tidegauge.fleet.decision_cache import DecisionCache
from tidegauge.fleet.decisions_server import DecisionsServer
from tidegauge.net.head import BearerToken
from tidegauge.receivers import grpc_server
from tidegauge.receivers.decoding import READ_LIMITS, MalformedRequestError
from tidegauge.receivers.receiver import Receiver
from tidegauge.receivers.request_handler import RequestHandler, decompress
from tidegauge.safety.guard import internal_errors
from tidegauge.streaming_metrics import Engine

SECONDS = 0.5
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
"""For so long a request may take."""

HOST = b"Host: localhost\r\n"
KIND = b"Content-Type: application/x-protobuf\r\n"
END = b"Connection: close\r\n\r\n"


class Place(NamedTuple):
    """A server: where it is, and a request line that it answers with 200."""

    name: str
    address: tuple[str, int]
    line: bytes


@contextlib.contextmanager
def otlp(**more: Any) -> Iterator[Place]:
    with (
        testing.capture(),
        receiving(
            grpc=None, http=HERE._replace(**({"request_seconds": SECONDS} | more))
        ) as receiver,
    ):
        yield Place("otlp", _address(receiver.urls["http"]), b"POST /v1/traces HTTP/1.1\r\n" + KIND)


@contextlib.contextmanager
def decisions(**more: Any) -> Iterator[Place]:
    with deciding(request_seconds=SECONDS, **more) as server:
        yield Place("decisions", server.address, b"GET /v1/decisions/r HTTP/1.1\r\n")


@contextlib.contextmanager
def metrics(**more: Any) -> Iterator[Place]:
    server = MetricsServer(port=0, **more)
    server.start(Reader(Engine()))
    server._server.listener = server._server.listener._replace(request_seconds=SECONDS)
    try:
        yield Place("metrics", _address(server.url), b"GET /metrics HTTP/1.1\r\n")
    finally:
        server.close()


SERVERS = {"otlp": otlp, "decisions": decisions, "metrics": metrics}


@pytest.fixture(scope="module", params=SERVERS)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with SERVERS[request.param]() as found:
        yield found
    assert internal_errors.counts() == {}


def ask(address: tuple[str, int], sent: bytes) -> list[int]:
    """The statuses of the answers to it, up to the end of the connection."""
    with socket.create_connection(address, timeout=10) as client:
        with contextlib.suppress(OSError):  # it may hang up before all was sent
            client.sendall(sent)
        answer = b""
        with contextlib.suppress(ConnectionError):
            while piece := client.recv(65_536):
                answer += piece
    return [int(status) for status in re.findall(rb"^HTTP/1\.[01] (\d{3}) ", answer, re.MULTILINE)]


def _address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    return lambda line: line.replace(old, new) + HOST + END


def headers(more_headers: bytes, body: bytes = b"") -> Callable[[bytes], bytes]:
    return lambda line: line + HOST + more_headers + END + body


SHAPES: dict[str, tuple[Callable[[bytes], bytes], int]] = {
    "two lengths": (headers(b"Content-Length: 0\r\nContent-Length: 5\r\n", b"12345"), 400),
    "the same length twice": (headers(b"Content-Length: 0\r\nContent-Length: 0\r\n"), 400),
    "a list of lengths": (headers(b"Content-Length: 0, 0\r\n"), 400),
    "a length and chunks": (
        headers(b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
        400,
    ),
    "chunks and a length": (
        headers(b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", b"0\r\n\r\n"),
        400,
    ),
    "chunked twice": (headers(b"Transfer-Encoding: chunked\r\n" * 2, b"0\r\n\r\n"), 400),
    "chunks in HTTP/1.0": (
        lambda line: (
            line.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n" + END + b"0\r\n\r\n"
        ),
        400,
    ),
    "a negative length": (headers(b"Content-Length: -1\r\n"), 400),
    "a length with a sign": (headers(b"Content-Length: +0\r\n"), 400),
    "a length of Python": (headers(b"Content-Length: 1_0\r\n", bytes(10)), 400),
    "a hexadecimal length": (headers(b"Content-Length: 0x0\r\n"), 400),
    "no length": (headers(b"Content-Length:\r\n"), 400),
    "a length of 5,000 digits": (headers(b"Content-Length: " + b"9" * 5_000 + b"\r\n"), 400),
    "lines of bare LF": (lambda line: (line + HOST + END).replace(b"\r\n", b"\n"), 400),
    "a header of bare LF": (headers(b"X: y\n"), 400),
    "a bare CR in a header": (headers(b"X: y\rContent-Length: 5\r\n"), 400),
    "a folded header": (headers(b"X: y\r\n z\r\n"), 400),
    "a folded length": (headers(b"Content-Length:\r\n 0\r\n"), 400),
    "a header before the first": (lambda line: line + b" X: y\r\n" + HOST + END, 400),
    "a space before the colon": (headers(b"Content-Length : 0\r\n"), 400),
    "a space in a name": (headers(b"Content Length: 0\r\n"), 400),
    "a name without a colon": (headers(b"X\r\n"), 400),
    "an empty name": (headers(b": y\r\n"), 400),
    "NUL in a header": (headers(b"X: y\x00z\r\n"), 400),
    "NUL in a name": (headers(b"X\x00: y\r\n"), 400),
    "NUL in the target": (replaced(b" /", b" /\x00"), 400),
    "a space in the target": (replaced(b" /", b" / "), 400),
    "an absolute target": (replaced(b" /", b" http://localhost/"), 400),
    "a target of a proxy": (replaced(b" /", b" evil.example:80/"), 400),
    "a target that is no path": (replaced(b" /", b" *"), 400),
    "two hosts": (headers(b"Host: localhost\r\n"), 400),
    "a foreign host": (lambda line: line + b"Host: evil.example\r\n" + END, 421),
    "a foreign host with a port": (lambda line: line + b"Host: evil.example:4318\r\n" + END, 421),
    "a host behind an account": (
        lambda line: line + b"Host: evil.example@localhost\r\n" + END,
        421,
    ),
    "a host that begins alike": (lambda line: line + b"Host: 127.0.0.1.evil\r\n" + END, 421),
    "an empty host": (lambda line: line + b"Host:\r\n" + END, 421),
    "no host in HTTP/1.0": (lambda line: line.replace(b"1.1", b"1.0") + END, 421),
    "a page of another site": (headers(b"Origin: http://evil.example\r\n"), 403),
    "a page without an origin": (headers(b"Origin: null\r\n"), 403),
    "HTTP/0.9": (lambda line: line.split(b" HTTP")[0] + b"\r\n", 400),
    "HTTP/1.2": (replaced(b"HTTP/1.1", b"HTTP/1.2"), 505),
    "HTTP/2 by its preface": (lambda line: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "HTTP/2 in name": (replaced(b"HTTP/1.1", b"HTTP/2.0"), 505),
    "another protocol": (replaced(b"HTTP/1.1", b"HTCPCP/1.1"), 400),
    "a hello of TLS": (lambda line: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", 400),
    "an empty line first": (lambda line: b"\r\n" + line + HOST + END, 400),
    "a huge header": (headers(b"X: " + b"y" * 70_000 + b"\r\n"), 431),
    "a huge header without an end": (headers(b"X: " + b"y" * 10_000_000), 431),
    "a huge target": (replaced(b" /", b" /" + b"y" * 70_000), 431),
    "many headers": (headers(b"".join(b"X-%d: y\r\n" % n for n in range(101))), 431),
    "half a first line": (lambda line: line[:9], 408),
    "half a head": (lambda line: line + HOST, 408),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_wrong_head_is_refused_by_every_server(place: Place, shape: str) -> None:
    made, status = SHAPES[shape]
    began = time.monotonic()
    # What could be smuggled behind it is not taken for a request.
    behind = b"" if status == 408 else b"GET /v1/decisions/smuggled HTTP/1.1\r\n" + HOST + b"\r\n"
    assert ask(place.address, made(place.line) + behind) == [status]
    assert time.monotonic() - began < SECONDS + 3
    assert ask(place.address, place.line + HOST + END) == [200]


CHUNKED = b"Transfer-Encoding: chunked\r\n"
BODIES: dict[str, tuple[bytes, bytes, int]] = {
    "chunks": (CHUNKED, b"0\r\n\r\n", 200),
    "chunks with extensions and trailers": (CHUNKED, b"0;a=b\r\nX: y\r\n\r\n", 200),
    "chunks in capitals": (CHUNKED.upper(), b"0\r\n\r\n", 200),
    "a length": (b"Content-Length: 0\r\n", b"", 200),
    "no chunks that are known": (b"Transfer-Encoding: xchunked\r\n", b"0\r\n\r\n", 501),
    "chunks that are compressed": (b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n", 501),
    "identity": (b"Transfer-Encoding: identity\r\n", b"", 501),
    "a size of Python": (CHUNKED, b"1_4\r\n" + bytes(20) + b"\r\n0\r\n\r\n", 400),
    "a size with a sign": (CHUNKED, b"+14\r\n" + bytes(20) + b"\r\n0\r\n\r\n", 400),
    "a negative size": (CHUNKED, b"-1\r\n\r\n", 400),
    "a size with 0x": (CHUNKED, b"0x0\r\n\r\n", 400),
    "a size with white space": (CHUNKED, b" 0\r\n\r\n", 400),
    "no size": (CHUNKED, b"\r\n\r\n", 400),
    "a size too long": (CHUNKED, b"0" * 30 + b"\r\n\r\n", 400),
    "a size too large": (CHUNKED, b"f" * 16 + b"\r\n" + bytes(60_000), 413),
    "a chunk without an end": (CHUNKED, b"2\r\nabc\r\n0\r\n\r\n", 400),
    "bare LF after a chunk": (CHUNKED, b"2\r\nab\n0\r\n\r\n", 400),
    "extensions without limit": (CHUNKED, b"0;" + b"a" * 100_000 + b"\r\n\r\n", 431),
    "extensions without an end": (CHUNKED, b"0;" + b"a" * 5_000_000, 431),
    "trailers without limit": (CHUNKED, b"0\r\n" + b"X: y\r\n" * 100_000, 431),
    "a length too large": (b"Content-Length: 99999999\r\n", bytes(20_000), 413),
    "half a body": (b"Content-Length: 10\r\n", b"half", 408),
    "half a chunk": (CHUNKED, b"a\r\nhalf", 408),
    "many empty gzip members": (
        b"Content-Encoding: gzip\r\nContent-Length: 40000\r\n",
        gzip.compress(b"", mtime=0) * 2_000,
        400,
    ),
}


@pytest.fixture(scope="module")
def small() -> Iterator[Place]:
    with otlp(max_bytes=50_000) as place:
        yield place


@pytest.mark.parametrize("shape", BODIES)
def test_a_wrong_body_is_refused_by_the_receiver(small: Place, shape: str) -> None:
    more_headers, body, status = BODIES[shape]
    began = time.monotonic()
    assert ask(small.address, small.line + HOST + more_headers + END + body) == [status]
    assert time.monotonic() - began < SECONDS + 3
    assert ask(small.address, small.line + HOST + b"Content-Length: 0\r\n" + END) == [200]


def test_chunks_have_a_highest_number() -> None:
    body = b"1\r\n\x00\r\n" * 70_000
    for most, status in ((1_000_000, 400), (50_000, 413)):
        with otlp(request_seconds=30.0, max_bytes=most) as place:
            assert ask(place.address, place.line + HOST + CHUNKED + END + body) == [status]


@pytest.mark.parametrize("server", [decisions, metrics])
@pytest.mark.parametrize(
    ("more_headers", "body"),
    [
        (b"Content-Length: 5\r\n", b"GET /"),
        (CHUNKED, b"0\r\n\r\n"),
        (b"Content-Length: 5\r\n", b""),
        (b"Content-Length: 0000000000005\r\n", b"GET /"),
    ],
)
def test_where_only_get_is_served_a_body_is_refused(
    server: Callable[[], contextlib.AbstractContextManager[Place]], more_headers: bytes, body: bytes
) -> None:
    with server() as place:
        assert ask(place.address, place.line + HOST + more_headers + END + body) == [400]


def test_requests_sent_at_once_are_answered_one_after_the_other() -> None:
    with otlp() as place:
        one = place.line + HOST + b"Content-Length: 0\r\n"
        assert ask(place.address, (one + b"\r\n") * 20 + one + END) == [200] * 21
        # Nothing behind chunks is taken for a request.
        chunks = place.line + HOST + CHUNKED + b"\r\n0\r\n\r\n"
        assert ask(place.address, chunks + one + END) == [200]


def test_a_connection_outlives_a_body_in_chunks() -> None:
    with otlp() as place, socket.create_connection(place.address, timeout=10) as client:
        for _ in range(3):
            client.sendall(place.line + HOST + CHUNKED + b"\r\n0\r\n\r\n")
            assert client.recv(65_536).startswith(b"HTTP/1.1 200 ")


def test_a_sender_that_waits_to_be_asked_is_asked() -> None:
    with otlp() as place, socket.create_connection(place.address, timeout=10) as client:
        waits = b"Expect: 100-continue\r\nContent-Length: 2\r\n"
        client.sendall(place.line + HOST + waits + END)
        assert client.recv(65_536).startswith(b"HTTP/1.1 100 ")
        client.sendall(b"\xff\xff")
        assert client.recv(65_536).startswith(b"HTTP/1.1 400 ")
    with otlp() as place:  # and not for what is refused by its head
        line = place.line.replace(b"/v1/traces", b"/v1/other")
        assert ask(place.address, line + HOST + waits + END) == [404]


def test_a_head_that_comes_a_byte_at_a_time_ends(place: Place) -> None:
    began = time.monotonic()
    with (
        contextlib.suppress(OSError),
        socket.create_connection(place.address, timeout=10) as client,
    ):
        for letter in place.line + HOST + b"X: " + b"y" * 1_000:
            client.sendall(bytes([letter]))
            time.sleep(0.02)
            assert time.monotonic() - began < SECONDS + 3
    assert time.monotonic() - began < SECONDS + 3


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS)
@pytest.mark.parametrize(
    ("bound", "listed", "host", "status"),
    [
        ("127.0.0.1", (), b"localhost:80", 200),
        ("127.0.0.1", (), b"LOCALHOST.", 200),
        ("127.0.0.1", (), b"127.0.0.1", 200),
        ("127.0.0.1", (), b"[::1]:80", 200),
        ("127.0.0.1", (), b"gauge.example", 421),
        ("127.0.0.1", (), b"10.0.0.7", 421),
        ("127.0.0.1", ["gauge.example"], b"Gauge.example:80", 200),
        ("127.0.0.1", ["gauge.example"], b"evil.example", 421),
        ("0.0.0.0", (), b"gauge.example", 200),
        ("0.0.0.0", (), b"10.0.0.7:9464", 200),
        ("0.0.0.0", ["gauge.example"], b"gauge.example", 200),
        ("0.0.0.0", ["gauge.example"], b"localhost", 200),
        ("0.0.0.0", ["gauge.example"], b"10.0.0.7:9464", 200),
        ("0.0.0.0", ["gauge.example"], b"evil.example", 421),
    ],
)
def test_the_names_under_which_a_server_answers(
    server: Callable[..., contextlib.AbstractContextManager[Place]],
    bound: str,
    listed: list[str],
    host: bytes,
    status: int,
) -> None:
    with server(host=bound, allowed_hosts=tuple(listed)) as place:
        address = ("127.0.0.1", place.address[1])
        assert ask(address, place.line + b"Host: " + host + b"\r\n" + END) == [status]


def test_a_name_that_is_none_cannot_be_listed() -> None:
    for listed in ("http://gauge.example", "*", ""):
        with pytest.raises(ConfigurationError, match="is not a host name"):
            MetricsServer(port=0, allowed_hosts=[listed]).start(Reader(Engine()))


@pytest.mark.parametrize("token", ["", " ", "\n"])
def test_an_empty_token_is_not_the_absence_of_one(token: str) -> None:
    with pytest.raises(ConfigurationError, match="the token is empty"):
        RequestHandler(None, limits=READ_LIMITS, token=token)
    with pytest.raises(ConfigurationError, match="the token is empty"):
        DecisionsServer(DecisionCache(), HERE, ready=bool, token=token)


@pytest.mark.parametrize("token", ["secret", "voil\N{LATIN SMALL LETTER A WITH GRAVE}", "\u2026"])
def test_a_token_is_compared_as_the_bytes_of_its_utf_8(token: str) -> None:
    bearer = BearerToken(token)
    sent = token.encode().decode("latin-1")  # as a parser of HTTP shows it
    for shown in (f"Bearer {sent}", f"bearer \t{sent} "):
        assert bearer.authorizes(shown)
    assert not bearer.authorizes(f"Bearer {sent}\xa0")
    assert not bearer.authorizes(f"Bearer {sent[:-1]}")


# Decompression


def test_gzip_members_are_joined_and_have_a_highest_number() -> None:
    assert decompress(gzip.compress(b"ab") * 1_024, 10_000) == b"ab" * 1_024
    for empty in (b"", b"a"):
        with pytest.raises(MalformedRequestError, match="more than 1024 gzip members"):
            decompress(gzip.compress(empty) * 1_025, 10_000)


def test_many_tiny_members_take_no_time() -> None:
    body = gzip.compress(b"") * 800_000  # 16 MB
    began = time.process_time()
    with pytest.raises(MalformedRequestError):
        decompress(body, 16 * 2**20)
    assert time.process_time() - began < 1


def test_members_and_streams_of_any_size_are_read_whole() -> None:
    text = bytes(range(256)) * 1_000
    for packed in (
        gzip.compress(text),
        gzip.compress(text, 0) + gzip.compress(text, 9),
        zlib.compress(text, 0),
    ):
        assert decompress(packed, 10**6).startswith(text)
        with pytest.raises(MalformedRequestError, match="incomplete"):
            decompress(packed[:-1], 10**6)


def test_decompression_ends_with_the_time_of_its_request() -> None:
    with pytest.raises(TimeoutError):
        decompress(gzip.compress(b"spans"), 100, time.monotonic() - 1)


@pytest.mark.parametrize(
    ("packed", "code", "reason"),
    [
        ("members", grpc.StatusCode.INVALID_ARGUMENT, "malformed"),
        ("bomb", grpc.StatusCode.RESOURCE_EXHAUSTED, "too_large"),
    ],
)
def test_what_grpc_carries_compressed_is_bounded(
    packed: str, code: grpc.StatusCode, reason: str
) -> None:
    """The limit of gRPC is for what it receives; what is in it is bounded by us."""
    body = {"members": gzip.compress(b"") * 100_000, "bomb": gzip.compress(bytes(2 * 10**8))}
    with testing.capture(), receiving(http=None) as receiver:
        with grpc.insecure_channel(urlsplit(receiver.urls["grpc"]).netloc) as channel:
            export = channel.unary_unary(EXPORT)
            began = time.monotonic()
            with pytest.raises(grpc.RpcError) as caught:
                export(body[packed], timeout=10)
            assert caught.value.code() is code
            assert time.monotonic() - began < 3
            assert export(b"", timeout=10) == b""
        assert refused(receiver) == {reason: 1}


def test_what_takes_too_long_is_counted() -> None:
    with (
        testing.capture(),
        receiving(grpc=None, http=HERE._replace(request_seconds=SECONDS)) as receiver,
    ):
        assert ask(_address(receiver.urls["http"]), b"POST /v1/tra") == [408]
        assert refused(receiver) == {"too_slow": 1}


@contextlib.contextmanager
def over_grpc(**more: Any) -> Iterator[tuple[Receiver, Callable[..., bytes]]]:
    """A receiver, and how it is sent messages that come one by one."""
    with (
        testing.capture(),
        receiving(http=None, grpc=HERE._replace(request_seconds=SECONDS), **more) as receiver,
        grpc.insecure_channel(urlsplit(receiver.urls["grpc"]).netloc) as channel,
    ):
        yield (
            receiver,
            channel.stream_unary(EXPORT),
        )


def nothing_until(over: threading.Event) -> Iterator[bytes]:
    assert over.wait(30)
    yield from ()


def test_a_request_that_does_not_arrive_over_grpc_is_given_up_and_counted() -> None:
    over = threading.Event()
    try:
        with over_grpc() as (receiver, export):
            with pytest.raises(grpc.RpcError) as caught:
                export(nothing_until(over), timeout=20)
            assert caught.value.code() is grpc.StatusCode.CANCELLED
            patience = time.monotonic() + 20  # the sender learns of it before it is counted
            while not refused(receiver) and time.monotonic() < patience:
                time.sleep(0.01)
            assert refused(receiver) == {"too_slow": 1}
            assert export(iter([b""]), timeout=10) == b""
    finally:
        over.set()


def test_requests_that_do_not_arrive_keep_no_other_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds room for the largest; one that arrives too slowly gives way to one that waits."""
    monkeypatch.setattr(grpc_server, "_UNDISTURBED_SECONDS", 0.0)
    over = threading.Event()
    with (
        testing.capture(),
        receiving(http=None, grpc=HERE._replace(request_seconds=3_600.0)) as receiver,
        grpc.insecure_channel(urlsplit(receiver.urls["grpc"]).netloc) as channel,
    ):
        export = channel.stream_unary(EXPORT)
        idle = [export.future(nothing_until(over), timeout=60) for _ in range(8)]
        patience = time.monotonic() + 30
        while receiver._handler.memory.held < 3 * 2**24:
            assert time.monotonic() < patience
            time.sleep(0.01)
        arrived = False
        while not arrived:
            assert time.monotonic() < patience
            with contextlib.suppress(grpc.RpcError):  # busy: try again
                arrived = export(iter([b""]), timeout=10) == b""
        assert refused(receiver)["too_slow"] >= 1
        over.set()
        for one in idle:
            one.cancel()


def test_a_sender_over_grpc_is_authorized_before_it_sends_anything() -> None:
    over = threading.Event()
    try:
        with over_grpc(token="secret") as (receiver, export):
            with pytest.raises(grpc.RpcError) as caught:
                export(nothing_until(over), timeout=20)
            assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
            assert refused(receiver) == {"unauthorized": 1}
    finally:
        over.set()

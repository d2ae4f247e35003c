"""Passing on: nobody waits, everything is counted, whatever the endpoint does."""

from __future__ import annotations

import contextlib
import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from support.certificates import Authority
from tidegauge.errors import ConfigurationError
from tidegauge.net.listener import Listener, Tls
from tidegauge.receivers.forwarding import Forwarder, Forwarding, RejectedError, _as_protobuf
from tidegauge.receivers.receiver import Receiver, ReceiverSettings


class Endpoint:
    """Answers with these statuses, one after the other, the last for ever."""

    def __init__(self, *statuses: int, **headers: str) -> None:
        self.bodies: list[bytes] = []
        self.paths: list[str] = []
        statuses_left = list(statuses)
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.bodies.append(gzip.decompress(body))
                endpoint.paths.append(self.path)
                status = statuses_left.pop(0) if len(statuses_left) > 1 else statuses_left[0]
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@contextlib.contextmanager
def endpoint(*statuses: int, **headers: str) -> Iterator[Endpoint]:
    found = Endpoint(*statuses, **headers)
    thread = threading.Thread(target=found.server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield found
    finally:
        found.server.shutdown()
        thread.join()
        found.server.server_close()


@contextlib.contextmanager
def forwarding(url: str, **fields: Any) -> Iterator[Forwarder]:
    forwarder = Forwarder(Forwarding(url, **fields))
    try:
        yield forwarder
    finally:
        close(forwarder, 0.0)


def close(forwarder: Forwarder, seconds: float) -> list[str]:
    forwarder.begin_close(time.monotonic() + seconds)
    return forwarder.end_close()


def wait(until: Callable[[], object]) -> None:
    deadline = time.monotonic() + 10
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_requests_are_passed_on_in_order_as_they_came() -> None:
    with endpoint(200) as behind, forwarding(behind.url) as forwarder:
        for number in range(3):
            forwarder.offer(b"%d" % number, "protobuf", 2)
        assert close(forwarder, 5.0) == []
        assert behind.bodies == [b"0", b"1", b"2"]
        assert set(behind.paths) == {"/v1/traces"}
        assert (forwarder.forwarded, forwarder.dropped) == (6, {})


def test_what_is_not_taken_is_tried_again() -> None:
    with endpoint(503, 429, 200, Retry_After="0") as behind, forwarding(behind.url) as forwarder:
        forwarder.offer(b"it", "protobuf", 1)
        wait(lambda: forwarder.forwarded)
        assert behind.bodies == [b"it"] * 3


LAST_ANSWERS = {
    "a length": [b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n", b"{}"],
    "until it closes": [b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b"{}"],
    "HTTP/1.0": [b"HTTP/1.0 200 OK\r\n\r\n", b"{}"],
    "half a body": [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", b"{}"],
    "a wrong chunk": [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"none\r\n"],
}


@pytest.mark.parametrize("parts", LAST_ANSWERS.values(), ids=LAST_ANSWERS)
def test_what_was_taken_is_sent_once_however_the_answer_ends(parts: list[bytes]) -> None:
    """Each answer is the last of its connection, and some cannot be read whole."""
    sent: list[bytes] = []

    def answer(listening: socket.socket) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                connection, _ = listening.accept()
                with connection:
                    sent.append(connection.recv(65_536))
                    for part in parts:
                        connection.sendall(part)
                        time.sleep(0.05)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=answer, args=(listening,), daemon=True).start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        with forwarding(url, give_up_after=0.0) as forwarder:
            for _ in range(2):
                forwarder.offer(b"it", "protobuf", 1)
            wait(lambda: forwarder.forwarded + sum(forwarder.dropped.values()) == 2)
            assert (forwarder.forwarded, len(sent)) == (2, 2)
        listening.shutdown(socket.SHUT_RDWR)


def test_what_is_refused_is_dropped() -> None:
    with endpoint(400) as behind, forwarding(behind.url) as forwarder:
        forwarder.offer(b"it", "protobuf", 3)
        wait(lambda: forwarder.dropped)
        assert forwarder.dropped == {"refused": 3}
        assert len(behind.bodies) == 1


@pytest.mark.parametrize("protocol", ["https", "grpcs"])
def test_an_endpoint_is_trusted_by_the_certificates_that_are_given(
    protocol: str, tmp_path: Path
) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path, "other")
    certificate, key = authority.sign("server")
    listening, tls = Listener(), Tls(str(certificate), str(key))
    behind = Receiver(
        ReceiverSettings(
            grpc=listening if protocol == "grpcs" else None,
            http=listening if protocol == "https" else None,
            tls=tls,
        )
    )
    try:
        [url] = behind.urls.values()
        url = f"{protocol}://{url.partition('://')[2]}"
        for ca, forwarded in ((authority, 1), (other, 0), (None, 0)):
            fields = {} if ca is None else {"ca": str(ca.certificate)}
            with forwarding(url, give_up_after=0.0, **fields) as forwarder:
                forwarder.offer(b"", "protobuf", 1)
                wait(lambda: forwarder.forwarded or forwarder.dropped)
                assert forwarder.forwarded == forwarded
    finally:
        behind.stop(0.0)


@pytest.mark.parametrize("protocol", ["https", "grpcs"])
def test_certificates_that_cannot_be_used(protocol: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.pem").write_text("no certificate")
    for name in ("none.pem", "wrong.pem"):
        with pytest.raises(ConfigurationError, match=f"forward_ca '.*{name}': "):
            Forwarder(Forwarding(f"{protocol}://127.0.0.1:1", ca=str(tmp_path / name)))


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
    with forwarding(url, give_up_after=0.1) as forwarder:
        forwarder.offer(b"it", "protobuf", 3)
        wait(lambda: forwarder.dropped)
        assert forwarder.dropped == {"unreachable": 3}


def test_an_endpoint_that_answers_a_byte_at_a_time_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = threading.Event()

        def drip() -> None:
            connection, _ = server.accept()
            with connection, contextlib.suppress(OSError):
                while not ended.is_set():
                    connection.sendall(b"H")
                    time.sleep(0.02)

        thread = threading.Thread(target=drip)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        with forwarding(url, timeout=0.2, give_up_after=0.0) as forwarder:
            forwarder.offer(b"it", "protobuf", 3)
            wait(lambda: forwarder.dropped)
        ended.set()
        thread.join()


def test_the_queue_is_bounded_and_what_is_left_at_the_end_is_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with forwarding(url, queued_bytes=10, timeout=3.0) as forwarder:
            before = time.monotonic()
            for _ in range(1_000):
                forwarder.offer(b"1234", "protobuf", 1)
            assert time.monotonic() - before < 2.0  # nobody waits
            assert forwarder.waiting == 2
            assert forwarder.dropped == {"queue_full": 998}
            assert close(forwarder, 0.0) == ["2 spans were not forwarded"]
            assert forwarder.dropped == {"queue_full": 998, "shutdown": 2}
            forwarder.offer(b"1234", "protobuf", 1)
            assert forwarder.dropped["shutdown"] == 3


@pytest.mark.parametrize(
    "url", ["", "collector:4318", "ftp://collector", "http://", "http://a:b", "http://[::1"]
)
def test_an_address_that_is_none(url: str) -> None:
    with pytest.raises(ConfigurationError, match="forward_to"):
        Forwarder(Forwarding(url))


def test_json_that_is_too_deep_for_protobuf_is_refused() -> None:
    deep = b'{"a":' * 1_000 + b"1" + b"}" * 1_000
    with pytest.raises(RejectedError):
        _as_protobuf(deep)

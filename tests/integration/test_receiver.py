"""The listeners, over real sockets: what senders are answered, and what they cannot do to us."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import socket
import ssl
import threading
import time
import urllib.parse
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from google.rpc.error_details_pb2 import RetryInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from support.certificates import Authority
from support.receiving import HERE, receiving, refused
from tidegauge import catalog, testing
from tidegauge.errors import ConfigurationError
from tidegauge.net.listener import Tls
from tidegauge.receivers import request_handler
from tidegauge.receivers.decoding import ReadLimits
from tidegauge.receivers.receiver import Receiver, ReceiverSettings
from tidegauge.receivers.request_handler import RequestMemory

EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
PROTOBUF = "application/x-protobuf"


@pytest.fixture(autouse=True)
def _captured() -> Iterator[None]:
    with testing.capture():
        yield


def spans(count: int = 1, first: int = 1) -> bytes:
    message = ExportTraceServiceRequest()
    added = message.resource_spans.add().scope_spans.add().spans
    for number in range(first, first + count):
        added.add(trace_id=bytes(15) + b"\x01", span_id=number.to_bytes(8), name="GET /")
    return message.SerializeToString()


def post(
    receiver: Receiver, body: bytes, path: str = "/v1/traces", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    where = urllib.parse.urlsplit(receiver.urls["http"]).netloc
    connection = http.client.HTTPConnection(where, timeout=10)
    fields = {"Content-Type": PROTOBUF} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    with contextlib.closing(connection):
        connection.request("POST", path, body, fields)
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read()


def export(receiver: Receiver, body: bytes, method: str = EXPORT, **fields: Any) -> bytes:
    where = urllib.parse.urlsplit(receiver.urls["grpc"]).netloc
    with grpc.insecure_channel(where) as channel:
        return channel.unary_unary(method)(body, timeout=10, **fields)


def received(receiver: Receiver) -> float:
    return receiver.metrics()[catalog.SPANS_RECEIVED][()]


@pytest.mark.parametrize("compression", [None, grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_grpc_takes_spans_compressed_or_not(compression: Any) -> None:
    with receiving() as receiver:
        assert export(receiver, spans(30), compression=compression) == b""
        assert received(receiver) == 30


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [("identity", bytes), ("gzip", gzip.compress), ("deflate", zlib.compress)],
)
def test_http_takes_spans_compressed_or_not(encoding: str, packed: Any) -> None:
    with receiving() as receiver:
        status, headers, body = post(receiver, packed(spans(30)), Content_Encoding=encoding)
        assert (status, headers["Content-Type"], body) == (200, PROTOBUF, b"")
        assert received(receiver) == 30


def test_http_takes_chunks() -> None:
    with receiving() as receiver:
        body = spans(30)
        where = urllib.parse.urlsplit(receiver.urls["http"]).netloc
        connection = http.client.HTTPConnection(where, timeout=10)
        with contextlib.closing(connection):
            pieces = (body[start : start + 100] for start in range(0, len(body), 100))
            headers = {"Content-Type": PROTOBUF}
            connection.request("POST", "/v1/traces", pieces, headers, encode_chunked=True)
            assert connection.getresponse().status == 200
        assert received(receiver) == 30


def test_what_is_refused_of_a_request_is_reported_and_the_rest_is_taken() -> None:
    with receiving(read=ReadLimits(spans=2)) as receiver:
        for body in (export(receiver, spans(3)), post(receiver, spans(3))[2]):
            reported = ExportTraceServiceResponse.FromString(body).partial_success
            assert reported.rejected_spans == 1
            assert reported.error_message == "1 spans rejected: too many in one request"
        span = {"traceId": "7", "spanId": "7"}
        request = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
        status, _, body = post(
            receiver, json.dumps(request).encode(), Content_Type="application/json"
        )
        assert (status, json.loads(body)["partialSuccess"]["rejectedSpans"]) == (200, "1")
        assert refused(receiver) == {"too_many": 2, "invalid": 1}


def test_metrics_are_let_pass() -> None:
    with receiving() as receiver:
        assert post(receiver, b"anything", "/v1/metrics")[0] == 200
        service = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
        assert export(receiver, b"anything", service) == b""
        assert received(receiver) == 0


@pytest.mark.parametrize(
    ("body", "headers", "status", "reason"),
    [
        (b"\xff\xff", {}, 400, "malformed"),
        (b"{", {"Content_Type": "application/json; charset=utf-8"}, 400, "malformed"),
        (b"no gzip", {"Content_Encoding": "gzip"}, 400, "malformed"),
        (gzip.compress(spans(), mtime=0)[:-9], {"Content_Encoding": "gzip"}, 400, "malformed"),
        (spans(), {"Content_Encoding": "br"}, 415, "unsupported"),
        (spans(), {"Content_Type": "text/plain"}, 415, "unsupported"),
        (bytes(2_000), {}, 413, "too_large"),
        (gzip.compress(bytes(2_000), mtime=0), {"Content_Encoding": "gzip"}, 413, "too_large"),
    ],
)
def test_http_refuses(body: bytes, headers: dict[str, str], status: int, reason: str) -> None:
    with receiving(http=HERE._replace(max_bytes=1_000)) as receiver:
        answer, sent_headers, said = post(receiver, body, **headers)
        assert answer == status
        if "json" in headers.get("Content_Type", ""):
            assert json.loads(said)["message"]
        else:
            assert sent_headers["Content-Type"] == PROTOBUF
            assert Status.FromString(said).message
        assert refused(receiver) == {reason: 1}
        assert post(receiver, spans())[0] == 200  # the next is taken


@pytest.mark.parametrize("length", ["-5", "many", "9" * 30])
def test_http_refuses_a_length_that_is_none(length: str) -> None:
    with receiving() as receiver:
        assert post(receiver, b"", Content_Length=length)[0] in (400, 413)


def test_http_knows_no_other_paths_and_methods() -> None:
    with receiving() as receiver:
        assert post(receiver, spans(), "/v1/trace")[0] == 404
        where = urllib.parse.urlsplit(receiver.urls["http"]).netloc
        connection = http.client.HTTPConnection(where, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", "/v1/traces")
            assert connection.getresponse().status == 405


@pytest.mark.parametrize("body", [b"\xff\xff", b"\x1f\x8b\x08 no gzip", b"\n\x7f"])
def test_grpc_refuses_what_is_malformed(body: bytes) -> None:
    with receiving() as receiver:
        with pytest.raises(grpc.RpcError) as caught:
            export(receiver, body)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert refused(receiver) == {"malformed": 1}


def test_grpc_refuses_what_is_too_large_also_when_it_is_unpacked() -> None:
    with receiving(grpc=HERE._replace(max_bytes=100_000)) as receiver:
        for size in (100_001, 200_000, 5_000_000):
            with pytest.raises(grpc.RpcError) as caught:
                export(receiver, bytes(size))
            assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refused(receiver) == {"too_large": 2}  # the largest was refused by gRPC itself
        with pytest.raises(grpc.RpcError) as caught:  # 50 MB in 50 kB
            export(receiver, bytes(50_000_000), compression=grpc.Compression.Gzip)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refused(receiver) == {"too_large": 3}
        assert export(receiver, spans()) == b""


def test_a_token_is_asked_for() -> None:
    with receiving(token="secret") as receiver:
        for shown in ("Bearer wrong", "Bearer ", "secret", "Basic secret", "Bearer sécret"):
            assert post(receiver, spans(), Authorization=shown)[0] == 401
        assert post(receiver, spans())[1]["WWW-Authenticate"] == "Bearer"
        with pytest.raises(grpc.RpcError) as caught:
            export(receiver, spans(), metadata=(("authorization", "Bearer wrong"),))
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert received(receiver) == 0
        assert post(receiver, spans(first=1), Authorization="bearer secret")[0] == 200
        export(receiver, spans(first=2), metadata=(("authorization", "Bearer secret"),))
        assert received(receiver) == 2
        assert refused(receiver) == {"unauthorized": 7}


def test_senders_are_asked_to_try_again_when_there_is_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with receiving(queued_spans=10) as receiver:
        going_on, entered = threading.Event(), threading.Event()
        take = receiver._spans._assembly.take  # type: ignore[attr-defined]

        def slowly(*values: Any, **named: Any) -> None:
            entered.set()
            going_on.wait(20)
            take(*values, **named)

        monkeypatch.setattr(receiver._spans._assembly, "take", slowly)  # type: ignore[attr-defined]
        assert post(receiver, spans(5))[0] == 200
        assert entered.wait(10)
        assert post(receiver, spans(5, first=10))[0] == 200  # waits
        status, headers, _ = post(receiver, spans(5, first=20))
        assert (status, headers["Retry-After"]) == (503, "1")
        with pytest.raises(grpc.RpcError) as caught:
            export(receiver, spans(5, first=20))
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        trailing = dict(caught.value.trailing_metadata())
        assert RetryInfo.FromString(trailing["google.rpc.retryinfo-bin"]).retry_delay.seconds == 1
        [detail] = Status.FromString(trailing["grpc-status-details-bin"]).details
        assert detail.Is(RetryInfo.DESCRIPTOR)
        going_on.set()
        deadline = time.monotonic() + 10
        while receiver.metrics()[catalog.SPANS_QUEUED][()]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert post(receiver, spans(5, first=20))[0] == 200
        assert (received(receiver), refused(receiver)) == (15, {"busy": 10})


def connected(receiver: Receiver) -> socket.socket:
    where = urllib.parse.urlsplit(receiver.urls["http"])
    return socket.create_connection((where.hostname, where.port), timeout=10)


HEAD = (
    b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n"
    b"Content-Type: application/x-protobuf\r\nContent-Length: 100\r\n\r\n"
)


def is_closed(client: socket.socket) -> bool:
    """Whether the other side closes it within seconds, with or without an answer."""
    with contextlib.suppress(ConnectionError):
        while client.recv(1_000):
            pass
    return True


def test_silent_and_slow_clients_are_let_go() -> None:
    listening = HERE._replace(request_seconds=0.5, idle_seconds=0.5)
    with receiving(http=listening) as receiver, contextlib.ExitStack() as stack:
        silent, slow, half = (stack.enter_context(connected(receiver)) for _ in range(3))
        half.sendall(HEAD + b"some")
        slow.sendall(b"POST /v1/tra")
        deadline = time.monotonic() + 10
        for letter in "ces HTTP/1.1" * 100:  # a byte now and then does not keep it
            try:
                slow.sendall(letter.encode())
            except OSError:
                break
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert is_closed(silent)
        assert is_closed(half)
        assert post(receiver, spans())[0] == 200


def test_who_sends_nothing_keeps_nobody_out() -> None:
    listening = HERE._replace(max_connections=3, request_seconds=60.0, idle_seconds=60.0)
    with receiving(http=listening) as receiver, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connected(receiver)) for _ in range(20)]
        assert post(receiver, spans())[0] == 200
        assert all(is_closed(client) for client in silent[:17])
        slow = [stack.enter_context(connected(receiver)) for _ in range(20)]
        for client in slow:
            with contextlib.suppress(ConnectionError):
                client.sendall(b"POST /v1/tra")
        assert post(receiver, spans())[0] == 200
        assert refused(receiver) == {}
        until = time.monotonic() + 10
        while time.monotonic() < until:  # until three are known to work
            with contextlib.suppress(ConnectionError):  # the answer may be lost with the connection
                stack.enter_context(connected(receiver)).sendall(HEAD + b"some")
                status, headers, _ = post(receiver, spans())
                if status == 503:
                    assert headers["Retry-After"] == "1"
                    break
        assert refused(receiver)["busy"] >= 1


def test_who_is_refused_and_goes_on_sending_keeps_nobody_out() -> None:
    listening = HERE._replace(max_connections=3)
    with receiving(http=listening, token="secret") as receiver, contextlib.ExitStack() as stack:
        for _ in range(3):
            client = stack.enter_context(connected(receiver))
            client.sendall(HEAD + b"some")
            assert client.recv(12) == b"HTTP/1.1 401"
        patience = time.monotonic() + 20  # their places are free soon after the answer
        while (status := post(receiver, spans(), Authorization="Bearer secret")[0]) == 503:
            assert time.monotonic() < patience
        assert status == 200


def test_who_stalls_in_the_handshake_keeps_nobody_out(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("server")
    context = ssl.create_default_context(cafile=str(authority.certificate))
    listening = HERE._replace(max_connections=3)
    with (
        receiving(http=listening, tls=Tls(str(certificate), str(key))) as receiver,
        contextlib.ExitStack() as stack,
    ):
        for sent in (b"", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"GET / HTTP/1.1\r\n\r\n") * 3:
            stack.enter_context(connected(receiver)).sendall(sent)
        where = urllib.parse.urlsplit(receiver.urls["http"]).netloc
        connection = http.client.HTTPSConnection(where, timeout=10, context=context)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/traces", spans(), {"Content-Type": PROTOBUF})
            assert connection.getresponse().status == 200


def test_requests_of_all_connections_share_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = RequestMemory(most=300_000, max_wait=0.1)
    monkeypatch.setattr(request_handler, "RequestMemory", lambda: memory)
    body = b"\xfa\x01\x80\x80\x10" + bytes(262_144)  # a field that no message has
    with receiving() as receiver:
        assert post(receiver, body)[0] == 200
        with connected(receiver) as client:
            client.sendall(HEAD.replace(b"100", b"200000") + b"some")
            deadline = time.monotonic() + 10
            while not memory.held:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            for packed in (body, gzip.compress(body)):
                fields = {"Content_Encoding": "gzip"} if packed is not body else {}
                assert post(receiver, packed, **fields)[0] == 503
            with pytest.raises(grpc.RpcError) as caught:
                export(receiver, body)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert post(receiver, spans())[0] == 200  # there is room for a small one
        while memory.held:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert post(receiver, body)[0] == 200
        big = b"\xfa\x01\x80\x80\x40" + bytes(1_048_576)
        assert post(receiver, big)[0] == 200  # it is alone
        assert refused(receiver) == {"busy": 3}
        assert memory.held == 0


def test_a_connection_serves_several_requests() -> None:
    with receiving() as receiver:
        where = urllib.parse.urlsplit(receiver.urls["http"]).netloc
        connection = http.client.HTTPConnection(where, timeout=10)
        with contextlib.closing(connection):
            for number in range(1, 4):
                headers = {"Content-Type": PROTOBUF}
                connection.request("POST", "/v1/traces", spans(first=number), headers)
                before = connection.sock
                assert connection.getresponse().read() == b""
                assert connection.sock is before
        assert received(receiver) == 3


def test_an_address_in_use_is_an_error_that_names_it() -> None:
    with receiving() as receiver:
        for kind in ("grpc", "http"):
            port = urllib.parse.urlsplit(receiver.urls[kind]).port
            settings: Any = {"grpc": None, kind: HERE._replace(port=port)}
            with pytest.raises(OSError, match=rf"cannot listen on 127\.0\.0\.1:{port} for OTLP"):
                Receiver(ReceiverSettings(**settings))


def test_tls_with_certificates_of_clients(tmp_path) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    certificate, key = authority.sign("server")
    tls = Tls(str(certificate), str(key), str(authority.certificate))
    with receiving(tls=tls) as receiver:
        for number, (signed_by, welcome) in enumerate(((authority, True), (stranger, False)), 1):
            shown, secret = signed_by.sign(f"client{number}")
            files = (authority.certificate, secret, shown)
            credentials = grpc.ssl_channel_credentials(*(path.read_bytes() for path in files))
            where = urllib.parse.urlsplit(receiver.urls["grpc"]).netloc
            with grpc.secure_channel(where, credentials) as channel:
                send = channel.unary_unary(EXPORT)
                with contextlib.nullcontext() if welcome else pytest.raises(grpc.RpcError):
                    assert send(spans(first=number), timeout=10) == b""
            context = ssl.create_default_context(cafile=str(authority.certificate))
            context.load_cert_chain(shown, secret)
            where = urllib.parse.urlsplit(receiver.urls["http"]).netloc
            connection = http.client.HTTPSConnection(where, timeout=10, context=context)
            with (
                contextlib.closing(connection),
                contextlib.nullcontext()
                if welcome
                else pytest.raises((ssl.SSLError, ConnectionError)),
            ):
                headers = {"Content-Type": PROTOBUF}
                connection.request("POST", "/v1/traces", spans(first=number + 10), headers)
                assert connection.getresponse().status == 200
        with connected(receiver):  # it never shakes hands
            assert received(receiver) == 2


def test_files_of_tls_that_cannot_be_used(tmp_path) -> None:
    certificate, key = Authority(tmp_path).sign("server", password=b"secret")
    for one in (Tls(str(certificate), str(key)), Tls(str(certificate), str(tmp_path / "none"))):
        with pytest.raises(ConfigurationError, match="the TLS files cannot be used"):
            Receiver(ReceiverSettings(grpc=HERE, http=HERE, tls=one))

"""Requests of a few kilobytes that are millions of elements cost neither memory nor time."""

from __future__ import annotations

import gzip
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc  # type: ignore[import-untyped]
import pytest

from support.element_bombs import JSON_BOMBS, PROTOBUF_BOMBS, field
from support.serve import Server, serving
from tidegauge import catalog

pytestmark = pytest.mark.system

MEGABYTE = 2**20
SIZE = 15 * MEGABYTE
SENDERS = 4
MANY_SENDERS = 30
MAX_RESIDENT = 1024 * MEGABYTE
"""Well below what the documentation promises; the cases here take a quarter of it."""

MAX_SECONDS = 3.0
"""An order above what ``/healthz`` takes meanwhile."""


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("bombs")) as server:
        yield server
        assert server.value(catalog.INTERNAL_ERRORS.name) == 0, server.log.read_text()


def attacked(server: Server, send: Callable[[], object]) -> set[object]:
    """Let all senders send at once; how they are answered, while ``/healthz`` always answers."""
    over, longest = threading.Event(), 0.0

    def probe() -> None:
        nonlocal longest
        while not over.is_set():
            began = time.monotonic()
            assert server.get("/healthz").status == 200
            longest = max(longest, time.monotonic() - began)
            time.sleep(0.02)

    with ThreadPoolExecutor(SENDERS + 1) as threads:
        probing = threads.submit(probe)
        answers = [threads.submit(send) for _ in range(SENDERS)]
        found = {each.result() for each in answers}
        over.set()
        probing.result()
    assert longest < MAX_SECONDS
    assert server.peak_bytes < MAX_RESIDENT
    return found


@pytest.mark.parametrize("bomb", PROTOBUF_BOMBS)
def test_protobuf_over_http(bomb: str, serve: Server) -> None:
    body = gzip.compress(PROTOBUF_BOMBS[bomb](SIZE), 6)
    answers = attacked(serve, lambda: serve.post(body, Content_Encoding="gzip").status)
    assert 413 in answers
    assert answers <= {413, 503}


@pytest.mark.parametrize("bomb", JSON_BOMBS)
def test_json_over_http(bomb: str, serve: Server) -> None:
    body = gzip.compress(JSON_BOMBS[bomb](SIZE), 6)
    kind = "application/json"
    answers = attacked(serve, lambda: serve.post(body, kind=kind, Content_Encoding="gzip").status)
    assert 413 in answers
    assert answers <= {413, 503}


@pytest.mark.parametrize("bomb", ["resources", "links", "attributes of events"])
def test_over_grpc(bomb: str, serve: Server) -> None:
    body = gzip.compress(PROTOBUF_BOMBS[bomb](SIZE), 6)
    answers = attacked(serve, lambda: serve.send_raw_grpc(body))
    codes = grpc.StatusCode
    assert codes.RESOURCE_EXHAUSTED in answers
    assert answers <= {codes.RESOURCE_EXHAUSTED, codes.UNAVAILABLE}


def test_large_requests_at_once_over_grpc(tmp_path: Path) -> None:
    """What gRPC itself holds while they arrive is part of the limit for all of them."""
    body = field(31, bytes(SIZE))
    codes = grpc.StatusCode
    with serving(tmp_path) as server, ThreadPoolExecutor(MANY_SENDERS) as threads:
        answers = set(threads.map(lambda _: server.send_raw_grpc(body), range(MANY_SENDERS)))
        assert answers <= {codes.OK, codes.UNAVAILABLE}
        assert codes.OK in answers
        assert server.peak_bytes < 300 * MEGABYTE


DECODING = """
import resource, sys
from tidegauge.receivers.decoding import OverloadedRequestError, decode_protobuf
from tidegauge.receivers.json_decoding import decode_json

body = sys.stdin.buffer.read()
decode = decode_json if body[:1] == b"{" else decode_protobuf
decode(body[:0] or b"{}" if decode is decode_json else b"")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    decoded = decode(body)
except OverloadedRequestError:
    pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
"""How many kilobytes it takes to decode a body."""


@pytest.mark.parametrize("bomb", [*PROTOBUF_BOMBS, *JSON_BOMBS])
@pytest.mark.parametrize("padding", [0, 3])
def test_a_request_takes_at_most_twenty_times_its_bytes(bomb: str, padding: int) -> None:
    """Also if it has just as many elements as are allowed."""
    made = {**PROTOBUF_BOMBS, **JSON_BOMBS}[bomb](4 * MEGABYTE)
    more = b" " * (padding * len(made))
    body = made + (more if bomb in JSON_BOMBS else field(31, more))  # which no message has
    done = subprocess.run(
        [sys.executable, "-c", DECODING], input=body, capture_output=True, check=True
    )
    assert int(done.stdout) * 1024 < 20 * len(body) + 16 * MEGABYTE

"""What can go wrong around ``tidegauge serve``: nothing hangs, and counters say what was lost."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import math
import re
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import hypothesis
import hypothesis.strategies as st
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.broken_collectors import (
    Broken,
    babbling,
    dead,
    half_open,
    hanging_up,
    refusing,
    rejecting,
    silent,
    trickling,
)
from support.examples import examples
from support.processes import PATIENCE
from support.prometheus import find_binary
from support.serve import Ports, Server, serving
from support.wire_runs import BEGAN, WireRun, batches, interleaved, request
from tidegauge import catalog

pytestmark = pytest.mark.system

MEGABYTE = 2**20
ANSWERS = {200, 400, 413, 415, 503}
"""What a body may be answered with."""

CODES = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAVAILABLE,
}


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server that goes through all bodies of this module."""
    with serving(tmp_path_factory.mktemp("serve")) as server:
        server.send(batches(WireRun(0).spans))
        server.wait_for("tidegauge_runs_finished_total")
        yield server


waves = iter(range(1, 1_000_000))


def still_measures(server: Server) -> None:
    """A run is measured as ever, and no fault of ours was counted."""
    run = WireRun(4, wave=next(waves))
    before = server.value("tidegauge_steps_total", agent=run.agent)
    server.send(batches(run.spans))
    server.wait_for(
        "tidegauge_steps_total",
        lambda steps: steps == before + len(run.turns),
        agent=run.agent,
    )
    assert server.value(catalog.INTERNAL_ERRORS.name) == 0, server.log.read_text()


# Bodies


VALID = request(WireRun(7).spans).SerializeToString()
SPAN = {"traceId": f"{1:032x}", "spanId": f"{2:016x}", "name": "chat"}
WRONG = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=8,
)
TWISTED_SPANS = st.fixed_dictionaries(
    {},
    optional={
        "traceId": WRONG | st.just(SPAN["traceId"]),
        "spanId": WRONG | st.just(SPAN["spanId"]),
        "parentSpanId": WRONG | st.just("f" * 16),
        "name": WRONG,
        "startTimeUnixNano": WRONG,
        "endTimeUnixNano": WRONG,
        "status": WRONG | st.fixed_dictionaries({"code": WRONG}),
        "events": WRONG,
        "attributes": WRONG
        | st.lists(
            st.fixed_dictionaries(
                {
                    "key": st.sampled_from(
                        ["gen_ai.operation.name", "openinference.span.kind", "x"]
                    ),
                    "value": WRONG
                    | st.fixed_dictionaries({"stringValue": st.sampled_from(["chat", "LLM"])})
                    | st.fixed_dictionaries({"arrayValue": WRONG, "intValue": WRONG}),
                }
            )
        ),
    },
)


def twisted(spans: Sequence[object]) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A request of which some bytes are others, and the end may be missing."""
    body = bytearray(VALID[: draw(st.integers(0, len(VALID)))])
    for _ in range(draw(st.integers(0, 8))):
        if body:
            body[draw(st.integers(0, len(body) - 1))] = draw(st.integers(0, 255))
    return bytes(body)


BODIES = st.binary(max_size=200) | damaged()
JSON_BODIES = (
    WRONG.map(lambda value: json.dumps(value).encode())
    | st.lists(TWISTED_SPANS | WRONG, max_size=4).map(twisted)
    | st.binary(max_size=50)
)
FUZZED = examples(
    1.5,
    derandomize=True,
    database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)


@FUZZED
@hypothesis.given(body=BODIES, compressed=st.booleans(), said=st.sampled_from(["", "gzip", "br"]))
def test_any_bytes_over_http(body: bytes, compressed: bool, said: str, serve: Server) -> None:
    fields = {"Content_Encoding": said} if said else {}
    sent = gzip.compress(body) if compressed else body
    assert serve.post(sent, seconds=5, **fields).status in ANSWERS


@FUZZED
@hypothesis.given(body=JSON_BODIES)
def test_any_json_over_http(body: bytes, serve: Server) -> None:
    assert serve.post(body, kind="application/json", seconds=5).status in ANSWERS


@FUZZED
@hypothesis.given(body=BODIES)
def test_any_bytes_over_grpc(
    body: bytes, serve: Server, channel: grpc.UnaryUnaryMultiCallable
) -> None:
    answer = channel.future(body, timeout=5)
    assert answer.code() in CODES


@pytest.fixture(scope="module")
def channel(serve: Server) -> Iterator[object]:
    with grpc.insecure_channel(serve.grpc_target) as channel:
        yield channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")


def test_after_many_bad_bodies_it_measures(serve: Server) -> None:
    before = serve.value(catalog.SPANS_REFUSED.name, reason="malformed")
    for size in range(1, 102):
        assert serve.post(b"\xff" * size).status == 400
    still_measures(serve)
    assert serve.value(catalog.SPANS_REFUSED.name, reason="malformed") == before + 101


def test_bombs_and_giants_are_refused_and_take_no_memory(serve: Server) -> None:
    still_measures(serve)
    before = serve.resident_bytes
    bomb = gzip.compress(bytes(400 * MEGABYTE), 9)
    assert serve.post(bomb, Content_Encoding="gzip").status == 413
    assert serve.post(gzip.compress(bomb), Content_Encoding="gzip").status == 400
    assert serve.send_raw_grpc(bomb) in CODES - {grpc.StatusCode.OK}
    assert serve.post(bytes(10), Content_Length=str(10**15)).status == 413
    with contextlib.suppress(OSError):  # it may hang up before all of it was sent
        assert serve.post(bytes(64 * MEGABYTE)).status == 413
    assert serve.send_raw_grpc(bytes(64 * MEGABYTE)) == grpc.StatusCode.RESOURCE_EXHAUSTED
    for depth, status in ((1_000_000, 413), (30_000, 400)):
        deep = b"[" * depth
        assert serve.post(deep, kind="application/json").status == status
        nested = b'{"a":' * depth + b"1" + b"}" * depth
        assert serve.post(nested, kind="application/json").status == status
    still_measures(serve)
    assert serve.value(catalog.SPANS_REFUSED.name, reason="too_large") >= 3
    assert serve.resident_bytes - before < 100 * MEGABYTE


def test_those_who_never_finish_their_request_keep_nobody_waiting(serve: Server) -> None:
    with contextlib.ExitStack() as stack:
        for port in (serve.ports.http, serve.ports.grpc, serve.ports.metrics):
            for _ in range(20):
                silent_one = stack.enter_context(
                    socket.create_connection(("127.0.0.1", port), timeout=5)
                )
                silent_one.sendall(b"POST /v1/traces HTTP/1.1\r\nContent-Length: 100\r\n")
        still_measures(serve)


# Clocks


CLOCKS = {
    "a century ahead": (BEGAN * 2, 1),
    "the first day": (1, 1),
    "never": (0, 0),
    "the last moment": (2**64 - 2**40, 1),
    "backwards": (BEGAN, -1),
}


@pytest.mark.parametrize("clock", CLOCKS)
def test_clocks_that_are_wrong(clock: str, serve: Server) -> None:
    began, direction = CLOCKS[clock]
    run = WireRun(9, wave=next(waves))
    before = serve.samples()
    for span in run.spans:
        start, end = span.start_time_unix_nano - BEGAN, span.end_time_unix_nano - BEGAN
        if direction < 0:
            start, end = end, start
        span.start_time_unix_nano = began + start * abs(direction)
        span.end_time_unix_nano = began + end * abs(direction)
    serve.send(batches(run.spans))
    finished: Any = ("tidegauge_runs_finished_total", {"agent": run.agent})
    already = serve_sum(before, *finished)
    serve.wait_for(finished[0], lambda runs: runs > already, **finished[1])
    now = serve.samples()
    steps = ("tidegauge_steps_total", {"agent": run.agent})
    assert serve_sum(now, *steps) - serve_sum(before, *steps) == len(run.turns)
    for (name, _), value in now.items():
        assert math.isfinite(value), name
        assert value >= 0 or not name.endswith(("_total", "_sum", "_count", "_bucket")), name
    for (name, labels), value in before.items():
        if name.endswith(("_total", "_sum", "_count", "_bucket")):
            assert now[name, labels] >= value, name
    still_measures(serve)


def serve_sum(samples: dict, name: str, given: dict[str, str]) -> float:
    """The sum of the series of this name that have these labels."""
    return sum(
        value
        for (other, labels), value in samples.items()
        if other == name and given.items() <= dict(labels).items()
    )


# Downstream


HASTY = ("--shutdown-seconds=1", "--forward-timeout=2")


@pytest.mark.parametrize(
    "broken",
    [dead, half_open, trickling, hanging_up, babbling, refusing, rejecting, silent],
    ids=lambda broken: broken.__name__,
)
def test_whatever_is_behind_it_nobody_waits_for_it(broken: Broken, tmp_path: Path) -> None:
    runs = [WireRun(number) for number in range(100)]
    with broken() as url, serving(tmp_path, f"--forward-to={url}", *HASTY) as server:
        began = time.monotonic()
        server.send(batches(interleaved([run.spans for run in runs[:50]])))
        assert server.send_grpc(batches(interleaved([run.spans for run in runs[50:]]))) == 0
        assert time.monotonic() - began < 5
        server.wait_for("tidegauge_runs_finished_total", lambda found: found == len(runs))
        steps = sum(len(run.turns) for run in runs)
        assert server.value("tidegauge_steps_total") == steps
        assert server.value(catalog.SPANS_RECEIVED.name) == sum(len(run.spans) for run in runs)
        assert server.value(catalog.SPANS_FORWARDED.name) == 0
        if broken is rejecting:
            server.wait_for(
                catalog.SPANS_NOT_FORWARDED.name,
                lambda found: found == sum(len(run.spans) for run in runs),
                reason="refused",
            )
        else:
            assert server.value(catalog.REQUESTS_TO_FORWARD.name) > 0
        assert server.value(catalog.INTERNAL_ERRORS.name) == 0, server.log.read_text()
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 10


# Stopped


def counted(log: str, what: str) -> int:
    """How many the last line says were lost."""
    found = re.search(f"([0-9,]+) {what}", log)
    return int(found[1].replace(",", "")) if found else 0


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [10, 1])
def test_stopped_under_load_every_span_and_every_end_is_recorded_or_counted(
    seconds: int, tmp_path: Path
) -> None:
    """Many runs are open, the queue is full, and its senders do not stop."""
    recording = tmp_path / "runs.jsonl"
    bodies = [
        body.SerializeToString()
        for first in range(0, 4_000, 40)
        for body in batches(
            interleaved([WireRun(number).inner for number in range(first, first + 40)])
        )
    ]
    over = threading.Event()
    taken = itertools.count()
    flags = (f"--record-to={recording}", f"--shutdown-seconds={seconds}", "--allowed-lateness=0")
    with serving(tmp_path, *flags) as server:

        def send() -> None:
            with contextlib.suppress(OSError):
                while not over.is_set():
                    try:
                        body = bodies[next(taken)]
                    except IndexError:
                        return
                    while server.post(body).status == 503:
                        pass

        senders = [threading.Thread(target=send) for _ in range(4)]
        for sender in senders:
            sender.start()
        server.wait_for("tidegauge_runs_active", lambda active: active > 400)
        server.wait_for(catalog.SPANS_QUEUED.name, lambda queued: queued > 20_000)
        server.process.terminate()
        assert server.process.wait(2 * seconds + PATIENCE) == 0
        over.set()
        for sender in senders:
            sender.join(PATIENCE)
        log = server.log.read_text()
    kinds = Counter(json.loads(line)["type"] for line in recording.read_text().splitlines())
    assert kinds["start"] > 400
    assert kinds["start"] == kinds["end"] + counted(log, "runs were not ended")
    if seconds == 1:
        assert counted(log, "received spans were not measured") > 0
    assert "internal error" not in log


# Killed


def test_killed_and_started_again_under_load(tmp_path: Path) -> None:
    ports, over = Ports.free(), threading.Event()
    sent: list[int] = []

    def send(server: Server) -> None:
        """Waves over gRPC, one after the other; a wave that is lost is lost.

        Of an agent of their own: the last of them may still be measured when nothing more is sent.
        """
        for wave in waves:
            if over.is_set():
                return
            run = WireRun(3, wave=wave)
            with contextlib.suppress(grpc.RpcError):
                server.send_grpc(batches(run.spans))
                sent.append(len(run.turns))

    with serving(tmp_path, ports=ports) as server:
        sender = threading.Thread(target=send, args=(server,))
        sender.start()
        try:
            server.wait_for("tidegauge_runs_finished_total", lambda found: found > 5)
            server.kill()
            with serving(tmp_path, ports=ports) as again:
                again.wait_for("tidegauge_runs_finished_total", lambda found: found > 5)
                over.set()
                sender.join(60)
                assert not sender.is_alive()
                again.wait_for(catalog.TRACES_OPEN.name, lambda found: found == 0)
                assert 0 < again.value("tidegauge_steps_total") <= sum(sent)
                still_measures(again)
                assert again.stop() == 0
        finally:
            over.set()
            sender.join(60)


# Memory and cardinality


def new_in_everything(first: int, count: int = 50) -> ExportTraceServiceRequest:
    """A request of runs of which each has an agent, a task group and tools of its own."""
    made = ExportTraceServiceRequest()
    for wave in range(first, first + count):
        run = WireRun(1, wave=wave)
        for span in run.spans:
            for pair in span.attributes:
                if pair.key in ("gen_ai.agent.name", "gen_ai.tool.name"):
                    pair.value.string_value += f" {wave}"
        made.MergeFrom(request(run.spans, **{"tidegauge.task_group": f"group {wave}"}))
    return made


def test_a_stream_that_is_new_in_everything_stays_within_the_bounds(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        server.send(new_in_everything(wave) for wave in range(0, 400, 50))
        server.wait_for("tidegauge_runs_finished_total", lambda found: found == 400)
        before = server.resident_bytes
        server.send(new_in_everything(wave) for wave in range(400, 1_200, 50))
        server.wait_for("tidegauge_runs_finished_total", lambda found: found == 1_200)
        samples = server.samples()
        pairs = {
            (dict(labels).get("agent"), dict(labels).get("task_group")) for _, labels in samples
        }
        assert len(pairs) <= 202
        actions = {dict(labels).get("action") for _, labels in samples}
        assert len(actions) <= 60
        assert len(samples) < 40_000
        page = server.get("/metrics").body
        checked = subprocess.run(
            [find_binary("promtool"), "check", "metrics"],
            input=page,
            capture_output=True,
            check=False,
        )
        assert (checked.returncode, checked.stderr, checked.stdout) == (0, b"", b"")
        assert server.resident_bytes - before < 150 * MEGABYTE
        assert server.value(catalog.INTERNAL_ERRORS.name) == 0, server.log.read_text()


def test_a_span_that_is_kept_keeps_nothing_of_its_request(tmp_path: Path) -> None:
    """Each request has a megabyte beside one span that waits for what is around it."""
    with serving(tmp_path) as server:
        still_measures(server)
        before = server.resident_bytes
        giant = WireRun(4, wave=next(waves)).spans[0]
        del giant.attributes[:]
        for wave in range(400):
            waiting = WireRun(4, wave=wave + 10_000).inner[-1]  # a model call that chose nothing
            del waiting.attributes[0]  # the name of its agent
            giant.name = f"{wave} " * (MEGABYTE // 4)
            server.send([request([waiting, giant])])
        received = 400 * 2 + len(WireRun(4).spans)
        server.wait_for(catalog.SPANS_RECEIVED.name, lambda spans: spans == received)
        server.wait_for(catalog.SPANS_QUEUED.name, lambda spans: spans == 0)
        time.sleep(1)  # until what settles has settled
        assert server.value(catalog.TRACES_OPEN.name) == 401
        assert server.resident_bytes - before < 200 * MEGABYTE

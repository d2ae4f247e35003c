"""Contents in log records, over real sockets: they make the steps of their spans."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import time
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.log_events import LOOP, STEPS, as_json, logs_request, records, spans, spans_request
from support.other_spans import Listener
from support.receiving import receiving, refused
from tidegauge import catalog, testing
from tidegauge._span_counts import span_faults
from tidegauge.receivers.assembly import ASSEMBLY_LIMITS
from tidegauge.receivers.decoding import ReadLimits
from tidegauge.receivers.receiver import Receiver

_SERVICES: dict[Any, tuple[str, str]] = {
    ExportTraceServiceRequest: ("traces", "trace"),
    ExportLogsServiceRequest: ("logs", "logs"),
}
_LATENESS = ASSEMBLY_LIMITS._replace(allowed_lateness=2.0)
"""Enough for all requests of a test on a busy machine."""


@pytest.fixture(autouse=True)
def _no_faults() -> Iterator[None]:
    span_faults.clear()
    yield
    span_faults.clear()


@pytest.fixture
def seen() -> Iterator[testing.Capture]:
    with testing.capture() as captured:
        yield captured


def post(receiver: Receiver, body: bytes, path: str, **headers: str) -> tuple[int, bytes]:
    where = urllib.parse.urlsplit(receiver.urls["http"]).netloc
    fields = {name.replace("_", "-"): value for name, value in headers.items()}
    with contextlib.closing(http.client.HTTPConnection(where, timeout=10)) as connection:
        connection.request("POST", path, body, fields)
        answer = connection.getresponse()
        return answer.status, answer.read()


def send_protobuf(receiver: Receiver, request: object) -> bytes:
    path = f"/v1/{_SERVICES[type(request)][0]}"
    body = gzip.compress(request.SerializeToString())  # type: ignore[attr-defined]
    kind = "application/x-protobuf"
    status, answer = post(receiver, body, path, Content_Type=kind, Content_Encoding="gzip")
    assert status == 200
    return answer


def send_json(receiver: Receiver, request: object) -> bytes:
    path = f"/v1/{_SERVICES[type(request)][0]}"
    status, answer = post(receiver, as_json(request), path, Content_Type="application/json")
    assert status == 200
    return answer


def send_grpc(receiver: Receiver, request: object) -> bytes:
    name = _SERVICES[type(request)][1]
    service = f"opentelemetry.proto.collector.{name}.v1.{name.capitalize()}Service"
    with grpc.insecure_channel(urllib.parse.urlsplit(receiver.urls["grpc"]).netloc) as channel:
        export = channel.unary_unary(f"/{service}/Export")
        answer = export(request.SerializeToString(), timeout=10)  # type: ignore[attr-defined]
    assert isinstance(answer, bytes)
    return answer


def dropped() -> dict[str, int]:
    counts = span_faults.metrics()[catalog.DROPPED_CONTENTS]
    return {reason: count for (reason,), count in counts.items() if count}


def check_run(listener: Listener) -> None:
    [report] = listener.reports.values()
    [(first, period, _, steps)] = report.loops
    found = {
        "period": period,
        "first_step": first,
        "loop_steps": report.tide_loop_steps,
        "live_loop_steps": steps,
    }
    assert (report.steps, found) == (STEPS, LOOP)


@pytest.mark.parametrize("order", ["logs first", "spans first", "in turn"])
@pytest.mark.parametrize("send", [send_protobuf, send_json, send_grpc])
def test_the_loop_is_seen(
    send: Callable[[Receiver, object], bytes], order: str, seen: testing.Capture
) -> None:
    listener = Listener(seen)
    logs = [logs_request(records()[start::3]) for start in range(3)]
    traces = [spans_request(spans()[start::2]) for start in range(2)]
    requests: list[object] = [*logs, *traces]
    if order == "spans first":
        requests = [*traces, *logs]
    elif order == "in turn":
        requests = [logs[0], traces[0], logs[1], traces[1], logs[2]]
    with receiving(assembly=_LATENESS) as receiver:
        for request in requests:
            assert send(receiver, request) in (b"", b"{}")
        counted = receiver.metrics()
    assert counted[catalog.SPANS_RECEIVED] == {(): len(spans())}
    check_run(listener)
    assert dropped() == {}


@pytest.mark.usefixtures("seen")
def test_contents_that_are_too_late_are_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    every = records()
    with receiving(assembly=ASSEMBLY_LIMITS._replace(allowed_lateness=0.05)) as receiver:
        send_grpc(receiver, spans_request(spans()))
        deadline = time.monotonic() + 10
        while not span_faults.metrics()[catalog.UNREAD_SPANS]:  # the spans were read
            assert time.monotonic() < deadline
            time.sleep(0.02)
        for record in every:
            send_grpc(receiver, logs_request([record]))
    assert dropped() == {"late": len(every)}
    logged = [one.getMessage() for one in caplog.records if "log records" in one.getMessage()]
    assert len(logged) == 1
    assert "OTEL_BLRP_SCHEDULE_DELAY" in logged[0]


def test_what_is_rejected_of_a_request_is_reported() -> None:
    with receiving(read=ReadLimits(spans=2)) as receiver:
        request = logs_request(records()[:3])
        for send in (send_grpc, send_protobuf):
            said = ExportLogsServiceResponse.FromString(send(receiver, request)).partial_success
            assert said.rejected_log_records == 1
            assert said.error_message == "1 log records rejected: too many in one request"
        said = json.loads(send_json(receiver, request))["partialSuccess"]
        assert said["rejectedLogRecords"] == "1"
        assert refused(receiver) == {"too_many": 3}


def test_logs_are_refused_as_spans_are() -> None:
    request = logs_request(records()[:3]).SerializeToString()
    with receiving(token="secret") as receiver:
        kind = "application/x-protobuf"
        assert post(receiver, request, "/v1/logs", Content_Type=kind)[0] == 401
        sent = {"Content_Type": kind, "Authorization": "Bearer secret"}
        assert post(receiver, request, "/v1/logs", **sent)[0] == 200
        assert post(receiver, b"\xff\xff", "/v1/logs", **sent)[0] == 400
        assert refused(receiver) == {"unauthorized": 1, "malformed": 1}

"""Spans for the receiver, and a sender that is much faster than the receiver.

Requests are serialised once; a wave of them becomes another by replacing eight bytes in its trace
ids, so that making the load costs next to nothing beside taking it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import grpc  # type: ignore[import-untyped]
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

__all__ = ["Load", "Sender", "make_load"]

EXPORT: Final = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
ATTRIBUTES: Final = 10
BATCH: Final = 512
RUNS: Final = 200
STEPS: Final = 12

_WAVE: Final = b"\xf1wave\xf2\xf3\xf4"
_MILLISECOND: Final = 1_000_000


class Load(NamedTuple):
    """One wave: runs whose spans interleave.

    Args:
        bodies: its requests, serialised, with a mark in the place of the wave's number.
        spans: how many spans they have.
        steps: how many steps those are.
        runs: how many runs.
    """

    bodies: list[bytes]
    spans: int
    steps: int
    runs: int

    def wave(self, number: int) -> Iterator[bytes]:
        """The requests of one wave: the same runs in other traces."""
        wave = number.to_bytes(8)
        for body in self.bodies:
            yield body.replace(_WAVE, wave)


def make_load(others: int = 0, runs: int = RUNS, agent: str = "load", steps: int = STEPS) -> Load:
    """Runs of a model call and a tool call a step, 10 attributes a span, that loop at times.

    Args:
        others: spans a step that are no agent's: of a database, a web client, a cache.
        runs: how many interleave.
        agent: name of the agent.
        steps: of each run.
    """
    of_runs = [_run(number, others, agent, steps) for number in range(runs)]
    spans = [span for turn in zip(*of_runs, strict=True) for span in turn]
    bodies = []
    for first in range(0, len(spans), BATCH):
        request = ExportTraceServiceRequest()
        resource = request.resource_spans.add()
        resource.resource.attributes.extend(_attributes({"service.name": "load"}))
        scope = resource.scope_spans.add()
        scope.scope.name = "benchmark"
        scope.spans.extend(spans[first : first + BATCH])
        bodies.append(request.SerializeToString())
    return Load(bodies, len(spans), runs * steps, runs)


class Sender:
    """Sends over gRPC, some requests at a time; what is refused as too much is sent again.

    Args:
        target: host and port.
        at_once: requests that are under way at a time.

    Attributes:
        sent: spans that were taken, as far as they are known to be.
        retries: requests that were refused and sent again.
    """

    def __init__(self, target: str, at_once: int = 8) -> None:
        self._channel = grpc.insecure_channel(target)
        self._export: Any = self._channel.unary_unary(EXPORT)  # bytes to bytes
        self._room = threading.Semaphore(at_once)
        self._at_once = at_once
        self.retries = 0

    def send(self, body: bytes) -> None:
        """Send one request, as soon as there is room for it."""
        self._room.acquire()
        self._start(body)

    def finish(self) -> None:
        """Wait until everything was taken."""
        for _ in range(self._at_once):
            self._room.acquire()
        for _ in range(self._at_once):
            self._room.release()

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def _start(self, body: bytes) -> None:
        call = self._export.future(body, timeout=60)
        call.add_done_callback(lambda done: self._done(done, body))

    def _done(self, call: Any, body: bytes) -> None:
        if call.code() is grpc.StatusCode.UNAVAILABLE:
            self.retries += 1
            time.sleep(0.05)
            self._start(body)
            return
        self._room.release()


def _run(number: int, others: int, agent: str, steps: int) -> list[Span]:
    """The spans of a run, in the order in which they end."""
    trace_id = _WAVE + number.to_bytes(8)
    root = (1).to_bytes(8)
    spans: list[Span] = []
    now = time.time_ns()
    began = now

    def add(
        name: str, attributes: dict[str, Any], parent: bytes = root, itself: bytes = b""
    ) -> None:
        nonlocal now
        ended = now + _MILLISECOND
        padding = {f"app.attribute.{n}": f"value {n}" for n in range(ATTRIBUTES - len(attributes))}
        spans.append(
            Span(
                trace_id=trace_id,
                span_id=itself or (len(spans) + 2).to_bytes(8),
                parent_span_id=parent,
                name=name,
                start_time_unix_nano=now if parent else began,
                end_time_unix_nano=ended,
                attributes=_attributes({**attributes, **padding}),
            )
        )
        now = ended

    for step in range(steps):
        argument = {"document": number + step % 4 if step > steps // 2 else number * steps + step}
        call = {"type": "tool_call", "id": f"c{step}", "name": "read", "arguments": argument}
        message = {"role": "assistant", "parts": [call]}
        chat = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "some-model"}
        about = {"gen_ai.agent.name": agent}
        tokens = {"gen_ai.usage.input_tokens": 900, "gen_ai.usage.output_tokens": 40}
        add(
            "chat some-model",
            {**chat, **about, **tokens, "gen_ai.output.messages": json.dumps([message])},
        )
        add(
            "execute_tool read",
            {
                "gen_ai.operation.name": "execute_tool",
                **about,
                "gen_ai.tool.name": "read",
                "gen_ai.tool.call.id": f"c{step}",
                "gen_ai.tool.call.arguments": json.dumps(argument),
                "gen_ai.tool.call.result": f"text of {argument['document']}, and so on" * 4,
            },
        )
        for other in range(others):
            add(
                "GET /documents",
                {"http.request.method": "GET", "http.response.status_code": 200 + other},
            )
    add(f"invoke_agent {agent}", {"gen_ai.operation.name": "invoke_agent", **about}, b"", root)
    return spans


def _attributes(attributes: dict[str, Any]) -> list[KeyValue]:
    return [
        KeyValue(
            key=key,
            value=AnyValue(int_value=value)
            if isinstance(value, int)
            else AnyValue(string_value=value),
        )
        for key, value in attributes.items()
    ]

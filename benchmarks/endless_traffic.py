"""Traffic that never comes to an end, each kind filling something else that a receiver holds."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

__all__ = ["KINDS", "request_of"]

_MILLISECOND: Final = 1_000_000
_TRACES: Final = 20

_ids = itertools.count(1)
_random = random.Random(5)


def _new_id(size: int = 8) -> bytes:
    return _random.randbytes(size - 8) + next(_ids).to_bytes(8)


def _span(trace: bytes, parent: bytes, name: str, about: Mapping[str, Any], **more: Any) -> Span:
    now = time.time_ns()
    return Span(
        trace_id=trace,
        span_id=more.get("span_id") or _new_id(),
        parent_span_id=parent,
        name=name,
        start_time_unix_nano=now - _MILLISECOND,
        end_time_unix_nano=now,
        attributes=[
            KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in about.items()
        ],
    )


def _step(
    trace: bytes, parent: bytes, agent: str = "a", size: int = 0, others: int = 5, call: str = ""
) -> list[Span]:
    """A model call and its tool, with arguments and results that are new."""
    number = next(_ids)
    call = call or f"c{number}"
    arguments = {"document": number, "text": f"{number} " * (size // 10)}
    said = {"type": "tool_call", "id": call, "name": "read", "arguments": arguments}
    about = {"gen_ai.agent.name": agent, **{f"app.{n}": f"value {n}" for n in range(others)}}
    chat = {
        "gen_ai.operation.name": "chat",
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [said]}]),
    }
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "read",
        "gen_ai.tool.call.id": call,
        "gen_ai.tool.call.arguments": json.dumps(arguments),
        "gen_ai.tool.call.result": f"row {number}, and so on " * (3 + size // 25),
    }
    return [
        _span(trace, parent, "chat", {**chat, **about}),
        _span(trace, parent, "execute_tool read", {**tool, **about}),
    ]


def _open_runs(steps: int) -> Iterator[list[Span]]:
    while True:
        trace, root = _new_id(16), _new_id()
        yield [span for _ in range(steps) for span in _step(trace, root)]


def _of_the_same(**more: Any) -> Iterator[list[Span]]:
    runs = [(_new_id(16), _new_id()) for _ in range(_TRACES)]
    while True:
        for trace, root in runs:
            yield _step(trace, root, **more)


def _long_ids() -> Iterator[list[Span]]:
    runs = [(_new_id(16), _new_id()) for _ in range(_TRACES)]
    while True:
        for trace, root in runs:
            yield _step(trace, root, call=f"{next(_ids):010}" * 200)


def _open_traces() -> Iterator[list[Span]]:
    while True:
        trace = _new_id(16)
        yield [_span(trace, _new_id(), "GET /", {"http.route": "/"}) for _ in range(5)]


def _remembered() -> Iterator[list[Span]]:
    trace, root = _new_id(16), _new_id()
    while True:
        yield [_span(trace, root, "GET /", {"http.route": "/"}) for _ in range(100)]


def _awaited() -> Iterator[list[Span]]:
    runs = [(_new_id(16), _new_id()) for _ in range(_TRACES)]
    while True:
        for trace, root in runs:
            yield [_step(trace, root)[0], *(_step(trace, _new_id())[0] for _ in range(5))]


def _ended(agents: int, size: int = 0) -> Iterator[list[Span]]:
    while True:
        trace, root = _new_id(16), _new_id()
        agent = f"agent {next(_ids) % agents} " + "of a long name " * (size // 15)
        steps = [span for _ in range(3) for span in _step(trace, root, agent)]
        about = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": agent}
        yield [*steps, _span(trace, b"", "invoke_agent", about, span_id=root)]


def _large_open_runs() -> Iterator[list[Span]]:
    while True:
        trace, root = _new_id(16), _new_id()
        yield [span for _ in range(2) for span in _step(trace, root, size=50_000)]


KINDS: Final[Mapping[str, Callable[[], Iterator[list[Span]]]]] = {
    "open runs": lambda: _open_runs(2),
    "open runs of 12 steps": lambda: _open_runs(12),
    "open traces without agents": _open_traces,
    "one trace of ever more spans": _remembered,
    "long runs": _of_the_same,
    "long runs with large contents": lambda: _of_the_same(size=50_000),
    "wide spans": lambda: _of_the_same(others=1_000),
    "large contents in open runs": _large_open_runs,
    "long ids of calls": _long_ids,
    "calls that wait for their parents": _awaited,
    "ended runs of many agents": lambda: _ended(10_000),
    "ended runs of agents with long names": lambda: _ended(10_000, size=20_000),
}
"""Spans of one trace after another, by what there is ever more of."""


def request_of(traces: Iterator[list[Span]], size: int = 200_000) -> bytes:
    """A request of about so many bytes."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.append(
        KeyValue(key="service.name", value=AnyValue(string_value="endless"))
    )
    scope = resource.scope_spans.add()
    scope.scope.name = "benchmark"
    taken = 0
    while taken < size and len(scope.spans) < 512:
        for span in next(traces):
            scope.spans.append(span)
            taken += span.ByteSize()
    body: bytes = request.SerializeToString()
    return body

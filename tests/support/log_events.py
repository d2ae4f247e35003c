"""An agent whose contents are in log records, as OpenTelemetry's instrumentation of OpenAI does.

The spans of the model calls have neither calls nor results. Log records have the messages.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]
from opentelemetry.exporter.otlp.proto.common._internal import _encode_value
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

__all__ = [
    "LOOP",
    "STEPS",
    "TRACE",
    "as_json",
    "logs_request",
    "records",
    "spans",
    "spans_request",
]

TRACE = 0xA1 << 64
STEPS = 6
LOOP = {
    "period": 1,
    "first_step": 2,
    "loop_steps": STEPS - 2,
    "live_loop_steps": STEPS - 2,
}
"""Of its run, if the contents are read."""

_AGENT = 1
_START = 1_700_000_000_000_000_000
_STEP = 10_000_000


def spans() -> list[Span]:
    """Model calls, and the agent around them."""
    found = [
        _span(number, _AGENT, "chat m", _when(number), {"gen_ai.operation.name": "chat"})
        for number in range(2, STEPS + 3)
    ]
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "finder"}
    return [*found, _span(_AGENT, None, "invoke_agent finder", _START, agent, _when(STEPS + 3))]


def records(*, details: bool = False, arguments: bool = True) -> list[LogRecord]:
    """The log records of all model calls, a message each, or all messages of a call in one."""
    history: list[tuple[str, dict[str, Any]]] = [("user", {"content": "find the key"})]
    found: list[LogRecord] = []
    for number in range(2, STEPS + 3):
        call: dict[str, Any] = {"name": "search"}
        if arguments:
            call["arguments"] = '{"q": "key"}'
        calls = [{"id": f"c{number}", "type": "function", "function": call}]
        said: dict[str, Any] = {"tool_calls": calls} if number < STEPS + 2 else {"content": "none"}
        choice = {"index": 0, "message": {"role": "assistant", **said}}
        events = [*((f"gen_ai.{role}.message", body) for role, body in history)]
        events.append(("gen_ai.choice", choice))
        if details:
            shown = [_message(role, body) for role, body in history]
            attributes = {
                "gen_ai.input.messages": shown,
                "gen_ai.output.messages": [_message("assistant", said)],
            }
            name = "gen_ai.client.inference.operation.details"
            found.append(_record(number, name, _when(number), attributes, None))
        else:
            found += [
                _record(number, name, _when(number) + order, {"gen_ai.system": "openai"}, body)
                for order, (name, body) in enumerate(events)
            ]
        result = {"content": "nothing found", "id": f"c{number}"}
        history += [("assistant", said), ("tool", result)]
    return found


def spans_request(some: Sequence[Span]) -> ExportTraceServiceRequest:
    """The request with these spans."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    scope.scope.name = "opentelemetry.instrumentation.openai_v2"
    scope.spans.extend(some)
    return request


def logs_request(some: Sequence[LogRecord]) -> ExportLogsServiceRequest:
    """The request with these log records."""
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add().scope_logs.add()
    scope.scope.name = "opentelemetry.instrumentation.openai_v2"
    scope.log_records.extend(some)
    return request


def as_json(request: Any) -> bytes:
    """A request in OTLP's JSON, where ids are hexadecimal."""

    def converted(value: Any) -> Any:
        if isinstance(value, list):
            return [converted(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {key: _hex(item) if key in _IDS else converted(item) for key, item in value.items()}

    return json.dumps(converted(MessageToDict(request))).encode()


_IDS = ("traceId", "spanId", "parentSpanId")


def _hex(text: str) -> str:
    return base64.b64decode(text).hex()


def _when(number: int) -> int:
    return _START + number * _STEP


def _span(
    span_id: int,
    parent: int | None,
    name: str,
    start: int,
    attributes: dict[str, Any],
    end: int | None = None,
) -> Span:
    return Span(
        trace_id=TRACE.to_bytes(16),
        span_id=span_id.to_bytes(8),
        parent_span_id=b"" if parent is None else parent.to_bytes(8),
        name=name,
        start_time_unix_nano=start,
        end_time_unix_nano=start + _STEP // 2 if end is None else end,
        attributes=list(_pairs(attributes)),
    )


def _record(
    span_id: int, name: str, when: int, attributes: dict[str, Any], body: dict[str, Any] | None
) -> LogRecord:
    return LogRecord(
        trace_id=TRACE.to_bytes(16),
        span_id=span_id.to_bytes(8),
        event_name=name,
        observed_time_unix_nano=when,
        attributes=list(_pairs(attributes)),
        body=None if body is None else _encode_value(body),
    )


def _pairs(attributes: dict[str, Any]) -> Iterator[KeyValue]:
    for key, value in attributes.items():
        yield KeyValue(key=key, value=_encode_value(value))


def _message(role: str, body: dict[str, Any]) -> dict[str, Any]:
    """A message in the form of the details."""
    parts = [
        {
            "type": "tool_call",
            "id": call["id"],
            "name": call["function"]["name"],
            "arguments": json.loads(call["function"]["arguments"]),
        }
        for call in body.get("tool_calls", ())
    ]
    if role == "tool":
        parts = [{"type": "tool_call_response", "id": body["id"], "response": body["content"]}]
    elif "content" in body:
        parts = [{"type": "text", "content": body["content"]}]
    return {"role": role, "parts": parts}

"""Runs as the spans that an instrumentation sends, and the same runs as recorded step events.

Each run has a number, from which its script follows: some ways, some of which fail, then a loop of
1 to 5 steps that is repeated up to 4 times. What is measured of the spans must be what is measured
of the events.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

_T = TypeVar("_T")

AGENTS = ("browser", "coder", "shopper")
TASK_GROUP = "fleet"
SCOPE = "some.instrumentation"
CHOOSING, ACTING = 500_000_000, 250_000_000  # nanoseconds: exact in binary seconds
TOKENS = 12
BEGAN = 1_790_000_000_000_000_000


class Turn(NamedTuple):
    """One call that a model chose, and what it brought back."""

    action: str
    argument: str
    outcome: str
    failed: bool = False


def script(number: int) -> Iterator[Turn]:
    """The turns of a run."""
    for n in range(number % 4):
        failed = (number + n) % 3 == 0
        yield Turn("go", f"{number}: way {n}", f"{number}: on way {n}", failed)
    period, repeats = number % 5 + 1, number // 5 % 5
    for _ in range(repeats + 1):
        for n in range(period):
            action = ("look", "open", "read")[n % 3]
            yield Turn(action, f"{number}: {action} {n}", f"{number}: seen {n}")


class WireRun:
    """One run, as it is sent over the wire.

    Args:
        number: what it does.
        wave: runs of one number in different waves do the same in different traces.
        began: nanoseconds since the epoch.
    """

    def __init__(self, number: int, *, wave: int = 0, began: int = BEGAN) -> None:
        self.number = number
        self.agent = AGENTS[number % len(AGENTS)]
        self.task = f"task {number}"
        self.turns = list(script(number))
        self.trace_id = ((wave + 1 << 32) + number + 1).to_bytes(16)
        self._began = began
        self._ids = 0
        self._root = self._id()
        self.inner, self.root = self._spans()

    @property
    def spans(self) -> list[Span]:
        """All of its spans, in the order in which they end."""
        return [*self.inner, self.root]

    def events(self) -> list[dict[str, Any]]:
        """The same run as ``tidegauge replay`` reads it."""
        run = self.trace_id.hex()
        start = {"agent": self.agent, "task": self.task, "task_group": TASK_GROUP}
        steps = [
            {
                "type": "step",
                "run": run,
                "action": turn.action,
                "args": {"what": turn.argument},
                "outcome": turn.outcome,
                "error": turn.failed,
                "tokens": TOKENS,
                "seconds": ACTING / 1e9,
            }
            for turn in self.turns
        ]
        return [{"type": "start", "run": run, **start}, *steps, {"type": "end", "run": run}]

    def _spans(self) -> tuple[list[Span], Span]:
        spans: list[Span] = []
        now = self._began
        for n, turn in enumerate(self.turns):
            call = {"type": "tool_call", "id": f"call-{n}", "name": turn.action}
            spans.append(self._chat(now, {**call, "arguments": {"what": turn.argument}}))
            now += CHOOSING
            spans.append(self._tool(now, turn, f"call-{n}"))
            now += ACTING
        spans.append(self._chat(now, {"type": "text", "content": "I am done"}))
        now += CHOOSING
        name, fields = f"invoke_agent {self.agent}", {"gen_ai.operation.name": "invoke_agent"}
        root = self._span(self._root, b"", name, self._began, now, fields)
        return spans, root

    def _chat(self, start: int, part: dict[str, Any]) -> Span:
        question = {"role": "user", "parts": [{"type": "text", "content": self.task}]}
        answer = {"role": "assistant", "parts": [part], "finish_reason": "stop"}
        fields = {
            "gen_ai.operation.name": "chat",
            "gen_ai.request.model": "some-model",
            "gen_ai.input.messages": json.dumps([question]),
            "gen_ai.output.messages": json.dumps([answer]),
            "gen_ai.usage.input_tokens": TOKENS - 2,
            "gen_ai.usage.output_tokens": 2,
        }
        name = "chat some-model"
        return self._span(self._id(), self._root, name, start, start + CHOOSING, fields)

    def _tool(self, start: int, turn: Turn, call_id: str) -> Span:
        fields = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": turn.action,
            "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.call.arguments": json.dumps({"what": turn.argument}),
            "gen_ai.tool.call.result": turn.outcome,
        }
        name = f"execute_tool {turn.action}"
        span = self._span(self._id(), self._root, name, start, start + ACTING, fields)
        if turn.failed:
            span.status.code = Status.STATUS_CODE_ERROR
        return span

    def _span(
        self, span_id: bytes, parent: bytes, name: str, start: int, end: int, given: dict[str, Any]
    ) -> Span:
        return Span(
            trace_id=self.trace_id,
            span_id=span_id,
            parent_span_id=parent,
            name=name,
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=start,
            end_time_unix_nano=end,
            attributes=attributes({"gen_ai.agent.name": self.agent, **given}),
        )

    def _id(self) -> bytes:
        self._ids += 1
        return (self.number + 1 << 32 | self._ids).to_bytes(8)


def attributes(given: dict[str, Any]) -> list[KeyValue]:
    """Attributes as they go over the wire."""
    return [
        KeyValue(
            key=key,
            value=AnyValue(int_value=value)
            if isinstance(value, int)
            else AnyValue(string_value=value),
        )
        for key, value in given.items()
    ]


def request(spans: Iterable[Span], **resource: str) -> ExportTraceServiceRequest:
    """One request with these spans, all of one process."""
    fields = {"service.name": "agents", "tidegauge.task_group": TASK_GROUP, **resource}
    made = ExportTraceServiceRequest()
    resource_spans = made.resource_spans.add()
    resource_spans.resource.attributes.extend(attributes(fields))
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = SCOPE
    scope_spans.spans.extend(spans)
    return made


def interleaved(runs: Iterable[Sequence[_T]]) -> list[_T]:
    """The spans of all runs, one of each in turn."""
    waiting = [iter(spans) for spans in runs]
    found: list[_T] = []
    while waiting:
        still = []
        for spans in waiting:
            span = next(spans, None)
            if span is not None:
                found.append(span)
                still.append(spans)
        waiting = still
    return found


def batches(spans: Sequence[Span], size: int = 512) -> Iterator[ExportTraceServiceRequest]:
    """Requests of at most ``size`` spans."""
    for first in range(0, len(spans), size):
        yield request(spans[first : first + size])


def step_events(runs: Iterable[WireRun]) -> str:
    """The runs as a recording, one after the other."""
    return "".join(json.dumps(event) + "\n" for run in runs for event in run.events())

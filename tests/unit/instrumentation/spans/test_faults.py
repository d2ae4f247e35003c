"""What is wrong with a span, and the counter that moves: nothing is lost silently."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan

from tidegauge import catalog, testing
from tidegauge._span_counts import SpanFaults, span_faults
from tidegauge.exporters.reading import read_families
from tidegauge.foreign_spans.grouping import Grouping
from tidegauge.foreign_spans.span import SpanData
from tidegauge.instrumentation.spans import TidegaugeSpanProcessor
from tidegauge.receivers.assembly import Assembly, AssemblyLimits
from tidegauge.receivers.decoding import ReadLimits, decode_protobuf
from tidegauge.receivers.json_decoding import decode_json
from tidegauge.receivers.request_handler import RequestHandler
from tidegauge.runs.current import get_recorder

ROOT, SECOND = 1, 1_000_000_000
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}


def span(number: int, parent: int | None, at: tuple[int, int], given: Any, **more: Any) -> SpanData:
    return SpanData(7, number, parent, "any", "theirs", given, *at, **more)


def chat(*names: str, **more: Any) -> dict[str, Any]:
    parts = [{"type": "tool_call", "name": name, "arguments": {}} for name in names]
    said = json.dumps([{"role": "assistant", "parts": parts}])
    return {"gen_ai.operation.name": "chat", "gen_ai.output.messages": said, **more}


def agent(*inside: SpanData) -> list[SpanData]:
    return [*inside, span(ROOT, None, (1, 100 * SECOND), AGENT)]


def model(**more: Any) -> SpanData:
    return span(2, ROOT, (10, 20), chat("look", **more))


TOOL_SPAN = span(3, ROOT, (30, 40), TOOL)
TWO_HOSTS = [
    model()._replace(resource={"service.name": "agent"}),
    TOOL_SPAN._replace(start=11, end=12, resource={"service.name": "search"}),
]

WIRE: dict[str, tuple[Sequence[SpanData], tuple[Any, ...]]] = {
    "its own parent": ([*agent()[:-1], span(5, 5, (1, 9), AGENT)], ("repaired", "cycle")),
    "a cycle": ([span(5, 6, (1, 9), TOOL), span(6, 5, (1, 10), TOOL)], ("repaired", "cycle")),
    "too deep": (
        [span(n, n - 1, (n, 9_999), {}) for n in range(2, 1_100)],
        ("repaired", "depth"),
    ),
    "no agent around it": ([span(5, None, (1, 9), chat())], ("dropped", "no_agent")),
    "a parent that never arrives": ([span(5, 99, (1, 9), TOOL)], ("steps",)),
    "no end": (agent(model(), TOOL_SPAN._replace(end=0)), ("repaired", "no_time")),
    "no start": (agent(model()._replace(start=0)), ("repaired", "no_time")),
    "end before start": (agent(TOOL_SPAN._replace(end=20)), ("repaired", "no_time")),
    "the same id twice": (agent(model(), model()), ("duplicates",)),
    "after its trace": ([*agent(model()), None, TOOL_SPAN], ("late",)),
    "no model chose it": (agent(model(), TOOL_SPAN, TOOL_SPAN._replace(span_id=4)),
                          ("repaired", "unmatched")),
    "another host's clock": (agent(*TWO_HOSTS), ("skewed", "search")),
    "tokens that are no number": (agent(model(**{"gen_ai.usage.input_tokens": "five"})),
                                  ("repaired", "unreadable")),
    "messages cut short": (agent(model(**{"gen_ai.output.messages": '[{"role": "assi'})),
                           ("repaired", "unreadable")),
    "messages that are none": (agent(model(**{"gen_ai.output.messages": 5})),
                               ("repaired", "unreadable")),
    "more calls than are waited for": (
        agent(*[span(10 + n, ROOT, (n + 1, n + 2), chat(*["look"] * 400)) for n in range(3)]),
        ("dropped", "too_many"),
    ),
}  # fmt: skip


def moved(faults: SpanFaults = span_faults) -> dict[tuple[str, str], int]:
    kinds = {"dropped": catalog.DROPPED_SPANS, "repaired": catalog.REPAIRED_SPANS}
    kinds["skewed"] = catalog.CLOCK_SKEW
    counts = faults.metrics()
    return {
        (kind, label): count
        for kind, metric in kinds.items()
        for (label,), count in counts.get(metric, {}).items()
        if count
    }


@pytest.mark.parametrize("shape", WIRE)
def test_over_the_wire(shape: str) -> None:
    spans, counter = WIRE[shape]
    with testing.capture() as seen:
        assembly, now = Assembly(), 0.0
        for each in spans:
            now += 10.0 if each is None else 0.0
            if each is None:
                assembly.expire(now)
            else:
                assembly.take([each], now=now)
        assembly.close()
        if counter == ("steps",):
            assert seen.pipeline.engine.snapshot().groups[0].totals.steps == 1
            return
    if counter in (("duplicates",), ("late",)):
        assert getattr(assembly, counter[0]) == 1
    else:
        assert counter in moved()


def test_what_is_right_moves_none() -> None:
    with testing.capture():
        assembly = Assembly()
        assembly.take(agent(model(), TOOL_SPAN), now=0.0)
        assembly.close()
        assert (assembly.late, assembly.duplicates) == (0, 0)
    assert moved() == {}


def test_calls_that_there_is_no_room_to_let_wait() -> None:
    with testing.capture():
        assembly = Assembly(limits=AssemblyLimits(pending_bytes=0))
        calls = [model(), span(5, 4, (30, 40), chat("find"), size=9)]
        for number, each in enumerate(calls):
            assembly.take([each], now=10.0 * number)
            assembly.expire(10.0 * number + 9)
        assembly.close()
    assert moved() == {("repaired", "pending_parent"): 1}


def open_all(grouping: Grouping, *spans: SpanData) -> None:
    for each in spans:
        grouping.start(7, each.span_id, each.parent_id, name="any", scope="theirs", live=each)


def no_start(grouping: Grouping) -> None:
    grouping.end(TOOL_SPAN)


def after_the_shutdown(grouping: Grouping) -> None:
    open_all(grouping, TOOL_SPAN)
    grouping.close()
    grouping.end(TOOL_SPAN)


def the_same_id_twice(grouping: Grouping) -> None:
    open_all(grouping, *reversed(agent(TOOL_SPAN, TOOL_SPAN)))
    for each in agent(TOOL_SPAN, TOOL_SPAN):
        grouping.end(each)


def after_its_run(grouping: Grouping) -> None:
    open_all(grouping, *reversed(agent(model(), TOOL_SPAN)))
    grouping.end(model())
    grouping.runs[0].end()
    grouping.end(TOOL_SPAN)


def its_own_parent(grouping: Grouping) -> None:
    open_all(grouping, span(5, 5, (1, 9), AGENT))


def outside_of_an_agent(grouping: Grouping) -> None:
    open_all(grouping, model())
    grouping.end(model())


def without_ids(grouping: Grouping) -> None:
    TidegaugeSpanProcessor().on_end(ReadableSpan("any"))


@pytest.mark.parametrize(
    ("shape", "counter"),
    [
        (no_start, ("dropped", "no_start")),
        (after_the_shutdown, ("dropped", "shutdown")),
        (the_same_id_twice, ("dropped", "no_start")),
        (after_its_run, ("dropped", "run_ended")),
        (its_own_parent, ("repaired", "cycle")),
        (outside_of_an_agent, ("dropped", "no_agent")),
        (without_ids, ("dropped", "invalid")),
    ],
)
def test_in_the_process(shape: Callable[[Grouping], None], counter: tuple[str, str]) -> None:
    with testing.capture():
        shape(Grouping(get_recorder))
    assert moved() == {counter: 1}


def request(**fields: Any) -> bytes:
    whole = {"traceId": f"{7:032x}", "spanId": f"{1:016x}", "name": "any", **fields}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [whole]}]}]}).encode()


@pytest.mark.parametrize(
    "given",
    [
        {"traceId": ""},
        {"traceId": "0" * 32},
        {"traceId": "7"},
        {"traceId": 7},
        {"spanId": "0" * 16},
        {"spanId": f"{1:032x}"},
        {"parentSpanId": "7"},
        {"name": 5},
        {"startTimeUnixNano": -1},
        {"endTimeUnixNano": "soon"},
    ],
)
def test_spans_that_are_refused(given: dict[str, Any]) -> None:
    handler = RequestHandler(_Takes())
    with handler.receiving() as share:
        handler.handle(request(**given), "json", "traces", share, math.inf)
    assert handler.rejected == {"invalid": 1}


class _Takes:
    alive = True

    def offer(self, spans: Sequence[SpanData], size: int = 0) -> bool:
        return True

    def close(self, timeout: float | None = None) -> list[str]:
        return []

    def metrics(self) -> dict[Any, Any]:
        return {}


def test_what_is_too_long_to_be_read_whole() -> None:
    pair = {"key": "gen_ai.operation.name", "value": {"stringValue": "x" * 9}}
    limits = ReadLimits(attributes=2, text=8)
    for one in (
        {"attributes": [pair] * 3},
        {"attributes": [pair]},
        {"events": [{"name": "any"}] * 129},
    ):
        span_faults.clear()
        span_faults.reading()
        [found] = decode_json(request(**one), limits).spans
        found.attributes.get("gen_ai.operation.name")
        assert moved()["repaired", "cut"] >= 1


def test_what_is_too_long_to_be_read_whole_in_protobuf() -> None:
    for attributes, events in ((3, 0), (1, 0), (0, 129)):
        span_faults.clear()
        span_faults.reading()
        body = ExportTraceServiceRequest()
        raw = body.resource_spans.add().scope_spans.add().spans.add()
        raw.trace_id, raw.span_id = bytes(15) + b"\7", bytes(7) + b"\1"
        for _ in range(attributes):
            raw.attributes.add(key="gen_ai.operation.name").value.string_value = "x" * 9
        for _ in range(events):
            raw.events.add(name="any")
        decode_protobuf(body.SerializeToString(), ReadLimits(attributes=2, text=8))
        assert moved() == {("repaired", "cut"): 1}


def test_services_beyond_a_hundred_are_other() -> None:
    faults = SpanFaults()
    faults.reading()
    for number in range(150):
        faults.skew(f"service {number}")
    counts = faults.metrics()[catalog.CLOCK_SKEW]
    assert (len(counts), counts["other",]) == (101, 50)


def test_what_is_gone_through_again_is_not_counted_again() -> None:
    faults = SpanFaults()
    faults.reading()
    faults.drop("no_agent")
    with faults.paused():
        faults.drop("no_agent")
        faults.repair("cycle")
        faults.skew("search")
    assert moved(faults) == {("dropped", "no_agent"): 1}


def test_every_fault_is_in_the_catalogue() -> None:
    with testing.capture() as seen:
        Grouping(get_recorder)
        shown = {family.metric for family in read_families(seen.pipeline.engine)}
    assert {catalog.DROPPED_SPANS, catalog.REPAIRED_SPANS} <= shown

"""What is shown of a span is what the assembly made of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tidegauge._span_counts import span_faults
from tidegauge.foreign_spans.span import SpanData
from tidegauge.receivers.decoding import MalformedRequestError
from tidegauge.receivers.inspection import InspectedTrace, decode_file, inspect_spans

AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "helper"}
TOOL = {
    "gen_ai.operation.name": "execute_tool",
    "gen_ai.tool.name": "look",
    "gen_ai.tool.call.result": "nothing",
}
SILENT = {"gen_ai.operation.name": "chat"}


def chat(*names: str) -> dict[str, Any]:
    parts = [{"type": "tool_call", "name": name, "arguments": {}} for name in names]
    said = json.dumps([{"role": "assistant", "parts": parts}])
    return {"gen_ai.operation.name": "chat", "gen_ai.output.messages": said}


def span(number: int, parent: int | None, end: int, given: Any, **more: Any) -> SpanData:
    fields = {"name": f"span {number}", "scope": "theirs", **more}
    ids = fields.pop("trace_id", 7), number, parent
    return SpanData(*ids, fields["name"], fields["scope"], given, end - 5, end)


def notes(trace: InspectedTrace) -> dict[int, str]:
    return {one.span.span_id: "; ".join(one.notes) for one in trace.spans}


def test_a_convention_of_one_instrumentation_alone_is_named():
    tool = span(2, 1, 20, TOOL, scope="gcp.vertex.agent")
    [trace] = inspect_spans([tool, span(1, None, 30, AGENT)])
    assert [one.convention for one in trace.spans] == ["OpenTelemetry GenAI", "Google ADK"]


def test_an_agent_without_calls_makes_no_step():
    [trace] = inspect_spans([span(1, None, 30, AGENT)])
    assert notes(trace) == {
        1: "agent helper; no step (no_calls): no model or tool call is inside it"
    }


def test_a_run_and_its_steps_are_at_their_spans():
    spans = [
        span(1, None, 100, AGENT),
        span(2, 1, 20, chat("look")),
        span(3, 1, 30, TOOL),
        span(4, 1, 40, chat()),
        span(5, 3, 29, {"db.system": "x"}),
    ]
    [trace] = inspect_spans(spans)
    assert [(run.number, run.parent, run.steps) for run in trace.runs] == [(1, None, 1)]
    found = notes(trace)
    assert found[1].startswith("agent helper; ends run 1")
    assert found[2].startswith("model call that chose look; begins run 1")
    assert "step 0 of run 1" in found[2]
    assert "result of step 0 of run 1" in found[3]
    assert found[4] == "model call that chose no tool"
    assert found[5] == "not of an agent"
    assert {one.span.span_id: one.depth for one in trace.spans} == {1: 0, 2: 1, 3: 1, 4: 1, 5: 2}
    assert {one.convention for one in trace.spans} == {"OpenTelemetry GenAI", None}


@pytest.mark.parametrize(
    ("given", "scope", "note"),
    [
        ({"llm.model": "m"}, "theirs", "unknown_convention"),
        (SILENT, "pydantic-ai", "include_content=True"),
        (chat("look"), "theirs", "no_run"),
        ({"gen_ai.operation.name": "embeddings"}, "theirs", "no agent, model or tool"),
        (AGENT, "tidegauge", "made by tidegauge itself"),
        ({"tidegauge.announce.span_id": "0" * 15 + "1"}, "theirs", "announces"),
    ],
)
def test_why_a_span_makes_no_step(given, scope, note):
    [trace] = inspect_spans([span(2, None, 20, given, scope=scope)])
    assert note in notes(trace)[2]
    assert trace.runs == ()


def test_a_span_that_arrived_twice_is_shown_as_that():
    [trace] = inspect_spans([span(2, None, 20, {}), span(2, None, 20, {})])
    assert "arrived again" in str([one.notes for one in trace.spans])


def test_cycles_and_lost_parents_are_shown_once():
    spans = [span(1, 2, 9, {}), span(2, 1, 8, {}), span(3, 3, 7, {}), span(4, 99, 6, {})]
    [trace] = inspect_spans(spans)
    assert sorted(one.span.span_id for one in trace.spans) == [1, 2, 3, 4]


@given(
    st.lists(
        st.builds(
            span,
            st.integers(1, 8),
            st.none() | st.integers(1, 9),
            st.integers(5, 50),
            st.sampled_from([AGENT, TOOL, chat("look"), chat(), SILENT, {}, {"llm.x": 1}]),
            trace_id=st.integers(1, 2),
        ),
        max_size=12,
    )
)
def test_every_span_is_shown(spans):
    span_faults.reading()
    shown = [one.span for trace in inspect_spans(spans) for one in trace.spans]
    assert len(shown) == len(spans)
    assert {(one.trace_id, one.span_id) for one in shown} == {
        (one.trace_id, one.span_id) for one in spans
    }


def request(number: int) -> dict[str, Any]:
    one = {"traceId": f"{7:032x}", "spanId": f"{number:016x}", "name": "any"}
    return {"resourceSpans": [{"scopeSpans": [{"spans": [one]}]}]}


def protobuf(number: int) -> bytes:
    message = ExportTraceServiceRequest()
    scope = message.resource_spans.add().scope_spans.add()
    scope.spans.add(trace_id=bytes(15) + b"7", span_id=number.to_bytes(8), name="any")
    return message.SerializeToString()


PREFIXED = b"".join(len(protobuf(n)).to_bytes(4) + protobuf(n) for n in (1, 2))


@pytest.mark.parametrize(
    ("data", "ids"),
    [
        (json.dumps(request(1), indent=1).encode(), [1]),
        (b"\n".join(json.dumps(request(n)).encode() for n in (1, 2)) + b"\n\n", [1, 2]),
        (protobuf(1), [1]),
        (PREFIXED, [1, 2]),
        (b"", []),
    ],
)
def test_files_of_all_forms_are_read(data, ids):
    assert [one.span_id for one in decode_file(data)] == ids


@pytest.mark.parametrize("data", [b"{not JSON", b"{}\n{", b"plain text\n", b"\xff" * 20])
def test_other_files_are_refused(data):
    with pytest.raises(MalformedRequestError):
        decode_file(data)

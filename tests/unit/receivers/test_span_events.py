"""Contents in log records join their spans, whatever arrives first, and nothing waits forever."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from support.framework_spans import ReadRun, read
from support.log_events import LOOP, STEPS, TRACE, as_json, logs_request, records, spans_request
from support.log_events import spans as agent_spans
from support.other_spans import Listener
from tidegauge import catalog, testing
from tidegauge._span_counts import span_faults
from tidegauge.events import CallResult
from tidegauge.fleet.fleet_messages import decode_spans, encode_spans
from tidegauge.foreign_spans.convention_reader import read_span
from tidegauge.foreign_spans.conventions.genai import event_span
from tidegauge.foreign_spans.span import AgentSpan, ModelSpan, SpanData
from tidegauge.receivers.assembly import ASSEMBLY_LIMITS, Assembly
from tidegauge.receivers.decoding import (
    MalformedRequestError,
    ReadLimits,
    decode_logs_protobuf,
    decode_protobuf,
)
from tidegauge.receivers.inspection import inspect_spans
from tidegauge.receivers.json_decoding import decode_logs_json
from tidegauge.receivers.span_events import SpanEvents
from tidegauge.recordings.encoding import ContentEncoder

CHAT = {"gen_ai.operation.name": "chat"}


@pytest.fixture(autouse=True)
def _no_faults() -> Any:
    span_faults.clear()
    span_faults.reading()
    yield
    span_faults.clear()


def dropped() -> dict[str, int]:
    """The events that were not read, by reason."""
    counts = span_faults.metrics()[catalog.DROPPED_CONTENTS]
    return {reason: count for (reason,), count in counts.items() if count}


def decoded(**options: Any) -> tuple[list[SpanData], list[SpanData]]:
    """Spans and events of the agent, as a receiver decodes them."""
    spans = decode_protobuf(spans_request(agent_spans()).SerializeToString()).spans
    events = decode_logs_protobuf(logs_request(records(**options)).SerializeToString()).spans
    return spans, events


def event(name: str, details: dict[str, Any], time: int = 1, trace_id: int = 1) -> SpanData:
    return event_span(f"gen_ai.{name}", (trace_id, 2), details, scope="any", time=time, size=100)


def joined(*events: SpanData, span: SpanData | None = None) -> Any:
    """What a model's span is with these events."""
    held = SpanEvents()
    for one in events:
        assert not list(held.add(one, now=0.0))
    return read_span(held.joined(span or SpanData(1, 2, None, "chat", "any", CHAT, 1, 2)))


def chosen(call_id: str) -> dict[str, Any]:
    function = {"name": "look", "arguments": '{"q": 1}'}
    return {"message": {"tool_calls": [{"id": call_id, "function": function}]}}


def only(found: Sequence[ReadRun]) -> ReadRun:
    [run] = found
    return run


@pytest.mark.parametrize("details", [False, True])
@pytest.mark.parametrize("first", ["logs", "spans", "each"])
def test_the_loop_of_contents_in_log_records_is_seen(first: str, details: bool) -> None:
    spans, events = decoded(details=details)
    batches = {
        "logs": [(0.0, events), (9.0, spans)],
        "spans": [(0.0, spans), (0.4, events)],
        "each": [
            (0.0, [one]) for pair in zip(events, [*spans, *events], strict=False) for one in pair
        ],
    }[first]
    if first == "each":
        batches = [(0.0, [one]) for one in [*events[::2], *spans, *events[1::2]]]
    run = only(read(batches))
    assert (run.agent, run.steps, run.loop) == ("finder", STEPS, LOOP)
    assert dropped() == {}


@pytest.mark.parametrize("seed", range(20))
def test_any_order_within_the_allowed_lateness_gives_the_same_run(seed: int) -> None:
    spans, events = decoded()
    chance = random.Random(seed)
    every = [(chance.random() * 0.45, [one]) for one in [*spans, *events]]
    run = only(read(sorted(every, key=lambda each: each[0])))
    assert (run.agent, run.steps, run.loop) == ("finder", STEPS, LOOP)
    assert dropped() == {}


def test_calls_with_hidden_arguments_are_steps_and_no_loop() -> None:
    spans, events = decoded(arguments=False)
    run = only(read([(0.0, [*spans, *events])]))
    assert (run.steps, run.loop) == (STEPS, None)


def test_events_of_a_span_that_was_read_are_late() -> None:
    spans, events = decoded()
    run = only(read([(0.0, spans), (1.0, events)]))
    assert run.steps == 0
    assert dropped() == {"late": len(events)}


def test_the_result_does_not_depend_on_when_time_was_checked() -> None:
    spans, events = decoded()
    found: list[int] = []
    for checked in ([], [0.6]):
        with testing.capture():
            assembly = Assembly()
            assembly.take(spans, now=0.0)
            for now in checked:
                assembly.expire(now)
            assembly.take(events, now=0.7)
            assembly.close()
        found.append(dropped()["late"])
    assert found == [len(events), 2 * len(events)]


def test_events_without_a_span_are_dropped_when_they_are_idle() -> None:
    forgotten: list[int] = []
    _, events = decoded()
    with testing.capture():
        assembly = Assembly(on_forgotten=forgotten.append)
        assembly.take(events, now=0.0)
        assert assembly.holds(TRACE)
        assert len(assembly) == 0  # they open no trace
        assembly.expire(ASSEMBLY_LIMITS.idle_seconds + 1.0)
        assert not assembly.holds(TRACE)
        assembly.close()
    assert forgotten == [TRACE]
    assert dropped() == {"no_span": len(events)}


def test_closing_drops_what_waits() -> None:
    with testing.capture():
        assembly = Assembly()
        assembly.take([event("choice", chosen("c1"))], now=0.0)
        assembly.close()
    assert dropped() == {"no_span": 1}


@pytest.mark.parametrize("limits", [{"max_events": 3}, {"max_bytes": 399}])
def test_the_traces_that_are_idle_for_longest_make_room(limits: dict[str, int]) -> None:
    held = SpanEvents(**limits)
    made = [
        gone
        for number in range(5)
        for gone in held.add(event("choice", {}, number, trace_id=number // 2 + 1), now=number)
    ]
    assert made == [(1, 2)]
    assert len(held) == 3
    assert 1 not in held
    assert held.remove(2, 2) == 2
    assert held.remove(2, 2) == held.drop(2) == 0
    assert list(held.expire(5.0)) == [(3, 1)]
    assert len(held) == 0


def test_answers_come_after_the_last_message_of_the_model() -> None:
    call = joined(
        event("tool.message", {"id": "c1", "content": "old"}, 2),
        event("tool.message", {"id": "c2", "content": "new"}, 4),
        event("assistant.message", {"content": "so"}, 3),
        event("user.message", {"content": "find it"}, 1),
    )
    assert call.answers == (("c2", CallResult("new")),)
    assert call.info.task == "find it"
    assert call.calls is None


def test_an_event_that_was_sent_again_counts_once() -> None:
    events = [event("choice", chosen(each), time) for time, each in enumerate(("c1", "c2"))]
    assert [call.id for call in joined(*events, *events).calls] == ["c1", "c2"]


def test_different_events_of_one_time_all_count() -> None:
    events = [event("choice", chosen(each)) for each in ("c1", "c2")]
    assert [call.id for call in joined(*events).calls] == ["c1", "c2"]


def steps_and_loops(spans: Sequence[SpanData], arrival: dict[int, float]) -> list[Any]:
    """Of the runs that are seen when these spans and events arrive."""
    with testing.capture() as seen:
        listener, assembly = Listener(seen), Assembly()
        for one in spans:
            assembly.expire(arrival[one.span_id])  # as the queue does when a span is due
            assembly.take([one], now=arrival[one.span_id])
        assembly.close()
    return [(report.steps, report.loops) for report in listener.reports.values()]


@pytest.mark.parametrize("seed", range(40))
def test_contents_in_log_records_say_the_same_as_on_skewed_spans(seed: int) -> None:
    chance = random.Random(seed)
    ms, skew = 1_000_000, chance.choice((-300, -100, 100, 300))
    here, there = {"host.name": "here"}, {"host.name": "there"}
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "finder"}
    with_contents = [SpanData(1, 99, None, "invoke_agent", "", agent, 1, 9_000 * ms, resource=here)]
    without = [*with_contents]
    shown: list[dict[str, Any]] = [{"role": "user", "content": "go"}]
    for turn in range(6):
        start, name = (1_000 + turn * 200) * ms, chance.choice(("look", "take"))
        call = {"id": f"c{turn}", "function": {"name": name, "arguments": "{}"}}
        said = {"role": "assistant", "tool_calls": [call]}
        times = start, start + 100 * ms
        model = SpanData(1, turn + 2, 99, "chat", "", CHAT, *times, resource=here)
        contents = {
            "gen_ai.input.messages": json.dumps(shown),
            "gen_ai.output.messages": json.dumps([said]),
        }
        with_contents.append(model._replace(attributes={**CHAT, **contents}))
        details = "gen_ai.client.inference.operation.details"
        time = start + 99 * ms
        without += [
            model,
            event_span(details, (1, turn + 2), contents, scope="", time=time, size=1),
        ]
        tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        begin = start + (110 + skew) * ms
        ran = SpanData(1, turn + 50, 99, name, "", tool, begin, begin + 20 * ms, resource=there)
        with_contents.append(ran)
        without.append(ran)
        result = {"role": "tool", "tool_call_id": f"c{turn}", "content": "nothing"}
        shown = [*shown, said, result]
    arrival = {span.span_id: span.end / 1e9 + chance.random() * 0.4 for span in with_contents}
    found = [
        steps_and_loops(sorted(spans, key=lambda one: arrival[one.span_id]), arrival)
        for spans in (with_contents, without, without[::-1])
    ]
    assert found[0] == found[1] == found[2]
    assert dropped() == {}


def test_what_the_span_says_itself_is_not_changed() -> None:
    parts = [{"type": "tool_call", "id": "own", "name": "look", "arguments": {}}]
    attributes = {**CHAT, "gen_ai.output.messages": json.dumps([{"role": "model", "parts": parts}])}
    span = SpanData(1, 2, None, "chat", "any", attributes, 1, 2)
    call = joined(event("choice", chosen("c1")), span=span)
    assert [one.id for one in call.calls] == ["own"]


def test_a_failed_span_keeps_its_failure() -> None:
    attributes = {**CHAT, "error.type": "Timeout"}
    span = SpanData(1, 2, None, "chat", "any", attributes, 1, 2, True, "too slow")
    held = SpanEvents()
    list(held.add(event("user.message", {"content": "go"}), now=0.0))
    read_with_events = held.joined(span).read
    assert read_with_events is not None
    assert (read_with_events.error, read_with_events.failure) == ("Timeout", "Timeout: too slow")


def test_the_details_of_an_agent_fill_in_its_span() -> None:
    message = {"role": "user", "parts": [{"type": "text", "content": "find it"}]}
    attributes = {"gen_ai.operation.name": "invoke_agent"}
    details = {**attributes, "gen_ai.input.messages": [message]}
    name = "client.inference.operation.details"
    span = SpanData(1, 2, None, "invoke_agent", "any", attributes, 1, 2)
    agent = joined(event(name, details), span=span)
    assert isinstance(agent, AgentSpan)
    assert (agent.info.task, agent.asked) == ("find it", "find it")


def test_a_span_of_no_agent_is_left_alone() -> None:
    span = SpanData(1, 2, None, "GET /", "web", {}, 1, 2)
    held = SpanEvents()
    list(held.add(event("choice", chosen("c1")), now=0.0))
    assert held.joined(span) is span


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("details", [False, True])
def test_a_gateway_sends_events_as_messages(plain: bool, details: bool) -> None:
    spans, events = decoded(details=details)
    encoder = ContentEncoder(bytes.hex, plain=plain)
    messages = [encode_spans(TRACE, [one], encoder) for one in [*events, *spans]]
    assert plain or not any(b"nothing found" in one for one in messages)
    arrived = [decode_spans(json.loads(message)) for message in messages]
    run = only(read([(0.0, batch) for batch in arrived]))
    assert (run.agent, run.steps, run.loop) == ("finder", STEPS, LOOP)
    run = only(read([(0.0, batch) for batch in reversed(arrived)]))
    assert (run.agent, run.steps, run.loop) == ("finder", STEPS, LOOP)


def test_inspection_reads_events() -> None:
    spans, events = decoded()
    [trace] = inspect_spans([*spans, *events])
    assert [(run.agent, run.steps) for run in trace.runs] == [("finder", STEPS)]
    assert len(trace.spans) == len(spans)
    assert "model call that chose search" in trace.spans[1].notes


def test_json_says_the_same_as_protobuf() -> None:
    request = logs_request([*records(), *records(details=True)])
    one = decode_logs_protobuf(request.SerializeToString())
    other = decode_logs_json(as_json(request))
    assert [each._replace(size=0) for each in one.spans] == [
        each._replace(size=0) for each in other.spans
    ]
    assert all(each.size > 0 for each in (*one.spans, *other.spans))


def test_other_log_records_are_ignored() -> None:
    request = logs_request(records()[:3])
    first, second, third = request.resource_logs[0].scope_logs[0].log_records
    first.event_name = "exception"
    second.ClearField("trace_id")
    third.ClearField("span_id")
    for found in (
        decode_logs_protobuf(request.SerializeToString()),
        decode_logs_json(as_json(request)),
    ):
        assert (found.spans, found.rejected) == ([], {})


def test_events_of_spans_that_are_not_sampled_are_ignored() -> None:
    request = logs_request(records()[:3])
    for flags, record in enumerate(request.resource_logs[0].scope_logs[0].log_records, 1):
        record.flags = flags
    for found in (
        decode_logs_protobuf(request.SerializeToString()),
        decode_logs_json(as_json(request)),
    ):
        assert (len(found.spans), found.rejected) == (2, {})


@pytest.mark.parametrize("given", ["\N{LATIN SMALL LETTER E WITH ACUTE}", "A"])
def test_a_value_that_is_no_base64_costs_no_other_record(given: str) -> None:
    request = json.loads(as_json(logs_request(records()[:2])))
    kept, broken = request["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
    broken["body"] = {"bytesValue": given}
    broken["attributes"].append({"key": "bytes", "value": {"bytesValue": given}})
    found = decode_logs_json(json.dumps(request).encode())
    assert len(found.spans) + sum(found.rejected.values()) == 2
    assert kept["spanId"] in {f"{span.span_id:016x}" for span in found.spans}


def test_contents_nested_too_deep_are_read_once_each() -> None:
    deep = json.dumps({"q": 1}).replace("1", "[" * 5_000 + "]" * 5_000)
    function = {"name": "look", "arguments": deep}
    said = {"message": {"tool_calls": [{"id": "c1", "function": function}]}}
    assert [call.name for call in joined(event("choice", said)).calls] == ["look"]


def test_the_size_of_a_span_grows_with_its_events() -> None:
    held = SpanEvents()
    list(held.add(event("choice", chosen("c1")), now=0.0))
    assert held.joined(SpanData(1, 2, None, "chat", "any", CHAT, 1, 2, size=50)).size == 150


def test_contents_in_log_records_order_calls_of_several_hosts() -> None:
    tool = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "look",
        "gen_ai.tool.call.id": "c1",
        "gen_ai.tool.call.result": "nothing",
    }
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "finder"}
    here, there = {"host.name": "here"}, {"host.name": "there"}
    ms = 1_000_000
    spans = [
        SpanData(1, 2, 9, "chat", "any", CHAT, 100 * ms, 400 * ms, resource=here, size=10),
        # It ran after the model had chosen it; its clock is behind.
        SpanData(1, 3, 9, "look", "any", tool, 210 * ms, 220 * ms, resource=there, size=10),
        SpanData(1, 9, None, "invoke_agent", "any", agent, 90 * ms, 900 * ms, resource=here),
    ]
    contents = event("choice", chosen("c1"), 350 * ms)
    for given in itertools.permutations([contents, *spans]):
        before = span_faults.metrics()[catalog.REPAIRED_SPANS]["unmatched",]
        with testing.capture() as seen:
            listener, assembly = Listener(seen), Assembly()
            for number, one in enumerate(given):
                assembly.take([one], now=number / 10)
            assert assembly.arrived_bytes == 20
            assembly.expire(5.0)
            assert assembly.arrived_bytes == 0
            assembly.close()
        [report] = listener.reports.values()
        assert report.steps == 1
        assert span_faults.metrics()[catalog.REPAIRED_SPANS]["unmatched",] == before


def test_the_name_may_be_an_attribute() -> None:
    request = logs_request(records()[:1])
    record = request.resource_logs[0].scope_logs[0].log_records[0]
    record.attributes.add(key="event.name").value.string_value = record.event_name
    record.ClearField("event_name")
    for found in (
        decode_logs_protobuf(request.SerializeToString()),
        decode_logs_json(as_json(request)),
    ):
        [one] = found.spans
        reading = read_span(one)
        assert isinstance(reading, ModelSpan)
        assert reading.info.task == "find the key"


def test_invalid_events_are_rejected_and_the_rest_is_accepted() -> None:
    request = logs_request(records()[:4])
    request.resource_logs[0].scope_logs[0].log_records[0].trace_id = b"short"
    limits = ReadLimits(spans=2)
    for found in (
        decode_logs_protobuf(request.SerializeToString(), limits),
        decode_logs_json(as_json(request), limits),
    ):
        assert len(found.spans) == 2
        assert found.rejected == {"invalid": 1, "too_many": 1}
        assert (found.reason or "").startswith("1 log records rejected")


@pytest.mark.parametrize("body", [b"\xff\xff", b"{", b"[]", b'{"resourceLogs": 1}'])
def test_malformed_requests(body: bytes) -> None:
    decode = decode_logs_protobuf if body[0] > 127 else decode_logs_json
    with pytest.raises(MalformedRequestError):
        decode(body)


def test_no_loop_is_known_of_the_spans_alone() -> None:
    spans, _ = decoded()
    assert only(read([(0.0, spans)])).steps == 0

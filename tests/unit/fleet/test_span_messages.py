"""Messages of spans: what is read of a span arrives, whatever it holds; all else is refused."""

from __future__ import annotations

import copy
import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge import testing
from tidegauge.errors import TidegaugeError
from tidegauge.events import ABSENT, Call, ModelUsage
from tidegauge.fleet.fleet_messages import MessageError, decode_spans, encode_spans
from tidegauge.foreign_spans.convention_reader import may_enclose_run, read_span
from tidegauge.foreign_spans.dedupe import same_arguments
from tidegauge.foreign_spans.json_values import error_type, failure_text, labels
from tidegauge.foreign_spans.span import AgentSpan, ModelSpan, SpanData, ToolSpan
from tidegauge.foreign_spans.usage import usage_of
from tidegauge.receivers.assembly import Assembly
from tidegauge.recordings import ContentEncoder
from tidegauge.streaming_metrics.fingerprint import arguments_bytes, content_digest
from tidegauge.streaming_metrics.polls import polling_of

TRACE = 0xABC
PLAIN = ContentEncoder(bytes.hex, plain=True)
DIGESTS = ContentEncoder(bytes.hex, plain=False)

words = st.text(st.characters(codec="utf-8"), max_size=6)
scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words
values = st.recursive(
    scalars | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
odd_values = st.recursive(
    scalars | st.floats() | st.binary(max_size=3) | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(words, inner),
    max_leaves=6,
)
texts = values.map(json.dumps) | words


def messages(content):
    call = st.fixed_dictionaries(
        {"type": st.just("tool_call"), "name": words, "arguments": content, "id": words}
    )
    answer = st.fixed_dictionaries(
        {"type": st.just("tool_call_response"), "id": words, "response": content}
    )
    said = st.fixed_dictionaries({"type": st.just("text"), "content": words})
    message = st.fixed_dictionaries(
        {
            "role": st.sampled_from(["user", "assistant", "tool"]),
            "parts": st.lists(call | answer | said, max_size=3),
        }
    )
    return st.lists(message, max_size=3)


def attributes(content):
    kinds = {
        "gen_ai.operation.name": st.sampled_from(
            ["chat", "execute_tool", "invoke_agent", "embeddings"]
        ),
        "openinference.span.kind": st.sampled_from(["LLM", "TOOL", "AGENT", "CHAIN", "RETRIEVER"]),
        "traceloop.span.kind": st.sampled_from(["tool", "workflow", "agent", "task"]),
        "traceloop.workflow.name": words,
        "gen_ai.agent.name": words,
        "gen_ai.conversation.id": words,
        "gen_ai.tool.name": words,
        "gen_ai.tool.call.id": words,
        "gen_ai.tool.call.arguments": content,
        "gen_ai.tool.call.result": content,
        "gen_ai.input.messages": messages(content),
        "gen_ai.output.messages": messages(content),
        "gen_ai.usage.input_tokens": st.integers(0, 2**40),
        "input.value": content,
        "output.value": content,
        "traceloop.entity.input": content,
        "tidegauge.task": words,
        "tidegauge.agent": words,
        "error.type": words,
        "http.method": words,
    }
    return st.fixed_dictionaries({}, optional=kinds)


def spans(content):
    return st.builds(
        SpanData,
        st.just(TRACE),
        st.integers(1, 2**64 - 1),
        st.none() | st.integers(1, 2**64 - 1),
        words | st.just("invoke_agent helper"),
        words | st.just("tidegauge"),
        attributes(content),
        st.integers(0, 2**64 - 1),
        st.integers(0, 2**64 - 1),
        st.booleans(),
        st.none() | words,
        st.lists(
            st.tuples(
                st.just("exception"),
                st.fixed_dictionaries(
                    {}, optional={"exception.type": words, "exception.message": words}
                ),
            ),
            max_size=1,
        ),
        st.dictionaries(st.sampled_from(["service.name", "tidegauge.task_group"]), words),
        st.booleans(),
        size=st.just(0),
        read=st.none(),
    )


def arrived(span: SpanData, shown: ContentEncoder = PLAIN) -> SpanData:
    [found] = decode_spans(orjson.loads(encode_spans(TRACE, [span], shown)))
    return found


@given(spans(values | texts))
def test_what_is_read_of_a_span_arrives(span) -> None:
    found = arrived(span)
    assert read_span(found) == read_span(span)
    same = ("trace_id", "span_id", "parent_id", "name", "scope", "start", "end", "failed", "remote")
    assert [getattr(found, name) for name in same] == [getattr(span, name) for name in same]
    if span.failed:
        assert error_type(found) == error_type(span)
        assert failure_text(found) == failure_text(span)
    if isinstance(read_span(span), ToolSpan):
        assert labels(found.resource) == labels(span.resource)
        assert found.resource.get("service.name") == span.resource.get("service.name")
    assert may_enclose_run(found.name, found.attributes) == may_enclose_run(
        span.name, span.attributes
    )
    assert bool(found.attributes) == bool(span.attributes)


@given(spans(odd_values), st.booleans())
def test_whatever_a_span_holds_it_can_be_written_and_read(span, plain) -> None:
    found = arrived(span, ContentEncoder(bytes.hex, plain=plain))
    assert type(read_span(found)) is type(read_span(span))


def tool(**fields: object) -> SpanData:
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}
    more = {f"gen_ai.tool.call.{name}": value for name, value in fields.items()}
    return SpanData(TRACE, 1, None, "look", "any", {**attributes, **more}, 0, 1)


def read(shown: ContentEncoder, **fields: object) -> ToolSpan:
    found = read_span(arrived(tool(**fields), shown))
    assert isinstance(found, ToolSpan)
    return found


pairs = st.tuples(odd_values, odd_values) | odd_values.flatmap(
    lambda value: st.tuples(
        st.just(value),
        st.sampled_from([value, str(value), {"q": value}, [value]])
        | st.just(arguments_bytes(value).decode("utf-8", "replace")),
    )
)


@given(pairs, st.booleans())
def test_arguments_and_results_are_equal_where_they_were_to_the_engine(pair, plain) -> None:
    shown = ContentEncoder(bytes.hex, plain=plain)
    one, other = (read(shown, arguments=value, result=value) for value in pair)
    first: Any
    second: Any
    first, second = (read_span(tool(arguments=value, result=value)) for value in pair)
    assert (arguments_bytes(one.arguments) == arguments_bytes(other.arguments)) is (
        arguments_bytes(first.arguments) == arguments_bytes(second.arguments)
    )
    assert (content_digest(one.result.outcome) == content_digest(other.result.outcome)) is (
        content_digest(first.result.outcome) == content_digest(second.result.outcome)
    )


@pytest.mark.parametrize("value", ["key", "", "{not JSON", "[1, 2]", 7])
def test_a_value_alone_is_its_mapping_of_one(value) -> None:
    whole = read(DIGESTS, arguments={"q": value}).arguments
    assert same_arguments(whole, read(DIGESTS, arguments=value).arguments)
    assert not same_arguments(whole, read(DIGESTS, arguments="other").arguments)
    assert not same_arguments(whole, read(DIGESTS, arguments={"other": value}).arguments)


def test_what_was_not_captured_is_absent() -> None:
    found = read(DIGESTS)
    assert found.arguments is ABSENT
    assert found.result.outcome is ABSENT


def test_no_content_is_in_a_message_of_digests() -> None:
    hidden = "secret words"
    said = [{"role": "user", "parts": [{"type": "text", "content": hidden}]}]
    reported = [{"type": "tool_call_response", "id": "c", "response": hidden}]
    chosen = [{"type": "tool_call", "name": "look", "arguments": {hidden: hidden}}]
    shared = {
        "gen_ai.input.messages": [{"role": "tool", "parts": reported}, *said],
        "gen_ai.output.messages": [{"role": "assistant", "parts": chosen}],
        "gen_ai.tool.call.arguments": {hidden: hidden, "b": 1},
        "tidegauge.task": hidden,
        "else": hidden,
    }
    error = ("exception", {"exception.type": "ValueError", "exception.message": hidden})
    found = [
        SpanData(
            TRACE,
            number,
            None,
            operation,
            "any",
            {"gen_ai.operation.name": operation, **shared},
            0,
            1,
            True,
            hidden,
            [error],
            {"tidegauge.task": hidden, "host.name": hidden},
        )
        for number, operation in enumerate(("chat", "execute_tool", "invoke_agent", "other"), 1)
    ]
    written = encode_spans(TRACE, found, DIGESTS)
    assert b"secret" not in written
    assert encode_spans(TRACE, found, PLAIN).count(b"secret") > 10
    assert written.count(b"ValueError") == len(found)


def test_a_model_s_answers_and_an_agent_s_last_words_arrive() -> None:
    reported = [{"type": "tool_call_response", "id": "c", "response": ["a", 1]}]
    said = [{"role": "user", "parts": [{"type": "text", "content": "find the key"}]}]
    shown = [{"role": "tool", "parts": reported}, *said]
    for operation in ("chat", "invoke_agent"):
        attributes = {"gen_ai.operation.name": operation, "gen_ai.input.messages": shown}
        span = SpanData(TRACE, 1, None, operation, "any", attributes, 0, 1)
        assert read_span(arrived(span)) == read_span(span)
        by_digest = read_span(arrived(span, DIGESTS))
        if isinstance(by_digest, ModelSpan):
            [(call_id, result)] = by_digest.answers
            assert (call_id, result.error) == ("c", None)
            assert result.outcome == DIGESTS.content(["a", 1])
        else:
            assert isinstance(by_digest, AgentSpan)
            assert by_digest.asked == DIGESTS.arguments("find the key")


@pytest.mark.parametrize("shown", [PLAIN, DIGESTS])
def test_half_a_character_is_spelled_out(shown) -> None:
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a\ud800"}
    found = read_span(arrived(SpanData(TRACE, 1, None, "b", "any", attributes, 0, 1), shown))
    assert isinstance(found, AgentSpan)
    assert found.info.agent == "a\\ud800"


@pytest.mark.parametrize("reported", [True, -1, 2**64, "1", 1.5, None])
def test_times_are_whole_numbers_of_64_bits(reported) -> None:
    more = copy.deepcopy(WHOLE)
    more["spans"][0]["start"] = reported
    with pytest.raises(MessageError, match=r"start is (.*; use (a whole|0 to 1844674)|missing)"):
        decode_spans(more)


def test_the_size_of_a_message_is_shared_among_its_spans() -> None:
    data = orjson.loads(encode_spans(TRACE, [tool(), tool()], PLAIN))
    assert [span.size for span in decode_spans(data, 1_001)] == [500, 500]
    assert decode_spans({**data, "spans": []}, 100) == []


WHOLE = orjson.loads(
    encode_spans(
        TRACE,
        [
            SpanData(
                TRACE,
                number,
                9,
                kind,
                "any",
                {
                    "gen_ai.operation.name": kind,
                    "gen_ai.agent.name": "helper",
                    "gen_ai.usage.input_tokens": 3,
                    "gen_ai.tool.call.arguments": {"q": 1},
                    "gen_ai.output.messages": [
                        {"parts": [{"type": "tool_call", "name": "look", "arguments": {"q": 1}}]}
                    ],
                },
                1,
                2,
                True,
                "why",
            )
            for number, kind in enumerate(("chat", "execute_tool", "invoke_agent", "web"), 1)
        ],
        PLAIN,
    )
)


@pytest.mark.parametrize(
    ("reported", "reason", "message"),
    [
        ([], "malformed", "not a message of spans"),
        ({}, "malformed", "not a message of spans"),
        ({"type": "step"}, "malformed", "not a message of spans"),
        ({**WHOLE, "version": 2}, "version", "version 2 is not supported; use 1"),
        ({**WHOLE, "version": True}, "version", "version"),
        ({**WHOLE, "version": "one"}, "version", "version of type str"),
        ({**WHOLE, "run": "0" * 32}, "invalid", "run is no id; use 32 .* digits, not all zero"),
        ({**WHOLE, "run": "A" * 32}, "invalid", "run is no id; use 32 hexadecimal digits"),
        ({**WHOLE, "run": 7}, "invalid", "run is a number; use a string"),
        ({**WHOLE, "spans": {}}, "invalid", "spans is an object; use a list"),
        ({**WHOLE, "spans": [1]}, "invalid", r"spans\[0\] is a number; use an object"),
        ({**WHOLE, "spans": [{"id": "1"}]}, "invalid", "id is no id; use 16 hexadecimal digits"),
    ],
)
def test_what_cannot_be_read_is_reported(reported, reason, message) -> None:
    with pytest.raises(MessageError, match=message) as caught:
        decode_spans(reported)
    assert caught.value.reason == reason
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, TidegaugeError | ValueError)


def test_keys_that_are_not_known_are_ignored() -> None:
    more = copy.deepcopy(WHOLE)
    for holder in (more, *more["spans"], *(span.get("about", {}) for span in more["spans"])):
        holder["later"] = {"anything": [1]}
    assert decode_spans(more) == decode_spans(WHOLE)


@given(st.data())
def test_a_message_with_anything_in_it_is_read_or_refused(data) -> None:
    reported = copy.deepcopy(WHOLE)
    for _ in range(data.draw(st.integers(1, 3))):
        holder = reported
        while True:
            keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
            key = data.draw(st.sampled_from(keys))
            if isinstance(holder[key], dict | list) and holder[key] and data.draw(st.booleans()):
                holder = holder[key]
                continue
            break
        if data.draw(st.booleans()):
            holder[key] = data.draw(values)
        else:
            del holder[key]
        if not reported:
            break
    try:
        found = decode_spans(reported)
    except MessageError:
        return
    with testing.raise_internal_errors(), testing.capture():
        assembly = Assembly()
        assembly.take(found, now=0.0)
        assembly.close()


@given(values)
def test_anything_else_is_refused(reported) -> None:
    with pytest.raises(MessageError):
        decode_spans(reported)


@pytest.mark.parametrize(
    "given",
    [
        {"command": "sleep 5; cat build.log"},
        {"command": "sleep 5; cat build.log", "timeout": 9},
        '{"command": "sleep 5; cat build.log"}',
        "sleep 5; cat build.log",
    ],
)
def test_a_call_that_waits_is_known_where_its_arguments_are_not(given: object) -> None:
    attributes = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "bash",
        "gen_ai.tool.call.arguments": given,
    }
    span = SpanData(TRACE, 1, None, "bash", "any", attributes, 0, 1)
    found = read_span(arrived(span, DIGESTS))
    assert isinstance(found, ToolSpan)
    assert "build.log" not in str(found)
    polling = polling_of(Call(found.name, found.arguments))
    assert polling is not None
    assert polling.waits
    whole = read_span(span)
    assert isinstance(whole, ToolSpan)
    alone = read_span(arrived(span, PLAIN))
    assert isinstance(alone, ToolSpan)
    assert polling_of(Call(alone.name, alone.arguments)) == polling_of(
        Call(whole.name, whole.arguments)
    )


def test_arguments_with_and_without_their_name_still_match() -> None:
    def bash(given: object) -> object:
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "bash",
            "gen_ai.tool.call.arguments": given,
        }
        span = SpanData(TRACE, 1, None, "bash", "any", attributes, 0, 1)
        found = read_span(arrived(span, DIGESTS))
        assert isinstance(found, ToolSpan)
        return found.arguments

    named, alone = bash({"command": "sleep 5"}), bash("sleep 5")
    assert same_arguments(named, alone)
    assert not same_arguments(named, bash("sleep 6"))


def test_tokens_arrive_apart_and_those_of_no_convention_do_not() -> None:
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": "m",
        "gen_ai.usage.input_tokens": 900,
        "gen_ai.usage.output_tokens": 40,
        "gen_ai.usage.cache_read.input_tokens": 800,
        "gen_ai.usage.reasoning.output_tokens": 7,
    }
    span = SpanData(TRACE, 2, None, "chat m", "some.instrumentation", attributes, 10**9, 3 * 10**9)
    shown = read_span(span)
    assert isinstance(shown, ModelSpan)
    here = usage_of(span, shown)
    assert here == ModelUsage(940, 900, 40, 800, None, 7, None, "m", began=1.0, ended=3.0)
    [sent] = decode_spans(orjson.loads(encode_spans(TRACE, [span], DIGESTS)), 1)
    arrived = read_span(sent)
    assert isinstance(arrived, ModelSpan)
    assert usage_of(sent, arrived) == here
    without = span._replace(attributes={**attributes, "gen_ai.usage.input_tokens": -3})
    message = orjson.loads(encode_spans(TRACE, [without], DIGESTS))
    assert "parts" not in message["spans"][0]["model"]
    message["spans"][0]["model"]["parts"] = [1, -2, 3, None, None]
    with pytest.raises(TidegaugeError, match="parts is -2"):
        decode_spans(message, 1)

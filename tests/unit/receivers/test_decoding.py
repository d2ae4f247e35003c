"""Requests off the wire: both forms say the same, and nothing that comes breaks the reader."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from tidegauge.receivers.decoding import (
    Decoded,
    MalformedRequestError,
    ReadLimits,
    decode_protobuf,
)
from tidegauge.receivers.json_decoding import decode_json

TRACE, SPAN, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"


def request(span: dict[str, Any] | None = None, resource: list[Any] | None = None) -> bytes:
    fields = {
        "traceId": TRACE,
        "spanId": SPAN,
        "parentSpanId": PARENT,
        "name": "chat",
        **(span or {}),
    }
    scope_spans = {"scope": {"name": "theirs"}, "spans": [fields]}
    resource_spans = {"resource": {"attributes": resource or []}, "scopeSpans": [scope_spans]}
    return json.dumps({"resourceSpans": [resource_spans]}).encode()


def pair(key: str, **value: Any) -> dict[str, Any]:
    return {"key": key, "value": value}


def protobuf() -> tuple[ExportTraceServiceRequest, Any]:
    message = ExportTraceServiceRequest()
    resource_spans = message.resource_spans.add()
    resource_spans.resource.attributes.append(
        KeyValue(key="service.name", value=AnyValue(string_value="shop"))
    )
    scope_spans = resource_spans.scope_spans.add()
    scope_spans.scope.name = "theirs"
    span = scope_spans.spans.add()
    span.trace_id, span.span_id = bytes.fromhex(TRACE), bytes.fromhex(SPAN)
    span.parent_span_id = bytes.fromhex(PARENT)
    span.name = "chat"
    return message, span


def test_protobuf_and_json_say_the_same() -> None:
    message, span = protobuf()
    span.start_time_unix_nano, span.end_time_unix_nano = 1_700_000_000_000_000_001, 1 << 63
    span.flags = 0x300
    span.status.code, span.status.message = 2, "no key"
    values = {
        "gen_ai.operation.name": AnyValue(string_value="a"),
        "empty": AnyValue(string_value=""),
        "truth": AnyValue(bool_value=False),
        "number": AnyValue(int_value=-(1 << 63)),
        "double": AnyValue(double_value=0.5),
        "bytes": AnyValue(bytes_value=b"\x00\xff"),
        "nothing": AnyValue(),
    }
    items, pairs = AnyValue(), AnyValue()
    items.array_value.values.extend([values["gen_ai.operation.name"], values["number"]])
    pairs.kvlist_value.values.append(KeyValue(key="inner", value=items))
    values |= {"list": items, "pairs": pairs}
    for key, value in values.items():
        span.attributes.append(KeyValue(key=key, value=value))
    event = span.events.add()
    event.name = "exception"
    event.attributes.append(KeyValue(key="exception.type", value=AnyValue(string_value="E")))

    numbers = {"values": [{"stringValue": "a"}, {"intValue": str(-(1 << 63))}]}
    body = request(
        {
            "startTimeUnixNano": "1700000000000000001",
            "endTimeUnixNano": 1 << 63,
            "flags": 0x300,
            "status": {"code": "STATUS_CODE_ERROR", "message": "no key"},
            "attributes": [
                pair("gen_ai.operation.name", stringValue="a"),
                pair("empty", stringValue=""),
                pair("truth", boolValue=False),
                pair("number", intValue=str(-(1 << 63))),
                pair("double", doubleValue=0.5),
                pair("bytes", bytesValue="AP8="),
                pair("nothing"),
                pair("list", arrayValue=numbers),
                pair("pairs", kvlistValue={"values": [pair("inner", arrayValue=numbers)]}),
            ],
            "events": [
                {"name": "exception", "attributes": [pair("exception.type", stringValue="E")]}
            ],
            "someday": {"something": "new"},
        },
        [pair("service.name", stringValue="shop")],
    )
    [one] = decode_protobuf(message.SerializeToString()).spans
    [other] = decode_json(body).spans
    assert one._replace(size=0) == other._replace(size=0)
    assert (one.trace_id, one.span_id, one.parent_id) == (
        int(TRACE, 16),
        int(SPAN, 16),
        int(PARENT, 16),
    )
    assert dict(one.attributes) == {
        "gen_ai.operation.name": "a",
        "empty": "",
        "truth": False,
        "number": -(1 << 63),
        "double": 0.5,
        "bytes": b"\x00\xff",
        "nothing": None,
        "list": ("a", -(1 << 63)),
        "pairs": {"inner": ("a", -(1 << 63))},
    }
    assert (one.failed, one.description, one.remote) == (True, "no key", True)
    assert one.resource["service.name"] == "shop"
    assert [(name, dict(each)) for name, each in one.events] == [
        ("exception", {"exception.type": "E"})
    ]


@pytest.mark.parametrize("code", [2, "2", "STATUS_CODE_ERROR"])
def test_an_enumeration_is_a_number_or_a_name(code: int | str) -> None:
    [span] = decode_json(request({"status": {"code": code}})).spans
    assert span.failed


@pytest.mark.parametrize("parent", ["", None, "0" * 16])
def test_a_span_without_a_parent(parent: str | None) -> None:
    [span] = decode_json(request({"parentSpanId": parent})).spans
    assert span.parent_id is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"traceId": "0" * 32},
        {"traceId": TRACE[:-1]},
        {"traceId": 7},
        {"spanId": "0" * 16},
        {"spanId": "no hexadecimal.."},
        {"spanId": " " + SPAN[:-1]},
        {"parentSpanId": "12"},
        {"name": 5},
        {"startTimeUnixNano": "yesterday"},
        {"endTimeUnixNano": -1},
        {"endTimeUnixNano": 1 << 64},
        {"events": "none"},
        {"status": 5},
    ],
)
def test_an_invalid_span_is_refused_and_its_neighbours_are_taken(wrong: dict[str, Any]) -> None:
    document = orjson.loads(request(wrong))
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans.append(orjson.loads(request())["resourceSpans"][0]["scopeSpans"][0]["spans"][0])
    decoded = decode_json(orjson.dumps(document))
    assert (len(decoded.spans), decoded.rejected) == (1, {"invalid": 1})
    assert decoded.reason == "1 spans rejected: invalid ids, names or times"


@pytest.mark.parametrize(
    "wrong",
    [
        {"span_id": b"short"},
        {"span_id": bytes(8)},
        {"trace_id": bytes(16)},
        {"trace_id": b""},
        {"parent_span_id": b"short"},
    ],
)
def test_an_invalid_span_in_protobuf(wrong: dict[str, bytes]) -> None:
    message, span = protobuf()
    for field, value in wrong.items():
        setattr(span, field, value)
    assert decode_protobuf(message.SerializeToString()) == Decoded([], {"invalid": 1})


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"5", b"{", b"\xff", b'{"resourceSpans": {}}', b'{"resourceSpans": [1]}']
)
def test_json_that_is_no_request(body: bytes) -> None:
    with pytest.raises(MalformedRequestError):
        decode_json(body)


def test_limits() -> None:
    limits = ReadLimits(spans=1, attributes=2, text=3)
    names = ("gen_ai.operation.name", "b", "c")
    attributes = [pair(key, stringValue="long text") for key in names]
    attributes[1] = pair("b", arrayValue={"values": [{"intValue": n} for n in range(5)]})
    document = orjson.loads(request({"attributes": attributes}))
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans.append({**spans[0], "spanId": PARENT})
    decoded = decode_json(orjson.dumps(document), limits)
    assert decoded.rejected == {"too_many": 1}
    assert decoded.spans[0].attributes == {"gen_ai.operation.name": "lon", "b": (0, 1)}

    message, span = protobuf()
    for key in names:
        span.attributes.append(KeyValue(key=key, value=AnyValue(string_value="long text")))
    [one] = decode_protobuf(message.SerializeToString(), limits).spans
    assert dict(one.attributes) == {"gen_ai.operation.name": "lon", "b": "lon"}


def test_of_a_span_of_no_agent_no_attribute_is_read() -> None:
    message, span = protobuf()
    span.attributes.append(KeyValue(key="http.route", value=AnyValue(string_value="/")))
    [one] = decode_protobuf(message.SerializeToString()).spans
    [other] = decode_json(request({"attributes": [pair("http.route", stringValue="/")]})).spans
    for each in (one, other):
        assert each.attributes
        assert list(each.attributes.values()) == [None]


def test_of_the_attributes_that_are_read_the_first_are() -> None:
    message, span = protobuf()
    names = ["gen_ai.operation.name", *(f"app.{n}" for n in range(50))]
    span.attributes.extend(KeyValue(key=name, value=AnyValue(int_value=1)) for name in names)
    [one] = decode_protobuf(message.SerializeToString(), ReadLimits(attributes=20)).spans
    assert list(one.attributes) == names[:20]


def test_an_attribute_that_is_set_twice_is_what_was_set_last() -> None:
    message, span = protobuf()
    for each in ("chat", "execute_tool"):
        span.attributes.append(
            KeyValue(key="gen_ai.operation.name", value=AnyValue(string_value=each))
        )
    [one] = decode_protobuf(message.SerializeToString()).spans
    assert dict(one.attributes) == {"gen_ai.operation.name": "execute_tool"}


@pytest.mark.parametrize("name", ["http.route", "gen_ai.operation.name"])
@pytest.mark.parametrize(
    "wrong",
    [
        b"\x12\x04\x0a\x02\xff\xfe",  # a text that is no UTF-8
        b"\x12\x04\x0a\x09ab",  # a text that is longer than what it is in
        b"\x12\x02\x10\xff",  # a number without an end
        b"\x0a\x01\xff",  # a name that is no UTF-8
    ],
)
def test_an_attribute_that_is_not_valid_makes_no_request(name: str, wrong: bytes) -> None:
    """Whether anybody reads it or not."""
    pair = b"\x0a%c%b" % (len(name), name.encode()) + wrong
    span = b"\x0a\x10%b\x12\x08%b\x4a%c%b" % (
        bytes.fromhex(TRACE),
        bytes.fromhex(SPAN),
        len(pair),
        pair,
    )
    with pytest.raises(MalformedRequestError):
        decode_protobuf(wrapped(span))


def wrapped(span: bytes) -> bytes:
    """A request with these bytes for its span."""
    for field in (b"\x12", b"\x12", b"\x0a"):
        assert len(span) < 128
        span = field + bytes([len(span)]) + span
    return span


def test_what_is_kept_of_a_span_keeps_nothing_of_its_request() -> None:
    message, span = protobuf()
    span.attributes.append(
        KeyValue(key="gen_ai.operation.name", value=AnyValue(string_value="chat"))
    )
    kept = decode_protobuf(message.SerializeToString()).spans[0]
    assert {type(value) for value in (*kept, *kept.attributes.values())} <= {
        int,
        str,
        bool,
        dict,
        tuple,
        type(None),
    }


@pytest.mark.parametrize("depth", [31, 32, 33, 200])
@pytest.mark.parametrize("kind", ["arrayValue", "kvlistValue"])
def test_values_that_are_deep_are_cut(kind: str, depth: int) -> None:
    value: dict[str, Any] = {"stringValue": "bottom"}
    for _ in range(depth):
        inner: dict[str, Any] = {"key": "inner", "value": value}
        value = {kind: {"values": [value if kind == "arrayValue" else inner]}}
    pairs = [pair("gen_ai.operation.name"), {"key": "deep", "value": value}]
    events = [{"name": "exception", "attributes": pairs}]
    [span] = decode_json(request({"attributes": pairs, "events": events}, pairs)).spans
    for attributes in (span.attributes, span.resource, span.events[0][1]):
        assert ("bottom" in repr(attributes["deep"])) == (depth <= 32)


def read_all(decode: Any, body: bytes) -> None:
    try:
        decoded = decode(body)
    except MalformedRequestError:
        return
    for span in decoded.spans:
        repr(span)  # reads every attribute


@given(body=st.binary(max_size=200))
def test_random_bytes_never_crash(body: bytes) -> None:
    read_all(decode_protobuf, body)
    read_all(decode_json, body)


@given(position=st.integers(0, 300), byte=st.integers(0, 255), cut=st.integers(0, 300))
def test_damaged_requests_never_crash(position: int, byte: int, cut: int) -> None:
    message, span = protobuf()
    span.attributes.append(KeyValue(key="a", value=AnyValue(string_value="text")))
    for decode, whole in (
        (decode_protobuf, message.SerializeToString()),
        (decode_json, request({"attributes": [pair("a", stringValue="text")]})),
    ):
        body = bytearray(whole)
        body[position % len(body)] = byte
        read_all(decode, bytes(body))
        read_all(decode, bytes(whole[: cut % len(whole)]))


@given(changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3))
def test_what_is_valid_is_what_is_valid_to_the_official_message(
    changes: list[tuple[int, int]],
) -> None:
    message, span = protobuf()
    for key in ("gen_ai.operation.name", "http.route"):
        span.attributes.append(KeyValue(key=key, value=AnyValue(string_value="given")))
    span.links.add(trace_id=b"1" * 16, trace_state="a=b")
    span.events.add(name="exception").attributes.append(
        KeyValue(key="exception.type", value=AnyValue(string_value="E"))
    )
    body = bytearray(message.SerializeToString())
    for position, byte in changes:
        body[position % len(body)] = byte
    try:
        official = ExportTraceServiceRequest.FromString(bytes(body))
    except DecodeError:
        with pytest.raises(MalformedRequestError):
            decode_protobuf(bytes(body))
    else:
        decoded = decode_protobuf(bytes(body))
        spans = [
            span
            for resource_spans in official.resource_spans
            for scope_spans in resource_spans.scope_spans
            for span in scope_spans.spans
        ]
        assert len(decoded.spans) + decoded.rejected_spans == len(spans)


KEYS = st.sampled_from(
    [
        "traceId",
        "spanId",
        "parentSpanId",
        "name",
        "attributes",
        "key",
        "value",
        "stringValue",
        "intValue",
        "doubleValue",
        "boolValue",
        "bytesValue",
        "arrayValue",
        "kvlistValue",
        "values",
        "events",
        "status",
        "code",
        "message",
        "flags",
        "startTimeUnixNano",
        "endTimeUnixNano",
        "scope",
        "resource",
        "spans",
        "scopeSpans",
    ]
)
JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(span=st.dictionaries(KEYS, JSON, max_size=6), resource=JSON)
def test_json_of_any_shape_never_crashes(span: dict[str, Any], resource: Any) -> None:
    fields = {"traceId": TRACE, "spanId": SPAN, **span}
    body = {
        "resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [fields, resource]}]}]
    }
    read_all(decode_json, json.dumps(body).encode())

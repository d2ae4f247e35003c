"""Elements are counted before they are parsed, as exactly as the parsers make objects of them."""

from __future__ import annotations

import json
import tracemalloc
import zipfile
from collections.abc import Callable
from io import BytesIO

import orjson
import pytest
from google.protobuf.message import DecodeError, Message  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from support.element_bombs import JSON_BOMBS, PROTOBUF_BOMBS, field, request_of
from tidegauge.coding_agents import inspect_logs, opencode, session_files, sessions
from tidegauge.coding_agents.session_transcript import parsed_arguments
from tidegauge.errors import StepEventError
from tidegauge.fleet.fleet_messages import MessageError
from tidegauge.fleet.fleet_messages import json_object as kafka_object
from tidegauge.receivers.decoding import (
    MalformedRequestError,
    OverloadedRequestError,
    decode_logs_protobuf,
    decode_protobuf,
)
from tidegauge.receivers.inspection import decode_file
from tidegauge.receivers.json_decoding import decode_json, decode_logs_json
from tidegauge.recordings.step_events import parse_line
from tidegauge.values import elements as _elements
from tidegauge.values.elements import (
    MOST_OF_A_FILE,
    BrokenMessageError,
    TooManyElementsError,
    check_json,
    count_messages,
    is_repeated,
    shape_of,
)
from tidegauge.values.exact_json import bounded_json

MEGABYTE = 2**20

# JSON

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('{[:,"\\a'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('{:"\\', max_size=3), inner),
    max_leaves=20,
)


def elements(value: object) -> int:
    """The characters that stand for elements: brackets, colons and commas."""
    if isinstance(value, dict):
        inside = [elements(one) for one in value.values()]
        return 1 + len(inside) + max(0, len(inside) - 1) + sum(inside)
    if isinstance(value, list):
        return 1 + max(0, len(value) - 1) + sum(map(elements, value))
    return 0


@given(VALUES, st.integers(0, 20))
def test_what_is_in_strings_does_not_count(value: object, room: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_elements, "FREE", 0)
        patch.setattr(_elements, "allowed", lambda *_: room)
        text = json.dumps(value).encode()
        if elements(value) > room:
            with pytest.raises(TooManyElementsError):
                check_json(text)
        else:
            check_json(text)
            assert bounded_json(text) == value


def test_more_room_for_more_bytes_up_to_the_most() -> None:
    lists = b"[" + b"[]," * 200_000 + b"[]]"
    with pytest.raises(TooManyElementsError):
        bounded_json(lists)
    spaces = b" " * 2 * MEGABYTE
    assert len(bounded_json(lists + spaces)) == 200_001
    many = b"[" + b"[], " * MEGABYTE + b"[]]" + spaces * 5
    with pytest.raises(TooManyElementsError):
        bounded_json(many)
    assert len(bounded_json(many, MOST_OF_A_FILE)) == MEGABYTE + 1


# Protobuf


def messages(message: Message) -> int:
    """The messages in a message, and the texts of lists."""
    found = 0
    for described, value in message.ListFields():
        if described.message_type is not None:
            inside = value if is_repeated(described) else [value]
            found += len(inside) + sum(map(messages, inside))
        elif is_repeated(described):
            found += len(value)
    return found


def values(depth: int = 3) -> st.SearchStrategy[bytes]:
    """AnyValues on the wire."""
    texts = st.binary(max_size=200).map(lambda text: field(1, text.hex().encode()))
    if not depth:
        return texts
    inner = st.lists(values(depth - 1), max_size=3)
    return (
        texts
        | inner.map(lambda found: field(5, b"".join(field(1, one) for one in found)))
        | inner.map(
            lambda found: field(6, b"".join(field(1, field(2, one)) for one in found)),
        )
    )


SPANS = st.tuples(
    st.lists(values().map(lambda one: field(9, field(1, b"key") + field(2, one))), max_size=4),
    st.lists(values().map(lambda one: field(11, field(3, field(2, one)))), max_size=3),
    st.lists(st.just(field(13, b"")), max_size=3),
    st.sampled_from([b"", field(15, b""), b"\x39" + bytes(8), b"\x30\x96\x01"]),
).map(lambda parts: b"".join(one for part in parts[:3] for one in part) + parts[3])
SHAPE = shape_of(TracesData.DESCRIPTOR)


@given(st.lists(SPANS, max_size=4))
def test_all_messages_count(spans: list[bytes]) -> None:
    body = request_of(b"".join(field(2, span) for span in spans))
    expected = messages(TracesData.FromString(body))
    assert count_messages(body, SHAPE, expected) == expected
    with pytest.raises(TooManyElementsError):
        count_messages(body, SHAPE, expected - 1)


@given(SPANS, st.lists(st.tuples(st.integers(0), st.integers(0, 255)), max_size=3), st.integers(0))
def test_damaged_messages_count_no_less_than_is_parsed(
    span: bytes, changes: list[tuple[int, int]], cut: int
) -> None:
    body = bytearray(request_of(field(2, span)))
    for place, byte in changes:
        body[place % len(body)] = byte
    damaged = bytes(body[: len(body) - cut % 4])
    try:
        expected = messages(TracesData.FromString(damaged))
    except DecodeError:
        return
    assert count_messages(damaged, SHAPE, 10**6) >= expected


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"\x8a\x00\x00" * 3, 3),  # a tag that is longer than it has to be
        (b"\x0a\x80\x00" * 3, 3),  # a length that is
        (b"\x0b\x0a\x00\x0c" + b"\x0a\x00", 1),  # a group, which is skipped
        (b"\x10\x01\x0a\x00", 1),  # a field that no message has
        (field(1, field(1, field(3, field(4, b"a") * 5))), 8),  # texts in a list are objects, too
    ],
)
def test_whatever_the_wire_allows(body: bytes, expected: int) -> None:
    assert messages(TracesData.FromString(body)) == expected
    assert count_messages(body, SHAPE, 10**6) == expected


@pytest.mark.parametrize(
    "body",
    [b"\x0a", b"\x0a\x05", b"\x0e", b"\x0a\xff", b"\x0a\x02\x0a\x05aa", b"\x08\xff"],
)
def test_what_is_no_message(body: bytes) -> None:
    with pytest.raises(DecodeError):
        TracesData.FromString(body)
    with pytest.raises(BrokenMessageError):
        count_messages(body, SHAPE, 10**6)


# Doors


def raising(door: Callable[[bytes], object], *errors: type[Exception]) -> Callable[[bytes], object]:
    def refusing(text: bytes) -> None:
        with pytest.raises(errors, match="too many for its size"):
            door(text)

    return refusing


def in_a_log(text: bytes) -> object:
    """What a log of Inspect has of a sample."""
    packed = BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as log:
        log.writestr("samples/1.json", text)
    with zipfile.ZipFile(packed) as log:
        return inspect_logs._member(log, "samples/1.json")


JSON_DOORS: dict[str, Callable[[bytes], object]] = {
    "OTLP": raising(decode_json, OverloadedRequestError),
    "OTLP logs": raising(decode_logs_json, OverloadedRequestError),
    "a file of spans": raising(decode_file, MalformedRequestError),
    "a worker": raising(kafka_object, MessageError),
    "replay": raising(parse_line, StepEventError),
    "hooks": lambda text: sessions._read("claude", text),
    "a log of Inspect": in_a_log,
    "a session": session_files._parsed,
    "a message of OpenCode": lambda text: opencode._object(text.decode()) or None,
    "arguments of a call": lambda text: parsed_arguments(text.decode()).encode(),
}


@pytest.mark.parametrize("door", JSON_DOORS)
@pytest.mark.parametrize("bomb", JSON_BOMBS)
def test_json_is_counted_at_every_door(
    door: str, bomb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[object] = []
    monkeypatch.setattr(orjson, "loads", parsed.append)
    text = JSON_BOMBS[bomb](2 * MEGABYTE)
    assert JSON_DOORS[door](text) in (None, text)
    assert not parsed


@pytest.mark.parametrize("bomb", PROTOBUF_BOMBS)
def test_protobuf_is_counted(bomb: str) -> None:
    with pytest.raises(OverloadedRequestError):
        decode_protobuf(PROTOBUF_BOMBS[bomb](2 * MEGABYTE))


def test_log_records_are_counted() -> None:
    for bomb in (b"\x0a\x00" * 10**6, field(1, b"\x12\x00" * 10**6)):
        with pytest.raises(OverloadedRequestError):
            decode_logs_protobuf(bomb)
    attributes = field(1, field(2, field(2, b"\x32\x00" * 30_000) * 50))
    with pytest.raises(OverloadedRequestError):
        decode_logs_protobuf(attributes)


# What is kept

WIDE = "a" * 50_000 + "\N{GRINNING FACE}"
NESTED = AnyValue()
for n in range(1_500):
    NESTED.kvlist_value.values.add(key=f"{n:x}").value.kvlist_value.values.add(key="c")


@pytest.mark.parametrize(
    "attributes",
    [
        {f"name {n}": AnyValue(string_value=f"some text {n}") for n in range(30)},
        {f"{n:x}": AnyValue(int_value=n + 1_000) for n in range(1_900)},
        {"wide": AnyValue(string_value=WIDE)},
        {"nested": NESTED},
        {WIDE: AnyValue()},
    ],
    ids=["ordinary", "many", "wide", "nested", "wide name"],
)
def test_the_size_of_a_span_is_what_it_takes(attributes: dict[str, AnyValue]) -> None:
    data = TracesData()
    for number in range(1, 51):
        span = data.resource_spans.add().scope_spans.add().spans.add()
        span.trace_id, span.span_id = bytes(15) + b"\7", number.to_bytes(8)
        span.attributes.add(key="gen_ai.operation.name").value.string_value = "chat"
        for key, value in attributes.items():
            span.attributes.add(key=key).value.CopyFrom(value)
    body = data.SerializeToString()
    decode_protobuf(body)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        decoded = decode_protobuf(body)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert 0.75 * taken < decoded.size < 4 * taken

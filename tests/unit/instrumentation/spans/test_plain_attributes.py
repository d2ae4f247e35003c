"""Attributes as plain data."""

from __future__ import annotations

import enum
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from tidegauge import testing
from tidegauge._span_counts import span_faults
from tidegauge.catalog import REPAIRED_SPANS
from tidegauge.events import ABSENT
from tidegauge.foreign_spans.dedupe import same_arguments
from tidegauge.foreign_spans.json_values import parsed, text
from tidegauge.foreign_spans.span import (
    MAX_READ,
    UNKNOWN_ARGUMENTS,
    LiveAttributes,
    plain_attributes,
    plain_name,
    plain_value,
)
from tidegauge.instrumentation.spans import TidegaugeSpanProcessor


class Hostile:
    """Nothing of it may be called."""

    def __getattribute__(self, name: str) -> Any:
        raise AssertionError(name)

    def _called(self, *_: object) -> Any:
        raise AssertionError("called")

    __str__ = __repr__ = __eq__ = __hash__ = __bool__ = __len__ = __iter__ = _called
    __class__ = property(_called)


class Text(str):
    __slots__ = ()

    def _called(self, *_: object) -> Any:
        raise AssertionError("called")

    __str__ = __repr__ = __eq__ = __bool__ = __len__ = __iter__ = lower = strip = _called
    __hash__ = str.__hash__


class Colour(enum.StrEnum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


def shared(levels: int) -> list[Any]:
    value: list[Any] = [0]
    for _ in range(levels):
        value = [value, value]
    return value


@pytest.mark.parametrize("leaf", ["a", True, 7, -1.5, None, b"data", -(1 << 63)])
def test_plain_data_stays_as_it_is(leaf: object) -> None:
    assert plain_value(leaf) is leaf
    assert plain_value((leaf, [leaf], {"a": leaf})) == [leaf, [leaf], {"a": leaf}]


def test_members_of_enumerations_are_what_they_are_made_of() -> None:
    copies = plain_value([Colour.RED, Number.ONE, {Colour.RED: 1}, Text("a")])
    assert [type(one) for one in copies] == [str, int, dict, str]
    assert copies == ["red", 1, {"red": 1}, "a"]
    assert [type(key) for key in copies[2]] == [str]
    assert plain_name(Text("a")) == "a"
    assert plain_name(Hostile()) == ""


NO_ATTRIBUTES = {
    "object": Hostile,
    "huge int": lambda: 1 << 100,
    "set": lambda: {1},
    "bytearray": lambda: bytearray(b"a"),
    "memoryview": lambda: memoryview(b"a"),
    "range": lambda: range(3),
    "key that is no text": lambda: {7: "a"},
    "many items": lambda: [0] * 10_000_000,
    "many keys": lambda: dict.fromkeys(map(str, range(100_000))),
    "deep": lambda: nested(100),
    "very deep": lambda: nested(100_000),
    "shared": lambda: shared(100),
    "cycle": lambda: UNKNOWN_ARGUMENTS,
    "long text inside": lambda: ["x" * (MAX_READ + 1)],
    "long bytes inside": lambda: [b"x" * (MAX_READ + 1)],
    "long text of a class": lambda: Text("x" * (MAX_READ + 1)),
}


@pytest.mark.parametrize("name", NO_ATTRIBUTES)
def test_what_is_no_attribute_is_left_out_and_counted(name: str) -> None:
    value = NO_ATTRIBUTES[name]()
    span_faults.clear()
    span_faults.reading()
    assert plain_value(value) is ABSENT
    assert plain_attributes({"a": value, "b": 1}) == {"b": 1}
    assert span_faults.metrics()[REPAIRED_SPANS]["unreadable",] == 1


def test_a_leaf_that_is_no_plain_data_is_not_known() -> None:
    copied = plain_value({"a": [Hostile(), {7: 1}, 1 << 100, "b"]})
    assert copied["a"][:3] == [UNKNOWN_ARGUMENTS] * 3
    assert all(one is UNKNOWN_ARGUMENTS for one in copied["a"][:3])


def test_the_copy_is_not_changed_with_the_value() -> None:
    value = {"a": [1]}
    copied = plain_value(value)
    value["a"].append(2)
    assert copied == {"a": [1]}


def test_a_stack_that_is_almost_full_makes_nothing_readable() -> None:
    def deeper(levels: int) -> Any:
        try:
            return deeper(levels + 1)
        except RecursionError:
            return plain_value(nested(50))

    assert deeper(0) is ABSENT
    assert sys.getrecursionlimit() >= 1_000


def test_attributes_of_an_open_span_are_not_counted_each_time() -> None:
    span_faults.clear()
    span_faults.reading()

    span = SimpleNamespace(attributes={"a": Hostile(), "b": 1})
    assert LiveAttributes(span).attributes == {"b": 1}
    assert span_faults.metrics()[REPAIRED_SPANS]["unreadable",] == 0
    assert plain_attributes(None) == {}


def test_a_text_that_takes_long_to_parse_is_taken_as_it_is() -> None:
    long = "[" + " " * MAX_READ + "]"
    assert parsed(long) is long
    assert parsed("[" + " " * 1_000 + "]") == []
    full = "[" + "[]," * 50_000 + "1]"
    assert parsed(full) is full
    odd = "[NaN" + " " * 100_000 + "]"
    assert parsed(odd) is odd


@pytest.mark.parametrize("value", [None, "", [], {"a": 1}, b"a"])
def test_only_scalars_have_a_text(value: object) -> None:
    assert text(value) is None


def test_arguments_of_too_many_levels_are_not_the_same() -> None:
    assert same_arguments(nested(50), nested(50))
    assert not same_arguments(nested(100_000), nested(100_000))


def test_steps_with_attributes_that_cannot_be_read_are_counted() -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(TidegaugeSpanProcessor())
    tracer = provider.get_tracer("theirs")

    def end(kind: str, *names: str) -> None:
        span: Any = tracer.start_span(
            kind, attributes={"gen_ai.operation.name": kind, "gen_ai.tool.name": "look"}
        )
        for value in (Hostile(), Text("a"), [Hostile()]):
            for name in names:
                span._attributes._dict[f"{name}{type(value).__name__}"] = value
                span._attributes._dict[name] = value
        span.end()

    with testing.capture() as seen:
        agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "reader"}
        with tracer.start_as_current_span("invoke_agent", attributes=agent):
            for _ in range(2):
                end("chat", "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.response.id")
                end("execute_tool", "gen_ai.tool.call.arguments", "gen_ai.tool.call.id")
        assert sum(one.totals.steps for one in seen.pipeline.engine.snapshot().groups) == 2

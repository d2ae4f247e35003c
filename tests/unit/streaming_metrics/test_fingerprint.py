"""Fingerprints: what is equal, what is not, and what never leaves an object's address behind."""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import os
import re
import subprocess
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from itertools import permutations
from types import MappingProxyType

import numpy as np
import pydantic
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegauge.events import ABSENT, Call, CallResult, Outcome, Step
from tidegauge.safety.guard import internal_errors
from tidegauge.streaming_metrics.digested import Digester, round_outcome
from tidegauge.streaming_metrics.fingerprint import (
    MAX_KNOWN,
    arguments_bytes,
    call_digest,
    canonical_bytes,
    content_digest,
    round_digest,
    round_name,
)
from tidegauge.streaming_metrics.normalise import Volatile


def outcome_digest(calls: Sequence[bytes], results: Sequence[CallResult]) -> bytes | None:
    return round_outcome(calls, Digester().outcome(Outcome("r1", tuple(results))).results)


HUGE = 2**70


class Query(pydantic.BaseModel):
    text: str
    limit: int = 10


@dataclasses.dataclass
class Point:
    x: object
    y: object = 0


class Text(str):
    pass


class Colour(enum.Enum):
    RED = "red"


class Plain:
    """An object that says nothing of itself."""


class Broken:
    def __str__(self):
        raise RuntimeError("no")


def nested(depth):
    value: list[object] = []
    for _ in range(depth):
        value = [value]
    return value


def circular():
    value: list[object] = []
    value.append(value)
    return value


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=3), json_values, max_size=5), st.randoms())
def test_the_order_of_keys_means_nothing(value, random):
    keys = list(value)
    random.shuffle(keys)
    assert canonical_bytes({key: value[key] for key in keys}) == canonical_bytes(value)


@given(st.dictionaries(st.text(max_size=3), json_values, max_size=4))
@example({"id": 1 << 64})
@example({"id": -(1 << 63) - 1})
def test_text_that_is_json_is_taken_as_its_value(value):
    for text in (json.dumps(value), " " + json.dumps(value, indent=2, ensure_ascii=False)):
        assert arguments_bytes(text) == arguments_bytes(value)


@given(json_values, json_values)
def test_different_values_differ(left, right):
    same = json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)
    assert (canonical_bytes([left]) == canonical_bytes([right])) == same


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"b": 1, "a": {"d": 2, "c": 3}}, {"a": {"c": 3, "d": 2}, "b": 1}),
        (OrderedDict(b=1, a=2), {"a": 2, "b": 1}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        ((1, 2), [1, 2]),
        ({3, 1, 2}, {2, 3, 1}),
        (frozenset("ab"), frozenset("ba")),
        (Text("x"), "x"),
        ([Text("x")], ["x"]),
        ([Colour.RED], [Colour.RED]),
        (b"ab", bytearray(b"ab")),
        ([memoryview(b"abcd")[::2]], [b"ac"]),
        (Query(text="a"), {"text": "a", "limit": 10}),
        (Point(1, [2]), {"x": 1, "y": [2]}),
        (np.int64(5), 5),
        ([np.float64(0.5), np.bool_(True), np.str_("a")], [0.5, True, "a"]),
        (np.arange(6).reshape(2, 3), np.array([[0, 1, 2], [3, 4, 5]])),
        (np.arange(6)[::2], np.array([0, 2, 4])),  # not contiguous
        (np.array([{"a": 1}], dtype=object), np.array([{"a": 1}], dtype=object)),
        ({"id": HUGE, "a": 1}, {"a": 1, "id": HUGE}),
        ({1: "a", "b": HUGE}, {"b": HUGE, 1: "a"}),  # keys that Python cannot sort
        ({(0, 1): "wall", (1, 0): "door"}, {(1, 0): "door", (0, 1): "wall"}),
        ({"a": "\ud800", "b": 1}, {"b": 1, "a": "\ud800"}),
        (nested(400), nested(400)),
        (Decimal("1.50"), Decimal("1.50")),
        ([datetime(2020, 1, 1, tzinfo=UTC)], [datetime(2020, 1, 1, tzinfo=UTC)]),
        ([math.nan, math.inf], [None, None]),  # as in JSON
        (ValueError("no such file"), ValueError("no such file")),
    ],
)
def test_equal(left, right):
    assert canonical_bytes(left) == canonical_bytes(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"b": 1}),
        ([1], ["1"]),
        ({1}, {"1"}),
        ([True], [1]),
        ([1], [1.0]),
        ("a", "A"),
        ("a ", "a"),
        ({"id": HUGE}, {"id": HUGE + 1}),
        ("\ud800", "\ud801"),
        (np.arange(4000)[::2], np.delete(np.arange(4000)[::2], 1000)),  # in what str() leaves out
        (Query(text="a"), Query(text="b")),
        (Plain(), Broken()),
        (Plain(), Broken),
        ([Colour.RED], ["red"]),
        (np.arange(3), [0, 1, 2]),
        (functools.partial(int, base=2), functools.partial(int, base=8)),
        ({(0, 1): "wall"}, {(0, 1): "door"}),
        (nested(400), nested(401)),
    ],
)
def test_not_equal(left, right):
    assert canonical_bytes(left) != canonical_bytes(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ('{"q": 1,  "a": 2}', {"a": 2, "q": 1}),
        (" [1,\n2]", [1, 2]),
        ('{"id": 1180591620717411303424}', {"id": HUGE}),
        ('{"a": "\\ud800", "b": 1}', {"b": 1, "a": "\ud800"}),
        ('{"not": json', '{"not": json'),
    ],
)
def test_arguments_equal(left, right):
    assert arguments_bytes(left) == arguments_bytes(right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ('{"id": 1180591620717411303424}', '{"id": 1180591620717411303425}'),
        ('{"q": 1', '{"q":1'),  # no JSON: exactly
        ("1 ", "1"),  # a JSON scalar is text
        ("[" * 100_000, "[" * 100_001),
    ],
)
def test_arguments_not_equal(left, right):
    assert arguments_bytes(left) != arguments_bytes(right)


@pytest.mark.parametrize("make", [circular, lambda: nested(50_000), object, lambda: [object()]])
def test_what_is_not_comparable_has_no_digest(make):
    value = make()
    assert canonical_bytes(value) is None
    assert content_digest(value) is None
    assert call_digest(Call("read", value)) is None
    calls = [call_digest(Call("read", n)) for n in range(2)]
    assert outcome_digest(calls[:1], [CallResult(value)]) is None
    assert outcome_digest(calls, [CallResult("one"), CallResult(value)]) is None


def test_a_text_of_json_that_is_too_large_is_taken_exactly():
    text = "[" + "[]," * 100_000 + "[]]"
    assert arguments_bytes(text) == text.encode()
    assert call_digest(Call("read", text)) != call_digest(Call("read", " " + text))


def test_an_action_that_is_no_text_is_compared_all_the_same():
    assert call_digest(Call(5)) == call_digest(Call(5)) != call_digest(Call(6))  # type: ignore[arg-type]
    assert call_digest(Call(object())) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("value", ["text", {"a": 1}, Point(1)])
def test_a_normaliser_that_fails_is_counted_and_its_value_not_comparable(value, monkeypatch):
    def broken(text):
        raise RuntimeError(text)

    monkeypatch.setattr(internal_errors, "reraise", False)
    before = internal_errors.counts().get("normaliser", 0)
    assert content_digest(value, broken) is None
    assert call_digest(Call("read", value), broken) is None
    assert internal_errors.counts()["normaliser"] == before + 2
    internal_errors.clear()


def test_a_normaliser_sees_no_text_of_more_than_a_mebibyte():
    seen = []

    def normaliser(text):
        seen.append(len(text))
        return ""

    longer = "x" * (1 << 20)
    assert content_digest(longer, normaliser) == content_digest("", normaliser)
    assert content_digest(longer + "x", normaliser) == content_digest(longer + "x")
    assert max(seen) == 1 << 20


@pytest.mark.parametrize(
    "make",
    [
        Plain,
        lambda: [Plain()],
        lambda: lambda: 1,
        lambda: Point([Plain()], HUGE),  # through a generated repr
        lambda: functools.partial(lambda: 1),
    ],
)
def test_objects_leave_no_address_behind(make):
    value, another = make(), make()  # both alive: at two addresses
    data = canonical_bytes(value)
    assert data == canonical_bytes(another)
    assert not re.search(rb"0x[0-9a-f]{4}", data)


@given(st.permutations([Call("read", {"id": n % 3}) for n in range(5)]))
def test_a_round_is_a_multiset_of_calls(calls):
    reference = [Call("read", {"id": n % 3}) for n in range(5)]
    assert round_digest([*map(call_digest, calls)]) == round_digest([*map(call_digest, reference)])


def test_a_round_counts_its_calls():
    once, other = call_digest(Call("read", {"id": 1})), call_digest(Call("read", {"id": 2}))
    rounds = [[once], [once, once], [once, other], [other, other], [once, once, other], []]
    digests = [round_digest(calls) for calls in rounds]
    assert len(set(digests)) == len(rounds)
    assert {len(digest) for digest in digests} == {16}


def test_a_call_is_its_name_and_its_arguments():
    calls = [
        Call("a", {"x": 1}),
        Call("b", {"x": 1}),
        Call("a", {"x": 2}),
        Call("a"),
        Call("a", ""),
    ]
    assert len({call_digest(call) for call in calls}) == len(calls)


def test_the_outcome_of_a_round_goes_with_its_calls():
    calls = [call_digest(Call("read", n)) for n in range(3)]
    results = [CallResult("one"), CallResult("two"), CallResult("two")]
    digests = {
        outcome_digest([calls[n] for n in order], [results[n] for n in order])
        for order in permutations(range(3))
    }
    assert len(digests) == 1
    assert outcome_digest(calls, [results[1], results[0], results[2]]) not in digests


def test_equal_results_of_a_round_are_the_same_whatever_the_calls():
    calls = [call_digest(Call("read", n)) for n in range(6)]
    none, some = CallResult("none"), CallResult("some")
    digest = outcome_digest(calls[:3], [none] * 3)
    assert outcome_digest(calls[3:], [none] * 3) == digest
    for size in (1, 2, 4):
        assert outcome_digest(calls[:size], [none] * size) != digest
    assert outcome_digest(calls[:3], [some] * 3) != digest
    assert outcome_digest(calls[:3], [none, none, some]) != digest
    assert outcome_digest(calls[:3], [none, none, CallResult()]) != digest
    assert outcome_digest(calls[:3], [none, none]) != digest


def test_results_of_no_call_count_for_nothing():
    calls = [call_digest(Call("read", n)) for n in range(2)]
    results = [CallResult("one"), CallResult("two"), CallResult("three")]
    for known in (1, 2):
        digest = outcome_digest(calls[:known], results[:known])
        assert outcome_digest(calls[:known], results) == digest


def test_an_outcome_that_is_none_is_one_and_an_absent_one_is_not():
    calls = [call_digest(Call("read", n)) for n in range(2)]
    assert outcome_digest(calls[:1], [CallResult(None)]) == content_digest(None)
    assert outcome_digest(calls[:1], [CallResult(ABSENT)]) is None
    assert outcome_digest(calls, [CallResult(), CallResult()]) is None
    half = outcome_digest(calls, [CallResult("a"), CallResult()])
    assert half not in (None, outcome_digest(calls, [CallResult("a"), CallResult("")]))


def test_the_normaliser_sees_arguments_states_and_outcomes():
    def without_digits(text):
        return re.sub(r"\d+", "#", text)

    assert content_digest("took 12 ms", without_digits) == content_digest(
        "took 3 ms", without_digits
    )
    calls = [call_digest(Call("get", {"id": n}), without_digits) for n in (1, 22)]
    assert calls[0] == calls[1] != call_digest(Call("get", {"id": 1}))
    assert content_digest("\ud800 12", without_digits) == content_digest("\ud800 3", without_digits)


def test_the_name_of_a_round_is_sorted_and_bounded():
    assert round_name([Call("b"), Call("a"), Call("b")]) == "a+b+b"
    assert round_name([]) == ""
    assert len(round_name([Call("x" * 1_000)])) == len(round_name([Call("y" * 90)] * 9)) == 200


PROGRAM = """
import sys
from tidegauge.events import Call
from tidegauge.streaming_metrics.fingerprint import call_digest, content_digest, round_digest
calls = [Call("search", {"tags": {"red", "green", "blue"}, "n": 2**70, "f": 0.1}), Call("look")]
print(round_digest([call_digest(call) for call in calls]).hex())
print(content_digest({"é": [None, frozenset({"x", "y", "z"})], (1, 2): lambda: 1}).hex())
"""


def test_every_process_has_the_same_digests():
    def digests(seed):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    assert digests("1") == digests("2") == digests("random")


READ = {
    "plain": ("text", {"query": "red shoes"}),
    "numbers": ("17 rows of 40", {"page": 17}),
    "noise": ("took 0.35s, 17 rows", {"attempt": 3, "query": "red shoes"}),
    "words": ("no match", {"query": " ".join(f"w{n}" for n in range(100))}),
}


def read_by(digester: Digester, text: str, arguments: object) -> tuple[object, object]:
    outcome = Outcome("r", (CallResult(text),))
    return digester.step(Step("r", (Call("look", arguments),))), digester.outcome(outcome)


@pytest.mark.parametrize("name", READ)
def test_what_is_read_again_is_as_it_was_read_first(name: str) -> None:
    digester = Digester(Volatile(), words=True)
    for other in READ.values():
        read_by(digester, *other)
    assert read_by(digester, *READ[name]) == read_by(Digester(Volatile(), words=True), *READ[name])


def test_a_digester_remembers_a_bounded_number_of_texts() -> None:
    normaliser = Volatile()
    digester = Digester(normaliser, words=True)
    for n in range(3 * MAX_KNOWN):
        read_by(digester, f"{n} rows", {"page": n})
    for known in (digester._words, digester._numbers, normaliser.clean, normaliser.arguments.clean):
        assert 0 < len(known) <= MAX_KNOWN

"""What is equal and what is not among values of every kind, at what cost, and with whose code."""

from __future__ import annotations

import array
import collections
import copy
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import pathlib
import random
import subprocess
import threading
import tracemalloc
import types
import uuid
import zoneinfo
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import orjson
import pandas as pd
import pyarrow as pa
import pydantic
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage, HumanMessage

from support.speed import seconds_of, slowness
from tidegauge.streaming_metrics.fingerprint import content_digest, plain_identity
from tidegauge.values import Identities, ValueCache, canonical_start, canonical_text
from tidegauge.values.encoder import Encoder
from tidegauge.values.handlers import handler_of


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Other(enum.Enum):
    RED = "red"


class Loud(enum.StrEnum):
    RED = "red"


class Held:
    def __init__(self, **held):
        self.__dict__.update(held)


class AlsoHeld(Held):
    pass


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


@dataclasses.dataclass
class Point:
    x: object
    y: object = 0


@dataclasses.dataclass(slots=True)
class SlottedPoint:
    x: object
    y: object = 0


class Model(pydantic.BaseModel):
    model_config = {"extra": "allow"}
    text: str

    @functools.cached_property
    def computed(self):
        return len(self.text)


Cell = collections.namedtuple("Cell", "x y")


class Status(Exception):
    def __init__(self, *, code):
        self.code = code


def used(model):
    _ = model.computed
    return model


def frame(**columns):
    return pd.DataFrame(columns)


def merged(left, right):
    """A frame in several blocks."""
    whole = pd.DataFrame({"a": left})
    whole["b"] = right
    return whole


def entries(*triples, form="coo"):
    rows, columns, data = zip(*triples, strict=True)
    return sp.coo_matrix((data, (rows, columns)), shape=(9, 9)).asformat(form)


LONG = list(range(300))

EQUAL = [
    (collections.OrderedDict(b=1, a=Cell(1, 2)), {"a": [1, 2], "b": 1}),
    (types.MappingProxyType({"a": 1}), {"a": 1}),
    (Loud.RED, "red"),
    ([Loud.RED], ["red"]),
    ({1, (2, 3)}, frozenset({(2, 3), 1})),
    (Point(1, [2]), SlottedPoint(1, [2])),
    (Point(1), {"x": 1, "y": 0}),
    (Model(text="a", more=1), {"text": "a", "more": 1}),  # type: ignore[call-arg]
    (used(Model(text="a")), Model(text="a")),
    (AIMessage("hi"), AIMessage("hi")),
    (np.int64(5), 5),
    (np.arange(6)[::2], np.array([0, 2, 4])),
    (np.asfortranarray(np.arange(6).reshape(2, 3)), np.arange(6).reshape(2, 3)),
    (np.array([{"a": 1}], dtype=object), np.array([{"a": 1}], dtype=object)),
    (frame(a=[1, 2], b=[3, 4]), merged([1, 2], [3, 4])),
    (frame(a=LONG).iloc[5:], frame(a=LONG).drop(index=range(5))),
    (pd.Index([0, 1, 2]), pd.RangeIndex(3)),
    (frame(a=["x", None]), frame(a=["x", None])),
    (pd.Series([1, None], dtype="Int64"), pd.Series([1, pd.NA], dtype="Int64")),
    (
        pa.table({"a": LONG}),
        pa.concat_tables([pa.table({"a": LONG[:9]}), pa.table({"a": LONG[9:]})]),
    ),
    (pa.array(["a", None, "b"])[1:], pa.array([None, "b"])),
    (entries((0, 1, 2.0), (3, 3, 4.0)), entries((3, 3, 4.0), (0, 1, 2.0), form="csr")),
    (entries((0, 1, 1.0), (0, 1, 1.0)), entries((0, 1, 2.0), form="lil")),
    (ValueError("no"), ValueError("no")),
    (
        dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
        dt.datetime(2020, 1, 1, tzinfo=dt.timezone(dt.timedelta())),
    ),
    (uuid.UUID(int=5), uuid.UUID(int=5)),
    (fractions.Fraction(2, 4), fractions.Fraction(1, 2)),
    (pathlib.PurePosixPath("a/b"), pathlib.PurePosixPath("a") / "b"),
    (functools.partial(int, base=2), functools.partial(int, base=2)),
    (Held(a=1, b=2), Held(b=2, a=1)),
    ([bytearray(b"ab")], [memoryview(b"ab")]),
    ("x" * 300_000, "x" * 300_000),
    (2**100_000, 2**100_000),
    ({"a": "\ud800"}, {"a": "\ud800"}),
    (array.array("d", [1.0]), array.array("d", [1.0])),
]

DIFFERENT = [
    (Colour.RED, Colour.BLUE),
    (Colour.RED, Other.RED),
    ({1}, [1]),
    ({1}, {"1"}),
    ({1: "a", "1": "b"}, {1: "b", "1": "a"}),
    (Held(a=1), Held(a=2)),
    (Held(a=1), AlsoHeld(a=1)),
    (Held(a=1), {"a": 1}),
    (Slotted(1), Slotted(2)),
    (Model(text="a", more=1), Model(text="a", more=2)),  # type: ignore[call-arg]
    (AIMessage("hi"), HumanMessage("hi")),
    (AIMessage("hi"), AIMessage("ho")),
    (np.arange(4), np.arange(4).astype("i4")),
    (np.arange(4), np.arange(4).reshape(2, 2)),
    (np.arange(100_000), np.where(np.arange(100_000) == 50_000, 0, np.arange(100_000))),
    (np.ma.masked_array([1, 2], [0, 1]), np.ma.masked_array([1, 2], [1, 0])),  # type: ignore[arg-type]
    (np.datetime64(1, "ns"), np.datetime64(2, "ns")),
    (frame(a=LONG), frame(a=[*LONG[:150], -1, *LONG[151:]])),
    (frame(a=LONG), frame(b=LONG)),
    (frame(a=[str(n) for n in LONG]), frame(a=[*map(str, LONG[:150]), "?", *map(str, LONG[151:])])),
    (frame(a=[1.0]), frame(a=[1])),
    (pd.Categorical(["a", "b"]).to_numpy(), pd.Categorical(["b", "a"]).to_numpy()),
    (pd.Series(["a", "b"], dtype="category"), pd.Series(["b", "a"], dtype="category")),
    (pd.Series(pd.date_range("2020", periods=99)), pd.Series(pd.date_range("2021", periods=99))),
    (pd.Timestamp(1), pd.Timestamp(2)),
    (pa.table({"a": LONG}), pa.table({"a": [*LONG[:150], -1, *LONG[151:]]})),
    (pa.table({"a": ["x"]}), pa.table({"a": ["y"]})),
    (entries((0, 1, 2.0)), entries((1, 0, 2.0))),
    (sp.eye(2_000, format="csr"), sp.eye(2_000, k=1, format="csr")),
    (ValueError("a"), ValueError("b")),
    (ValueError("a"), TypeError("a")),
    (Status(code=1), Status(code=2)),
    (FileNotFoundError(2, "no such file", "a"), FileNotFoundError(2, "no such file", "b")),
    (dt.date(2020, 1, 1), dt.date(2020, 1, 2)),
    (dt.time(1), dt.time(2)),
    (dt.timedelta(1), dt.timedelta(2)),
    (dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
    (
        dt.datetime(2020, 1, 1, tzinfo=zoneinfo.ZoneInfo("Asia/Tokyo")),
        dt.datetime(2020, 1, 1, tzinfo=zoneinfo.ZoneInfo("Asia/Seoul")),
    ),
    (decimal.Decimal("1.5"), decimal.Decimal("2.5")),
    (uuid.UUID(int=5), uuid.UUID(int=6)),
    (complex(1, 2), complex(1, 3)),
    (range(3), range(4)),
    (int, str),
    (len, print),
    ([].append, [1].append),
    (functools.partial(int, base=2), functools.partial(int, base=8)),
    (collections.deque([1]), collections.deque([2])),
    ({"a": 1}.keys(), {"b": 1}.keys()),
    (pathlib.PurePosixPath("a"), pathlib.PurePosixPath("b")),
    (types.SimpleNamespace(a=1), types.SimpleNamespace(a=2)),
    (2**100_000, 2**100_000 + 1),
    ({"a": "x" * 300_000}, {"a": "x" * 299_999 + "y"}),
    ({"a": "\ud800"}, {"a": "\ud801"}),
    ([b"a" * 99_999], [b"a" * 99_998 + b"b"]),
    (array.array("d", [1.0]), array.array("d", [2.0])),
]


@pytest.mark.parametrize(("left", "right"), EQUAL, ids=range(len(EQUAL)))
def test_equal(left, right) -> None:
    assert content_digest(left) is not None
    assert content_digest(left) == content_digest(right)


@pytest.mark.parametrize(("left", "right"), DIFFERENT, ids=range(len(DIFFERENT)))
def test_different(left, right) -> None:
    assert content_digest(left) is not None
    assert content_digest(right) is not None
    assert content_digest(left) != content_digest(right)


def cyclic():
    value: list[object] = []
    value.append({"a": value})
    return value


def cyclic_object():
    value = Held()
    value.me = value  # type: ignore[attr-defined]
    return value


@pytest.mark.parametrize(
    "make",
    [
        object,
        threading.Lock,
        lambda: Held(lock=threading.Lock()),
        lambda: iter([1]),
        lambda: (n for n in ()),
        lambda: [].__iter__().__next__,
        cyclic,
        cyclic_object,
        lambda: np.broadcast_to(0, (10**6, 10**6)),
        lambda: pydantic.TypeAdapter(int).validator,
    ],
)
def test_not_comparable(make) -> None:
    value = make()
    assert content_digest(value) is None
    assert canonical_text([value]) is None
    assert canonical_start([1, value], 100).startswith(b"[1,")


# What costs little, whatever it is.


def shared(levels):
    value: list[object] = [1]
    for _ in range(levels):
        value = [value, value]
    return value


def wide():
    value: object = "x"
    for _ in range(4):
        value = [value] * 1_000
    return value


def deep(levels):
    value: list[object] = []
    for _ in range(levels):
        value = [value]
    return value


def called(made):
    made.a.b(1, key=[2])
    return made


HOSTILE = {
    "mock": mock.Mock,
    "magic mock": mock.MagicMock,
    "async mock": mock.AsyncMock,
    "called mock": lambda: called(mock.Mock()),
    "mock with a spec": lambda: mock.create_autospec(subprocess.Popen),
    "shared": lambda: shared(24),
    "shared tuples": lambda: tuple(shared(24)),
    "wide": wide,
    "deep": lambda: deep(100_000),
    "ten million": lambda: [0] * 10_000_000,
    "ten million keys": lambda: dict.fromkeys(range(2_000_000)),
    "a sorted mapping": lambda: collections.OrderedDict((str(n), n) for n in range(200_000)),
    "a mapping and an object": lambda: {"x": Held()} | {str(n): n for n in range(100_000)},
    "objects": lambda: [Held(n=n) for n in range(20_000)],
    "control characters": lambda: ["\0" * 1_000_000 + str(n) for n in range(20)],
    "halves of characters": lambda: ["\ud800" * 100_000] * 100,
    "huge numbers": lambda: [2**2_000] * 90_000,
    "one huge number": lambda: 1 << 4_000_000,
    "frozen sets": lambda: functools.reduce(
        lambda inner, _: frozenset({(inner,), (inner, 1)}),  # type: ignore[arg-type, return-value]
        range(30),
        frozenset(),
    ),
    "JSON": lambda: "[" + "[]," * 150_000 + "[]]",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_value_costs_much(name) -> None:
    value = HOSTILE[name]()
    content_digest(value)  # imports
    took = [seconds_of(lambda: content_digest(value)) for _ in range(3)]
    assert min(took) < 0.1 * slowness()  # 50 ms, and what coverage adds
    tracemalloc.start()
    content_digest(value)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 50e6


@pytest.mark.parametrize(
    "make",
    [
        lambda: "x" * 100_000_000,
        lambda: {"a": ["x" * 100_000_000]},
        lambda: b"x" * 100_000_000,
        lambda: [bytearray(100_000_000)],
        lambda: np.zeros(12_500_000),
        lambda: [np.zeros((3_000, 4_000)).T],
        lambda: pd.DataFrame(np.zeros((1_000_000, 12))),
    ],
)
def test_what_is_long_is_read_in_pieces(make) -> None:
    value = make()
    assert content_digest(value) is not None
    assert (
        seconds_of(lambda: content_digest(value)) < 0.4 * slowness()
    )  # 2 ms a megabyte, and as much again
    tracemalloc.start()
    content_digest(value)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


def test_levels_are_limited_and_shared_parts_have_theirs() -> None:
    assert content_digest(deep(999)) is not None
    assert content_digest(deep(1_000)) is None
    inner = deep(600)
    assert content_digest([inner, inner]) is not None
    below = [inner]
    for _ in range(500):
        below = [below]
    assert content_digest(below) is None
    assert content_digest([inner, below]) is None  # as it is where nothing is shared


def test_shared_parts_are_not_unfolded_to_know_that_they_are_plain() -> None:
    value: object = 1
    for _ in range(100):
        value = {"a": value, "b": value}
    assert content_digest(value) is None
    assert seconds_of(lambda: [content_digest(value) for _ in range(20)]) < 0.1 * slowness()


def test_no_more_is_read_than_the_beginning_that_is_wanted() -> None:
    value = [{"row": [n, None, "x" * 9]} for n in range(9_000)] + [object()]
    encoder = Encoder(handler_of, lenient=True, wanted=100)
    assert b"".join(encoder.pieces(value))[:100] == canonical_start(value, 100)
    assert len(encoder.out) < 100
    assert canonical_start(value, 100) == canonical_start(value[:50], 100)
    numbers = [set(range(2_000)), list(range(2_000)), object()]  # what is cut is not counted
    assert (
        canonical_start(numbers, 90_000)
        == canonical_start(numbers, 80_000) + (canonical_start(numbers, 90_000)[80_000:])
    )


def test_a_report_reads_each_value_once() -> None:
    cache = ValueCache()
    array = np.arange(200_000)
    text = "x" * 3_000_000
    first = content_digest([array, text, array], cache=cache)
    assert first == content_digest([array.copy(), text[:-1] + "x", array])
    before = content_digest(text, cache=cache)
    array[0], array[1] = 7, 8  # not seen: it was read
    assert content_digest([array, text, array], cache=cache) == first
    assert content_digest([array, text, array]) != first
    assert before == content_digest(text)
    assert content_digest([object()], cache=cache) is None
    assert content_digest((value := {1, 2}), cache=cache) == content_digest(value)


def test_identities_of_a_report_share_one_budget() -> None:
    large = [deep(900) for _ in range(14)]
    identities = Identities()
    named = [identities.plain(value) for value in large[:10]]
    assert len(set(named)) == 1
    assert identities.plain(large[0]) == named[0]  # known: it costs nothing
    identities.plain(large[11])
    with pytest.raises(ValueError, match="not comparable"):
        [identities.plain(value) for value in large]


def test_a_long_identity_is_known_by_its_digest() -> None:
    long = "x" * 5_000
    assert plain_identity("x" * 4_096) == "x" * 4_096
    assert plain_identity(long) == plain_identity(long[:-1] + "x") != plain_identity(long + "x")
    assert len(str(plain_identity((long, 1 << 100_000, b"y" * 10_000)))) < 300


def test_what_is_shared_is_read_once() -> None:
    inner = [Held(n=n) for n in range(500)]
    whole = content_digest([inner] * 4)
    assert whole == content_digest([copy.deepcopy(inner) for _ in range(4)])
    assert whole is not None
    once, often = Encoder(handler_of), Encoder(handler_of)
    list(once.pieces(inner))
    list(often.pieces([inner] * 4))
    assert len(often._written) < len(once._written) + 3


# What runs no code of the user's.

CALLS: list[str] = []


def _loud(name):
    def method(*_, **__):
        CALLS.append(name)
        raise RuntimeError(name)

    return method


class LoudType(type):
    """Objects to every question about its classes."""


NAMES = [
    *("__getattribute__", "__getattr__", "__str__", "__repr__", "__iter__", "__len__", "__eq__"),
    *("__hash__", "__bool__", "__index__", "__int__", "__float__", "__bytes__", "__format__"),
    *("__getitem__", "__contains__", "__reduce_ex__", "__sizeof__", "__dir__", "__array__"),
    *(
        "tolist",
        "model_dump",
        "keys",
        "items",
        "values",
        "encode",
        "copy",
        "__fspath__",
        "__next__",
    ),
    *("__length_hint__", "__array_interface__", "__copy__", "__deepcopy__", "__getstate__"),
]
for each in ("__hash__", "__eq__", "__getattribute__", "__instancecheck__", "__subclasscheck__"):
    setattr(LoudType, each, _loud(f"type.{each}"))


def loud(*bases, **more):
    body = {name: _loud(name) for name in NAMES} | more
    body["__class__"] = property(_loud("__class__"))
    return type.__new__(LoudType, "Loud", bases, body)


def test_no_code_of_the_users_runs() -> None:
    plain = loud(object)
    one = object.__new__(plain)
    object.__setattr__(one, "a", 1)
    values = [
        one,
        dict.__new__(loud(dict)),
        list.__new__(loud(list)),
        tuple.__new__(loud(tuple), (1, 2)),
        set.__new__(loud(set)),
        str.__new__(loud(str), "text"),
        int.__new__(loud(int), 5),
        float.__new__(loud(float), 0.5),
        bytes.__new__(loud(bytes), b"ab"),
        BaseException.__new__(loud(ValueError), "no"),
        dt.datetime.__new__(loud(dt.datetime), 2020, 1, 1),
        np.zeros(3).view(type("Loud", (np.ndarray,), {name: _loud(name) for name in NAMES[1:]})),
        plain,
    ]
    CALLS.clear()
    digests = []
    for value in values:
        digests += [content_digest(value), content_digest([value]), content_digest({"a": value})]
        canonical_start([value], 1_000)
        if type(value) is not LoudType:
            plain_identity((value,))
    assert not CALLS
    assert None not in digests


def test_a_lazy_proxy_is_not_evaluated() -> None:
    class Lazy:
        def __init__(self):
            self.__dict__["make"] = _loud("make")

        @property  # type: ignore[misc]
        def __class__(self):
            return _loud("class")()

        def __getattr__(self, name):
            return _loud(name)()

    CALLS.clear()
    assert content_digest(Lazy()) == content_digest(Lazy()) is not None
    assert not CALLS


# What is plain is written as it always was, by either way.

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None), max_size=5)
)
plain = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


def slow(value):
    return b"".join(Encoder(handler_of).pieces(value))


def shuffled(value, chance):
    """An equal value: keys in another order, some parts of it copied, of a subclass or shared."""
    if isinstance(value, dict):
        keys = list(value)
        chance.shuffle(keys)
        made = {key: shuffled(value[key], chance) for key in keys}
        return collections.OrderedDict(made) if chance.random() < 0.3 else made
    if isinstance(value, list):
        made = [shuffled(item, chance) for item in value]  # type: ignore[assignment]
        return tuple(made) if chance.random() < 0.3 else made
    return value


@given(plain, st.randoms(use_true_random=False))
def test_equal_values_have_equal_digests(value, chance) -> None:
    whole = [value, value, {"a": value}]
    other = [shuffled(value, chance), copy.deepcopy(value), {"a": value}]
    assert content_digest(whole) == content_digest(other)
    assert canonical_text(whole) == slow(whole)


@given(plain, plain)
def test_different_values_have_different_digests(left, right) -> None:
    same = slow([left]) == slow([right])
    assert (content_digest([left]) == content_digest([right])) == same


@given(plain.filter(lambda value: isinstance(value, dict | list)))
def test_plain_json_is_what_orjson_writes(value) -> None:
    try:
        written = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return
    assert canonical_text(value) == slow(value) == written


def test_deep_lists_are_written_by_either_way() -> None:
    assert slow(deep(200)) == canonical_text(deep(200)) == b"[" * 201 + b"]" * 201
    assert slow(deep(900)) == canonical_text(deep(900)) == b"[" * 901 + b"]" * 901


def test_a_text_longer_than_the_limit_is_none() -> None:
    assert canonical_text("abc", limit=3) == b"abc"
    assert canonical_text("abcd", limit=3) is None
    assert canonical_start(["a" * 999_999], 5) == b'[!"te'


def test_what_changes_while_it_is_read_hurts_nothing() -> None:
    value: dict[str, object] = {str(n): Held(n=n) for n in range(100)}
    done = threading.Event()

    def change():
        while not done.is_set():
            value[str(random.random())] = 1
            value.popitem()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(200):
            content_digest(value)
    finally:
        done.set()
        thread.join()


class TestIdentities:
    @pytest.mark.parametrize("value", ["a", 1, 0.5, True, None, b"a", ("a", (1, None))])
    def test_built_in_values_pass(self, value) -> None:
        assert plain_identity(value) == value

    def test_others_are_made_plain(self) -> None:
        assert plain_identity(Cell(np.int64(1), Loud.RED)) == (1, "red")
        assert type(plain_identity(Loud.RED)) is str
        named = plain_identity(Colour.RED)
        assert isinstance(named, str)
        assert named.rpartition(":")[0].endswith("Colour")
        assert named == plain_identity(Colour.RED) != plain_identity(Other.RED)

    @pytest.mark.parametrize("make", [object, lambda: (object(),), lambda: (0,) * 2_000])
    def test_what_has_no_plain_value_is_an_error(self, make) -> None:
        with pytest.raises(ValueError, match="identity"):
            plain_identity(make())


def _unset_slots() -> Any:
    kind = type("Row", (), {"__slots__": tuple([f"c{number}" for number in range(3_000)])})
    return [kind() for _ in range(100)]


def _of_strings() -> Any:
    return pd.DataFrame({"a": pd.array(["x"] * 130_000, dtype="string")})


def _of_lists() -> Any:
    return pd.Series([[1, 2]] * 10_000, dtype=pd.ArrowDtype(pa.list_(pa.int64())))


def _of_fields(fields: int) -> Any:
    return np.dtype([(f"f{number}", "i4") for number in range(fields)])


@pytest.mark.parametrize(
    "make",
    [
        _unset_slots,
        _of_strings,
        _of_lists,
        lambda: pa.chunked_array([[1]] * 13_000),
        lambda: np.zeros(3, dtype=_of_fields(13_000)),
        lambda: [_of_fields(2_000) for _ in range(7)],
        lambda: np.void(bytes(5 << 20)),
        lambda: decimal.Decimal("7" * 5_000_000),
        lambda: [decimal.Decimal("7" * 100_000) for _ in range(30)],
    ],
)
def test_what_takes_long_to_read_is_not_comparable(make: Callable[[], Any]) -> None:
    assert content_digest(make()) is None


@pytest.mark.parametrize(
    "make",
    [
        lambda: _unset_slots()[:1],
        lambda: pd.DataFrame({"a": pd.array(["x"] * 50_000, dtype="string")}),
        lambda: pa.chunked_array([[1]] * 1_000),
        lambda: np.zeros(3, dtype=_of_fields(1_000)),
        lambda: np.void(bytes(1 << 20)),
        lambda: decimal.Decimal("7" * 100_000),
        lambda: {str(number) for number in range(20_000)},
    ],
)
def test_what_is_read_at_once_is_comparable(make: Callable[[], Any]) -> None:
    assert content_digest(make()) == content_digest(make()) is not None

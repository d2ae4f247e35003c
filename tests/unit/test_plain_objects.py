"""Plain data: what goes to JSON comes back, and what is no such data is refused."""

from __future__ import annotations

import json
import math
from collections import OrderedDict, deque
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.streaming_metrics.evicting_dict import EvictingDict
from tidegauge.streaming_metrics.metric import Stateful
from tidegauge.values.plain_objects import Kept, PlainObjects


class Point(NamedTuple):
    x: Any
    y: Any = None
    more: Any = ()


class Node:
    __slots__ = ("left", "name", "own", "right")

    def __init__(self) -> None:
        self.name: Any = ""
        self.left: Any = None
        self.right: Any = []
        self.own = "new"


NOTHING, ENDLESS = object(), list[Any]()
ENDLESS.append(ENDLESS)
PLAIN = PlainObjects([Kept(Node, omitted=("own",))], [Point], [NOTHING, ENDLESS], [EvictingDict])

single = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=3)
    | st.binary(max_size=3)
)
keys = st.recursive(single, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=4)
points = st.tuples(keys, keys).map(lambda pair: Point(*pair))
values = st.recursive(
    keys | points | st.just(NOTHING) | st.floats(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.lists(st.lists(inner, max_size=3), max_size=3),
        st.lists(st.tuples(inner, inner), max_size=3),
        st.sets(keys | points, max_size=3),
        st.frozensets(keys, max_size=3),
        st.dictionaries(keys | points, inner, max_size=3),
        st.dictionaries(keys, inner, max_size=3).map(OrderedDict),
        st.dictionaries(keys, inner, max_size=3).map(lambda found: EvictingDict(found.items())),
        st.lists(inner, max_size=3).map(lambda items: deque(items, maxlen=5)),
    ),
    max_leaves=20,
)


def there_and_back(value: Any) -> Any:
    return PLAIN.read(json.loads(json.dumps(PLAIN.write(value))))


def shape(value):
    """The value with its types, which ``==`` does not look at."""
    if isinstance(value, dict):
        return type(value), [(shape(key), shape(item)) for key, item in value.items()]
    if isinstance(value, set | frozenset):
        return type(value), sorted(repr(shape(one)) for one in value)
    if isinstance(value, list | tuple | deque):
        return type(value), getattr(value, "maxlen", None), [shape(item) for item in value]
    return type(value), "nan" if isinstance(value, float) and math.isnan(value) else value


@given(values)
def test_what_goes_to_json_comes_back(value):
    assert shape(there_and_back(value)) == shape(value)


@given(st.lists(st.integers(-(2**70), 2**70), max_size=9))
def test_whole_numbers_come_back_however_large(numbers):
    assert there_and_back(numbers) == numbers


@given(st.lists(st.integers(0, 9).map(lambda n: 64 * n), unique=True, max_size=6))
def test_equal_sets_have_one_form(items):
    backwards = items[::-1]
    assert PLAIN.write(set(items)) == PLAIN.write(set(backwards))


@given(st.data())
def test_objects_refer_to_one_another_as_before(data):
    nodes = [Node() for _ in range(data.draw(st.integers(1, 9)))]
    some = st.sampled_from(nodes)
    for number, node in enumerate(nodes):
        node.name = data.draw(st.none() | st.just(number) | st.just(b"%d" % number))
        node.left, node.right = data.draw(st.none() | some), data.draw(st.lists(some, max_size=3))
        node.own = "mine"
    again, met = there_and_back(nodes[0]), {}
    pairs = [(nodes[0], again)]
    while pairs:
        one, other = pairs.pop()
        if id(one) in met:
            assert met[id(one)] is other
            continue
        met[id(one)] = other
        assert (one.name, other.own) == (other.name, "new")
        assert (one.left is None) == (other.left is None)
        assert len(one.right) == len(other.right)
        pairs += zip([*one.right, one.left], [*other.right, other.left], strict=True)
        pairs = [pair for pair in pairs if pair[0] is not None]


def test_a_long_chain_is_written_in_linear_time_and_needs_no_stack():
    chain = first = Node()
    for _ in range(20_000):
        chain.left = Node()
        chain = chain.left
    again, length = there_and_back(first), 0
    while again is not None:
        again, length = again.left, length + 1
    assert length == 20_001


def test_one_record_stays_one_and_defaults_are_left_out():
    one = Point(1)
    written = PLAIN.write([one, one, Point(2)])
    assert written[1] == {"Point": {"x": [1, 2]}}
    first, second, _ = PLAIN.read(written)
    assert first is second


def test_a_constant_is_one_object_everywhere_also_if_it_is_a_list():
    first, _, third = there_and_back([ENDLESS, [1], {2: ENDLESS}])
    assert first is ENDLESS
    assert third[2] is ENDLESS
    assert [one is ENDLESS for one in there_and_back([ENDLESS, ENDLESS])] == [True, True]


def test_an_attribute_that_is_not_set_is_that_of_a_new_object():
    node = Node()
    del node.left
    node.name = "a"
    again = there_and_back([node, Node()])
    assert [(one.name, one.left) for one in again] == [("a", None), ("", None)]


def test_new_objects_share_nothing():
    first, second = there_and_back([Node(), Node()])
    first.right.append(1)
    assert second.right == []


@pytest.mark.parametrize("value", [object(), 1j, [lambda: 1], Stateful()])
def test_other_kinds_have_no_form(value):
    with pytest.raises(TypeError, match="no plain form"):
        PLAIN.write(value)


DEEP: list[Any] = []
for _ in range(600):
    DEEP = [3, [DEEP]]

NODES = {"Node.1": {"name": ["a", "b"]}}


@pytest.mark.parametrize(
    "data",
    [
        None,
        5,
        [],
        [1],
        [1, 2],
        [1, {}, 3],
        [[], {}],
        [[99, []], {}],
        [["3", []], {}],
        [[3], {}],
        [[3, 5], {}],
        [[3, "abc"], {}],
        [[5, [[3, []]]], {}],
        [[7, [1], "x"], {}],
        [[7, [1], -1], {}],
        [[7, [1], 1 << 80], {}],
        [[8, [1], []], {}],
        [[8, [[3, []]], [1]], {}],
        [[0, "x"], {}],
        [[0], {}],
        [[1, "x"], {}],
        [[2, 9], {}],
        [DEEP, {}],
        [{}, {}],
        [{"Node.1": 0}, {}],
        [{"Node.1": 9}, NODES],
        [{"Node.1": "0"}, NODES],
        [{"Node.1": 0, "Point": 0}, NODES],
        [{"Node.2": 0}, {"Node.2": {"name": ["a"]}}],
        [{"Other": 0}, {"Other": {"x": [1]}}],
        [0, {"Node.1": {}}],
        [0, {"Node.1": 5}],
        [0, {"Node.1": {"name": []}}],
        [0, {"Node.1": {"name": 5}}],
        [0, {"Node.1": {"name": "abc"}}],
        [0, {"Node.1": {"": 10**9}}],
        [0, {"Node.1": {"": 50_001}}],
        [0, {"Node.1": {"": -1}}],
        [0, {"Node.1": {"": 1, "unknown": [1]}}],
        [0, {"Node.1": {"": 1, "name": ["a"]}}],
        [0, {"Node.1": {"own": ["a"]}}],
        [0, {"Node.1": {"__class__": ["a"]}}],
        [0, {"Node.1": {"name": ["a"], "left": [1, 2]}}],
        [{"Point": 0}, {"Point": {"y": [1]}}],
        [{"Point": 0}, {"Point": {"x": [1], "z": [1]}}],
        [{"Point": 0}, {"Point": {"x": [1], "y": [1, 2]}}],
        [{"Point": 0}, {"Point": {"": 10**9}}],
        [{"Point": 0}, {"Point": {"x": [{"Point": 0}]}}],
        [{"bytes": 0}, {"bytes": ["AA=="]}],
        [{"bytes": 0}, {"bytes": [[1], "A"]}],
        [{"bytes": 0}, {"bytes": [[5], "AA=="]}],
        [{"bytes": 0}, {"bytes": [[2, -1], "AA=="]}],
        [{"bytes": 0}, {"bytes": [[], ""]}],
        [[3, {"": ["a", "b"]}], {}],
        [[3, {"": []}], {}],
        [[3, {"": [1, True]}], {}],
        [[3, {"()": [[1], [1, 2]]}], {}],
        [[3, {"3": [[2], [1]]}], {}],
        [[3, {"3": [[-1, 2], [1]]}], {}],
        [[3, {"3": [["a"], [1]]}], {}],
        [[3, {"8": [[1], [1]]}], {}],
        [[3, {"Node.1": 5}], NODES],
    ],
)
def test_data_of_another_form_is_refused(data):
    with pytest.raises(ValueError, match=r".+"):
        PLAIN.read(data)


TABLES = st.sampled_from(["", "()", "3", "Point", "Node.1", "bytes", "x", "name", "left"])
ANYTHING = st.recursive(
    st.none() | st.integers(-2, 12) | st.text("Point.1Nde()3579", max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TABLES, inner, max_size=3),
)


@given(ANYTHING)
def test_whatever_else_arrives_is_read_or_refused(data):
    try:
        PLAIN.read([data, data])
        PLAIN.read([data, {"Node.1": data, "Point": data, "bytes": data}])
    except ValueError:
        pass


class Inner(Stateful):
    __slots__ = ("count",)

    def __init__(self):
        self.count = 0


class Outer(Stateful):
    __slots__ = ("first", "second")

    def __init__(self):
        self.first, self.second = Inner(), Inner()


def test_a_state_with_one_part_that_does_not_fit_changes_nothing():
    source, target = Outer(), Outer()
    source.first.count = source.second.count = 7
    root, tables = source.state()
    tables["Inner.2"] = tables.pop("Inner.1")
    with pytest.raises(ValueError, match="state"):
        target.load([root, tables])
    assert target.state() == Outer().state()
    target.load(source.state())
    assert (target.first.count, target.second.count) == (7, 7)

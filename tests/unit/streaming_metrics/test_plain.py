"""Plain data: what goes to JSON comes back, and what is no such data is refused."""

from __future__ import annotations

import json
from collections import OrderedDict, deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.streaming_metrics.metric import Stateful
from tidegauge.streaming_metrics.plain import from_plain, to_plain

keys = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=4,
)
values = st.recursive(
    keys | st.floats(allow_nan=False),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.sets(keys, max_size=3),
        st.dictionaries(keys, inner, max_size=3),
        st.dictionaries(keys, inner, max_size=3).map(OrderedDict),
        st.lists(inner, max_size=3).map(lambda items: deque(items, maxlen=5)),
    ),
    max_leaves=10,
)


def shape(value):
    """The value with its types, which ``==`` does not look at."""
    if isinstance(value, dict):
        return type(value), [(shape(key), shape(item)) for key, item in value.items()]
    if isinstance(value, set):
        return type(value), sorted(map(repr, value))
    if isinstance(value, list | tuple | deque):
        return type(value), getattr(value, "maxlen", None), [shape(item) for item in value]
    return type(value), value


@given(values)
def test_what_goes_to_json_comes_back(value):
    assert shape(from_plain(json.loads(json.dumps(to_plain(value))))) == shape(value)


@given(st.lists(st.integers(0, 9).map(lambda n: 64 * n), unique=True, max_size=6))
def test_equal_sets_have_one_form(items):
    backwards = items[::-1]
    assert to_plain(set(items)) == to_plain(set(backwards))


@pytest.mark.parametrize("value", [object(), 1j, [lambda: 1]])
def test_other_kinds_have_no_form(value):
    with pytest.raises(TypeError, match="no plain form"):
        to_plain(value)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"a": 1, "b": 2},
        {"~unknown": 1},
        {"~bytes": "zz"},
        {"~bytes": 5},
        {"~tuple": 5},
        {"~set": [[1]]},
        {"~deque": []},
        {"~deque": ["x", [1]]},
        {"~dict": [[1]]},
        {"~dict": [[[1], 2]]},
        [{"~ordered": 3}],
    ],
)
def test_data_of_another_form_is_refused(data):
    with pytest.raises(ValueError, match=r"state|fromhex|unpack"):
        from_plain(data)


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
    state = source.state()
    state["fields"]["second"]["version"] += 1
    with pytest.raises(ValueError, match="Inner"):
        target.load(state)
    assert target.state() == Outer().state()
    target.load(source.state())
    assert (target.first.count, target.second.count) == (7, 7)

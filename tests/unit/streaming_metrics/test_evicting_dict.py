"""A dict that evicts its oldest entry is a dict in all else, whatever is done in between."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.examples import examples
from tidegauge.streaming_metrics.evicting_dict import EvictingDict
from tidegauge.values.plain_objects import PlainObjects

PLAIN = PlainObjects([], dicts=(EvictingDict,))
KEYS = st.integers(0, 40)
ACTIONS = st.one_of(
    st.tuples(st.just("put"), KEYS),
    st.tuples(st.just("renew"), KEYS),
    st.tuples(st.sampled_from(["pop", "pop or none"]), KEYS),
    st.tuples(st.sampled_from(["evict", "oldest", "newest", "copy"]), st.just(0)),
    st.tuples(st.just("fill"), st.integers(0, 1_000)),
    st.tuples(st.just("clear"), st.just(0)),
)


def act(entries, action, key):
    """What the action gives, or the kind of what it raises; a plain dict shows how."""
    evicting = isinstance(entries, EvictingDict)
    try:
        match action:
            case "put":
                entries[key] = action
            case "renew":
                entries.pop(key, None)
                entries[key] = action
            case "pop":
                return entries.pop(key)
            case "pop or none":
                return entries.pop(key, None)
            case "newest":
                return entries.popitem()
            case "fill":
                entries.update(dict.fromkeys(range(key, key + 20)))
            case "clear":
                entries.clear()
            case "oldest":
                return entries.oldest() if evicting else next(iter(entries), KeyError)
            case "evict":
                if evicting:
                    entries.evict()
                elif entries:
                    del entries[next(iter(entries))]
                else:
                    raise KeyError
    except KeyError:
        return KeyError
    return None


@examples(5)
@given(st.lists(ACTIONS, max_size=80))
def test_it_is_a_plain_dict_that_forgets_its_first_key(actions) -> None:
    entries, plain = EvictingDict(), {}
    for action, key in actions:
        if action == "copy":
            before, entries = entries, copy.copy(entries)
            act(before, "evict", 0)  # none of the copy's
        assert act(entries, action, key) == act(plain, action, key)
        assert list(entries.items()) == list(plain.items())


@pytest.mark.parametrize(
    "moved",
    [
        copy.copy,
        copy.deepcopy,
        lambda entries: pickle.loads(pickle.dumps(entries)),
        lambda entries: PLAIN.read(PLAIN.write(entries)),
    ],
    ids=["copy", "deepcopy", "pickle", "plain"],
)
def test_it_moves_in_its_order(moved) -> None:
    entries = EvictingDict((number, str(number)) for number in range(100))
    entries.evict()
    entries[1] = entries.pop(1)
    other = moved(entries)
    assert type(other) is EvictingDict
    assert list(other.items()) == list(entries.items())
    other.evict()
    assert (other.oldest(), entries.oldest()) == (3, 2)


def test_what_it_keeps_to_evict_is_bounded_while_keys_are_renewed() -> None:
    entries = EvictingDict((number, None) for number in range(1_000))
    entries.evict()
    for number in range(100_000):
        key = 1 + number % 999
        entries[key] = entries.pop(key)
        assert len(entries._oldest) + len(entries._gone or ()) <= 2 * (1_000 // 8 + 1)

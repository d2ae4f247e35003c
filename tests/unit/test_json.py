"""JSON texts keep the value of their numbers."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegauge.foreign_spans.json_values import parsed
from tidegauge.values.exact_json import exact_json

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(values, st.booleans())
@example((1 << 64) - 1, True)
@example(1 << 64, True)
@example(-(1 << 63), True)
@example(-(1 << 63) - 1, True)
@example([1.5e300, 1_700_000_000_000_000_000, "\ud800"], True)
def test_it_reads_what_json_writes(value: object, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only)
    found = exact_json(text)
    assert found == value
    assert repr(found) == repr(json.loads(text))  # 1 is not 1.0


def test_ids_of_spans_that_differ_in_the_last_digit_differ() -> None:
    ids = [parsed(f'{{"id": {10**22 + number}}}') for number in range(2)]
    assert ids == [{"id": 10**22}, {"id": 10**22 + 1}]


@pytest.mark.parametrize("text", ["", "{", "[1,]", "[" + "9" * 5_000 + "]", '{"a": ' + "1" * 20])
def test_what_is_no_json_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        exact_json(text)
    assert parsed(text) == text


def test_a_long_text_for_the_slow_parser_is_left_as_it_is() -> None:
    text = json.dumps({"id": 1 << 70, "more": "x" * 70_000})
    assert parsed(text) == text

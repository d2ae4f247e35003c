"""What a worker keeps: read again as it came, in the order of the log."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.fleet.kafka_records import (
    CLOCK_KEY,
    ChangelogRecord,
    ended_run,
    load_changelog_record,
    marker_key,
    record_key,
)

WHOLE = st.text(st.characters(exclude_categories=["Cs"]))
OFFSETS = st.integers(0, 2**63 - 1)


@given(OFFSETS, st.floats(0, 1e12), WHOLE, st.binary())
def test_a_message_is_read_again_as_it_came(offset, now, key, value) -> None:
    assert load_changelog_record(ChangelogRecord(offset, now, key, value).encoded()) == (
        offset,
        now,
        key,
        value,
    )


def test_a_message_of_any_depth_can_be_kept() -> None:
    deep = b"[" * 1_024 + b"]" * 1_024  # as deep as JSON is read
    assert load_changelog_record(ChangelogRecord(1, 2.0, "r", deep).encoded()) == ChangelogRecord(
        1, 2.0, "r", deep
    )


@given(st.lists(OFFSETS, min_size=2))
def test_records_are_read_in_the_order_of_the_log(offsets) -> None:
    assert sorted(map(record_key, offsets)) == [record_key(offset) for offset in sorted(offsets)]


@given(WHOLE, OFFSETS)
def test_clock_then_marks_then_records(run, offset) -> None:
    assert CLOCK_KEY < marker_key(run) < record_key(offset)
    assert ended_run(marker_key(run)) == run
    assert ended_run(record_key(offset)) is None


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":2,"offset":1,"now":1.0,"key":"r"}\n{}',
        b'{"offset":1,"now":1.0,"key":"r"}\n{}',
        b'{"version":1,"offset":[],"now":1.0,"key":"r"}\n{}',
        b'{"version":1,"offset":1,"now":"x","key":"r"}\n{}',
        b"[]\n{}",
        b"no JSON",
        b"",
    ],
)
def test_what_is_of_another_form_is_refused(data) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        load_changelog_record(data)
    assert "\n" not in str(raised.value)

"""Amounts that have the same sum in whatever order."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from tidegauge.streaming_metrics.buckets import addable

GRAINS = 2**20


@given(st.floats(0, 2.0**53) | st.floats(0, 100) | st.integers(0, 2**53))
@example(2.0**31)
@example(2.0**31 - 2.0**-21)
@example(0.5 / GRAINS)
@example(1.5 / GRAINS)
@example(2.0**31 - 1.5 / GRAINS)
def test_an_amount_is_rounded_to_the_nearest_grain(amount: float) -> None:
    assert addable(amount) == round(amount * GRAINS) / GRAINS

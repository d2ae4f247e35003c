"""Success by horizon: buckets and their ends."""

from __future__ import annotations

import pytest

from tidegauge.streaming_metrics.horizon import LAST_BUCKET, SuccessByHorizon, horizon_bucket
from tidegauge.streaming_metrics.records import FinishedRun


@pytest.mark.parametrize("power", range(1, 20))
def test_bucket_ends(power):
    end = 2**power
    assert horizon_bucket(end) == end
    assert horizon_bucket(end + 1) == 2 * end


@pytest.mark.parametrize("amount", [-5, 0, 1])
def test_the_first_bucket_takes_all_that_is_less(amount):
    assert horizon_bucket(amount) == 1


@pytest.mark.parametrize("amount", [LAST_BUCKET, LAST_BUCKET + 1, 10**100])
def test_the_last_bucket_takes_all_that_is_more(amount):
    assert horizon_bucket(amount) == LAST_BUCKET


def test_either_number_will_do():
    horizon = SuccessByHorizon()
    horizon.update(FinishedRun(True, steps=1, operations=3))
    horizon.update(FinishedRun(False, steps=1, height=3))
    horizon.update(FinishedRun(False, steps=1))
    horizon.update(FinishedRun(None, steps=1, operations=3))
    assert horizon.value == 0.5
    assert {bucket: rate.value for bucket, rate in horizon.by_operations.items()} == {4: 1.0}
    assert {bucket: rate.value for bucket, rate in horizon.by_height.items()} == {4: 0.0}


def test_buckets_come_in_their_order():
    horizon = SuccessByHorizon()
    for operations in (100, 1, 7):
        horizon.update(FinishedRun(True, steps=1, operations=operations))
    assert list(horizon.by_operations) == [1, 8, 128]


def test_no_horizon_has_more_than_its_buckets():
    horizon = SuccessByHorizon()
    for power in range(100):
        horizon.update(FinishedRun(True, steps=1, operations=2**power))
    assert len(horizon.by_operations) == 21
    assert horizon.by_operations[LAST_BUCKET].runs == 80

"""Recall lag: what is recalled, what is read, and what is forgotten."""

from __future__ import annotations

import pytest

from tidegauge.streaming_metrics.recall_lag import (
    RECALL_LAG_BOUNDS,
    GroupRecallLag,
    RecallLag,
)
from tidegauge.streaming_metrics.records import FinishedRun, IssuedStep


def lag_of(*steps, **parameters):
    """Each step is (mentions, uses)."""
    lag = RecallLag(**parameters)
    for t, (mentions, uses) in enumerate(steps):
        lag.update(IssuedStep(t, b"s", b"a", uses=tuple(uses), mentions=tuple(mentions)))
    return lag


def test_the_last_sighting_counts():
    assert lag_of(("k", ""), ("", ""), ("k", ""), ("", ""), ("", "k")).value == 2


def test_what_the_present_state_shows_is_not_recalled():
    assert lag_of(("", ""), ("k", "k")).value is None
    assert lag_of(("k", ""), ("", ""), ("k", "k")).value == 2
    assert lag_of(("k", ""), ("k", ""), ("k", "k")).value == 1


def test_what_was_never_seen_has_no_lag():
    lag = lag_of(("", "k"), ("k", ""))
    assert (lag.value, lag.lags, lag.recall) == (None, 0, None)


def test_every_entity_and_every_use_counts_once():
    lag = lag_of(("ab", ""), ("", "aab"), ("", "a"))
    assert (lag.lags, lag.total) == (3, 1 + 1 + 2)


def test_entities_may_be_tuples():
    assert lag_of(([(1, 2), "x"], ""), ("", [(1, 2)])).value == 1


def test_buckets_hold_their_bounds():
    for bucket, bound in enumerate(RECALL_LAG_BOUNDS):
        lag = RecallLag()
        lag.update(IssuedStep(0, b"", b"", mentions=("k",)))
        lag.update(IssuedStep(bound, b"", b"", uses=("k",)))
        lag.update(IssuedStep(bound + 1, b"", b"", uses=("k",)))
        assert next(n for n, count in enumerate(lag.counts) if count) == bucket
        assert sum(lag.counts[: bucket + 1]) == 1


def test_the_entity_seen_longest_ago_is_forgotten():
    lag = lag_of(("abc", ""), ("a", ""), ("d", ""), ("", "abcd"), max_entities=3)
    assert lag.dropped_entities == 1
    assert (lag.lags, lag.total) == (3, 2 + 3 + 1)  # a, c, d


def test_one_state_that_mentions_more_than_is_kept():
    lag = lag_of((range(100), ""), ("", range(100)), max_entities=10)
    assert (lag.lags, lag.dropped_entities) == (10, 90)


def test_group_separates_successes_from_failures():
    group = GroupRecallLag()
    assert (group.value, group.mean(success=True)) == (None, None)
    near, far = lag_of(("k", ""), ("", "k")), lag_of(("k", ""), *[("", "")] * 8, ("", "k"))
    group.update(FinishedRun(True, 2, recall=near.recall))
    group.update(FinishedRun(True, 2))
    group.update(FinishedRun(False, 10, recall=far.recall))
    group.update(FinishedRun(None, 2, recall=near.recall))
    assert [group.mean(success=known) for known in (True, False, None)] == [1, 9, 1]
    assert group.value == pytest.approx(11 / 3)
    assert sum(group.recall(success=False).counts) == 1

"""Split: the cap, its key, and what comes back from plain data."""

from __future__ import annotations

import pytest

from tidegauge.streaming_metrics.contrast import Split
from tidegauge.streaming_metrics.records import FinishedRun
from tidegauge.streaming_metrics.success import SuccessRate


def rates(*keys, max_keys=2):
    split = Split(SuccessRate, other="other", max_keys=max_keys)
    for key in keys:
        split.update(key, FinishedRun(True, steps=1))
    return split


def runs_of(split):
    return {key: part.runs for key, part in split.parts.items()}


def test_past_the_cap_keys_share_one_more():
    assert runs_of(rates("a", "b", "c", "d", "a")) == {"a": 2, "b": 1, "other": 2}


def test_a_key_that_is_called_other_takes_no_place():
    assert runs_of(rates("other", "a", "b", "c")) == {"other": 2, "a": 1, "b": 1}


def test_merging_keeps_the_cap_and_the_runs():
    left, right = rates("a", "b"), rates("b", "c", "d")
    left.merge(right)
    assert runs_of(left) == {"a": 1, "b": 2, "other": 2}
    assert runs_of(right) == {"b": 1, "c": 1, "other": 1}


def test_parts_cannot_be_set():
    with pytest.raises(TypeError):
        rates("a").parts["b"] = SuccessRate()


def test_reset():
    split = rates("a")
    split.reset()
    assert (runs_of(split), split.max_keys) == ({}, 2)

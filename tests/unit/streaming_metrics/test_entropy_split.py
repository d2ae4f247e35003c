"""Entropy split: late settlement, numbers that are none, and the entropy of tokens."""

from __future__ import annotations

import math

import pytest

from tidegauge.entropy import token_entropy
from tidegauge.streaming_metrics.entropy_split import EntropySplit, GroupEntropySplit
from tidegauge.streaming_metrics.loops import Loops
from tidegauge.streaming_metrics.records import (
    EntropySums,
    FinishedRun,
    IssuedStep,
    LoopSpending,
)


def split_of(states, entropies):
    """The split of a run with one action, its loops being found by the loop metric."""
    loops, split = Loops(), EntropySplit()
    for t, (state, entropy) in enumerate(zip(states, entropies, strict=True)):
        loops.update(IssuedStep(t, state.encode(), b"go"))
        split.update(LoopSpending(t, settled=loops.settled))
        split.update(LoopSpending(t, False, entropy=entropy, looped=t in loops.settled))
    return split


def test_steps_become_loop_steps_when_the_repetition_is_complete():
    split = split_of("ABCAB", [3, 3, 3, 1, 1])
    assert (split.loop, split.other, split.value) == (None, 2.2, None)
    split = split_of("ABCABC", [3, 3, 3, 1, 1, 1])
    assert (split.loop, split.other, split.value) == (1, 3, -2)
    split = split_of("ABCABCA", [3, 3, 3, 1, 1, 1, 5])
    assert (split.loop, split.other) == (2, 3)


def test_a_repetition_that_breaks_off_is_none():
    split = split_of("ABCABX", [3, 3, 3, 1, 1, 1])
    assert (split.loop, split.other) == (None, 2)


def test_steps_without_entropy_count_nowhere():
    split = split_of("AAAA", [2, None, 1, None])
    assert split.sums == EntropySums(1.0, 1, 2.0, 1)
    assert split_of("AAAA", [None] * 4).value is None


@pytest.mark.parametrize("entropy", [math.nan, math.inf, -0.1, 1e300])
def test_numbers_that_are_no_entropy_are_left_out(entropy):
    split = split_of("AAA", [2, 1, entropy])
    assert split.sums == EntropySums(1.0, 1, 2.0, 1)


def test_a_result_that_comes_after_its_step_became_a_loop_step_counts_there():
    split = EntropySplit()
    split.update(LoopSpending(0, False, entropy=5.0))
    split.update(LoopSpending(2, settled=(1, 2)))
    split.update(LoopSpending(1, False, entropy=1.0, looped=True))
    assert (split.loop, split.other) == (1.0, 5.0)


def test_group():
    group = GroupEntropySplit()
    group.update(FinishedRun(True, 3))
    assert group.value is None
    group.update(FinishedRun(True, 4, entropy=split_of("AAAA", [2, 1, 1, 1]).sums))
    group.update(FinishedRun(True, 4, entropy=split_of("AB", [4, 6]).sums))
    assert (group.loop, group.other, group.value) == (1, 4, -3)


def test_token_entropy_of_even_choices():
    four = [math.log(0.25)] * 4
    assert token_entropy([four, four]) == pytest.approx(math.log(4))


def test_what_is_not_reported_is_one_more_alternative():
    half = math.log(0.5)
    assert token_entropy([[half]]) == pytest.approx(math.log(2))
    reported = [[half, math.log(0.25)], [half, math.log(0.25), math.log(0.125)]]
    assert token_entropy(reported[:1]) < token_entropy(reported[1:])


def test_never_above_the_true_entropy():
    shares = [0.4, 0.3, 0.2, 0.1]
    true = -sum(share * math.log(share) for share in shares)
    bounds = [token_entropy([[math.log(share) for share in shares[:top]]]) for top in (1, 2, 3, 4)]
    assert bounds == sorted(bounds)
    assert bounds[-1] == pytest.approx(true)


def test_a_certain_token_has_none():
    assert token_entropy([[0.0, -math.inf, -9_999.0]]) == 0


@pytest.mark.parametrize(
    "logprobs", [[], [[]], [[math.nan]]], ids=["no token", "nothing reported", "no number"]
)
def test_no_token_no_entropy(logprobs):
    assert token_entropy(logprobs) is None


def test_shares_that_exceed_one_are_scaled_down():
    assert token_entropy([[0.0, 0.0]]) == pytest.approx(math.log(2))
    assert token_entropy([[1e-9]]) == 0
    assert token_entropy([[5.0, 800.0]]) == pytest.approx(math.log(2))

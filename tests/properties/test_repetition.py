"""Repetition: what its definition gives at every moment, also where outcomes come late."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.streaming_metrics.repetition import Repetition

from . import batch, streams


def take(repetition, moment, alike):
    """Report one moment; ``alike`` keeps what every issued action is to be observed with."""
    if moment[0] == "issue":
        _, step, mutates = moment
        alike.append((repetition.issue(step._replace(mutates=mutates)), mutates))
    else:
        _, t, new = moment
        likeness, mutates = alike[t]
        latest = t == len(alike) - 1
        repetition.observe(t, likeness, new=new, latest=latest, failed=mutates)


@given(streams.moments())
def test_repetition_is_what_its_definition_gives_at_every_moment(moments):
    repetition, alike = Repetition(), []
    for count, moment in enumerate(moments, 1):
        take(repetition, moment, alike)
        fields = {name: getattr(repetition, name) for name in ("total", "current", "similarity")}
        expected = batch.repetition(moments[:count])
        # Nothing is added up on the way, so that the sum is exact.
        assert repetition.recent == expected.pop("recent")
        assert fields == pytest.approx(expected)


@given(streams.moments(), st.data())
def test_it_moves_to_another_process_in_the_middle(moments, data):
    cut = data.draw(st.integers(0, len(moments)))
    stays, moves, alike = Repetition(), Repetition(), []
    for moment in moments[:cut]:
        take(stays, moment, alike)
    moves.load(json.loads(json.dumps(stays.state())))
    assert moves.state() == stays.state()
    for moment in moments[cut:]:
        take(moves, moment, list(alike))
        take(stays, moment, alike)
        read = [(one.total, one.recent, one.current) for one in (moves, stays)]
        assert read[0] == read[1]
    assert moves.state() == stays.state()


@given(streams.moments())
def test_reset_forgets_the_run(moments):
    repetition, alike = Repetition(), []
    for moment in moments:
        take(repetition, moment, alike)
    repetition.reset()
    assert repetition.state() == Repetition().state()


def test_it_keeps_no_more_than_the_last_actions():
    repetition = Repetition()
    for t in range(1_000):
        repetition.issue(streams.chosen(t, frozenset({t})))
    assert len(repetition._similarity._recent) == 16
    assert list(repetition._recent) == list(range(984, 1_000))


def test_a_long_run_does_not_add_up():
    """Two kinds of honest calls in turn: the sum of the run grows for ever, the recent one not."""
    repetition = Repetition()
    for t in range(200):
        alike = repetition.issue(streams.chosen(t, frozenset({t, t + 1, t + 2, -1})))
        repetition.observe(t, alike, new=True, latest=True)
    assert repetition.total > 20
    assert repetition.recent == pytest.approx(16 * 0.36 / 2)


def test_a_result_that_comes_late_corrects_only_what_is_still_recent():
    repetition = Repetition()
    for t in range(20):
        repetition.issue(streams.chosen(t, frozenset({1})))
    assert (repetition.recent, repetition.total) == (16, 19)
    repetition.observe(3, 1.0, new=True, latest=False)
    assert (repetition.recent, repetition.total) == (16, 18.5)
    repetition.observe(4, 1.0, new=True, latest=False)
    assert (repetition.recent, repetition.total) == (15.5, 18)

"""Repetition: what its definition gives at every moment, also where outcomes come late."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge.streaming_metrics.records import ChosenAction
from tidegauge.streaming_metrics.repetition import Repetition

from . import batch, streams


def take(repetition, moment, alike):
    """Report one moment; ``alike`` keeps what every issued action is to be observed with."""
    if moment[0] == "issue":
        _, step, mutates = moment
        alike.append((repetition.issue(step, mutates=mutates), mutates))
    else:
        _, t, new = moment
        likeness, mutates = alike[t]
        latest = t == len(alike) - 1
        repetition.observe(likeness, new=new, latest=latest, failed=mutates)


@given(streams.moments())
def test_repetition_is_what_its_definition_gives_at_every_moment(moments):
    repetition, alike = Repetition(), []
    for count, moment in enumerate(moments, 1):
        take(repetition, moment, alike)
        fields = {name: getattr(repetition, name) for name in ("total", "current", "similarity")}
        assert fields == pytest.approx(batch.repetition(moments[:count]))


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
        assert (moves.total, moves.current) == (stays.total, stays.current)
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
        repetition.issue(ChosenAction(t, frozenset({t})))
    assert len(repetition._similarity._recent) == 16

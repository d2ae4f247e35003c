"""Scores: each reads what it says, grows with trouble, and says what it is made of."""

from __future__ import annotations

from typing import Any

import pytest

from tidegauge.errors import ConfigurationError
from tidegauge.events import Signals
from tidegauge.policies import SCORES, STAGNATION_WEIGHTS, Score, score_named
from tidegauge.streaming_metrics.registry import SIGNALS
from tidegauge.streaming_metrics.stagnation import stagnation_parts

MORE = {
    name: 100 + number
    for number, name in enumerate(name for name in SIGNALS if name not in Signals._fields)
}
"""A value for each signal that is no field of ``Signals``."""

MEASURED: dict[str, Any] = {
    "loop_period": 2,
    "loop_repeats": 3,
    "loop_first_step": 4,
    "loop_cost_steps": 5,
    "loop_cost_tokens": 600.0,
    "loop_cost_seconds": 7.5,
    "result_streak": 8,
    "failed_rounds": 9,
    "recurrence": 10,
    "novelty": 0.25,
    "stale_score": 11,
    "stale_rises": 12,
    "oldest_lead_age": 13,
    "tokens": 1_400.0,
    "completed_steps": 15,
    "similarity": 0.5,
    "repetition": 1.5,
    "more": MORE,
}
READ = {
    "stagnation": 15 + 3 * 1.5 + 3 * 0.5 + 3 + 0.5 * 8 + 0.5 * 9,
    "steps": 15,
    "similarity": 0.5,
    "repetition": 1.5,
    "loop_repeats": 3,
    "loop_cost_steps": 5,
    "loop_cost_tokens": 600,
    "loop_cost_seconds": 7.5,
    "result_streak": 8,
    "failed_rounds": 9,
    "recurrence": 10,
    "stale_score": 11,
    "stale_rises": 12,
    "oldest_lead_age": 13,
    "tokens": 1_400,
    "steps_begun": 16,
    "staleness": 0.75,
    **{n: value for n, value in MORE.items() if SIGNALS[n].score and n != "stagnation"},
}
ALWAYS = {"steps": 0, "steps_begun": 16, "loop_repeats": 0, "loop_cost_steps": 0, "stale_rises": 0}
"""What is measured of a run of which nothing was reported."""


def signals(**fields: Any) -> Signals:
    return Signals("r1", 15, 16, b"", b"", more=dict.fromkeys(MORE))._replace(**fields)


def test_every_score_reads_what_it_says() -> None:
    found = {name: score.read(signals(**MEASURED)) for name, score in SCORES.items()}
    assert found == READ
    assert {name: score.name for name, score in SCORES.items()} == {name: name for name in SCORES}


def test_what_was_not_measured_has_no_score() -> None:
    found = {name: score.read(signals()) for name, score in SCORES.items()}
    assert found == {name: ALWAYS.get(name) for name in SCORES}


@pytest.mark.parametrize("name", sorted(READ))
def test_only_what_is_made_of_words_reads_them(name: str) -> None:
    """A score that reads words without saying so is not measured: the engine spares them."""
    more = {**MORE, "repetition_recent": None}
    unread = signals(**{**MEASURED, "repetition": None, "similarity": None, "more": more})
    assert (SCORES[name].read(unread) is None) is SCORES[name].reads_words


def test_an_unknown_score_is_rejected_with_those_there_are() -> None:
    assert score_named("steps") is SCORES["steps"]
    with pytest.raises(ConfigurationError, match=r"unknown score 'stps'; use one of stagnation, "):
        score_named("stps")


class TestStagnation:
    score = SCORES["stagnation"]

    def test_its_parts_add_up_to_it(self) -> None:
        parts = stagnation_parts(signals(**MEASURED))
        assert parts is not None
        assert parts.keys() == STAGNATION_WEIGHTS.keys()
        weighted = (STAGNATION_WEIGHTS[name] * value for name, value in parts.items())
        assert sum(weighted) == self.score.read(signals(**MEASURED))

    def test_it_says_what_it_is_made_of(self) -> None:
        assert self.score.explain(signals(**MEASURED)) == (
            "15 steps + 3 x 1.5 repetition + 3 x 0.5 similarity of the last action"
            " + 3 loop repeats + 0.5 x 8 steps with the same result + 0.5 x 9 failed rounds"
        )

    def test_it_does_not_speak_of_what_is_nothing(self) -> None:
        known = signals(completed_steps=4, repetition=1 / 3, similarity=0.0)
        assert self.score.explain(known) == "4 steps + 3 x 0.33 repetition"

    def test_the_others_are_what_they_are_called(self) -> None:
        others = [score for score in SCORES.values() if score is not self.score]
        assert {score.explain(signals(**MEASURED)) for score in others} == {""}

    def test_more_of_anything_is_more_of_it(self) -> None:
        before = self.score.read(signals(**MEASURED))
        assert before is not None
        for name in STAGNATION_WEIGHTS:
            after = self.score.read(signals(**{**MEASURED, name: MEASURED[name] + 1}))
            assert after == before + STAGNATION_WEIGHTS[name]


def test_a_score_cannot_be_changed_under_a_policy() -> None:
    with pytest.raises(TypeError):
        SCORES["steps"] = Score("steps", lambda signals: 0)  # type: ignore[index]
    with pytest.raises(AttributeError):
        SCORES["steps"].version = 2  # type: ignore[misc]

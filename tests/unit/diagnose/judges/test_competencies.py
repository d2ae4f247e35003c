"""The rubrics: complete, and of a version that changes with their words."""

from __future__ import annotations

import hashlib

import pytest

from support.judged_runs import run_of
from tidegauge.diagnose.judges.rubric_judge import COMPETENCIES, FIVE_JUDGES, Question, rubric_named
from tidegauge.errors import ConfigurationError

KNOWN = {
    ("backtracking_exploration", "1.1"): "5b2a60c70748ab5e",
    ("task_decomposition", "1.1"): "cda6e40b863810b9",
    ("observation_reading", "1.1"): "68cb5b4e516176c4",
    ("self_verification", "1.1"): "0da1652f51f00dd7",
    ("objective_quality", "1.1"): "2d07c1f2d9355d35",
    ("objective_quality", "1.2"): "140c0b566485f175",
}
"""What each version of each prompt asks, as a digest. Add a line for a new version; change none."""


@pytest.mark.parametrize("judge", FIVE_JUDGES, ids=lambda judge: judge.competency)
def test_a_changed_prompt_has_a_new_version(judge) -> None:
    question = judge.ask(run_of(2))
    assert isinstance(question, Question)
    digest = hashlib.sha256("\0".join(question).encode()).hexdigest()[:16]
    assert KNOWN.get((judge.competency, judge.rubric_version)) == digest, (
        f"raise the version of the rubric, or of the frame for all of them, and add: {digest}"
    )


def test_there_are_the_five_competencies() -> None:
    assert list(COMPETENCIES) == [
        "backtracking_exploration",
        "task_decomposition",
        "observation_reading",
        "self_verification",
        "objective_quality",
    ]
    assert [rubric.not_applicable is None for rubric in COMPETENCIES.values()] == [
        False,
        True,
        True,
        True,
        True,
    ]


def test_an_unknown_competency_lists_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="'wit'; use backtracking_exploration, task"):
        rubric_named("wit")

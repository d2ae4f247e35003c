"""The rubrics: complete, and of a version that changes with their words."""

from __future__ import annotations

import hashlib

import pytest

from support.judged_runs import run_of
from tidegauge.diagnose.judges.competencies import COMPETENCIES, rubric_named
from tidegauge.diagnose.judges.judge import FIVE_JUDGES, Question
from tidegauge.errors import ConfigurationError

KNOWN = {
    ("backtracking_exploration", "1.1"): "5b2a60c70748ab5e",
    ("task_decomposition", "1.1"): "cda6e40b863810b9",
    ("observation_reading", "1.1"): "68cb5b4e516176c4",
    ("self_verification", "1.1"): "0da1652f51f00dd7",
    ("objective_quality", "1.1"): "2d07c1f2d9355d35",
}
"""What each version of each prompt asks, as a digest. Add a line for a new version; change none."""


@pytest.mark.parametrize("judge", FIVE_JUDGES, ids=lambda judge: judge.competency)
def test_whoever_changes_a_word_of_a_prompt_raises_its_version(judge) -> None:
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


def test_a_competency_that_is_none_is_told_with_those_there_are() -> None:
    with pytest.raises(ConfigurationError, match="'wit'; there are backtracking_exploration, task"):
        rubric_named("wit")

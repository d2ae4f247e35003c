"""Five competencies, each with a rubric for a judge.

The competencies are those of AgentDiagnose (*An Open Toolkit for Diagnosing LLM Agent
Trajectories*, section 3); the rubrics are ours. Increase the version of a rubric with every change
of its text, so that all scores of a version were given by the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidegauge.errors import ConfigurationError

LABELS: Final = {1: "weak", 2: "partial", 3: "solid", 4: "strong"}
"""A word for each score."""


@dataclass(frozen=True, slots=True)
class Rubric:
    """What a score of 1 to 4 means for one competency.

    Args:
        competency: its name, in lower case with underscores; a label value of metrics.
        version: increased with every change of the following.
        question: the question about the run.
        levels: the description of each score from 1 to 4.
        not_applicable: when the rubric does not apply; ``None``: it always applies.
        needs_steps: whether it is about the steps; else it is about the task alone.

    Raises:
        ConfigurationError: a level is missing.
    """

    competency: str
    version: str
    question: str
    levels: Mapping[int, str]
    not_applicable: str | None = None
    needs_steps: bool = True

    def __post_init__(self) -> None:
        if set(self.levels) != set(LABELS):
            raise ConfigurationError(
                f"The rubric of {self.competency} has the levels {sorted(self.levels)}; "
                "use 1, 2, 3, 4."
            )

    def text(self) -> str:
        """The rubric as text for the judge."""
        lines = [f"Competency: {self.competency}", f"Question: {self.question}"]
        lines += [f"Score {score}: {self.levels[score]}" for score in sorted(self.levels)]
        if self.not_applicable is not None:
            lines.append(f"Not applicable: {self.not_applicable}")
        return "\n".join(lines)


BACKTRACKING: Final = Rubric(
    competency="backtracking_exploration",
    version="1",
    question="When a way led nowhere, did the agent notice, leave it and try another one?",
    levels={
        1: "It stayed on ways that led nowhere, or gave up, and never turned to another.",
        2: "It meant to turn back or to try something else, but did so late, in the wrong place, "
        "or came back to what had failed before.",
        3: "It left most ways that led nowhere for a sensible other one, with a delay or a miss "
        "now and then.",
        4: "It saw soon that a way led nowhere, said or showed why, and at once took another that "
        "made sense.",
    },
    not_applicable="no way that the agent took led nowhere: there was nothing to leave.",
)
TASK_DECOMPOSITION: Final = Rubric(
    competency="task_decomposition",
    version="1",
    question="Did the agent divide the task into parts it could do, and keep to them?",
    levels={
        1: "Nothing shows that it saw parts: it took one step after another as they came.",
        2: "Some parts can be seen, but they are too coarse, in an order that cannot work, or do "
        "not belong to the task.",
        3: "The parts fit the task, but one that it needs is missing, or the plan was not changed "
        "when what was found called for it.",
        4: "The parts cover the whole task in an order that works, and were changed when what was "
        "found called for it.",
    },
)
OBSERVATION_READING: Final = Rubric(
    competency="observation_reading",
    version="1",
    question="Did the agent take from each result what mattered, and take it as it was?",
    levels={
        1: "What it did next hardly ever rests on what came back.",
        2: "It used some results, but overlooked or misread others that mattered for the task.",
        3: "It used nearly all results rightly and overlooked a detail that mattered.",
        4: "What it did next always fits what had come back, and what mattered was seen the first "
        "time it was shown.",
    },
)
SELF_VERIFICATION: Final = Rubric(
    competency="self_verification",
    version="1",
    question="Did the agent hold what it had done against what the task asks?",
    levels={
        1: "It never looked whether something it had done was right.",
        2: "It looked once or in passing, and not at what the task hangs on.",
        3: "It checked some results that the task hangs on, and left one unchecked where a check "
        "would have helped.",
        4: "It checked what the task hangs on while it worked and again before it ended, and acted "
        "on what it found.",
    },
)
OBJECTIVE_QUALITY: Final = Rubric(
    competency="objective_quality",
    version="2",
    question="Is the task itself clear enough to be worked on, and to tell when it is done? Rate "
    "the task, not the agent.",
    levels={
        1: "It names nothing to be reached: one can only look around.",
        2: "Something can be done about it, but much is vague, so that people would disagree on "
        "what was asked.",
        3: "What to do is mostly clear; when it is done is left open in some point.",
        4: "What to do, with what, and when it is done are all stated and can be checked.",
    },
    needs_steps=False,
)

COMPETENCIES: Final[Mapping[str, Rubric]] = {
    rubric.competency: rubric
    for rubric in (
        BACKTRACKING,
        TASK_DECOMPOSITION,
        OBSERVATION_READING,
        SELF_VERIFICATION,
        OBJECTIVE_QUALITY,
    )
}
"""The five rubrics, by name."""


def rubric_named(name: str) -> Rubric:
    """The rubric of a competency.

    Raises:
        ConfigurationError: the competency is unknown.
    """
    try:
        return COMPETENCIES[name]
    except KeyError:
        known = ", ".join(COMPETENCIES)
        raise ConfigurationError(f"Unknown competency {name!r}; use {known}.") from None

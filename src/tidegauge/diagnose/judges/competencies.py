"""What runs are judged by: five competencies, each as a rubric that a judge goes by.

The competencies are those of AgentDiagnose (*An Open Toolkit for Diagnosing LLM Agent
Trajectories*, section 3); how each is put to a judge is ours. A rubric has a version: whoever
changes a word of it raises that, so that no two scores of one version were given by different
rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidegauge.errors import ConfigurationError

__all__ = [
    "BACKTRACKING",
    "COMPETENCIES",
    "LABELS",
    "OBJECTIVE_QUALITY",
    "OBSERVATION_READING",
    "SELF_VERIFICATION",
    "TASK_DECOMPOSITION",
    "Rubric",
    "rubric_named",
]

LABELS: Final = {1: "weak", 2: "partial", 3: "solid", 4: "strong"}
"""A word for each score."""


@dataclass(frozen=True, slots=True)
class Rubric:
    """What a score of 1 to 4 means for one competency.

    Args:
        competency: its name, in lower case with underscores: a label of its metrics.
        version: raised with every change of what follows.
        question: what is asked of the run.
        levels: what earns each score from 1 to 4.
        not_applicable: when the question does not arise at all; ``None``, it always does.
        needs_steps: whether it is about what the agent did; else it is about the task alone.

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
            raise ConfigurationError(f"the rubric of {self.competency} needs the levels 1 to 4")

    def text(self) -> str:
        """The rubric as the judge reads it."""
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
    version="1",
    question="Is the task itself clear enough to be worked on, and to tell when it is done? Rate "
    "the task, not the agent.",
    levels={
        1: "It names nothing to be reached: one can only look around.",
        2: "Something can be done about it, but much is vague, so that people would disagree on "
        "what was asked.",
        3: "What to do is mostly clear; when it is done is left open in some point.",
        4: "What to do, with what, and when it is done are all told and can be checked.",
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
"""The five of them, by name."""


def rubric_named(name: str) -> Rubric:
    """One of the five.

    Raises:
        ConfigurationError: no competency is called so.
    """
    try:
        return COMPETENCIES[name]
    except KeyError:
        there = ", ".join(COMPETENCIES)
        raise ConfigurationError(f"no competency is called {name!r}; there are {there}") from None

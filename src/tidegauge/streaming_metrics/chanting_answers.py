"""Answers that chant: the model repeats itself inside of one, see :mod:`tidegauge.chanting`."""

from __future__ import annotations

from typing import Final

from tidegauge.catalog import MetricDefinition
from tidegauge.chanting import CHANTING
from tidegauge.streaming_metrics.declaration import (
    Attribute,
    Declaration,
    GroupView,
    Measured,
    Signal,
    Sum,
    zero,
)
from tidegauge.streaming_metrics.metric import Stateful


class ChantingAnswers(Stateful):
    """The answers of a run that chant. A run has it from the first answer on that repeats itself.

    Attributes:
        current: the highest share in the last answer.
        answers: how many answers chanted.

    >>> answers = ChantingAnswers()
    >>> for share in (0.5, 0.9375, 1.0, 0.0):
    ...     answers.take(share)
    >>> answers.current, answers.answers
    (0.0, 1)
    """

    __slots__ = ("answers", "current")

    def __init__(self) -> None:
        self.current = 0.0
        self.answers = 0

    def take(self, share: float) -> None:
        """The highest share in an answer so far; 0, another answer begins."""
        self.answers += self.current < CHANTING <= share
        self.current = share


CHANTING_ANSWERS: Final = MetricDefinition(
    "tidegauge_chanting_answers_total",
    "counter",
    "answers",
    "Answers of models that chanted: nearly all of their last part repeated what stands shortly "
    "before it, at least twice.",
)
RUNS_CHANTING: Final = MetricDefinition(
    "tidegauge_runs_chanting",
    "gauge",
    "runs",
    "Active runs whose model chants in its last answer.",
)


def _chanting(group: GroupView) -> int:
    return sum(1 for run in group.active if (run.chanting or 0) >= CHANTING)


DECLARATION: Final = Declaration(
    name="chanting",
    kind=ChantingAnswers,
    # A run gets it with the first answer that repeats itself.
    brought_by_start=lambda started, settings: False,
    sums=(Sum("chanting_answers", zero, kept_as="answers"),),
    absent={"chanting": None},
    report=lambda run, answers: {"chanting": answers.current},
    signals=(
        Signal(
            name="chanting",
            read=Attribute(ChantingAnswers, "current"),
            help="the highest share of a last part of the model's last answer that repeats what "
            "stands shortly before it, known while the answer streams; absent until an answer "
            "repeats itself",
            message=lambda now, at: f"{now.chanting:.0%} of the end of an answer repeats itself",
            threshold="share",
            score=False,
            of_skipped=True,
        ),
    ),
    of_group=(
        Measured(CHANTING_ANSWERS, lambda group: group.totals.chanting_answers),
        Measured(RUNS_CHANTING, _chanting),
    ),
)

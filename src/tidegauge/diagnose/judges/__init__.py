"""Judges: language models score ended runs by competency.

A :class:`Judge` asks a question about the :class:`Transcript` of a run and reads the answer.
:class:`RubricJudge` uses a :class:`Rubric`; :data:`FIVE_JUDGES` has one judge for each of the five
:data:`COMPETENCIES`. :class:`Judging` calls the model in the background. Each :class:`Judgement`
is a score or the reason why there is none.
"""

from tidegauge.diagnose.competency_scores import Agreement, agreement, agreements
from tidegauge.diagnose.judges.judgement import JudgedScores, Judgement, JudgementFile
from tidegauge.diagnose.judges.judging import Estimate, Judging, Price
from tidegauge.diagnose.judges.rubric_judge import (
    COMPETENCIES,
    FIVE_JUDGES,
    LABELS,
    Judge,
    NotJudged,
    Question,
    Rubric,
    RubricJudge,
    Verdict,
    rubric_named,
)
from tidegauge.diagnose.judges.transcript import Transcript, Transcripts

__all__ = [
    "COMPETENCIES",
    "FIVE_JUDGES",
    "LABELS",
    "Agreement",
    "Estimate",
    "Judge",
    "JudgedScores",
    "Judgement",
    "JudgementFile",
    "Judging",
    "NotJudged",
    "Price",
    "Question",
    "Rubric",
    "RubricJudge",
    "Transcript",
    "Transcripts",
    "Verdict",
    "agreement",
    "agreements",
    "rubric_named",
]

"""Judges: language models score runs by competencies, when the runs are over.

A :class:`Judge` puts a question about the :class:`Transcript` of a run and reads the answer;
:class:`RubricJudge` does so by a :class:`Rubric`, :data:`FIVE_JUDGES` by those of the five
:data:`COMPETENCIES`. :class:`Judging` asks the model, in the background; each
:class:`Judgement` is a score, or says why there is none.
"""

from tidegauge.diagnose.judges.agreement import Agreement, agreement, agreements
from tidegauge.diagnose.judges.competencies import COMPETENCIES, LABELS, Rubric, rubric_named
from tidegauge.diagnose.judges.cost import Estimate, Price
from tidegauge.diagnose.judges.judge import (
    FIVE_JUDGES,
    Judge,
    NotJudged,
    Question,
    RubricJudge,
    Verdict,
)
from tidegauge.diagnose.judges.judged_scores import JudgedScores
from tidegauge.diagnose.judges.judgement import Judgement, JudgementFile
from tidegauge.diagnose.judges.judging import Judging
from tidegauge.diagnose.judges.transcript import Transcript
from tidegauge.diagnose.judges.transcripts import Transcripts

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

"""The estimated and the actual cost of judging."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final

from tidegauge.diagnose.judges.judgement import JudgementKey, key_of
from tidegauge.diagnose.judges.model_client import Usage
from tidegauge.diagnose.judges.rubric_judge import Judge, Question
from tidegauge.diagnose.judges.transcript import Transcript

CHARACTERS_PER_TOKEN: Final = 4
"""Characters per token of a question: about right for English and code, too high for others."""

ANSWER_TOKENS: Final = 150
"""Tokens of an answer. A model that reasons first writes many times more."""


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a model, in any currency.

    Args:
        input: price of a million input tokens.
        output: price of a million output tokens.

    >>> Price(input=3.0, output=15.0).of(input_tokens=200_000, output_tokens=10_000)
    0.75
    """

    input: float
    output: float

    def of(self, *, input_tokens: float, output_tokens: float) -> float:
        """The price of these tokens."""
        return (input_tokens * self.input + output_tokens * self.output) / 1_000_000

    def of_usage(self, usage: Usage) -> float:
        """The price of the reported usage."""
        return self.of(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)


class Estimate:
    """Estimates the cost of judging runs, without a model.

    Each question counts once. An invalid answer costs another question of about the same length.

    Args:
        judges: the judges.
        model: name of the model.
        known: questions with a known judgement.

    Attributes:
        runs: number of runs.
        questions: prompts to send.
        known_questions: questions that were answered before.
        not_judged: questions that are not asked because there is nothing to judge.
        input_tokens: tokens of the prompts, at :data:`CHARACTERS_PER_TOKEN`.
        cut_runs: runs with omitted steps.
    """

    def __init__(
        self, judges: Sequence[Judge], model: str, known: Container[JudgementKey] = ()
    ) -> None:
        self.runs = self.questions = self.known_questions = 0
        self.not_judged = self.input_tokens = self.cut_runs = 0
        self._judges = judges
        self._model = model
        self._known = known

    @property
    def output_tokens(self) -> int:
        """Tokens of the answers, at :data:`ANSWER_TOKENS` each."""
        return self.questions * ANSWER_TOKENS

    def add(self, transcript: Transcript) -> None:
        """Add a run."""
        self.runs += 1
        self.cut_runs += bool(transcript.left_out_steps)
        for judge in self._judges:
            if key_of(transcript.run, judge, self._model) in self._known:
                self.known_questions += 1
                continue
            question = judge.ask(transcript)
            if not isinstance(question, Question):
                self.not_judged += 1
                continue
            self.questions += 1
            characters = len(question.system) + len(question.text)
            self.input_tokens += -(-characters // CHARACTERS_PER_TOKEN)

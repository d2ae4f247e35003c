"""What judging will cost, before anything is asked; and what it did, after."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Final

from tidegauge.diagnose.judges.asking import Usage
from tidegauge.diagnose.judges.judge import Judge, Question
from tidegauge.diagnose.judges.judgement import JudgementKey, key_of
from tidegauge.diagnose.judges.transcript import Transcript

__all__ = ["ANSWER_TOKENS", "CHARACTERS_PER_TOKEN", "Estimate", "Price"]

CHARACTERS_PER_TOKEN: Final = 4
"""Of a question: about right for English and code, too many for most other scripts."""

ANSWER_TOKENS: Final = 150
"""Of an answer. A model that thinks first writes many times that."""


@dataclass(frozen=True, slots=True)
class Price:
    """What a model costs, in whatever currency its prices are given.

    Args:
        input: of a million tokens of questions.
        output: of a million tokens of answers.

    >>> Price(input=3.0, output=15.0).of(input_tokens=200_000, output_tokens=10_000)
    0.75
    """

    input: float
    output: float

    def of(self, *, input_tokens: float, output_tokens: float) -> float:
        """Of so many tokens."""
        return (input_tokens * self.input + output_tokens * self.output) / 1_000_000

    def of_usage(self, usage: Usage) -> float:
        """Of what was told to have been used."""
        return self.of(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens)


class Estimate:
    """Adds up what judging runs would take. It asks nothing: no model is needed.

    Each question counts once. An answer that cannot be used costs another of about the same length.

    Args:
        judges: who would judge.
        model: the model's name.
        known: what needs not be judged again.

    Attributes:
        runs: runs that were added.
        questions: prompts that would be sent.
        known_questions: those that were answered before.
        not_judged: cases in which nothing is asked, since there is nothing to judge.
        input_tokens: tokens of the prompts, at :data:`CHARACTERS_PER_TOKEN`.
        cut_runs: runs of which steps are left out.
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
        """Count a run."""
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

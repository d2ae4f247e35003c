"""What ``tidegauge judge`` writes: judgements, an estimate, agreement with labels."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from tidegauge.cli.recording_options import InputErrors, InputSettings, read_recordings
from tidegauge.cli.terminal import NOT_MEASURED, TextTable, print_json, print_line
from tidegauge.diagnose.competency_scores import Agreement, CompetencyScore, agreements, read_scores
from tidegauge.diagnose.judges.judgement import (
    Judgement,
    JudgementFile,
    JudgementKey,
    read_judgements,
)
from tidegauge.diagnose.judges.judging import (
    ANSWER_TOKENS,
    CHARACTERS_PER_TOKEN,
    Estimate,
    Judging,
    Price,
)
from tidegauge.diagnose.judges.model_client import Usage
from tidegauge.diagnose.judges.rubric_judge import (
    COMPETENCIES,
    Judge,
    RubricJudge,
    View,
    rubric_named,
)
from tidegauge.diagnose.judges.transcript import Transcript, Transcripts
from tidegauge.errors import ConfigurationError, MissingExtraError
from tidegauge.events import (
    GO_ON,
    Answer,
    Decision,
    Outcome,
    RunEnded,
    RunStarted,
    Step,
    StepSignals,
)

_MAX_NAMED: Final = 10


class JudgementStore(Protocol):
    """Keeps judgements."""

    def add(self, judgement: Judgement, /) -> None:
        """Keep a judgement."""

    def __contains__(self, key: object, /) -> bool:
        """Whether the case was judged."""

    def __iter__(self) -> Iterator[Judgement]:
        """All judgements."""


class _StepNumbers:
    """Numbers the steps of recorded runs: their transcripts need nothing else of a sink."""

    def __init__(self) -> None:
        self._steps: dict[str, int] = {}  # of the runs that have not ended

    def run_started(self, event: RunStarted) -> None:
        self._steps[event.run] = 0

    def step_issued(self, event: Step) -> Decision:
        step = self._steps.get(event.run)
        if step is None:
            return GO_ON
        self._steps[event.run] = step + 1
        return Decision(signals=StepSignals(event.run, step, b"", b""))

    def step_observed(self, event: Outcome) -> Decision:
        return GO_ON

    def answered(self, event: Answer) -> Decision:
        return GO_ON

    def run_ended(self, event: RunEnded) -> None:
        self._steps.pop(event.run, None)


class RunsToJudge:
    """The runs of recordings, one at a time, in the order in which they ended.

    Of several runs with the same id, only the first is taken and the others are reported, because
    a judgement names its run by the id alone.
    """

    def __init__(self, settings: InputSettings, errors: InputErrors, *, max_tokens: int) -> None:
        self._settings = settings
        self._errors = errors
        self._room = max_tokens * CHARACTERS_PER_TOKEN

    def each(self, take: Callable[[Transcript], object]) -> None:
        """Pass every run to ``take``; reading waits until it returns."""
        known: set[str] = set()
        again: list[str] = []

        def taken(transcript: Transcript) -> None:
            if transcript.run in known:
                again.append(transcript.run)
                return
            known.add(transcript.run)
            take(transcript)

        transcripts = Transcripts(taken, room=self._room)
        read_recordings(self._settings, _StepNumbers(), self._errors, transcripts)
        transcripts.close()
        if again:
            names = ", ".join(dict.fromkeys(again[:_MAX_NAMED]))
            print_line(
                f"skipped {len(again)} runs that have the id of an earlier run: {names}", err=True
            )


def chosen_judges(
    competencies: Sequence[str], own: Sequence[str], view: View = "whole"
) -> tuple[Judge, ...]:
    """The judges of these competencies, then the user's own; without either, the five.

    Args:
        own: the user's judges, as ``module:name``.

    Raises:
        ConfigurationError: a competency or a judge does not exist.
    """
    if not competencies and not own:
        competencies = tuple(COMPETENCIES)
    named = [RubricJudge(rubric_named(name), view=view) for name in dict.fromkeys(competencies)]
    return (*named, *(_own_judge(place) for place in own))


def _own_judge(place: str) -> Judge:
    module, _, name = place.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as for python -m
    try:
        found: Any = getattr(importlib.import_module(module), name)
        found = found() if isinstance(found, type) else found
    except Exception as error:
        raise ConfigurationError(f"cannot load the judge {place!r}: {error}") from error
    wanted = ("name", "competency", "rubric_version", "ask", "read")
    missing = [member for member in wanted if not hasattr(found, member)]
    if missing:
        raise ConfigurationError(f"{place} is not a judge; it has no {', '.join(missing)}")
    judge: Judge = found
    return judge


def chat_model(name: str) -> Any:
    """The model with that name, from LangChain.

    Raises:
        ConfigurationError: it does not exist, or a package or key that it needs is missing.
        MissingExtraError: LangChain is not installed.
    """
    try:
        from langchain.chat_models import init_chat_model
    except ModuleNotFoundError as error:
        raise MissingExtraError("langchain", extra="judge") from error
    try:
        return init_chat_model(name)
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ConfigurationError(f"--model {name}: {reason}") from error


@contextlib.contextmanager
def judgement_store(out: Path | None) -> Iterator[JudgementStore]:
    """The file of the judgements; without one, they are printed."""
    if out is None:
        yield _Printed()
    else:
        with JudgementFile(out) as file:
            yield file


class _Printed:
    """Judgements on standard output."""

    def add(self, judgement: Judgement) -> None:
        print_json(judgement.line())

    def __contains__(self, key: object) -> bool:
        return False

    def __iter__(self) -> Iterator[Judgement]:
        return iter(())


def print_estimate(
    runs: RunsToJudge,
    judges: Sequence[Judge],
    *,
    model: str | None,
    out: Path | None,
    price: tuple[float, float] | None,
) -> None:
    """Print what judging would cost. Nothing is asked, and no file is changed.

    Without a model, all cases count, also those in the file that a model has judged.
    """
    known: set[JudgementKey] = set()
    if model is not None and out is not None and out.is_file():
        with out.open("rb") as lines:
            latest = {found.key: found for found in read_judgements(lines)}
        known = {key for key, found in latest.items() if found.error is None}
    estimate = Estimate(judges, model or "", known)
    runs.each(estimate.add)
    tokens_in, tokens_out = estimate.input_tokens, estimate.output_tokens
    print_line(f"runs              {estimate.runs:,} ({estimate.cut_runs:,} with steps left out)")
    print_line(f"prompts           {estimate.questions:,}")
    if model is not None:
        print_line(f"  judged before   {estimate.known_questions:,}")
    print_line(f"  nothing to ask  {estimate.not_judged:,}")
    print_line(f"tokens in, about  {tokens_in:,} ({CHARACTERS_PER_TOKEN} characters each)")
    print_line(f"tokens out, about {tokens_out:,} ({ANSWER_TOKENS} an answer)")
    if price is not None:
        cost = Price(*price).of(input_tokens=tokens_in, output_tokens=tokens_out)
        print_line(f"price, about      {cost:,.2f}")


def judge_runs(
    runs: RunsToJudge,
    judges: Sequence[Judge],
    store: JudgementStore,
    *,
    model: str,
    price: tuple[float, float] | None,
    concurrency: int,
    timeout: float,
    attempts: int,
    requests_per_minute: float | None,
) -> None:
    """Judge what was not judged yet, keep the judgements, and print what it cost."""
    outcomes: Counter[str] = Counter()
    failures: list[OSError] = []

    def keep(_: Transcript, judgement: Judgement) -> None:
        outcomes[_outcome(judgement)] += 1
        try:
            store.add(judgement)
        except OSError as error:
            failures.append(error)

    judging = Judging(
        chat_model(model),
        judges,
        concurrency=concurrency,
        max_waiting=concurrency,
        timeout=timeout,
        attempts=attempts,
        requests_per_minute=requests_per_minute,
        name=model,
        known=store,
    )
    judging.listen(keep)

    def submit(transcript: Transcript) -> None:
        if not failures:  # a judgement that cannot be kept must not be paid for
            judging.submit(transcript, wait=True)

    try:
        runs.each(submit)
        judging.wait()
    finally:
        judging.close(0)
    if failures:
        raise failures[0]
    _print_usage(outcomes, judging.usage, price)


def _outcome(judgement: Judgement) -> str:
    if judgement.error_kind is not None:
        return judgement.error_kind
    return "scores" if judgement.score is not None else "not applicable"


def _print_usage(counts: Counter[str], usage: Usage, price: tuple[float, float] | None) -> None:
    outcomes = (
        ", ".join(f"{count:,} {what}" for what, count in counts.most_common()) or "nothing to judge"
    )
    tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
    if usage.unreported:
        tokens += f" ({usage.unreported:,} of {usage.answers:,} answers came without counts)"
    cost = "" if price is None else f"; price {Price(*price).of_usage(usage):,.2f}"
    print_line(f"judged: {outcomes}; {tokens}{cost}", err=True)


def print_agreement(
    store: JudgementStore, judges: Sequence[Judge], *, against: Path, model: str | None
) -> None:
    """Print how far the scores in the store agree with the labels of people.

    Raises:
        ConfigurationError: the scores are of several models and none is named, or a label is
            not valid.
    """
    asked = {(judge.name, judge.competency, judge.rubric_version) for judge in judges}
    found = [
        one
        for one in store
        if (one.judge, one.competency, one.rubric_version) in asked and model in (None, one.model)
    ]
    models = sorted({one.model for one in found})
    if len(models) > 1:
        raise ConfigurationError(
            f"the scores are of several models; set --model to one of {', '.join(models)}"
        )
    scores = [CompetencyScore(one.run, one.competency, one.score) for one in found]
    with against.open("rb") as lines:
        labels = read_scores(lines, str(against))
    table = TextTable(("competency",), ("n", "Pearson", "Spearman", "Kendall"))
    by_competency = agreements(scores, labels)
    for competency, one in by_competency.items():
        table.add(competency, str(one.n), *map(_figure, one[1:]))
    if len(by_competency) > 1:
        table.add("mean", "", *map(_figure, _means(by_competency.values())))
    table.print()


def _means(agreed: Iterable[Agreement]) -> Iterator[float | None]:
    """The mean of each correlation over the competencies for which it is defined."""
    for values in zip(*(one[1:] for one in agreed), strict=True):
        known = [value for value in values if value is not None]
        yield sum(known) / len(known) if known else None


def _figure(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value:.2f}"

"""What ``tidegauge judge`` does: runs read, judged, and told of."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import click

from tidegauge.cli.faults import FaultLog
from tidegauge.cli.plain_table import NOT_MEASURED, add_row, open_table, print_table, printable
from tidegauge.cli.recorded import replay_files
from tidegauge.diagnose.judges.agreement import Agreement, agreements
from tidegauge.diagnose.judges.asking import Usage
from tidegauge.diagnose.judges.competencies import rubric_named
from tidegauge.diagnose.judges.cost import ANSWER_TOKENS, CHARACTERS_PER_TOKEN, Estimate, Price
from tidegauge.diagnose.judges.judge import FIVE_JUDGES, Judge, RubricJudge
from tidegauge.diagnose.judges.judgement import (
    Judgement,
    JudgementFile,
    JudgementKey,
    read_judgements,
)
from tidegauge.diagnose.judges.judging import Judging
from tidegauge.diagnose.judges.transcript import Transcript
from tidegauge.diagnose.judges.transcripts import Transcripts
from tidegauge.diagnose.scores import Score, read_scores
from tidegauge.errors import ConfigurationError, MissingExtraError
from tidegauge.instrumentation.replay import Replay

__all__ = [
    "RunsToJudge",
    "chat_model",
    "chosen_judges",
    "judge_runs",
    "opened",
    "tell_agreement",
    "tell_estimate",
]

_NAMED: Final = 10


class Kept(Protocol):
    """Where judgements are kept, and which there are."""

    def add(self, judgement: Judgement, /) -> None:
        """Keep one."""

    def __contains__(self, key: object, /) -> bool:
        """Whether that was judged."""

    def __iter__(self) -> Iterator[Judgement]:
        """All of them."""


class RunsToJudge:
    """The runs of recordings, one at a time, in the order in which they ended.

    Where an id is used by several runs, the first of them is taken and the others are told of:
    a judgement names its run by the id alone.

    Args:
        files: the recordings.
        faults: told of what is wrong with them.
        max_tokens: room of a run's record, estimated.
    """

    def __init__(self, files: Iterable[str], faults: FaultLog, *, max_tokens: int) -> None:
        self._files = list(files)
        self._faults = faults
        self._room = max_tokens * CHARACTERS_PER_TOKEN

    def each(self, take: Callable[[Transcript], object]) -> None:
        """Hand every run over; the reading waits for whoever takes it."""
        known: set[str] = set()
        again: list[str] = []

        def taken(transcript: Transcript) -> None:
            if transcript.run in known:
                again.append(transcript.run)
                return
            known.add(transcript.run)
            take(transcript)

        transcripts = Transcripts(taken, room=self._room)
        replay_files(self._files, Replay(transcripts, on_fault=self._faults.fault), self._faults)
        transcripts.close()
        if again:
            names = ", ".join(printable(run) for run in dict.fromkeys(again[:_NAMED]))
            click.echo(
                f"{len(again)} runs have the id of one before them, and are left: {names}", err=True
            )


def chosen_judges(competencies: Sequence[str], own: Sequence[str]) -> tuple[Judge, ...]:
    """The judges of these competencies, then those of one's own; without either, the five.

    Raises:
        ConfigurationError: there is no such competency, or no such judge.
    """
    named = [RubricJudge(rubric_named(name)) for name in dict.fromkeys(competencies)]
    return (*named, *(_own_judge(place) for place in own)) or FIVE_JUDGES


def _own_judge(place: str) -> Judge:
    module, _, name = place.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as for python -m
    try:
        found: Any = getattr(importlib.import_module(module), name)
        found = found() if isinstance(found, type) else found
    except Exception as error:
        raise ConfigurationError(f"no judge at {place!r}: {error}") from error
    wanted = ("name", "competency", "rubric_version", "ask", "read")
    missing = [member for member in wanted if not hasattr(found, member)]
    if missing:
        raise ConfigurationError(f"{place} is no judge: it lacks {', '.join(missing)}")
    judge: Judge = found
    return judge


def chat_model(name: str) -> Any:
    """The model of that name, by LangChain.

    Raises:
        ConfigurationError: there is none, or what it needs is missing (a package, a key).
        MissingExtraError: LangChain is not installed.
    """
    try:
        from langchain.chat_models import init_chat_model
    except ModuleNotFoundError as error:
        raise MissingExtraError("langchain", extra="judge") from error
    try:
        return init_chat_model(name)
    except Exception as error:
        told = " ".join(str(error).split())
        raise ConfigurationError(f"--model {name}: {told}") from error


@contextlib.contextmanager
def opened(out: Path | None) -> Iterator[Kept]:
    """The file of the judgements; without one they are printed."""
    if out is None:
        yield _Printed()
    else:
        with JudgementFile(out) as kept:
            yield kept


class _Printed:
    """Judgements on standard output."""

    def add(self, judgement: Judgement) -> None:
        click.echo(judgement.line(), nl=False)

    def __contains__(self, key: object) -> bool:
        return False

    def __iter__(self) -> Iterator[Judgement]:
        return iter(())


def tell_estimate(
    runs: RunsToJudge,
    judges: Sequence[Judge],
    *,
    model: str,
    out: Path | None,
    price: tuple[float, float] | None,
) -> None:
    """Print what judging would take. Nothing is asked, and no file is touched."""
    known: set[JudgementKey] = set()
    if out is not None and out.is_file():
        with out.open("rb") as lines:
            latest = {found.key: found for found in read_judgements(lines)}
        known = {key for key, found in latest.items() if found.error is None}
    estimate = Estimate(judges, model, known)
    runs.each(estimate.add)
    tokens_in, tokens_out = estimate.input_tokens, estimate.output_tokens
    click.echo(f"runs              {estimate.runs:,} ({estimate.cut_runs:,} with steps left out)")
    click.echo(f"prompts           {estimate.questions:,}")
    click.echo(f"  judged before   {estimate.known_questions:,}")
    click.echo(f"  nothing to ask  {estimate.not_judged:,}")
    click.echo(f"tokens in, about  {tokens_in:,} ({CHARACTERS_PER_TOKEN} characters each)")
    click.echo(f"tokens out, about {tokens_out:,} ({ANSWER_TOKENS} an answer)")
    if price is not None:
        cost = Price(*price).of(input_tokens=tokens_in, output_tokens=tokens_out)
        click.echo(f"price, about      {cost:,.2f}")


def judge_runs(
    runs: RunsToJudge,
    judges: Sequence[Judge],
    kept: Kept,
    *,
    model: str,
    price: tuple[float, float] | None,
    concurrency: int,
    timeout: float,
    attempts: int,
    requests_per_minute: float | None,
) -> None:
    """Judge what was not judged yet, keep what comes of it, and tell what it took."""
    told: Counter[str] = Counter()
    failures: list[OSError] = []

    def keep(_: Transcript, judgement: Judgement) -> None:
        told[_came_of(judgement)] += 1
        try:
            kept.add(judgement)
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
        known=kept,
    )
    judging.listen(keep)

    def submit(transcript: Transcript) -> None:
        if not failures:  # else nothing is to be paid for any more
            judging.submit(transcript, wait=True)

    try:
        runs.each(submit)
        judging.wait()
    finally:
        judging.close(0)
    if failures:
        raise failures[0]
    _tell_usage(told, judging.usage, price)


def _came_of(judgement: Judgement) -> str:
    if judgement.error_kind is not None:
        return judgement.error_kind
    return "scores" if judgement.score is not None else "not applicable"


def _tell_usage(told: Counter[str], usage: Usage, price: tuple[float, float] | None) -> None:
    outcomes = (
        ", ".join(f"{count:,} {what}" for what, count in told.most_common()) or "nothing to judge"
    )
    tokens = f"{usage.input_tokens:,} tokens in, {usage.output_tokens:,} out"
    if usage.untold:
        tokens += f" ({usage.untold:,} of {usage.answers:,} answers did not tell theirs)"
    cost = "" if price is None else f"; price {Price(*price).of_usage(usage):,.2f}"
    click.echo(f"judged: {outcomes}; {tokens}{cost}", err=True)


def tell_agreement(
    kept: Kept, judges: Sequence[Judge], *, against: Path, model: str | None
) -> None:
    """Print how far the kept scores agree with the labels of people.

    Raises:
        ConfigurationError: they are of several models, and none was named; or a label is none.
    """
    asked = {(judge.name, judge.competency, judge.rubric_version) for judge in judges}
    found = [
        one
        for one in kept
        if (one.judge, one.competency, one.rubric_version) in asked and model in (None, one.model)
    ]
    models = sorted({one.model for one in found})
    if len(models) > 1:
        raise ConfigurationError(f"scores of several models, name one: {', '.join(models)}")
    scores = [Score(one.run, one.competency, one.score) for one in found]
    with against.open("rb") as lines:
        labels = read_scores(lines, str(against))
    table = open_table(("competency",), ("n", "Pearson", "Spearman", "Kendall"))
    by_competency = agreements(scores, labels)
    for competency, one in by_competency.items():
        add_row(table, printable(competency), str(one.n), *map(_figure, one[1:]))
    if len(by_competency) > 1:
        add_row(table, "mean", "", *map(_figure, _means(by_competency.values())))
    print_table(table)


def _means(agreed: Iterable[Agreement]) -> Iterator[float | None]:
    """Of each correlation, over the competencies for which it is defined."""
    for values in zip(*(one[1:] for one in agreed), strict=True):
        known = [value for value in values if value is not None]
        yield sum(known) / len(known) if known else None


def _figure(value: float | None) -> str:
    return NOT_MEASURED if value is None else f"{value:.2f}"

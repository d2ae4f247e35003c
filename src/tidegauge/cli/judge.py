"""``tidegauge judge``: competencies of recorded runs, scored by a model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click

from tidegauge.cli.command_settings import (
    COUNT,
    FILES,
    FLAG,
    IN_FILE,
    OUT_FILE,
    TEXT,
    SettingType,
    number,
    setting,
    settings_options,
)
from tidegauge.cli.recording_options import InputErrors, InputSettings
from tidegauge.errors import MissingExtraError

_ABOVE_0: Final = number(float, "N", 0, exclusive=True)


def _price(value: str) -> tuple[float, float]:
    """Prices of input and output tokens."""
    try:
        of_input, of_output = (float(part) for part in value.split(","))
    except ValueError:
        raise ValueError(f"{value!r} is not a pair of numbers; use IN,OUT, as in 3,15") from None
    if not (0 <= of_input < math.inf and 0 <= of_output < math.inf):
        raise ValueError(f"{value} has a price out of range; use 0 or more")
    return of_input, of_output


@dataclass(frozen=True, kw_only=True)
class JudgeSettings(InputSettings):
    """Settings of ``tidegauge judge``."""

    files: tuple[str, ...] = setting(FILES, (), "")
    model: str | None = setting(
        TEXT,
        None,
        "The model, in the form of LangChain's init_chat_model.",
        "-m",
        metavar="PROVIDER:NAME",
    )
    out: Path | None = setting(
        OUT_FILE,
        None,
        "Append the judgements to this file as JSON lines, and skip those that it already has. "
        "Without it, they are printed.",
        "-o",
    )
    competencies: tuple[str, ...] = setting(
        TEXT,
        (),
        "Judge only this competency. Can be given several times. One of backtracking_exploration, "
        "task_decomposition, observation_reading, self_verification, objective_quality.",
        "--competency",
        metavar="NAME",
        multiple=True,
    )
    own_judges: tuple[str, ...] = setting(
        TEXT,
        (),
        "Your own judge, in addition to --competency, or instead of the five competencies.",
        "--judge",
        metavar="MODULE:NAME",
        multiple=True,
    )
    view: Any = setting(
        click.Choice(["whole", "original"]),
        "whole",
        "What the judges of competencies read: the whole record of a run; or only what the agent "
        "thought and did, without what it saw, as AgentDiagnose's judges.",
    )
    dry_run: bool = setting(
        FLAG,
        False,
        "Send nothing; estimate the cost. With --model, what is judged in --out is left out.",
    )
    against: Path | None = setting(
        IN_FILE,
        None,
        "Compare the scores with these labels by people, JSON lines with run, competency, score.",
        metavar="LABELS",
    )
    max_tokens: int = setting(
        number(int, "N", 500),
        20_000,
        "Largest record of a run, in estimated tokens; the middle of longer records is left out.",
    )
    concurrency: int = setting(COUNT, 4, "Limit of concurrent runs.")
    requests_per_minute: float | None = setting(
        _ABOVE_0, None, "Limit of requests to the model per minute."
    )
    timeout: float = setting(_ABOVE_0, 60.0, "Seconds to wait for an answer.")
    attempts: int = setting(
        COUNT, 4, "Attempts per question, if the model is busy or does not answer."
    )
    price: tuple[float, float] | None = setting(
        SettingType("IN,OUT", _price),
        None,
        "Prices per million input and output tokens, such as 3,15.",
    )


@click.command()
@settings_options(JudgeSettings)
def judge(settings: JudgeSettings) -> None:
    """Score the competencies of agents in recorded runs, from 1 to 4, with reasons.

    A FILE is a recording (docs/replay.md describes the format) with contents, not digests; - is
    standard input. The contents are sent to the model, and to no one else. For every run and
    competency there is one line: a score with its reason and the steps that support it, or the
    reason why there is no score. See docs/judges.md.

    \b
    Examples:
      tidegauge judge runs.jsonl --dry-run --price 0.25,2     what it would cost
      tidegauge judge runs.jsonl --model openai:gpt-5-mini -o scores.jsonl
      tidegauge judge runs.jsonl -m openai:gpt-5 --competency objective_quality
      tidegauge judge -o scores.jsonl --against labels.jsonl  compare with people

    Exit code 0: every case has its line, with a score or without; 1: a file could not be read or
    written; 2: wrong usage, or an error in the input with --strict.
    """
    if not settings.files and settings.against is None:
        raise click.UsageError("nothing to do; give a FILE to judge, or --against with --out")
    if settings.files and settings.model is None and not settings.dry_run:
        raise click.UsageError("no model is given; set --model PROVIDER:NAME")
    if settings.against is not None and settings.out is None:
        raise click.UsageError("--against needs the file of the scores; set --out FILE")
    try:
        from tidegauge.cli import judge_output
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "langchain_core", extra="judge") from error
    judges = judge_output.chosen_judges(settings.competencies, settings.own_judges, settings.view)
    errors = InputErrors(strict=settings.strict)
    runs = judge_output.RunsToJudge(settings, errors, max_tokens=settings.max_tokens)
    if settings.dry_run:
        judge_output.print_estimate(
            runs, judges, model=settings.model, out=settings.out, price=settings.price
        )
    else:
        with judge_output.judgement_store(settings.out) as store:
            if settings.files:
                judge_output.judge_runs(
                    runs,
                    judges,
                    store,
                    model=settings.model or "",
                    price=settings.price,
                    concurrency=settings.concurrency,
                    timeout=settings.timeout,
                    attempts=settings.attempts,
                    requests_per_minute=settings.requests_per_minute,
                )
            if settings.against is not None:
                judge_output.print_agreement(
                    store, judges, against=settings.against, model=settings.model
                )
    errors.exit_if_unreadable()

"""``tidegauge judge``: competencies of recorded runs, scored by a model and held against labels."""

from __future__ import annotations

import math
from pathlib import Path

import click

from tidegauge.cli.faults import FaultLog
from tidegauge.cli.finite import FiniteRange
from tidegauge.errors import MissingExtraError

__all__ = ["judge"]


def _price(
    ctx: click.Context, param: click.Parameter, value: str | None
) -> tuple[float, float] | None:
    if value is None:
        return None
    try:
        of_questions, of_answers = (float(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is no pair of numbers, as in 3,15", ctx, param
        ) from None
    if not (0 <= of_questions < math.inf and 0 <= of_answers < math.inf):
        raise click.BadParameter("prices must be finite and at least 0", ctx, param)
    return of_questions, of_answers


@click.command(context_settings={"max_content_width": 100})
@click.argument("files", nargs=-1, type=click.Path(allow_dash=True), metavar="FILE…")
@click.option(
    "--model",
    "-m",
    metavar="PROVIDER:NAME",
    help="The model that is asked, as LangChain's init_chat_model takes it.",
)
@click.option(
    "--out",
    "-o",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Add the judgements to this file, a JSON line each; what is judged there is not judged "
    "again. Left out, they are printed.",
)
@click.option(
    "--competency",
    "competencies",
    metavar="NAME",
    multiple=True,
    help="Judge this competency only; can be given several times. One of backtracking_exploration, "
    "task_decomposition, observation_reading, self_verification, objective_quality.",
)
@click.option(
    "--judge",
    "own_judges",
    metavar="MODULE:NAME",
    multiple=True,
    help="A judge of your own, as well as the competencies given, or instead of the five.",
)
@click.option("--dry-run", is_flag=True, help="Ask nothing: tell what judging would take.")
@click.option(
    "--against",
    metavar="LABELS",
    type=click.Path(dir_okay=False, exists=True, path_type=Path),
    help="Hold the scores against those of people: a JSON line each, with run, competency, score.",
)
@click.option(
    "--max-tokens",
    default=20_000,
    show_default=True,
    type=click.IntRange(min=500),
    help="Room for the record of a run, estimated; of longer ones the middle is left out.",
)
@click.option(
    "--concurrency",
    default=4,
    show_default=True,
    type=click.IntRange(min=1),
    help="Runs judged at a time.",
)
@click.option(
    "--requests-per-minute",
    metavar="N",
    type=FiniteRange(min=0, min_open=True),
    help="Ask no more often than this.",
)
@click.option(
    "--timeout",
    default=60.0,
    show_default=True,
    type=FiniteRange(min=0, min_open=True),
    help="Seconds to wait for an answer.",
)
@click.option(
    "--attempts",
    default=4,
    show_default=True,
    type=click.IntRange(min=1),
    help="How often a question is asked, at most, when the model is busy or silent.",
)
@click.option(
    "--price",
    metavar="IN,OUT",
    callback=_price,
    help="Prices of a million tokens, of questions and of answers, as in 3,15.",
)
@click.option("--strict", is_flag=True, help="Stop at the first fault, with exit code 2.")
@click.pass_context
def judge(
    ctx: click.Context,
    *,
    files: tuple[str, ...],
    model: str | None,
    out: Path | None,
    competencies: tuple[str, ...],
    own_judges: tuple[str, ...],
    dry_run: bool,
    against: Path | None,
    max_tokens: int,
    concurrency: int,
    requests_per_minute: float | None,
    timeout: float,
    attempts: int,
    price: tuple[float, float] | None,
    strict: bool,
) -> None:
    """Score how recorded runs were worked on, from 1 to 4, with a reason and the steps it rests on.

    A FILE is a recording (docs/replay.md tells its form) that holds contents, not digests; - is
    standard input. What the runs hold is sent to the model, and nowhere else. Every case ends in a
    line with a score, or with the reason why there is none. docs/judges.md tells the rest.

    \b
    Examples:
      tidegauge judge runs.jsonl --model openai:gpt-5-mini --dry-run --price 0.25,2
      tidegauge judge runs.jsonl --model openai:gpt-5-mini -o scores.jsonl
      tidegauge judge runs.jsonl --model openai:gpt-5-mini --competency self_verification
      tidegauge judge -o scores.jsonl --against labels.jsonl     asks nothing: how far it agrees

    Exit code 0: every case has its line, be it one that tells why there is no score; 1: a file
    could not be read, or not be written; 2: wrong usage, or a fault with --strict.
    """
    if not files and against is None:
        raise click.UsageError("give a FILE to judge, or --against and -o", ctx)
    if files and model is None:
        raise click.UsageError("--model is needed to judge", ctx)
    if against is not None and out is None:
        raise click.UsageError("--against needs -o, the file of the scores", ctx)
    try:
        from tidegauge.cli import judged
    except ModuleNotFoundError as error:
        raise MissingExtraError(error.name or "langchain_core", extra="judge") from error
    judges = judged.chosen_judges(competencies, own_judges)
    faults = FaultLog(strict=strict)
    runs = judged.RunsToJudge(files, faults, max_tokens=max_tokens)
    if dry_run:
        judged.tell_estimate(runs, judges, model=model or "", out=out, price=price)
    else:
        with judged.opened(out) as kept:
            if files and model is not None:
                judged.judge_runs(
                    runs,
                    judges,
                    kept,
                    model=model,
                    price=price,
                    concurrency=concurrency,
                    timeout=timeout,
                    attempts=attempts,
                    requests_per_minute=requests_per_minute,
                )
            if against is not None:
                judged.tell_agreement(kept, judges, against=against, model=model)
    if faults.unreadable_files:
        ctx.exit(1)

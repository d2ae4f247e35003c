"""``tidegauge select``: recorded runs, chosen by what was measured of them."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Any, BinaryIO

import click

from tidegauge.cli.faults import FaultLog
from tidegauge.cli.gathered import LineTaker
from tidegauge.cli.recorded import replay_files
from tidegauge.cli.replay import refuse_overwriting
from tidegauge.cli.selected import SelectedRuns
from tidegauge.cli.written import written_to
from tidegauge.diagnose.condition import Condition
from tidegauge.diagnose.recorded_run import FIELDS
from tidegauge.diagnose.scores import Score, read_scores
from tidegauge.instrumentation.replay import Replay

__all__ = ["select"]


@click.command(context_settings={"max_content_width": 100})
@click.argument("files", nargs=-1, required=True, type=click.Path(allow_dash=True), metavar="FILE…")
@click.option(
    "--where",
    required=True,
    metavar="CONDITION",
    help="Which runs, as in 'auv > 0.8 and loop_ratio == 0'.",
)
@click.option(
    "--out",
    "-o",
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True),
    help="Write the runs here; without it, to standard output.",
)
@click.option(
    "--scores",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="What judges said of the runs: each competency is a field more.",
)
@click.option(
    "--t-max",
    metavar="N",
    type=click.IntRange(min=1),
    help="Turns within which success counts towards AUV: for every run, whatever it says itself.",
)
@click.option("--strict", is_flag=True, help="Stop at the first fault, with exit code 2.")
@click.pass_context
def select(
    ctx: click.Context,
    *,
    files: tuple[str, ...],
    where: str,
    out: str | None,
    scores: str | None,
    t_max: int | None,
    strict: bool,
) -> None:
    """Choose recorded runs by what was measured of them.

    The runs for which the condition holds are written as they were recorded, line for line: what
    comes out is a recording like what went in. A run is written when it ends, those without an
    end last.

    \b
    Fields are those of a run in 'replay --json', and auv, what the run adds to its group's:
      run agent task_group memory model outcome success finished steps t_max tokens
      auv progress_auv loop_ratio loop_steps loops cycles cycle_steps novelty
      result_streak_max failed_rounds_max stale_score stale_score_max frontier pending
      exploration_error exploitation_error exploration_errors exploitation_errors
      exploration_required exploitation_required distinct_places backtracks
      premature_halt recall_lag stopped

    Conditions have comparisons (also 0 < loop_ratio <= 0.5), in, and, or, not, numbers, texts and
    lists of them. What was not measured makes a comparison false; 'auv is None' asks for it.

    \b
    Examples:
      tidegauge select runs.jsonl --where "auv > 0.8 and loop_ratio == 0" -o best.jsonl
      tidegauge select runs.jsonl --where "success and steps <= 10" | wc -l
      tidegauge select *.jsonl --where "agent in ['browser', 'shell'] and loops" -o loops.jsonl
      tidegauge select runs.jsonl --scores scores.jsonl --where "self_verification >= 3"

    Exit code 0: every file was read; 1: a file could not be read, or the output not be written;
    2: wrong usage, or a fault with --strict.
    """
    judged = _judged(scores)
    competencies = {name for told in judged.values() for name in told}
    condition = Condition(where, names={*FIELDS, *competencies})
    if out is not None:
        refuse_overwriting(out, files, "--out")
    faults = FaultLog(strict=strict)
    with ExitStack() as stack:
        stream: BinaryIO = sys.stdout.buffer
        if out is not None:
            stream = stack.enter_context(written_to(out))
        absent = dict.fromkeys(competencies)
        selected = SelectedRuns(
            lambda fields: condition.holds({**absent, **judged.get(fields["run"], {}), **fields}),
            stream,
        )
        replay = Replay(selected, t_max=t_max, on_fault=faults.fault)
        replay_files(files, LineTaker(replay, selected.keep_line), faults)
        selected.close()
    click.echo(f"{selected.chosen} of {selected.seen} runs", err=True)
    if faults.unreadable_files:
        ctx.exit(1)


def _judged(file: str | None) -> dict[str, dict[str, Any]]:
    """The scores of each run, by competency."""
    if file is None:
        return {}
    with open(file, "rb") as lines:
        scores: list[Score] = read_scores(lines, file)
    found: dict[str, dict[str, Any]] = {}
    for score in scores:
        found.setdefault(score.run, {})[score.competency] = score.score
    return found

"""``tidegauge calibrate``: lines that good runs stay below, learned from recordings."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import click

from tidegauge.cli.finite import FiniteRange
from tidegauge.cli.plain_table import (
    NOT_MEASURED,
    add_row,
    open_table,
    percent,
    print_table,
    printable,
)
from tidegauge.cli.recording_options import recording_options
from tidegauge.cli.replay import refuse_overwriting
from tidegauge.cli.traced import (
    SCORES_HELP,
    checked_alpha,
    checked_scores,
    traced,
)
from tidegauge.policies import (
    CalibratedGroup,
    PolicyFile,
    least_runs,
    promised,
    run_mark,
    write_policy,
)
from tidegauge.policies import calibrate as learn
from tidegauge.policies.calibration import By

__all__ = ["calibrate"]


def _by(ctx: click.Context, param: click.Parameter, value: str) -> tuple[By, ...]:
    names = tuple(name.strip() for name in value.split(",") if name.strip())
    if names == ("none",):
        return ()
    for name in names:
        if name not in ("agent", "task_group"):
            raise click.BadParameter(f"{name!r} is none of agent, task_group, none", ctx, param)
    return cast("tuple[By, ...]", names)


@click.command(context_settings={"max_content_width": 100})
@recording_options
@click.option(
    "--alpha",
    default=0.05,
    show_default=True,
    callback=checked_alpha,
    help="Share of good runs that may be stopped by mistake, at most.",
)
@click.option(
    "--score",
    "scores",
    metavar="NAME",
    multiple=True,
    default=("stagnation",),
    show_default="stagnation",
    callback=checked_scores,
    help=f"What the line is drawn for; can be given several times. {SCORES_HELP}",
)
@click.option(
    "--by",
    default="agent,task_group",
    show_default=True,
    callback=_by,
    help="What has a line of its own: agent, task_group, both, or none for one line for all.",
)
@click.option(
    "--rung",
    type=click.Choice(["observe", "nudge", "stop"]),
    default="observe",
    show_default=True,
    help="What is to follow when a run crosses its line.",
)
@click.option(
    "--holdout",
    type=FiniteRange(0, 1),
    default=0.0,
    show_default=True,
    help="Share of the runs in which the lines are only observed, to see that they still hold.",
)
@click.option(
    "--good",
    "good_runs",
    metavar="RUN",
    multiple=True,
    help="Id of a run that was good, whatever its record says: one that was stopped by mistake.",
)
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="The policy's file, in TOML.",
)
@click.pass_context
def calibrate(
    ctx: click.Context,
    *,
    files: tuple[str, ...],
    alpha: float,
    scores: tuple[str, ...],
    by: tuple[By, ...],
    rung: Any,
    holdout: float,
    good_runs: tuple[str, ...],
    out: Path,
    ignore_actions: tuple[str, ...],
    strict: bool,
) -> None:
    """Learn from good runs how high a score may go, and write it as a policy.

    For each group of runs the line is drawn so that a new good run from the same mix crosses it
    with a probability of at most alpha (split conformal prediction, docs/stop-rules.md). A group
    of too few good runs gets no line, and nothing is stopped in it.

    \b
    Examples:
      tidegauge calibrate runs.jsonl -o policy.toml
      tidegauge calibrate runs.jsonl --alpha 0.01 --rung stop --holdout 0.1 -o policy.toml
      tidegauge calibrate runs.jsonl --good run-17 -o policy.toml     run-17 was stopped by mistake
      tidegauge calibrate runs.jsonl --score steps --by task_group -o policy.toml

    \b
    Use it:
      tidegauge backtest later-runs.jsonl --policy policy.toml
      TIDEGAUGE_POLICY=policy.toml, or tidegauge.configure(policy="policy.toml")

    Exit code 0: the file was written, also with no line in it; 1: a file could not be read or
    written; 2: wrong usage, or a fault with --strict.
    """
    refuse_overwriting(str(out), files, "--out")
    traces, _, faults = traced(files, scores, ignore_actions=ignore_actions, strict=strict)
    unknown = set(good_runs) - {trace.run for trace in traces}
    if unknown:
        raise click.BadParameter(f"no such run: {', '.join(sorted(unknown))}", param_hint="--good")
    for trace in traces:
        trace.success = True if trace.run in good_runs else trace.success
    now = time.time()
    groups = [
        group
        for score in scores
        for group in learn(traces, score=score, alpha=alpha, by=by, rung=rung, calibrated=now)
    ]
    lines = tuple(group.line for group in groups if group.line is not None)
    marks = frozenset(run_mark(trace.run) for trace in traces if trace.success)
    policy = PolicyFile((), lines, holdout, now, marks)
    comment = f"Written by tidegauge calibrate --alpha {alpha:g}; docs/stop-rules.md explains it."
    out.write_text(write_policy(policy, comment=comment), encoding="utf-8")
    _tell(groups, alpha)
    click.echo(f"{out}: {len(lines)} lines, to {rung}" if lines else f"{out}: no line")
    if faults.unreadable_files:
        ctx.exit(1)


def _tell(groups: Sequence[CalibratedGroup], alpha: float) -> None:
    table = open_table(
        ("task group", "agent", "score"),
        ("good runs", "line", "good runs that cross, at most"),
    )
    for group in groups:
        names = (group.task_group, group.agent)
        add_row(
            table,
            *("any" if name is None else printable(name) for name in names),
            group.score,
            str(group.runs),
            NOT_MEASURED if group.line is None else f"{group.line.above:.4g}",
            _promise(group, alpha),
        )
    print_table(table)


def _promise(group: CalibratedGroup, alpha: float) -> str:
    share = promised(group.runs, alpha)
    if share is None:
        return f"too few: needs {least_runs(alpha)}"
    return "not measured" if group.line is None else percent(share)

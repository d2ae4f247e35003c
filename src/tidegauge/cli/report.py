"""``tidegauge report``: one page about recorded runs."""

from __future__ import annotations

import os
import sys

import click

from tidegauge.cli.faults import FaultLog
from tidegauge.cli.recording_options import recording_options
from tidegauge.cli.replay import refuse_overwriting, rules
from tidegauge.policies import Policy

__all__ = ["report"]


@click.command(context_settings={"max_content_width": 100})
@click.option(
    "--out",
    "-o",
    required=True,
    metavar="FILE",
    type=click.Path(dir_okay=False, writable=True),
    help="Write the page here.",
)
@click.option(
    "--scores",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="What judges said of the runs, as tidegauge judge writes it.",
)
@click.option(
    "--no-contents",
    is_flag=True,
    help="Leave out what tasks, arguments, states and outcomes say: only digests are in the page.",
)
@click.option(
    "--t-max",
    metavar="N",
    type=click.IntRange(min=1),
    help="Turns within which success counts towards AUV: for every run, whatever it says itself.",
)
@click.option(
    "--policy",
    metavar="RULES",
    callback=rules,
    help="Show where these rules would step in, as in loop_repeats=3,failed_rounds=3; a run ends "
    "where one stops it.",
)
@recording_options
@click.pass_context
def report(
    ctx: click.Context,
    *,
    files: tuple[str, ...],
    out: str,
    scores: str | None,
    no_contents: bool,
    t_max: int | None,
    policy: Policy,
    ignore_actions: tuple[str, ...],
    strict: bool,
) -> None:
    """Make one HTML page of recorded runs, which needs nothing but itself.

    It shows the groups, success over turns, loops, every run with its steps, what runs do and say
    in words and as a map; what is selected there can be saved as JSONL. A FILE has one JSON object
    a line (docs/replay.md tells its form); - is standard input. The recordings' contents are in
    the page unless --no-contents is given: pass it on as you would pass on the recordings.

    \b
    Examples:
      tidegauge report runs.jsonl -o report.html
      tidegauge report day1.jsonl day2.jsonl --scores scores.jsonl -o report.html
      tidegauge report runs.jsonl --policy loop_repeats=3 --no-contents -o report.html

    Needs: pip install 'tidegauge[report]'. Exit code 0: the page was written, lines may have been
    skipped; 1: a file could not be read, or the page not be written; 2: wrong usage, or a fault
    with --strict.
    """
    # Imported here, so that a missing extra is told before anything is read.
    from tidegauge.cli.report_page import write_report

    refuse_overwriting(out, files, "--out")
    faults = FaultLog(strict=strict)
    runs = write_report(
        files,
        out,
        scores=scores,
        with_contents=not no_contents,
        t_max=t_max,
        policy=policy,
        ignore_actions=ignore_actions,
        faults=faults,
    )
    size = os.path.getsize(out) / 1e6
    sys.stdout.write(f"{out}: {runs} runs, {size:.1f} MB\n")
    if faults.unreadable_files:
        ctx.exit(1)

"""``tidegauge report``: an HTML page about recorded runs."""

from __future__ import annotations

import os
from dataclasses import MISSING, dataclass
from pathlib import Path

import click

from tidegauge.cli.command_settings import FLAG, OUT_FILE, setting, settings_options
from tidegauge.cli.recording_options import (
    InputErrors,
    MeasuredInputSettings,
    refuse_overwriting,
    scores_setting,
)
from tidegauge.cli.terminal import print_line


@dataclass(frozen=True, kw_only=True)
class ReportSettings(MeasuredInputSettings):
    """Settings of ``tidegauge report``."""

    out: Path = setting(OUT_FILE, MISSING, "Write the page to this file.", "-o")
    scores: Path | None = scores_setting()
    no_contents: bool = setting(
        FLAG, False, "Show digests instead of tasks, arguments, states and results."
    )


@click.command()
@settings_options(ReportSettings)
def report(settings: ReportSettings) -> None:
    """Write a self-contained HTML page about recorded runs.

    It shows the groups, success over turns, loops, every run with its steps, and what runs do and
    say, as words and as a map. The runs that you select there can be saved as JSONL. A FILE has
    one JSON object per line (docs/replay.md describes the format); - is standard input. The page
    holds the contents of the recordings unless you give --no-contents, so share it only with
    people who may read the recordings.

    \b
    Examples:
      tidegauge report runs.jsonl -o report.html
      tidegauge report day1.jsonl day2.jsonl --scores scores.jsonl -o report.html
      tidegauge report runs.jsonl --no-contents -o report.html

    Needs: pip install '.[report]' in a clone. Exit code 0: the page was written, lines may have
    been skipped; 1: a file could not be read, or the page could not be written; 2: wrong usage, or
    an error in the input with --strict.
    """
    # Imported here, so that a missing extra is reported before a file is read.
    from tidegauge.cli.report_page import write_report

    refuse_overwriting(settings.out, settings.files, "--out")
    errors = InputErrors(strict=settings.strict)
    runs = write_report(
        settings.files,
        settings.out,
        scores=settings.scores,
        with_contents=not settings.no_contents,
        errors=errors,
        settings=settings,
    )
    counted = f"{runs} run{'s' if runs != 1 else ''}"
    print_line(f"{settings.out}: {counted}, {os.path.getsize(settings.out) / 1e6:.1f} MB")
    errors.exit_if_unreadable()

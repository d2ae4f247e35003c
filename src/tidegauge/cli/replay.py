"""``tidegauge replay``: recorded runs through the engine of live runs."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import click
import orjson

from tidegauge.cli.command_settings import FLAG, OUT_FILE, setting, settings_options
from tidegauge.cli.input_errors import InputErrors
from tidegauge.cli.output_files import open_output, refuse_overwriting
from tidegauge.cli.recording_options import MeasuredInputSettings, read_recordings
from tidegauge.cli.replay_output import RecordedRuns, StepLines, document_text, print_groups
from tidegauge.cli.terminal import print_json
from tidegauge.events import StepSink


@dataclass(frozen=True, kw_only=True)
class ReplaySettings(MeasuredInputSettings):
    """Settings of ``tidegauge replay``."""

    json: bool = setting(FLAG, False, "Print one JSON document instead of a table.")
    steps_out: Path | None = setting(
        OUT_FILE, None, "Write a JSON line for every step to this file."
    )


@click.command()
@settings_options(ReplaySettings)
def replay(settings: ReplaySettings) -> None:
    """Measure recorded runs with the engine that measures live ones.

    A FILE has one JSON object per line (docs/replay.md describes the format); - is standard input.
    Several files are read as one recording, in this order. Prints a table by agent, task group and
    memory.

    \b
    Examples:
      tidegauge replay runs.jsonl
      tidegauge replay 1.jsonl 2.jsonl --json | jq '.runs[] | select(.success)'
      tidegauge replay runs.jsonl --ignore-action think --steps-out steps.jsonl
      tidegauge replay runs.jsonl --policy loop_repeats=3,failed_rounds=3

    A line that is not valid is reported on standard error as FILE:LINE: reason, counted and
    skipped. Exit code 0: every file was read, lines may have been skipped; 1: a file could not be
    read or written; 2: wrong usage, or an error in the input with --strict.
    """
    refuse_overwriting(settings.steps_out, settings.files, "--steps-out")
    runs = RecordedRuns(
        settings.rules(),
        loop_code=settings.loop_code,
        normaliser=None if settings.exact else "volatile",
        detect_polls=settings.detect_polls,
    )
    errors = InputErrors(strict=settings.strict)
    with ExitStack() as stack:
        sink: StepSink = runs
        if settings.steps_out is not None:
            out = stack.enter_context(open_output(settings.steps_out))
            sink = lines = StepLines(
                runs,
                runs.engine,
                lambda line: out.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE)),
            )
            stack.callback(lines.close)
        skipped = read_recordings(
            settings.files,
            sink,
            errors,
            ignore_actions=settings.ignore_actions,
            t_max=settings.t_max,
            sessions_of=settings.sessions_of,
        )
    if settings.json:
        for text in document_text(runs, skipped_lines=skipped):
            print_json(text)
    else:
        errors.exit_if_nothing_read(len(runs.reports()))
        print_groups(runs, skipped_lines=skipped)
    errors.exit_if_unreadable()

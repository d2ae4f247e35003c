"""``tidegauge export``: the measurements of runs as tables, in Parquet or CSV."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

import click

from tidegauge.cli.command_settings import FLAG, OUT_FOLDER, one_of, setting, settings_options
from tidegauge.cli.export_tables import DECISIONS, LOOPS, RUNS, STEPS, Row, Table, loop_rows
from tidegauge.cli.input_errors import InputErrors
from tidegauge.cli.output_files import refuse_overwriting
from tidegauge.cli.recording_options import MeasuredInputSettings, read_objects, read_recordings
from tidegauge.cli.replay_output import RecordedRuns, StepLines
from tidegauge.cli.table_files import FileFormat, TableFile
from tidegauge.cli.terminal import print_line
from tidegauge.fleet.fields import check_version, text
from tidegauge.streaming_metrics import run_entry


@dataclass(frozen=True, kw_only=True)
class ExportSettings(MeasuredInputSettings):
    """Settings of ``tidegauge export``."""

    out: Path = setting(OUT_FOLDER, MISSING, "Write the files to this folder.", "-o")
    format: FileFormat = setting(one_of("parquet", "csv"), "parquet", "Format of the files.")
    records: bool = setting(
        FLAG,
        False,
        "The files have records of a fleet's topics (.summaries, .decisions), one a line.",
    )


@click.command()
@settings_options(ExportSettings)
def export(settings: ExportSettings) -> None:
    """Write the measurements of runs as tables, for a database or a notebook.

    Of recorded runs, writes runs, loops and steps: a row for each run, loop and step. With
    --records, writes runs, loops and decisions, of the summaries and decisions of a fleet. If there
    are several summaries of a run, the last counts; the same decision is written once.

    Columns have the names of 'replay --json' and --steps-out; what was not measured is null.
    docs/export.md has tables for Postgres and ClickHouse. Contents are never written.

    \b
    Examples:
      tidegauge export runs.jsonl -o tables
      tidegauge export --records summaries.jsonl decisions.jsonl -o tables
      tidegauge export runs.jsonl --format csv -o tables

    Needs: pip install '.[export]' in a clone. Exit code 0: the files were written, lines may have
    been skipped; 1: a file could not be read or written; 2: wrong usage, or an error in the input
    with --strict.
    """
    errors = InputErrors(strict=settings.strict)
    with ExitStack() as stack:

        def opened(table: Table) -> TableFile:
            path = settings.out / f"{table.name}.{settings.format}"
            refuse_overwriting(path, settings.files, "--out")
            return stack.enter_context(TableFile(path, table, settings.format))

        settings.out.mkdir(parents=True, exist_ok=True)
        runs, loops = opened(RUNS), opened(LOOPS)
        if settings.records:
            more = opened(DECISIONS)
            _export_records(settings, errors, runs, loops, more)
        else:
            more = opened(STEPS)
            _export_recordings(settings, errors, runs, loops, more)
    for file in (runs, loops, more):
        print_line(f"{file.path}: {file.rows} rows")
    errors.exit_if_unreadable()


def _export_recordings(
    settings: ExportSettings,
    errors: InputErrors,
    runs: TableFile,
    loops: TableFile,
    steps: TableFile,
) -> None:
    measured = RecordedRuns(
        settings.rules(),
        loop_code=settings.loop_code,
        normaliser=None if settings.exact else "volatile",
        detect_polls=settings.detect_polls,
    )
    lines = StepLines(measured, measured.engine, lambda line: steps.add([STEPS.row(line)]))
    read_recordings(
        settings.files,
        lines,
        errors,
        ignore_actions=settings.ignore_actions,
        t_max=settings.t_max,
        sessions_of=settings.sessions_of,
    )
    lines.close()
    for report in measured.reports():
        entry = {**run_entry(report), "outcome": report.outcome, "trace_id": report.trace_id}
        runs.add([RUNS.row(entry)])
        loops.add(loop_rows(entry))


def _export_records(
    settings: ExportSettings,
    errors: InputErrors,
    runs: TableFile,
    loops: TableFile,
    decisions: TableFile,
) -> None:
    newest: dict[str, tuple[Row, list[Row]]] = {}
    decided: dict[tuple[Any, ...], Row] = {}

    def keep(record: dict[str, Any]) -> None:
        check_version(record.get("version"))
        text(record, "run")
        match record.get("type"):
            case "summary":
                row = RUNS.row(record)
                newest.pop(row["run"], None)
                newest[row["run"]] = row, list(loop_rows(record))
            case "decision":
                row = DECISIONS.row(record)
                decided.setdefault(tuple(row.values()), row)
            case _:
                raise ValueError("neither a summary nor a decision")

    read_objects(settings.files, keep, errors)
    for run, of_run in newest.values():
        runs.add([run])
        loops.add(of_run)
    decisions.add(decided.values())

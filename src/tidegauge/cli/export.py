"""``tidegauge export``: the measurements of runs as tables, in Parquet or CSV."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import click

from tidegauge.cli.command_settings import FLAG, OUT_FOLDER, one_of, setting, settings_options
from tidegauge.cli.recording_options import (
    InputErrors,
    MeasuredInputSettings,
    open_output,
    read_objects,
    read_recordings,
    refuse_overwriting,
)
from tidegauge.cli.replay import StepLines, measured_as
from tidegauge.cli.terminal import print_line
from tidegauge.errors import MissingExtraError
from tidegauge.fields import text, wrong
from tidegauge.fleet.fleet_messages import check_version
from tidegauge.streaming_metrics import run_entry

Row: TypeAlias = dict[str, Any]


class TableColumn(NamedTuple):
    """A column of a table.

    Args:
        path: where its value is in a record; by default, under the column's name.

    >>> column = TableColumn("lost_tokens", "integer", ("lost_in_loops", "tokens"))
    >>> column.read({"lost_in_loops": {"tokens": 2}})
    2
    """

    name: str
    kind: Literal["text", "integer", "number", "boolean", "time"]
    path: tuple[str, ...] = ()

    def read(self, record: Mapping[str, Any]) -> Any:
        """Its value in a record.

        Raises:
            ValueError: it is of another kind.
        """
        value: Any = record
        for key in self.path or (self.name,):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is None:
            return None
        types, wanted, limit = _KINDS[self.kind]
        if type(value) not in types or (limit is not None and abs(value) > limit):
            raise wrong(self.name, wanted, value)
        return value


class _Kind(NamedTuple):
    types: tuple[type, ...]
    wanted: str
    limit: int | None = None


_KINDS: Final = {
    "text": _Kind((str,), "a text"),
    "integer": _Kind((int,), "a whole number of 64 bits", 2**63 - 1),
    "number": _Kind((float, int), "a number"),
    "boolean": _Kind((bool,), "true or false"),
    "time": _Kind((float, int), "seconds since the epoch, until the year 9999", 253_402_300_799),
}


class Table(NamedTuple):
    """A table."""

    name: str
    columns: tuple[TableColumn, ...]

    def row(self, record: Mapping[str, Any]) -> Row:
        """What a record has in each column.

        Raises:
            ValueError: a value is of another kind than its column.
        """
        return {column.name: column.read(record) for column in self.columns}


def _columns(kind: Any, *names: str) -> tuple[TableColumn, ...]:
    return tuple(TableColumn(name, kind) for name in names)


RUNS: Final = Table(
    "runs",
    (
        *_columns(
            "text", "run", "trace_id", "parent", "agent", "agent_name", "task_group", "memory"
        ),
        *_columns("text", "outcome"),
        *_columns("boolean", "success", "finished"),
        *_columns("integer", "steps", "refused_calls", "loop_steps"),
        *_columns("number", "loop_ratio"),
        *_columns("integer", "tide_loop_steps", "tide_cycles", "tide_cycle_steps"),
        *_columns("number", "tide_loop_ratio"),
        TableColumn("lost_tokens", "number", ("lost_in_loops", "tokens")),
        TableColumn("lost_seconds", "number", ("lost_in_loops", "seconds")),
        *_columns("integer", "stale_score", "stale_score_max", "frontier", "pending"),
        TableColumn("exploration_required", "integer", ("required", "exploration")),
        TableColumn("exploration_errors", "integer", ("errors", "exploration")),
        TableColumn("exploration_error", "number"),
        TableColumn("exploitation_required", "integer", ("required", "exploitation")),
        TableColumn("exploitation_errors", "integer", ("errors", "exploitation")),
        TableColumn("exploitation_error", "number"),
        *_columns("integer", "failed_rounds_max", "result_streak_max"),
        *_columns("boolean", "premature_halt"),
        *_columns("text", "cut_short"),
        *_columns("number", "progress_auv", "recall_lag", "novelty"),
        TableColumn("stopped_step", "integer", ("stopped", "step")),
        TableColumn("stopped_reason", "text", ("stopped", "reason")),
    ),
)
"""A row for each run: its entry in ``replay --json``, or its summary."""

LOOPS: Final = Table(
    "loops",
    (*_columns("text", "run"), *_columns("integer", "first_step", "period", "repeats", "steps")),
)
"""A row for each loop of a run."""

STEPS: Final = Table(
    "steps",
    (
        *_columns("text", "run"),
        *_columns("integer", "t"),
        *_columns("boolean", "loop", "tide_loop"),
        *_columns("integer", "loop_period", "loop_repeats"),
        *_columns("integer", "case"),
        *_columns("boolean", "gain", "progress", "error"),
        *_columns("boolean", "exploration_error", "exploitation_error"),
        *_columns("integer", "stale", "frontier", "pending"),
    ),
)
"""A row for each step: its line in ``replay --steps-out``."""

DECISIONS: Final = Table(
    "decisions",
    (
        *_columns("text", "run", "trace_id"),
        *_columns("integer", "step"),
        *_columns("text", "action", "reason", "message"),
        *_columns("time", "time"),
    ),
)
"""A row for each decision about a run."""


def loop_rows(record: Mapping[str, Any]) -> Iterator[Row]:
    """A row for each loop of a run's record.

    Raises:
        ValueError: it does not have the documented form.
    """
    loops = record.get("loops") or ()
    if not isinstance(loops, list | tuple) or not all(isinstance(one, Mapping) for one in loops):
        raise ValueError("loops: not a list of objects")
    for loop in loops:
        yield LOOPS.row({**loop, "run": record.get("run")})


FileFormat: TypeAlias = Literal["parquet", "csv"]
_RUN: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""How a text begins that spreadsheets run as a formula; the last four are wide forms."""

_ROWS: Final = 10_000
"""So many rows are written at once, as a row group of Parquet."""


class TableFile:
    """A file that a table is written to; a context manager.

    Memory: at most 10,000 rows wait.

    Spreadsheets run a cell of a CSV that begins like a formula, and others choose the names of
    agents. So such a text gets an apostrophe before it, and so does one that begins with an
    apostrophe: without its first apostrophe, each such text is what it was.

    Raises:
        MissingExtraError: pyarrow is not installed.
    """

    def __init__(self, path: Path, table: Table, file_format: FileFormat) -> None:
        self.path = path
        self.rows = 0
        self._arrow = _pyarrow("pyarrow")
        self._module = _pyarrow(f"pyarrow.{file_format}")
        self._writer = "ParquetWriter" if file_format == "parquet" else "CSVWriter"
        types = {
            "text": self._arrow.string(),
            "integer": self._arrow.int64(),
            "number": self._arrow.float64(),
            "boolean": self._arrow.bool_(),
            "time": self._arrow.timestamp("us", tz="UTC"),
        }
        self._schema = self._arrow.schema([(one.name, types[one.kind]) for one in table.columns])
        self._times = [one.name for one in table.columns if one.kind == "time"]
        self._texts = [
            one.name for one in table.columns if one.kind == "text" and file_format == "csv"
        ]
        self._waiting: list[Row] = []
        self._open = ExitStack()

    def __enter__(self) -> TableFile:
        with ExitStack() as opening:
            out = opening.enter_context(open_output(self.path))
            self._out = opening.enter_context(
                getattr(self._module, self._writer)(out, self._schema)
            )
            self._open = opening.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        with self._open:
            if error[0] is None:
                self._write()

    def add(self, rows: Iterable[Row]) -> None:
        """Write rows, each with a value for every column."""
        for row in rows:
            for name in self._times:
                row[name] = None if row[name] is None else round(row[name] * 1e6)
            for name in self._texts:
                text = row[name]
                if text is not None and text.startswith((*_RUN, "'")):
                    row[name] = f"'{text}"
            self._waiting.append(row)
            self.rows += 1
            if len(self._waiting) >= _ROWS:
                self._write()

    def _write(self) -> None:
        if self._waiting:
            self._out.write_table(self._arrow.Table.from_pylist(self._waiting, self._schema))
            self._waiting.clear()


def _pyarrow(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingExtraError("pyarrow", extra="export") from None


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
    measured = measured_as(settings)
    lines = StepLines(measured.engine, lambda line: steps.add([STEPS.row(line)]))
    read_recordings(settings, measured, errors, lines)
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

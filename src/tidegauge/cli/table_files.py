"""Files of tables: Parquet and CSV, by pyarrow."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from tidegauge.cli.export_tables import Row, Table
from tidegauge.cli.output_files import open_output
from tidegauge.errors import MissingExtraError

FileFormat: TypeAlias = Literal["parquet", "csv"]
_RUN: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""How a text begins that spreadsheets run as a formula; the last four are wide forms."""

_ROWS: Final = 10_000
"""So many rows are written at once, as a row group of Parquet."""


class TableFile:
    """A file that a table is written to; a context manager.

    Memory: at most 10,000 rows wait.

    Spreadsheets run cells of a CSV that begin like a formula, and agents have names of others'
    choice. So such a text gets an apostrophe before it there, and so does one that begins with an
    apostrophe: without the first one, each is what it was.

    Args:
        path: of the file.
        table: its columns.
        file_format: of the file.

    Attributes:
        rows: how many rows it has.

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

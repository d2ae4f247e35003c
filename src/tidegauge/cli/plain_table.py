"""Tables on standard output: in full width where they are piped, and nothing that steers."""

from __future__ import annotations

import sys
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

__all__ = ["NOT_MEASURED", "add_row", "open_table", "percent", "print_table", "printable"]

NOT_MEASURED: Final = "-"
_WIDE: Final = 10_000


def open_table(names: tuple[str, ...], numbers: tuple[str, ...]) -> Table:
    """A table with columns of names, then columns of numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, overflow="fold")
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def add_row(table: Table, *cells: str) -> None:
    """Add a row of plain text."""
    table.add_row(*(Text(cell) for cell in cells))


def print_table(table: Table) -> None:
    """Print it: plain text unless on a terminal."""
    width = None if sys.stdout.isatty() else _WIDE
    Console(file=sys.stdout, width=width, markup=False, highlight=False).print(table)


def percent(share: float | None) -> str:
    """A share in per cent."""
    return NOT_MEASURED if share is None else f"{share:.1%}"


def printable(name: str) -> str:
    """A name from a recording, without what could steer the terminal."""
    if not name:
        return NOT_MEASURED
    return "".join(letter if letter.isprintable() else "�" for letter in name)

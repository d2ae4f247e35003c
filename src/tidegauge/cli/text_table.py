"""Tables of names and numbers that are readable in the width of the terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import Final, NamedTuple

import click

from tidegauge.cli.terminal import MAX_NAME, NOT_MEASURED, visible

_GAP: Final = 2
_INDENT: Final = 2
_BETWEEN: Final = ", "
_HEADING_LINES: Final = 2


class _Column(NamedTuple):
    """A column as it is printed.

    Attributes:
        heading: the lines of its heading.
        cells: one for each row.
        width: in columns of the terminal.
        left: whether it is aligned to the left, as names are.
    """

    heading: Sequence[str]
    cells: Sequence[str]
    width: int
    left: bool

    def padded(self, text: str) -> str:
        space = " " * (self.width - _width(text))
        return text + space if self.left else space + text


class TextTable:
    """A table with columns of names, then columns of numbers.

    Names are :func:`~tidegauge.cli.terminal.visible`, and cut after 200 letters only. If a table is
    wider than the terminal, headings are wrapped and columns without any value are left out. If
    that is not enough, names move to lines above the rows that share them; if the numbers alone are
    too wide, they follow in further tables. Output that does not go to a terminal has full width.

    Args:
        names: headings of the names.
        numbers: headings of the numbers.

    >>> table = TextTable(("task group", "agent"), ("runs", "loop ratio"))
    >>> table.add("shop", "browser", "3", "0.0%")
    >>> table.add("shop", "shell", "12", "8.5%")
    >>> print(*table.lines(None), sep="\\n")
    task group  agent    runs  loop ratio
    shop        browser     3        0.0%
    shop        shell      12        8.5%
    >>> print(*table.lines(24), sep="\\n")
    task group
                      loop
      agent    runs  ratio
    shop
      browser     3   0.0%
      shell      12   8.5%
    """

    def __init__(self, names: Sequence[str], numbers: Sequence[str]) -> None:
        self._names = len(names)
        self._headings = (*names, *numbers)
        self._rows: list[tuple[str, ...]] = []

    def add(self, *cells: str) -> None:
        """Add a row of plain text, which may be of others."""
        names = [visible(cell, MAX_NAME) or NOT_MEASURED for cell in cells[: self._names]]
        self._rows.append((*names, *cells[self._names :]))

    def print(self) -> None:
        """Print it: on a terminal in its width, else in full width. Without rows, print nothing."""
        if sys.stdout.isatty():
            width = shutil.get_terminal_size().columns
            lines = self.lines(width, heading=lambda text: click.style(text, bold=True))
        else:
            lines = self.lines(None)
        for line in lines:
            sys.stdout.write(f"{line}\n")

    def lines(self, width: int | None, heading: Callable[[str], str] = str) -> Iterator[str]:
        """The lines, in a width; ``None``, in full width. None without rows."""
        if not self._rows:
            return
        names = list(range(self._names))
        numbers = list(range(self._names, len(self._headings)))
        full = self._columns([*names, *numbers], wrap=False)
        if width is None or _total(full) <= width:
            yield from map(heading, _heading_lines(full))
            yield from (_row(full, row) for row in range(len(self._rows)))
            return
        names, numbers = self._with_values(names), self._with_values(numbers)
        moved: list[int] = []
        while names and not self._fit([*names, *numbers], width, moved):
            moved.append(min(names, key=self._changes))
            names = [name for name in names if name not in moved]
        moved.sort()
        if self._fit([*names, *numbers], width, moved):
            yield from self._sections(moved, [*names, *numbers], width, heading)
        else:
            yield from self._blocks(moved, numbers, width, heading)

    def _with_values(self, columns: list[int]) -> list[int]:
        return [one for one in columns if any(row[one] != NOT_MEASURED for row in self._rows)]

    def _changes(self, column: int) -> int:
        """How many lines it takes to move a column above its rows."""
        return sum(one[column] != other[column] for one, other in pairwise(self._rows))

    def _columns(self, chosen: Sequence[int], *, wrap: bool) -> list[_Column]:
        found = []
        for one in chosen:
            cells = [row[one] for row in self._rows]
            heading = self._headings[one]
            width = max(map(_width, cells))
            if wrap:
                width = max(width, _width_in_lines(heading, _HEADING_LINES))
                lines = textwrap.wrap(heading, width)
            else:
                lines, width = [heading], max(width, _width(heading))
            found.append(_Column(lines, cells, width, one < self._names))
        return found

    def _fit(self, chosen: Sequence[int], width: int, moved: Sequence[int]) -> bool:
        indent = _INDENT if moved else 0
        return indent + _total(self._columns(chosen, wrap=True)) <= width

    def _sections(
        self,
        moved: Sequence[int],
        shown: Sequence[int],
        width: int,
        heading: Callable[[str], str],
    ) -> Iterator[str]:
        """Lines with the moved names, and below each the rows that share them."""
        columns = self._columns(shown, wrap=True)
        indent = " " * _INDENT if moved else ""
        if moved:
            yield heading(_BETWEEN.join(self._headings[one] for one in moved))
        yield from (heading(indent + line) for line in _heading_lines(columns))

        def above(row: int) -> str:
            cells = [self._rows[row][one] for one in moved]
            return _BETWEEN.join(one for one in cells if one != NOT_MEASURED) or NOT_MEASURED

        for names, rows in groupby(range(len(self._rows)), key=above):
            if moved:
                yield from _folded(names, width)
            yield from (indent + _row(columns, row) for row in rows)

    def _blocks(
        self,
        names: Sequence[int],
        numbers: Sequence[int],
        width: int,
        heading: Callable[[str], str],
    ) -> Iterator[str]:
        """Several tables: each with the names, and as many numbers as there is room for."""
        blocks: list[list[int]] = [[]]
        for number in numbers:
            columns = self._columns([*names, *blocks[-1], number], wrap=True)
            if blocks[-1] and _total(columns) > width:
                blocks.append([])
            blocks[-1].append(number)
        for at, block in enumerate(blocks):
            columns = self._columns([*names, *block], wrap=True)
            yield from [""] if at else []
            yield from map(heading, _heading_lines(columns))
            for row in range(len(self._rows)):
                yield from _folded(_row(columns, row), width)


def _width_in_lines(text: str, lines: int) -> int:
    """The least width in which a text has so many lines."""
    width = max(map(_width, text.split()))
    while len(textwrap.wrap(text, width)) > lines:
        width += 1
    return width


def _total(columns: Sequence[_Column]) -> int:
    return sum(one.width for one in columns) + _GAP * (len(columns) - 1)


def _heading_lines(columns: Sequence[_Column]) -> Iterator[str]:
    """The lines of all headings, which end on the same line."""
    height = max(len(one.heading) for one in columns)
    filled = [[""] * (height - len(one.heading)) + [*one.heading] for one in columns]
    return (_joined(columns, cells) for cells in zip(*filled, strict=True))


def _row(columns: Sequence[_Column], row: int) -> str:
    return _joined(columns, [one.cells[row] for one in columns])


def _joined(columns: Sequence[_Column], cells: Iterable[str]) -> str:
    padded = (one.padded(cell) for one, cell in zip(columns, cells, strict=True))
    return (" " * _GAP).join(padded).rstrip()


def _folded(text: str, width: int) -> Iterator[str]:
    """A text that may be wider than the terminal."""
    from rich.cells import chop_cells

    return iter(chop_cells(text, width) or [""])


def _width(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)

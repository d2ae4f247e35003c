"""What is printed: lines of text, JSON, logs, and progress bars on standard error.

Text from others, such as the names of agents, may contain what a terminal acts on. So everything
that commands print goes through :func:`visible`, and JSON through :func:`visible_json`.
"""

from __future__ import annotations

import logging
import math
import os
import re
import shutil
import sys
import textwrap
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from types import TracebackType
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, TaskID


NOT_MEASURED: Final = "-"
MAX_NAME: Final = 200
"""Letters of a name that are shown where there may be many."""

_AFTER_SECONDS: Final = 1.0
_EVERY_SECONDS: Final = 0.1
_HIDDEN: Final = "\N{REPLACEMENT CHARACTER}"
_MAX_MARKS: Final = 4
"""Marks on one letter: no written language needs more."""

_NO_WIDTH: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0")
"""Letters and marks that Unicode calls printable, and that no terminal shows."""

_NOT_PLAIN: Final = re.compile(r"[^ -~]+")
_JSON_NOT_PLAIN: Final = re.compile(r"[\x7f-\U0010ffff]+|\r")


def visible(text: str, most: int | None = None) -> str:
    r"""Text from others, as one line without anything that a terminal acts on.

    Line ends and tabs become spaces. What a terminal acts on or hides becomes �: control
    characters, turns of the direction, letters without width, lone surrogates, and the marks of a
    letter after the fourth.

    Args:
        most: letters of it that are shown at most; ``None``, all.

    >>> visible("\x1b[2Ja\tb\u202e")
    '�[2Ja b�'
    >>> visible("a long name", 6)
    'a lon…'
    """
    if most is not None and len(text) > most:
        text = f"{text[: most - 1]}…"
    return _NOT_PLAIN.sub(_visible, text)


def _visible(found: re.Match[str]) -> str:
    shown: list[str] = []
    for letter, marks in _with_marks(found[0]):
        if letter.isspace():
            shown.append(" ")
        elif _is_shown(letter, marks):
            shown.append(letter)
        elif marks <= _MAX_MARKS + 1:  # one for all marks that are too many
            shown.append(_HIDDEN)
    return "".join(shown)


def visible_json(data: bytes) -> bytes:
    r"""JSON with escapes for what a terminal acts on or hides; it has the same values.

    >>> visible_json('["Zoë\x9b"]'.encode()).decode()
    '["Zoë\\u009b"]'
    """
    if data.isascii() and not (b"\x7f" in data or b"\r" in data):
        return data
    return _JSON_NOT_PLAIN.sub(_escaped, data.decode()).encode()


def _escaped(found: re.Match[str]) -> str:
    if found[0] == "\r":  # between values; within a text, it is escaped already
        return " "
    shown: list[str] = []
    for letter, marks in _with_marks(found[0]):
        if _is_shown(letter, marks):
            shown.append(letter)
        else:
            units = letter.encode("utf-16-be")
            shown += [f"\\u{units[n : n + 2].hex()}" for n in range(0, len(units), 2)]
    return "".join(shown)


def _with_marks(text: str) -> Iterator[tuple[str, int]]:
    """Each letter, and how many marks there are in a row up to it."""
    marks = 0
    for letter in text:
        marks = marks + 1 if unicodedata.category(letter) in ("Mn", "Me") else 0
        yield letter, marks


def _is_shown(letter: str, marks: int) -> bool:
    return marks <= _MAX_MARKS and letter.isprintable() and letter not in _NO_WIDTH


def print_line(text: str = "", *, err: bool = False, wrap: bool = True) -> None:
    """Print a line, :func:`visible`; on a terminal that is narrower, it breaks between words."""
    text = visible(text)
    if wrap and (sys.stderr if err else sys.stdout).isatty():
        width = shutil.get_terminal_size().columns
        text = "\n".join(textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False))
    click.echo(text, err=err)


def print_json(data: bytes) -> None:
    """Write JSON to standard output, all of it, as :func:`visible_json`."""
    # With PYTHONUNBUFFERED set, the stream is a raw one, which may write only a part.
    rest = memoryview(visible_json(data))
    while rest:
        rest = rest[sys.stdout.buffer.write(rest) :]
    sys.stdout.buffer.flush()


def open_console(width: int | None = None) -> Console:
    """A console for tables: text is shown as it is, never read as markup."""
    from rich.console import Console

    return Console(width=width, markup=False, emoji=False, highlight=False)


class VisibleLog(logging.Formatter):
    """Log records as :func:`visible` lines: one for the message, one a line of a traceback."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- the base class's name
        return visible(super().formatMessage(record))

    def formatException(  # noqa: N802 -- the base class's name
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None]
        | tuple[None, None, None],
    ) -> str:
        return "\n".join(map(visible, super().formatException(ei).split("\n")))


def percent(share: float | None) -> str:
    """A share in per cent."""
    return NOT_MEASURED if share is None else f"{share:.1%}"


class ByteProgress:
    """A progress bar of bytes: only on a terminal, only after a second.

    Args:
        total: of all files; ``None``, not known.
    """

    def __init__(self, total: int | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._clock = clock
        self._done = 0
        self._due = clock() + _AFTER_SECONDS if sys.stderr.isatty() else math.inf
        self._bar: tuple[Progress, TaskID] | None = None

    def advance(self, size: int) -> None:
        """Count ``size`` more bytes as done."""
        self._done += size
        now = self._clock()
        if now < self._due:
            return
        self._due = now + _EVERY_SECONDS
        if self._bar is None:
            self._bar = self._open()
        progress, task = self._bar
        progress.update(task, completed=self._done, refresh=True)

    def _amount(self) -> ProgressColumn:
        from rich.progress import DownloadColumn

        return DownloadColumn()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar[0].stop()

    def _open(self) -> tuple[Progress, TaskID]:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TimeRemainingColumn

        progress = Progress(
            BarColumn(),
            self._amount(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            auto_refresh=False,
            redirect_stdout=False,
            transient=True,
        )
        progress.start()
        return progress, progress.add_task("", total=self._total)


class RunProgress(ByteProgress):
    """The same for runs."""

    def _amount(self) -> ProgressColumn:
        from rich.progress import MofNCompleteColumn

        return MofNCompleteColumn()


class StageProgress(ByteProgress):
    """The same for stages, shown from the first."""

    def __init__(self, total: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(total, clock=clock)
        self._due -= _AFTER_SECONDS
        self._begun = 0

    def begin(self, stage: str) -> None:
        """Start a stage; the one before is done."""
        self.advance(1 if self._begun else 0)
        self._begun += 1
        if self._bar is not None:
            progress, task = self._bar
            progress.update(task, description=stage, completed=self._done, refresh=True)

    def _amount(self) -> ProgressColumn:
        from rich.progress import TextColumn

        return TextColumn("{task.completed:.0f} of {task.total:.0f} done: {task.description}")


def total_bytes(files: Iterable[str]) -> int | None:
    """The size of all files; ``None`` if that of one of them is not known."""
    total = 0
    for file in files:
        if file == "-" or (os.path.exists(file) and not os.path.isfile(file)):
            return None
        total += os.path.getsize(file) if os.path.isfile(file) else 0
    return total


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

    No number is ever cut or broken over lines, as rich's tables do where there is no room: half a
    number is a wrong one.

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
        """Add a row of plain text, also from others."""
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
    """The least width in which a text has at most so many lines."""
    width = max(map(_width, text.split()))
    while len(textwrap.wrap(text, width)) > lines:
        width += 1
    return width


def _total(columns: Sequence[_Column]) -> int:
    return sum(one.width for one in columns) + _GAP * (len(columns) - 1)


def _heading_lines(columns: Sequence[_Column]) -> Iterator[str]:
    """The lines of all headings, aligned at the last one."""
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

"""What is printed: lines of text, JSON, logs, and progress bars on standard error.

Text of others, such as the names of agents, may hold what a terminal acts on. So everything that
commands print goes through :func:`visible`, and JSON through :func:`visible_json`.
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
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

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
    r"""Text of others as one line that a terminal only shows.

    Line ends and tabs become spaces. What a terminal acts on or hides becomes �: control
    characters, turns of the direction, letters without width, lone surrogates, and the marks of a
    letter after the fourth.

    Args:
        text: any text.
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
    """Print a line, :func:`visible`; on a terminal that is narrower, it breaks between words.

    Args:
        text: the line.
        err: whether it goes to standard error.
        wrap: whether it breaks.
    """
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
    """A console for tables: text is shown as it is, never read as markup.

    Args:
        width: columns; ``None``, those of the terminal.
    """
    from rich.console import Console

    return Console(width=width, markup=False, emoji=False, highlight=False)


class VisibleLog(logging.Formatter):
    """Log records as :func:`visible` lines: the message is one, and so is each of a traceback."""

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
        clock: seconds.
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

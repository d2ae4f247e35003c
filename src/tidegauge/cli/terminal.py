"""Lines of text on a terminal, and progress bars on standard error."""

from __future__ import annotations

import math
import os
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Self

import click

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

__all__ = [
    "NOT_MEASURED",
    "ByteProgress",
    "RunProgress",
    "StageProgress",
    "percent",
    "print_line",
    "printable",
    "total_bytes",
]

NOT_MEASURED: Final = "-"
_AFTER_SECONDS: Final = 1.0
_EVERY_SECONDS: Final = 0.1


def print_line(text: str, *, err: bool = False) -> None:
    """Print a line; on a terminal that is narrower, it breaks between words."""
    if (sys.stderr if err else sys.stdout).isatty():
        width = shutil.get_terminal_size().columns
        text = "\n".join(textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False))
    click.echo(text, err=err)


def percent(share: float | None) -> str:
    """A share in per cent."""
    return NOT_MEASURED if share is None else f"{share:.1%}"


def printable(name: str) -> str:
    """A name from a recording, without control characters for the terminal."""
    if not name:
        return NOT_MEASURED
    return "".join(letter if letter.isprintable() else "�" for letter in name)


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

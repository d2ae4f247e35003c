"""Errors in recordings, printed on standard error."""

from __future__ import annotations

import sys
from typing import IO, Any, Final

import click

from tidegauge.cli.terminal import print_line
from tidegauge.recordings.line_replay import Fault

_PRINTED_PER_FILE: Final = 20


class FatalInputError(click.ClickException):
    """An error under ``--strict``: printed like any other, and the command ends with code 2."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Write the line of the error."""
        (sys.stderr if file is None else file).write(f"{self.message}\n")


class InputErrors:
    """Prints the first 20 errors of each file, one line each, then how many more there were.

    Args:
        strict: whether the first error is fatal.
    """

    def __init__(self, *, strict: bool) -> None:
        self._unreadable = False
        self._strict = strict
        self._source = ""
        self._count = 0

    def fault(self, fault: Fault) -> None:
        """A line is not valid."""
        self._source = fault.source
        self._count += 1
        if self._strict:
            raise FatalInputError(str(fault))
        if self._count <= _PRINTED_PER_FILE:
            print_line(str(fault), err=True)

    def unreadable(self, source: str, error: OSError) -> None:
        """A file cannot be read."""
        message = f"{source}: {error.strerror or error}"
        if self._strict:
            raise FatalInputError(message)
        self._unreadable = True
        print_line(message, err=True)

    def end_of_file(self) -> None:
        """A file ends: print how many errors were not printed."""
        more = self._count - _PRINTED_PER_FILE
        self._count = 0
        if more > 0:
            print_line(f"{self._source}: {more} more lines with errors", err=True)

    def exit_if_nothing_read(self, runs: int) -> None:
        """End the command with exit code 1 if there are no runs because of unreadable files."""
        if not runs:
            self.exit_if_unreadable()

    def exit_if_unreadable(self) -> None:
        """End the command with exit code 1 if a file could not be read."""
        if self._unreadable:
            raise click.exceptions.Exit(1)

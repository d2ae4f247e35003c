"""What is wrong with recordings, told on standard error."""

from __future__ import annotations

from typing import IO, Any, Final

import click

from tidegauge.instrumentation.replay import Fault

__all__ = ["FatalFault", "FaultLog"]

_TOLD_BY_FILE: Final = 20


class FatalFault(click.ClickException):
    """A fault under ``--strict``: told like any other, and the command ends with code 2."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """The fault's own line."""
        click.echo(self.message, err=True)


class FaultLog:
    """Tells the first 20 faults of each file, one line each, then how many more there were.

    Args:
        strict: whether the first fault is fatal.

    Attributes:
        unreadable_files: how many files could not be read, or not to their end.
    """

    def __init__(self, *, strict: bool) -> None:
        self.unreadable_files = 0
        self._strict = strict
        self._source = ""
        self._count = 0

    def fault(self, fault: Fault) -> None:
        """Something is wrong with a line."""
        self._source = fault.source
        self._count += 1
        if self._strict:
            raise FatalFault(str(fault))
        if self._count <= _TOLD_BY_FILE:
            click.echo(str(fault), err=True)

    def unreadable(self, source: str, error: OSError) -> None:
        """A file cannot be read."""
        message = f"{source}: {error.strerror or error}"
        if self._strict:
            raise FatalFault(message)
        self.unreadable_files += 1
        click.echo(message, err=True)

    def end_of_file(self) -> None:
        """A file is done: say what was not said of it."""
        more = self._count - _TOLD_BY_FILE
        self._count = 0
        if more > 0:
            click.echo(f"{self._source}: and {more} more such lines", err=True)

"""A progress bar for what takes longer than a second."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

__all__ = ["ByteProgress", "RunProgress", "total_bytes"]

_AFTER_SECONDS: Final = 1.0
_EVERY_SECONDS: Final = 0.1


class ByteProgress:
    """How many bytes are done, on standard error: only on a terminal, only after a second.

    Args:
        total: how many there are; ``None``, not known.
        clock: seconds.
    """

    def __init__(self, total: int | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._clock = clock
        self._done = 0
        self._due = clock() + _AFTER_SECONDS if sys.stderr.isatty() else math.inf
        self._bar: tuple[Progress, TaskID] | None = None

    def advance(self, size: int) -> None:
        """So many bytes more are done."""
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
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
    """How many runs are done, shown in the same way."""

    def _amount(self) -> ProgressColumn:
        from rich.progress import MofNCompleteColumn

        return MofNCompleteColumn()


class StageProgress(ByteProgress):
    """Which stage a work is in, and how many there are: shown as soon as the first begins."""

    def __init__(self, total: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(total, clock=clock)
        self._due -= _AFTER_SECONDS
        self._begun = 0

    def begin(self, stage: str) -> None:
        """A stage begins, and the one before is done."""
        self.advance(1 if self._begun else 0)
        self._begun += 1
        if self._bar is not None:
            progress, task = self._bar
            progress.update(task, description=stage, completed=self._done, refresh=True)

    def _amount(self) -> ProgressColumn:
        from rich.progress import TextColumn

        return TextColumn("{task.completed:.0f} of {task.total:.0f} done: {task.description}")


def total_bytes(files: Iterable[str]) -> int | None:
    """How long the files are together; ``None`` when one of them has no length to know."""
    total = 0
    for file in files:
        if file == "-" or (os.path.exists(file) and not os.path.isfile(file)):
            return None
        total += os.path.getsize(file) if os.path.isfile(file) else 0
    return total

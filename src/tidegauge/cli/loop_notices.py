"""Notices when an agent begins to loop: the terminal's bell, and a command of the user.

The threads that answer hooks only put a notice into a queue; a separate thread delivers them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from tidegauge.cli.terminal import visible
from tidegauge.errors import ConfigurationError
from tidegauge.safety.guard import guarded, log

if TYPE_CHECKING:
    from tidegauge.cli.live_runs import LoopOnset

_COMMAND_SECONDS: Final = 10.0
"""A command that takes longer is killed."""

_AGAIN_SECONDS: Final = 60.0
"""The same session causes no notice for so long."""

_BETWEEN_SECONDS: Final = 1.0
"""Between two notices."""

_MAX_WAITING: Final = 16
_MAX_SESSIONS: Final = 1_000
_MAX_VALUE: Final = 128
_VARIABLE: Final = "TIDEGAUGE_LOOP_"
_FIELD: Final = re.compile(r"\{(agent|session|run|step|period)\}")


def parse_command(text: Any) -> str:
    """Check a command line.

    Raises:
        ValueError: it has no words, or a quote is not closed.
    """
    if not isinstance(text, str):
        raise ValueError(f"{text!r} is not a command; use text")
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a command: {error}") from None
    if not words:
        raise ValueError("the command is empty; use a program and its arguments")
    return text


def ring() -> None:
    """Ring the bell of the terminal, if there is one."""
    with contextlib.suppress(OSError, ValueError):  # it was closed
        for stream in (sys.__stdout__, sys.__stderr__):
            if stream is not None and stream.isatty():
                stream.write("\a")
                stream.flush()
                return


class LoopNotices:
    """Delivers notices, at most one each second, and one each minute for the same session.

    Args:
        command: a program and its arguments; no shell reads them. ``{agent}``, ``{session}``,
            ``{run}``, ``{step}`` and ``{period}`` are replaced; the same are environment variables,
            ``TIDEGAUGE_LOOP_AGENT`` and so on. ``None``, no command is run.
        bell: rings the bell; ``None``, there is none.
        command_seconds: time limit of the command.
        again_seconds: how long the same session causes no further notice.
        between_seconds: time between two notices.

    Raises:
        ConfigurationError: the program is not found.
    """

    def __init__(
        self,
        command: str | None,
        bell: Callable[[], object] | None = None,
        *,
        command_seconds: float = _COMMAND_SECONDS,
        again_seconds: float = _AGAIN_SECONDS,
        between_seconds: float = _BETWEEN_SECONDS,
    ) -> None:
        self._words = shlex.split(command) if command is not None else []
        if self._words and shutil.which(self._words[0]) is None:
            raise ConfigurationError(f"the program {self._words[0]!r} is not found; give its path")
        self._bell = bell
        self._command_seconds = command_seconds
        self._again_seconds = again_seconds
        self._between_seconds = between_seconds
        self._latest: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._waiting: queue.Queue[LoopOnset | None] = queue.Queue(_MAX_WAITING)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._deliver, name="tidegauge-notices", daemon=True)
        self._thread.start()

    @guarded("watch.notices", default=None)
    def add(self, onset: LoopOnset) -> None:
        """An agent begins to loop. Does not wait; if too many notices wait, this one is lost."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(onset)

    def close(self) -> None:
        """Deliver nothing more; a command that still runs is killed."""
        self._stop.set()
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(None)
        self._thread.join(2 * _BETWEEN_SECONDS)

    def _deliver(self) -> None:
        while (onset := self._waiting.get()) is not None and not self._stop.is_set():
            if self._is_due(onset):
                self._notify(onset)
                self._stop.wait(self._between_seconds)

    def _is_due(self, onset: LoopOnset) -> bool:
        """Whether the session has caused no notice for a while."""
        now, key = time.monotonic(), (onset.agent, onset.session or onset.run)
        before = self._latest.get(key)
        if before is not None and now - before < self._again_seconds:
            return False
        self._latest[key] = now
        self._latest.move_to_end(key)
        if len(self._latest) > _MAX_SESSIONS:
            self._latest.popitem(last=False)
        return True

    @guarded("watch.notices", default=None)
    def _notify(self, onset: LoopOnset) -> None:
        if self._bell is not None:
            self._bell()
        if self._words:
            given = {name: _plain(value) for name, value in onset._asdict().items()}
            failed = self._run(
                [_FIELD.sub(lambda field: given[field[1]], word) for word in self._words],
                {f"{_VARIABLE}{name.upper()}": value for name, value in given.items()},
            )
            if failed is not None:
                log(logging.WARNING, "the command of --notify-command %s", failed)

    def _run(self, words: Sequence[str], variables: dict[str, str]) -> str | None:
        """Run the command; returns what went wrong."""
        try:
            process = subprocess.Popen(  # noqa: S603 -- the command that the user has given
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **variables},
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return f"could not be run: {error}"
        until = time.monotonic() + self._command_seconds
        while (code := process.poll()) is None:
            if self._stop.wait(0.05) or time.monotonic() >= until:
                _kill(process)
                stopped = self._stop.is_set()
                return None if stopped else f"took longer than {self._command_seconds:g} s: killed"
        return f"ended with exit code {code}" if code else None


def _plain(value: object) -> str:
    """A value for an argument: short, printable, and no option."""
    return visible(str(value), _MAX_VALUE).lstrip("-")


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a command with what it has started."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)

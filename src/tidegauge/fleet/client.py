"""What an agent's process asks ``tidegauge decisions``: is one of my runs to stop?

A thread asks; the agent's own path only looks at what the thread has found. Whatever happens to the
server, nothing happens to the agent: until it is told otherwise, it goes on.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, TypeAlias

from tidegauge._critical import here, reset_after_fork
from tidegauge._guard import guarded, log
from tidegauge.errors import ConfigurationError, TidegaugeError
from tidegauge.fleet.asking import DecisionsConnection, UnansweredError
from tidegauge.fleet.limits import MAX_ID_BYTES, MAX_IDS, MAX_WAIT_SECONDS
from tidegauge.fleet.watched_run import WatchedRun

__all__ = ["DecisionClient", "OnDecision"]

OnDecision: TypeAlias = Callable[[WatchedRun], object]
"""Called with a run whose decision is another one now, in the thread that asks."""

_LONGEST_PAUSE: Final = 30.0
_SHORTEST_PAUSE: Final = 0.05


class DecisionClient:
    """Asks for the decisions of the runs that this process has open.

    Args:
        url: where ``tidegauge decisions`` serves, such as ``http://decisions:9465``.
        token: bearer token to show.
        every: seconds that one request waits for news, and so until a run that was just opened is
            asked for. A decision arrives as soon as the server knows it.
        timeout: seconds until a server that is silent beyond that is given up.
        on_decision: called whenever a run's decision is another one, in the thread that asks.
        max_runs: runs watched at a time; of those beyond nothing is told.

    Attributes:
        failures: requests that failed.
        unwatched: runs that were not watched, being too many, or of an id that cannot be asked for.

    Raises:
        ConfigurationError: ``url`` is none of HTTP, or a number is not positive.

    >>> client = DecisionClient("http://127.0.0.1:9465")
    >>> with client.watch("r1") as watched:
    ...     watched.enforce()  # between the agent's turns
    >>> client.close()
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        every: float = 1.0,
        timeout: float = 5.0,
        on_decision: OnDecision | None = None,
        max_runs: int = 1_000,
    ) -> None:
        if min(every, timeout, max_runs) <= 0:
            raise ConfigurationError("every, timeout and max_runs are to be greater than 0")
        self._every = min(every, MAX_WAIT_SECONDS)
        self._timeout = timeout
        self._connection = DecisionsConnection(url, token, self._every + timeout)
        self._on_decision = on_decision
        self._max_runs = max_runs
        self.failures = 0
        self.unwatched = 0
        self._open: dict[WatchedRun, None] = {}
        self._asked: tuple[WatchedRun, ...] = ()
        self._tags: dict[tuple[str, ...], str | None] = {}
        self._failed_in_a_row = 0
        self._begin()
        reset_after_fork(self)

    def watch(self, run: str) -> WatchedRun:
        """Ask for a run, until what is returned is closed. Never waits, never raises.

        Args:
            run: its id; of a trace, for all runs in it.
        """
        return self._watch(run)

    def watch_current_trace(self) -> WatchedRun:
        """Ask for the runs in the trace of the current OpenTelemetry span; if there is one.

        For agents whose spans go to ``tidegauge serve --kafka``: their runs are known by the id of
        their trace. Never waits, never raises.
        """
        return self._watch(_current_trace())

    def close(self) -> None:
        """Ask no more; a second call does nothing. What was told last stays."""
        self._closing.set()
        self._opened.set()
        self._connection.interrupt()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(self._timeout)

    def __enter__(self) -> DecisionClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _begin(self) -> None:
        """Begin without a thread: at the beginning, and in a forked child, which has none."""
        self._lock = threading.Lock()
        self._opened = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def _reset_after_fork(self) -> None:
        self._connection.close()  # of the child's side; the parent's goes on
        self._begin()

    def _watch(self, run: str | None) -> WatchedRun:
        watched = WatchedRun(run, self._forget)
        if run is not None:
            self._ask_for(watched, run)
        return watched

    @guarded("fleet.client", default=None)
    def _ask_for(self, watched: WatchedRun, run: str) -> None:
        with here.critical, self._lock:
            if self._closing.is_set():
                return
            if len(self._open) >= self._max_runs or not _can_be_asked(run):
                self.unwatched += 1
                return
            self._open[watched] = None
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="tidegauge-decisions", daemon=True
                )
                self._thread.start()
        self._opened.set()

    def _forget(self, watched: WatchedRun) -> None:
        with here.critical, self._lock:
            self._open.pop(watched, None)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._opened.clear()
            with here.critical, self._lock:
                asked = tuple(self._open)
            if asked:
                self._closing.wait(self._poll(asked))
            else:
                self._opened.wait()
        self._connection.close()

    @guarded("fleet.client", default=_LONGEST_PAUSE)
    def _poll(self, asked: tuple[WatchedRun, ...]) -> float:
        """Ask for these runs; seconds until they are to be asked for again."""
        began = time.monotonic()
        try:
            news = self._ask(asked)
        except UnansweredError as error:
            return self._failed(error)
        self._failed_in_a_row = 0
        if news:
            return _SHORTEST_PAUSE
        return max(_SHORTEST_PAUSE, self._every - (time.monotonic() - began))

    def _ask(self, asked: tuple[WatchedRun, ...]) -> bool:
        """Ask for these runs, and take what is new; whether anything was.

        Raises:
            UnansweredError: there was no answer.
        """
        if asked != self._asked:  # somebody new does not know what was told before
            self._asked, self._tags = asked, {}
        ids = tuple(dict.fromkeys([watched.run for watched in asked if watched.run is not None]))
        news = False
        for start in range(0, len(ids), MAX_IDS):
            part = ids[start : start + MAX_IDS]
            wait = self._every if part == ids else 0.0
            answers, self._tags[part] = self._connection.ask(part, wait, self._tags.get(part))
            if answers is None:
                continue
            news = True
            for watched in asked:
                told = answers.get(watched.run or "")
                if told is not None and watched.take(told):
                    self._tell(watched)
        return news

    def _failed(self, error: UnansweredError) -> float:
        """Count it, log the first in a row; seconds until it is tried again, more and more."""
        if self._closing.is_set():
            return 0.0
        if not self._failed_in_a_row:
            log(
                logging.WARNING,
                "tidegauge: no decisions from %s, agents go on: %s",
                self._connection.server,
                error,
            )
        self.failures += 1
        self._failed_in_a_row += 1
        pause = min(self._every * 2.0 ** min(self._failed_in_a_row, 10), _LONGEST_PAUSE)
        return pause * random.uniform(0.5, 1.0)  # noqa: S311 -- so that not all come at once

    @guarded("fleet.client.on_decision", default=None)
    def _tell(self, watched: WatchedRun) -> None:
        if self._on_decision is not None:
            with contextlib.suppress(TidegaugeError):  # enforce() belongs into the agent's thread
                self._on_decision(watched)


def _can_be_asked(run: str) -> bool:
    try:
        return 0 < len(run.encode()) <= MAX_ID_BYTES
    except UnicodeEncodeError:
        return False


@guarded("fleet.client", default=None)
def _current_trace() -> str | None:
    """The id of the trace of the current span; ``None``, there is none."""
    from opentelemetry import trace

    context = trace.get_current_span().get_span_context()
    return format(context.trace_id, "032x") if context.is_valid else None

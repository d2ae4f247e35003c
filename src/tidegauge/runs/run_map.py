"""Which run something happens in: from a framework's ids to the scopes of open runs."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, Protocol, TypeVar

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span

from tidegauge.runs.recorder import RecordedRun
from tidegauge.runs.turn_calls import TurnCall
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.safety.guard import arrived_from_outside

MAX_OPEN_IDS: Final = 10_000

Id = TypeVar("Id", bound=Hashable)


class HeldRun(Protocol[Id]):
    """A run that a map can hold.

    Attributes:
        root: id of what opened it.
        recorded: takes its steps and spans.
        held: whether the map holds it.
        last_seen: when it was last known to be alive, by the clock of the map.
        open_ids: ids that the map holds for it, oldest first.
    """

    root: Id
    recorded: RecordedRun
    held: bool
    last_seen: float
    open_ids: OrderedDict[Id, None]

    def end(self, **ending: Any) -> None:
        """Report its end."""


Run = TypeVar("Run", bound=HeldRun[Any])


class RunScope(Generic[Run]):
    """Where something happens: in which run, and inside which of its tool calls, if any."""

    tool: TurnCall | None = None

    def __init__(self, run: Run, tool: TurnCall | None = None) -> None:
        self.run = run
        self.tool = tool

    @property
    def tool_span(self) -> Span | None:
        """The span of the tool call; ``None`` when there is none."""
        if self.tool is None or not self.tool.span.get_span_context().is_valid:
            return None
        return self.tool.span

    def context(self) -> Context | None:
        """Parent context for the spans of what happens here."""
        context, span = self.run.recorded.context, self.tool_span
        return context if span is None else trace.set_span_in_context(span, context)


class RunMap(Generic[Id, Run]):
    """The open runs of one adapter, and the scope of everything open in them.

    A run is removed when its root ends. One whose end never comes is ended as unknown, when it
    has been idle for too long or too many others are open.

    Args:
        max_runs: open runs held; one more ends the one idle for longest.
        idle_seconds: a run not seen for so long is ended when the next one opens, or by
            :meth:`end_idle`.
        clock: seconds.

    Attributes:
        inherited: ids that were open in the process that this one was forked from.
    """

    def __init__(
        self,
        *,
        max_runs: int = 10_000,
        idle_seconds: float = 3_600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_runs = max_runs
        self._idle_seconds = idle_seconds
        self._clock = clock
        self.scopes: dict[Id, RunScope[Run]] = {}
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self.inherited = frozenset(self.scopes)
        self._lock = threading.Lock()
        self.scopes = {}
        self._runs: OrderedDict[Id, Run] = OrderedDict()  # least recently seen first

    def __len__(self) -> int:
        """How many scopes are open."""
        return len(self.scopes)

    @property
    def runs(self) -> list[Run]:
        """The open runs."""
        with here.critical, self._lock:
            return list(self._runs.values())

    def find(self, key: Id | None) -> RunScope[Run] | None:
        """The scope of something open."""
        return None if key is None else self.scopes.get(key)

    def open(self, scope: RunScope[Run]) -> None:
        """Add a run by its outermost scope, and end the runs that it displaces."""
        run = scope.run
        with here.critical, self._lock:
            run.last_seen, run.held = self._clock(), True
            self._runs[run.root] = run
            self.scopes[run.root] = scope
        self.end_idle()

    def end_idle(self) -> None:
        """End the runs that are idle for too long, or too many."""
        displaced: list[tuple[Run, str]] = []
        with here.critical, self._lock:
            now = self._clock()
            for oldest in self._oldest(now):
                reason = "idle" if now - oldest.last_seen > self._idle_seconds else "too many runs"
                displaced.append((oldest, reason))
                self._evict(oldest)
        for oldest, reason in displaced:
            oldest.end(outcome="unknown", reason=reason, evicted=True)

    def seen(self, run: Run) -> None:
        """The run is alive. Without the lock, as :meth:`enter`."""
        run.last_seen = self._clock()
        try:
            self._runs.move_to_end(run.root)
        except KeyError as error:  # it is not held
            if arrived_from_outside(error):
                raise

    def enter(self, key: Id, scope: RunScope[Run]) -> None:
        """Something began in ``scope``; nothing when its run has ended.

        Called at every callback, so without the lock: each operation on a dictionary is atomic, and
        a run that is evicted meanwhile is not held afterwards.
        """
        run = scope.run
        run.open_ids[key] = None
        self.scopes[key] = scope
        if not run.held or len(run.open_ids) > MAX_OPEN_IDS:
            self.trim(key, run)

    def trim(self, key: Id, run: Run) -> None:
        """Forget what has just begun, if its run has ended, else what began first in it."""
        if not run.held:
            self.leave(key)
        elif len(run.open_ids) > MAX_OPEN_IDS:
            with here.critical, self._lock:
                if len(run.open_ids) > MAX_OPEN_IDS:
                    oldest, _ = run.open_ids.popitem(last=False)
                    self.scopes.pop(oldest, None)

    def leave(self, key: Id) -> RunScope[Run] | None:
        """Something has ended: its scope, if it was open. Without the lock, as :meth:`enter`."""
        scope = self.scopes.pop(key, None)
        if scope is not None:
            scope.run.open_ids.pop(key, None)
        return scope

    def close(self, run: Run) -> None:
        """Remove a run, with all that is open in it."""
        with here.critical, self._lock:
            self._evict(run)

    def close_all(self) -> None:
        """End all runs."""
        with here.critical, self._lock:
            over = list(self._runs.values())
            for run in over:
                self._evict(run)
        for run in over:
            run.end(outcome="unknown", reason="closed")

    def _oldest(self, now: float) -> list[Run]:
        """The runs to evict: idle for too long, or one too many."""
        gone: list[Run] = []
        for run in self._runs.values():
            crowded = len(self._runs) - len(gone) > self._max_runs
            if not crowded and now - run.last_seen <= self._idle_seconds:
                break
            gone.append(run)
        return gone

    def _evict(self, run: Run) -> None:
        run.held = False
        self._runs.pop(run.root, None)
        self.scopes.pop(run.root, None)
        self._forget_ids(run)

    def _forget_ids(self, run: Run) -> None:
        while True:  # others may enter meanwhile
            try:
                key, _ = run.open_ids.popitem()
            except KeyError:
                return
            self.scopes.pop(key, None)

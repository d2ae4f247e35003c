"""The answer to a poll of the page, as plain data."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from tidegauge.catalog import RUNBOOKS
from tidegauge.exporters.page.runs import (
    Digest,
    Fleet,
    Showing,
    main_trouble_of,
    read_ended,
    read_fleet,
    read_row,
    read_run,
    since_of,
)
from tidegauge.exporters.reading import MAX_LABEL, label_value
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.streaming_metrics.engine import Engine
from tidegauge.streaming_metrics.run import MeasuredRun
from tidegauge.streaming_metrics.stale_score import StaleScore
from tidegauge.streaming_metrics.step_history import EventLog, LogEvent

MAX_ROWS: Final = 100
"""Limit of rows in one answer."""

_MAX_LOOPING: Final = 5
_LEAST_AGE: Final = 0.2
_LEAST_PAUSE: Final = 0.4
_SHARE: Final = 20.0
"""The whole fleet is read so rarely that reading takes at most 1/20 of the time."""


class Asked(NamedTuple):
    """The query of a poll.

    Attributes:
        first: index of the first row.
        rows: number of rows.
        run: number of the selected run; ``None``: none.
        after: number of the last event that the page has.
        find: text that the names of runs must contain.
        trouble: ``looping`` or ``stuck``: only such runs; empty, all.
        agent: only runs of this agent; empty, of all.
        group: only runs of this task group; empty, of all.
        sort: ``tokens``, ``steps``, ``stale`` or ``since``: runs with the most first, or those that
            have looped for longest; empty: as the fleet is ordered.
    """

    first: int = 0
    rows: int = 40
    run: int | None = None
    after: int = 0
    find: str = ""
    trouble: str = ""
    agent: str = ""
    group: str = ""
    sort: str = ""


class Invitation(NamedTuple):
    """How a run gets here, for the page while it is empty.

    Attributes:
        words: where runs are received.
        lines: what to type.
    """

    words: str
    lines: str


class LiveReading:
    """Reads an engine for the page: on request only, and only what the page shows.

    The whole fleet is read at most five times a second and for at most 1/20 of the time, for all
    clients together; rows and the selected run are read for every poll.

    Args:
        cpu_clock: CPU seconds of this thread, because waiting for locks costs agents nothing.

    >>> from tidegauge.events import RunStarted
    >>> event_log = EventLog()
    >>> engine = Engine(event_log=event_log)
    >>> engine.run_started(RunStarted(run="r1", agent="browser"))
    >>> answer = LiveReading(engine, event_log, digest=bytes.hex).read(Asked())
    >>> answer["fleet"]["running"], [row["agent"] for row in answer["runs"]["rows"]]
    (1, ['browser'])
    """

    def __init__(
        self,
        engine: Engine,
        event_log: EventLog,
        *,
        digest: Digest,
        trace_url: str | None = None,
        prices: Mapping[str, float] | None = None,
        runbooks: str = RUNBOOKS,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._engine = engine
        self._event_log = event_log
        self._showing = Showing(
            digest=digest, trace_url=trace_url, prices=prices or {}, runbooks=runbooks
        )
        self._clock = clock
        self._cpu_clock = cpu_clock
        self.invitation: Invitation | None = None
        self._process = os.urandom(8).hex()  # shows the page that the process has changed
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._fleet: Fleet | None = None
        self._read_at = 0.0
        self._took = 0.0

    def read(self, asked: Asked) -> dict[str, Any]:
        """The current data, ready for JSON. ``None``: not measured."""
        fleet = self._current()
        showing = self._showing
        invitation = self.invitation
        found = _found(fleet, asked)
        shown = found[asked.first : asked.first + min(asked.rows, MAX_ROWS)]
        looping = fleet.runs[: min(fleet.looping, _MAX_LOOPING)]
        events = self._event_log.events(asked.after)
        return {
            "process": self._process,
            "time": time.time(),
            "pause": max(_LEAST_PAUSE, _SHARE * self._took),
            "contents": self._event_log.contents,
            "invitation": None if invitation is None else invitation._asdict(),
            "fleet": fleet.numbers,
            "looping": [read_row(run, showing) for run in looping],
            "runs": {
                "total": len(found),
                "first": asked.first,
                "rows": [read_row(run, showing) for run in shown],
            },
            "chosen": None if asked.run is None else self._chosen(asked.run, fleet),
            "events": [_event(one) for one in events],
        }

    def _current(self) -> Fleet:
        """The last reading of the fleet, or a new one if that is too old."""
        with self._lock:  # concurrent polls share one reading
            age = self._clock() - self._read_at
            if self._fleet is None or age > max(_LEAST_AGE, _SHARE * self._took):
                began = self._cpu_clock()
                self._fleet = read_fleet(
                    self._engine.held(),
                    spent=self._event_log.spent_by_model(),
                    dollars=self._showing.dollars,
                )
                self._took = self._cpu_clock() - began
                self._read_at = self._clock()
            return self._fleet

    def _chosen(self, number: int, fleet: Fleet) -> dict[str, Any] | None:
        ended = self._event_log.ended(number)
        if ended is not None:
            return read_ended(ended, self._showing)
        run = fleet.by_number.get(number)
        return None if run is None else read_run(run, self._showing)


def _found(fleet: Fleet, asked: Asked) -> list[MeasuredRun]:
    """The runs that the filters leave, in the wanted order."""
    found = fleet.runs
    if asked.trouble:
        pairs = zip(found, fleet.conditions, strict=True)
        found = [run for run, trouble in pairs if trouble == asked.trouble]
    if asked.agent:
        found = [run for run in found if label_value(run.started.agent) == asked.agent]
    if asked.group:
        found = [run for run in found if label_value(run.started.task_group) == asked.group]
    if asked.find:
        wanted = asked.find.casefold()
        found = [run for run in found if wanted in _names(run).casefold()]
    if asked.sort == "since":
        return sorted(found, key=_since)
    order = _ORDERS.get(asked.sort)
    return found if order is None else sorted(found, key=order, reverse=True)


def _since(run: MeasuredRun) -> float:
    with here.critical, run.lock:
        since = since_of(run, main_trouble_of(run))
    return math.inf if since is None or since["time"] is None else since["time"]


# Without the runs' locks: each reads one number.
_ORDERS: Final[Mapping[str, Callable[[MeasuredRun], float]]] = {
    "tokens": lambda run: -1.0 if run.tokens is None else run.tokens,
    "steps": lambda run: run.steps,
    "stale": lambda run: -1 if (stale := run.of(StaleScore).current) is None else stale,
}


def _names(run: MeasuredRun) -> str:
    started = run.started
    names = (
        started.run,
        started.agent,
        run.agent_name or "",
        started.task_group,
        started.model or "",
    )
    return "\n".join([str(name)[:MAX_LABEL] for name in names])


def _event(one: LogEvent) -> dict[str, Any]:
    return {
        "number": one.number,
        "time": one.time,
        "key": one.run_number,
        "run": label_value(one.run),
        "agent": label_value(one.agent),
        "what": one.what,
        "step": one.step,
        "why": label_value(one.why),
    }

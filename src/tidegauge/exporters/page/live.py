"""What the page is told at every poll, as plain data."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tidegauge._critical import reset_after_fork
from tidegauge.exporters.page.fleet import Fleet, read_fleet
from tidegauge.exporters.page.runs import Digest, read_ended, read_row, read_run
from tidegauge.exporters.prometheus.labels import MAX_LENGTH, label_value
from tidegauge.streaming_metrics.chronicle import Chronicle, Happening
from tidegauge.streaming_metrics.engine import Engine
from tidegauge.streaming_metrics.run_state import RunState

__all__ = ["MAX_ROWS", "Asked", "LiveReading"]

MAX_ROWS: Final = 100
"""How many rows one answer has at most."""

_MAX_LOOPING: Final = 5
_LEAST_AGE: Final = 0.2
_LEAST_PAUSE: Final = 0.4
_SHARE: Final = 20.0
"""The whole fleet is read no more often than this: its last reading took a 20th of the time."""


class Asked(NamedTuple):
    """What a page asks for.

    Attributes:
        first: index of the first row it shows.
        rows: how many rows it shows.
        run: number of the run that is chosen; ``None``, none is.
        after: number of the last happening that it knows.
        find: only runs in whose names this text occurs.
    """

    first: int = 0
    rows: int = 40
    run: int | None = None
    after: int = 0
    find: str = ""


class LiveReading:
    """Reads an engine for the page: when somebody looks, and no more than is shown.

    The whole fleet is gone through at most every fifth of a second and for at most a 20th of the
    time, whoever asks; a row and the chosen run are read when they are asked for.

    Args:
        engine: what is read.
        chronicle: the one that the engine was given.
        digest: makes what is shown in place of a digest.
        clock: seconds.
        cpu_clock: seconds that this thread has worked: waiting for agents that are busy is no
            reason to look less often.

    >>> from tidegauge.events import RunStarted
    >>> chronicle = Chronicle()
    >>> engine = Engine(chronicle=chronicle)
    >>> engine.run_started(RunStarted(run="r1", agent="browser"))
    >>> told = LiveReading(engine, chronicle, digest=bytes.hex).read(Asked())
    >>> told["fleet"]["running"], [row["agent"] for row in told["runs"]["rows"]]
    (1, ['browser'])
    """

    def __init__(
        self,
        engine: Engine,
        chronicle: Chronicle,
        *,
        digest: Digest,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._engine = engine
        self._chronicle = chronicle
        self._digest = digest
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._process = os.urandom(8).hex()  # a page learns from it that it talks to another one
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._fleet: Fleet | None = None
        self._read_at = 0.0
        self._took = 0.0

    def read(self, asked: Asked) -> dict[str, Any]:
        """All that is to be shown now, ready for JSON. ``None`` stands for not measured."""
        fleet = self._current()
        found = fleet.runs if not asked.find else _found(fleet.runs, asked.find)
        shown = found[asked.first : asked.first + min(asked.rows, MAX_ROWS)]
        looping = fleet.runs[: min(fleet.looping, _MAX_LOOPING)]
        happenings = self._chronicle.happenings(asked.after)
        return {
            "process": self._process,
            "time": time.time(),
            "pause": max(_LEAST_PAUSE, _SHARE * self._took),
            "contents": self._chronicle.contents,
            "fleet": fleet.numbers,
            "looping": [read_row(run, fleet) for run in looping],
            "runs": {
                "total": len(found),
                "first": asked.first,
                "rows": [read_row(run, fleet) for run in shown],
            },
            "chosen": None if asked.run is None else self._chosen(asked.run, fleet),
            "happenings": [_told(one) for one in happenings],
        }

    def _current(self) -> Fleet:
        """The fleet as it was read last, or read anew when that is too old."""
        with self._lock:  # those who ask meanwhile take what the first one reads
            age = self._clock() - self._read_at
            if self._fleet is None or age > max(_LEAST_AGE, _SHARE * self._took):
                began = self._cpu_clock()
                self._fleet = read_fleet(self._engine.held(), tokens=self._chronicle.tells_tokens)
                self._took = self._cpu_clock() - began
                self._read_at = self._clock()
            return self._fleet

    def _chosen(self, number: int, fleet: Fleet) -> dict[str, Any] | None:
        ended = self._chronicle.ended(number)
        if ended is not None:
            return read_ended(ended, self._digest)
        run = fleet.by_number.get(number)
        return None if run is None else read_run(run, fleet, self._digest)


def _found(runs: list[RunState], text: str) -> list[RunState]:
    wanted = text.casefold()
    return [run for run in runs if wanted in _names(run).casefold()]


def _names(run: RunState) -> str:
    started = run.started
    names = (started.run, started.agent, started.task_group, started.model or "")
    return "\n".join([str(name)[:MAX_LENGTH] for name in names])


def _told(one: Happening) -> dict[str, Any]:
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

"""Recorded runs as a fleet at work: many at a time, step after step, on a clock of its own."""

from __future__ import annotations

import heapq
import random
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tidegauge.events import RunEnded, RunStarted, Signals
from tidegauge.exporters.prometheus.collector import write_text
from tidegauge.exporters.reading import read_families
from tidegauge.recordings.step_events import RecordedStep, parse_line
from tidegauge.streaming_metrics import Engine

__all__ = ["MEAN_STEP_SECONDS", "Fleet", "RecordedRun", "Trouble", "recorded"]

MEAN_STEP_SECONDS = 10.0
"""Of the model's answer and the tool's result together."""

_SPREAD = 0.5
"""Standard deviation of the logarithm of a step's duration: one step in forty takes 2.4 times as
long as the median, or more."""

_THINKING = 0.8
"""Share of a step's duration until its action is chosen."""


class RecordedRun(NamedTuple):
    """A run of a recording."""

    start: RunStarted
    steps: list[RecordedStep]
    end: RunEnded


def recorded(files: Sequence[Path]) -> Iterator[RecordedRun]:
    """The runs of recordings, in their order: in a file, one comes after the other."""
    for path in files:
        start, steps = None, list[RecordedStep]()
        for line in path.read_bytes().splitlines():
            event = parse_line(line)
            if isinstance(event, RunStarted):
                start, steps = event, []
            elif isinstance(event, RecordedStep):
                steps.append(event)
            elif isinstance(event, RunEnded) and start is not None:
                yield RecordedRun(start, steps, event)


class Trouble(NamedTuple):
    """A moment from which an alert may have to fire.

    Attributes:
        at: seconds of the epoch.
        alert: its name.
        value: which of the alert's thresholds the run has reached.
        labels: agent and task group.
    """

    at: float
    alert: str
    value: int
    labels: tuple[str, str]


class Fleet:
    """Runs at work: each takes steps one after the other, and when it ends, the next one begins.

    Args:
        runs: the runs, in the order in which they begin.
        at_once: how many are at work at the same time.
        begin: when the first ones begin, in seconds of the epoch.
        thresholds: signals and their thresholds, by alert.
        seed: of the durations.

    Attributes:
        troubles: what happened so far.
    """

    def __init__(
        self,
        runs: Sequence[RecordedRun],
        *,
        at_once: int,
        begin: float,
        thresholds: Mapping[str, tuple[str, Sequence[int]]],
        seed: int = 0,
    ) -> None:
        self.now = begin
        self.engine = Engine(clock=lambda: self.now)
        self.troubles: list[Trouble] = []
        self._thresholds = thresholds
        self._random = random.Random(seed)
        self._waiting = iter(runs)
        self._moments: list[tuple[float, int, Iterator[float]]] = []
        for number in range(at_once):
            # They have begun at some time before, as in a fleet that was at work.
            self._after(self._random.random() * MEAN_STEP_SECONDS, number, self._work())

    def pages(self, every: float, names: Container[str]) -> Iterator[str]:
        """What ``/metrics`` says at each scrape until all work is done.

        Args:
            every: seconds between two scrapes.
            names: the metrics that it shows.
        """
        moment = self.now
        while self._moments:
            moment += every
            self._until(moment)
            families = [one for one in read_families(self.engine) if one.metric.name in names]
            yield write_text(families).decode()

    def _until(self, moment: float) -> None:
        while self._moments and self._moments[0][0] <= moment:
            self.now, number, work = heapq.heappop(self._moments)
            seconds = next(work, None)
            if seconds is not None:
                self._after(seconds, number, work)
        self.now = moment

    def _after(self, seconds: float, number: int, work: Iterator[float]) -> None:
        heapq.heappush(self._moments, (self.now + seconds, number, work))

    def _work(self) -> Iterator[float]:
        """One place of the fleet: after each moment, how long it is to the next."""
        for run in self._waiting:
            self.engine.run_started(run.start)
            before = None
            for step in run.steps:
                seconds = MEAN_STEP_SECONDS * self._random.lognormvariate(
                    -(_SPREAD**2) / 2, _SPREAD
                )
                yield _THINKING * seconds
                before = self._look(run.start, before, self.engine.step_issued(step.issued))
                yield (1 - _THINKING) * seconds
                before = self._look(run.start, before, self.engine.step_observed(step.observed))
            self.engine.run_ended(run.end)

    def _look(self, run: RunStarted, before: Signals | None, now: Signals | None) -> Signals:
        assert now is not None
        for alert, (signal, thresholds) in self._thresholds.items():
            value, earlier = (getattr(one, signal) or 0 if one else 0 for one in (now, before))
            for threshold in thresholds:
                if earlier < threshold <= value:
                    labels = run.agent, run.task_group
                    self.troubles.append(Trouble(self.now, alert, threshold, labels))
        return now

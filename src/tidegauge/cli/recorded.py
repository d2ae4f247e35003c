"""Recorded runs: what the commands that read recordings have in common."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

import click

from tidegauge.cli.faults import FaultLog
from tidegauge.cli.progress import ByteProgress, total_bytes
from tidegauge.events import Decision, Outcome, RunEnded, RunStarted, RunSummary, Step
from tidegauge.instrumentation.replay import Line, read_lines
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy
from tidegauge.streaming_metrics import Engine, GroupKey, GroupSnapshot, RunReport

__all__ = ["RecordedRuns", "replay_files"]

_MAX_ACTIONS: Final = 1_000
_BUFFER_BYTES: Final = 1 << 20


class RecordedRuns:
    """The sink of live runs, on recorded ones: every run's report is kept, and none expires.

    A run is reported once it ended; :meth:`reports` and :meth:`groups` count those that did not,
    as unfinished. A run that is started again under its id was not finished either.

    Memory: about 1 kB a run, and the engine's state for each that is open at a time.

    Args:
        policy: decides.

    Attributes:
        engine: the engine that measures.
    """

    def __init__(self, policy: Policy) -> None:
        self.engine = Engine(
            clock=None,
            max_runs=sys.maxsize,
            max_groups=sys.maxsize,
            max_actions=_MAX_ACTIONS,
            repetition=policy.lines.reads_words,
            on_finished=self._finished,
        )
        self._sink = EngineSink(self.engine, policy)
        self._reports: list[RunReport | None] = []  # in the order of the runs' first lines
        self._open: dict[str, int] = {}  # run id -> index among them

    def run_started(self, event: RunStarted) -> None:
        """A run began."""
        if event.run in self._open:
            # The engine ends it as unknown; here it is one that did not finish.
            self._keep(event.run)
            del self._open[event.run]
        self._sink.run_started(event)
        self._open[event.run] = len(self._reports)
        self._reports.append(None)

    def step_issued(self, event: Step) -> Decision:
        """An action was issued."""
        return self._sink.step_issued(event)

    def step_observed(self, event: Outcome) -> Decision:
        """An outcome was observed."""
        return self._sink.step_observed(event)

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        """A run ended."""
        return self._sink.run_ended(event)

    def reports(self) -> list[RunReport]:
        """Every run, in the order of their first lines."""
        for run in self._open:
            self._keep(run)
        return [report for report in self._reports if report is not None]

    def groups(self) -> dict[GroupKey, GroupSnapshot]:
        """Every group of runs, in the order of their first lines."""
        found = {group.key: group for group in self.engine.snapshot().groups}
        return {report.group: found[report.group] for report in self.reports()}

    def _keep(self, run: str) -> None:
        state = self.engine.get(run)
        if state is not None:
            self._reports[self._open[run]] = state.report()

    def _finished(self, report: RunReport) -> None:
        index = self._open.pop(report.run, None)
        if index is not None:
            self._reports[index] = report


class _TakesLines(Protocol):
    """A replay, or what stands in front of one."""

    def take(self, line: Line, source: str, /) -> None:
        """Take one line."""


def replay_files(files: Iterable[str], replay: _TakesLines, faults: FaultLog) -> None:
    """Take every line of every file, ``-`` being standard input; show progress on a terminal."""
    files = list(files)
    with ByteProgress(total_bytes(files)) as progress:
        for file in files:
            source = "<stdin>" if file == "-" else click.format_filename(file)
            lines = _lines(file)
            while True:
                try:
                    line = next(lines, None)
                except OSError as error:  # of reading alone: what takes lines may write some
                    faults.unreadable(source, error)
                    break
                if line is None:
                    break
                replay.take(line, source)
                progress.advance(line.size)
            faults.end_of_file()


def _lines(file: str) -> Iterator[Line]:
    if file == "-":
        yield from read_lines(sys.stdin.buffer)
        return
    with open(file, "rb", buffering=_BUFFER_BYTES) as stream:
        yield from read_lines(stream)

"""The runs for which a condition holds, written as they were recorded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, BinaryIO

from tidegauge.diagnose.recorded_run import fields_of
from tidegauge.events import Decision, Outcome, RunEnded, RunStarted, RunSummary, Step
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy
from tidegauge.streaming_metrics import Engine, RunReport

__all__ = ["SelectedRuns"]


class SelectedRuns:
    """The sink of live runs, on recorded ones, that writes the lines of those that are chosen.

    Memory: the lines and the engine's state of the runs that are open.

    Args:
        holds: whether a run with these fields is chosen.
        out: where the lines go.

    Attributes:
        seen: how many runs there were.
        chosen: how many were written.
    """

    def __init__(self, holds: Callable[[dict[str, Any]], bool], out: BinaryIO) -> None:
        self.seen = 0
        self.chosen = 0
        self._holds = holds
        self._out = out
        self._engine = Engine(clock=None, max_runs=sys.maxsize, on_finished=self._finished)
        self._sink = EngineSink(self._engine, Policy())
        self._lines: dict[str, list[bytes]] = {}  # of the open runs
        self._ended: RunReport | None = None  # the run that the present line ended

    def run_started(self, event: RunStarted) -> None:
        """A run began; one that is open under the same id did not finish."""
        self._decide_unfinished(event.run)
        self._sink.run_started(event)
        self._ended = None
        self._lines[event.run] = []

    def step_issued(self, event: Step) -> Decision:
        """An action was issued."""
        return self._sink.step_issued(event)

    def step_observed(self, event: Outcome) -> Decision:
        """An outcome was observed."""
        return self._sink.step_observed(event)

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        """A run ended: it is decided once its last line is kept."""
        return self._sink.run_ended(event)

    def keep_line(self, run: str, line: bytes) -> None:
        """A line was taken."""
        self._lines[run].append(line)
        if self._ended is not None:
            self._decide(self._ended)
            self._ended = None

    def close(self) -> None:
        """Decide on the runs that did not end."""
        for run in list(self._lines):
            self._decide_unfinished(run)
        self._out.flush()

    def _finished(self, report: RunReport) -> None:
        self._ended = report

    def _decide_unfinished(self, run: str) -> None:
        state = self._engine.get(run)
        if state is not None:
            self._decide(state.report())

    def _decide(self, report: RunReport) -> None:
        lines = self._lines.pop(report.run, [])
        self.seen += 1
        if self._holds(fields_of(report)):
            self.chosen += 1
            self._out.writelines(line + b"\n" for line in lines)

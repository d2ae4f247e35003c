"""The lines of ``replay --steps-out``: one a step, told when the step is settled."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Any

from tidegauge.events import Decision, Outcome, RunEnded, RunStarted, RunSummary, Step, StepSink
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.run_state import RunState

__all__ = ["StepLines"]


class StepLines:
    """A sink in front of another that tells a line for every step.

    Whether a step loops is known once the repetition that it is part of is complete or broken
    off, so its line waits until then. Lines of one run come in order, runs interleave. As many
    wait as a cycle is long.

    Args:
        sink: takes the events.
        engine: where the sink measures them.
        tell: takes the lines.
    """

    def __init__(
        self, sink: StepSink, engine: Engine, tell: Callable[[dict[str, Any]], object]
    ) -> None:
        self._sink = sink
        self._engine = engine
        self._tell = tell
        self._waiting: dict[str, deque[dict[str, Any]]] = {}

    def run_started(self, event: RunStarted) -> None:
        """A run began."""
        self._settle(event.run)  # of one that is open under the same id
        self._waiting[event.run] = deque()
        self._sink.run_started(event)

    def step_issued(self, event: Step) -> Decision:
        """An action was issued: it is known whether it completes a repetition."""
        decision = self._sink.step_issued(event)
        run = self._engine.get(event.run)
        if run is not None:
            waiting = self._waiting.setdefault(event.run, deque())
            waiting.append(_line(event.run, run.steps - 1))
            for line in islice(reversed(waiting), run.loops.settled):
                line["loop"] = True
        return decision

    def step_observed(self, event: Outcome) -> Decision:
        """An outcome was observed: what else there is to know of its step is known."""
        decision = self._sink.step_observed(event)
        run = self._engine.get(event.run)
        if run is not None:
            step = run.steps - 1 if event.step is None else event.step
            for line in reversed(self._waiting.get(event.run) or ()):
                if line["t"] == step:  # else it was written: steps overlapped
                    line.update(_where(run))
                    break
            self._settle(event.run, but=run.loops.pending)
        return decision

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        """A run ended: nothing that waits can become a loop step any more."""
        self._settle(event.run)
        self._waiting.pop(event.run, None)
        return self._sink.run_ended(event)

    def close(self) -> None:
        """Tell what waits of the runs that did not end."""
        for run in self._waiting:
            self._settle(run)

    def _settle(self, run: str, but: int = 0) -> None:
        waiting = self._waiting.get(run) or deque()
        while len(waiting) > but:
            self._tell(waiting.popleft())


def _line(run: str, step: int) -> dict[str, Any]:
    """A step of which nothing is known yet but that it was issued."""
    return {
        "run": run,
        "t": step,
        "loop": False,
        "case": None,
        "gain": None,
        "progress": None,
        "error": None,
        "exploration_error": None,
        "exploitation_error": None,
        "stale": None,
        "frontier": None,
        "pending": None,
    }


def _where(run: RunState) -> dict[str, Any]:
    """Where the step has led. What its run doesn't tell is ``None``."""
    exploration = run.exploration
    if exploration is None:
        return {"stale": run.stale_score.current}
    return {
        "case": exploration.case,
        "gain": exploration.gain,
        "progress": exploration.progress if exploration.case is not None else None,
        "error": exploration.error,
        "exploration_error": exploration.exploration_error,
        "exploitation_error": exploration.exploitation_error,
        "stale": exploration.stale,
        "frontier": exploration.frontier,
        "pending": exploration.pending,
    }

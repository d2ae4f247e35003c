"""Stagnation: the combined score of a run, a clock that runs faster while it makes no progress.

Each completed step counts one, and up to three more if its action is similar to an earlier one;
current loop repeats, result streak and failed rounds are added. The weights are round numbers, the
same for every agent. They were evaluated on recordings of families of tasks other than those they
were chosen on (``docs/stop-rules.md``).

It is read from other metrics and keeps nothing itself. A run that does not measure its repetition
has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.streaming_metrics.declaration import (
    Declaration,
    Measured,
    RunView,
    Signal,
    over_active_runs,
)
from tidegauge.streaming_metrics.failed_rounds import FailedRounds
from tidegauge.streaming_metrics.loops import Loops
from tidegauge.streaming_metrics.repetition import Repetition
from tidegauge.streaming_metrics.result_streak import ResultStreak

STAGNATION_WEIGHTS: Final[Mapping[str, float]] = MappingProxyType(
    {
        "completed_steps": 1.0,
        "repetition": 3.0,
        "similarity": 3.0,
        "loop_repeats": 1.0,
        "result_streak": 0.5,
        "failed_rounds": 0.5,
    }
)
"""The weight of each part of the stagnation."""

_WORDS: Final = {
    "completed_steps": "steps",
    "repetition": "repetition",
    "similarity": "similarity of the last action",
    "loop_repeats": "loop repeats",
    "result_streak": "steps with the same result",
    "failed_rounds": "failed rounds",
}


def stagnation_parts(signals: Any) -> Mapping[str, float] | None:
    """The parts of a run's stagnation before they are weighted; ``None``, it is not measured.

    Args:
        signals: has the parts as attributes.

    >>> from tidegauge.events import Signals
    >>> signals = Signals("r", 4, 5, b"", b"", completed_steps=4, repetition=2.0, similarity=1.0)
    >>> stagnation_of(signals), stagnation_in_words(signals)
    (13.0, '4 steps + 3 x 2 repetition + 3 x 1 similarity of the last action')
    """
    if signals.repetition is None:
        return None
    return {
        "completed_steps": signals.completed_steps,
        "repetition": signals.repetition,
        "similarity": signals.similarity or 0.0,
        "loop_repeats": signals.loop_repeats,
        "result_streak": signals.result_streak or 0,
        "failed_rounds": signals.failed_rounds or 0,
    }


def stagnation_of(signals: Any) -> float | None:
    """The stagnation from a run's signals; ``None``, it is not measured."""
    parts = stagnation_parts(signals)
    if parts is None:
        return None
    return sum(STAGNATION_WEIGHTS[name] * value for name, value in parts.items())


def stagnation_in_words(signals: Any) -> str:
    """The parts in words, such as ``12 steps + 3 x 4.1 repetition``."""
    parts = stagnation_parts(signals) or {}
    return " + ".join(
        f"{value:g} {_WORDS[name]}"
        if weight == 1
        else f"{weight:g} x {round(value, 2):g} {_WORDS[name]}"
        for name, weight in STAGNATION_WEIGHTS.items()
        if (value := parts.get(name, 0))
    )


class _Parts:
    """The parts of a run's stagnation, read from its metrics."""

    __slots__ = (
        "completed_steps",
        "failed_rounds",
        "loop_repeats",
        "repetition",
        "result_streak",
        "similarity",
    )

    def __init__(self, run: RunView, repetition: Repetition) -> None:
        self.completed_steps = run.completed_steps
        self.failed_rounds = run.of(FailedRounds).current
        self.loop_repeats = run.of(Loops).repeats
        self.repetition = repetition.total
        self.result_streak = run.of(ResultStreak).current
        self.similarity = repetition.current


def stagnation_of_run(run: RunView) -> float | None:
    """The stagnation of a run now; ``None``, it is not measured."""
    repetition = run.find(Repetition)
    return None if repetition is None else stagnation_of(_Parts(run, repetition))


STAGNATION: Final = MetricDefinition(
    "tidegauge_stagnation",
    "gauge",
    "score",
    "Stagnation of active runs, the combined score: mean and maximum. Absent unless repetition is "
    "measured.",
    labels=(*GROUP_LABELS, "stat"),
    values=("mean", "max"),
)
RUN_STAGNATION: Final = MetricDefinition(
    "tidegauge_run_stagnation",
    "gauge",
    "score",
    "Stagnation of the run. Only for the most troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)

DECLARATION: Final[Declaration[Any]] = Declaration(
    name="stagnation",
    absent={"stagnation": None},
    report=lambda run, nothing: {"stagnation": stagnation_of_run(run)},
    signals=(
        Signal(
            name="stagnation",
            read=stagnation_of_run,
            help="the combined score: completed steps, repetition, loop repeats, result streak and "
            "failed rounds, weighted; measures repetition",
            message=lambda now, at: f"stagnation {now.stagnation:.4g} ({stagnation_in_words(now)})",
            threshold="positive",
            reads_words=True,
            stop="lost cause",
        ),
    ),
    of_group=(Measured(STAGNATION, over_active_runs("stagnation")),),
    of_run=(Measured(RUN_STAGNATION, lambda run: run.stagnation),),
)

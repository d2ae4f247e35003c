"""What trouble a run is in, or was in: the one place that decides it.

The series of single runs, the live page and the spans of ended runs all ask here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

from tidegauge.streaming_metrics.answers import Answers
from tidegauge.streaming_metrics.declaration import Declaration, RunView
from tidegauge.streaming_metrics.failed_rounds import FailedRounds
from tidegauge.streaming_metrics.loops import Loops
from tidegauge.streaming_metrics.result_streak import ResultStreak
from tidegauge.streaming_metrics.stale_score import StaleScore, is_stale

Trouble: TypeAlias = Literal["loop", "result_streak", "failed_rounds", "stale"]
"""A kind of trouble: that of ``tidegauge_loops_total``, or a stale score."""

TROUBLES: Final[tuple[Trouble, ...]] = get_args(Trouble)
"""The kinds of trouble, the surest first."""

SEVERITY: Final[Mapping[Trouble, Callable[[Any], float]]] = {
    "loop": lambda report: max(report.loop_repeats, report.turn_loop_repeats),
    "result_streak": lambda report: report.result_streak or 0,
    "failed_rounds": lambda report: report.failed_rounds or 0,
    "stale": lambda report: report.stale_score or 0,
}
"""How bad each trouble is, by the report of its run."""


def troubles_of(run: RunView) -> tuple[Trouble, ...]:
    """The troubles that a run is in now, the surest first. Call it with the run's lock."""
    onset_at = run.settings.onset_at
    answers = run.find(Answers)
    holds = (
        run.of(Loops).period > 0 or (answers is not None and answers.period > 0),
        (run.of(ResultStreak).current or 0) >= onset_at,
        (run.of(FailedRounds).current or 0) >= onset_at,
        is_stale(run.of(StaleScore).current, run.settings.stale_at),
    )
    if True not in holds:
        return ()
    return tuple([trouble for trouble, found in zip(TROUBLES, holds, strict=True) if found])


def past_troubles_of(run: RunView) -> tuple[Trouble, ...]:
    """The troubles that a run was in at any time. Call it with the run's lock."""
    onsets = run.totals.onsets
    stale = is_stale(run.of(StaleScore).maximum, run.settings.stale_at)
    return tuple([kind for kind in TROUBLES if (stale if kind == "stale" else kind in onsets)])


DECLARATION: Final[Declaration[Any]] = Declaration(
    name="trouble",
    absent={"troubles": (), "past_troubles": ()},
    report=lambda run, _: {
        "troubles": troubles_of(run),
        "past_troubles": past_troubles_of(run),
    },
)

"""Premature halts: runs that gave up while there was something left to do."""

from __future__ import annotations

from typing import Any, Final, Self

from tidegauge.catalog import MetricDefinition
from tidegauge.streaming_metrics.declaration import (
    Declaration,
    GroupDeclaration,
    GroupView,
    Measured,
)
from tidegauge.streaming_metrics.metric import GroupMetric
from tidegauge.streaming_metrics.records import FinishedRun

__all__ = ["DECLARATION", "OF_GROUPS", "PREMATURE_HALTS", "PrematureHalts", "premature_halt"]


def premature_halt(run: FinishedRun) -> bool | None:
    """Whether the run ended without success while places or tasks were left.

    ``None`` while neither frontier nor pending tasks were measured, or it is not known whether the
    run succeeded.

    >>> premature_halt(FinishedRun(False, steps=4, frontier=2, pending=0))
    True
    >>> premature_halt(FinishedRun(False, steps=4)) is None
    True
    """
    if run.success is None or (run.frontier is None and run.pending is None):
        return None
    return not run.success and bool(run.frontier or run.pending)


class PrematureHalts(GroupMetric):
    """Runs that ended without success while the frontier or the pending tasks were not empty.

    The share of such runs, and how much they left. A run that a policy stopped or that raised is
    one as well: it ended without success. O(1) time and memory.

    Source: LORE (The Agent's Marathon), section 4.4; frontier and pending tasks as in
    Exploration and Exploitation Errors (arXiv 2604.13151), section 4.

    Attributes:
        runs: runs of which it is known.
        halts: those that halted prematurely.
        frontier_left: places that these left unvisited.
        pending_left: ready tasks that they left.
        displaced_leads: of the places left, those that newer ones had displaced.

    >>> halts = PrematureHalts()
    >>> halts.update(FinishedRun(False, steps=4, frontier=3, pending=1))
    >>> halts.update(FinishedRun(True, steps=9, frontier=5, pending=0))
    >>> halts.value, halts.frontier_left, halts.pending_left
    (0.5, 3, 1)
    """

    __slots__ = ("displaced_leads", "frontier_left", "halts", "pending_left", "runs")

    def __init__(self) -> None:
        self.runs = 0
        self.halts = 0
        self.frontier_left = 0
        self.pending_left = 0
        self.displaced_leads = 0

    def update(self, step: FinishedRun) -> None:
        """Take a finished run."""
        halted = premature_halt(step)
        if halted is None:
            return
        self.runs += 1
        if halted:
            self.halts += 1
            self.frontier_left += step.frontier or 0
            self.pending_left += step.pending or 0
            self.displaced_leads += step.displaced_leads or 0

    def merge(self, other: Self) -> None:
        """Add the runs of ``other``."""
        self.runs += other.runs
        self.halts += other.halts
        self.frontier_left += other.frontier_left
        self.pending_left += other.pending_left
        self.displaced_leads += other.displaced_leads

    @property
    def value(self) -> float | None:
        """Premature halts / runs of which it is known, 0 to 1; ``None`` without any."""
        return self.halts / self.runs if self.runs else None


PREMATURE_HALTS: Final = MetricDefinition(
    "tidegauge_premature_halts_total",
    "counter",
    "runs",
    "Runs that ended without success while places were unvisited or tasks were ready.",
)


def _halts(group: GroupView) -> int | None:
    halts: int = group.finished.of(PrematureHalts).halts
    return halts if group.placed else None


DECLARATION: Final[Declaration[Any]] = Declaration(
    name="premature_halt",
    absent={"premature_halt": None},
    report=lambda run, _: {
        "premature_halt": None if run.ended is None else premature_halt(run.ended)
    },
    document=lambda report: {"premature_halt": report.premature_halt},
)

OF_GROUPS: Final = GroupDeclaration(
    name="premature_halts",
    kind=PrematureHalts,
    of_group=(Measured(PREMATURE_HALTS, _halts),),
)

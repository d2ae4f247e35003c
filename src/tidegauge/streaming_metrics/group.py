"""One group of runs: sums over those that finished."""

from __future__ import annotations

from typing import Final, TypeVar, cast

from tidegauge.events import RunOutcome
from tidegauge.streaming_metrics.buckets import Buckets, Exemplar, add_exemplars
from tidegauge.streaming_metrics.metric import GroupMetric
from tidegauge.streaming_metrics.records import FinishedRun
from tidegauge.streaming_metrics.registry import GROUPS, HISTOGRAMS
from tidegauge.streaming_metrics.totals import Totals

G = TypeVar("G", bound=GroupMetric)

_OF_LOOPS: Final = frozenset(one.kind for one in GROUPS if one.loops)
"""Metrics of groups that need the loops of a run."""


class Group:
    """Sums over the finished runs of one group. An engine replaces its groups by changed copies.

    Attributes:
        totals: sums over their steps.
        moved_in: runs that began in another engine.
        moved_out: runs that moved to another engine.
        finished: how many runs ended, by outcome.
        exemplars: the last run of each outcome.
        metrics: the group's metrics, by class.
        histograms: its histograms, by name.
    """

    __slots__ = (
        "exemplars",
        "finished",
        "histograms",
        "metrics",
        "moved_in",
        "moved_out",
        "totals",
    )

    def __init__(self) -> None:
        self.totals = Totals()
        self.moved_in = 0
        self.moved_out = 0
        self.finished: dict[RunOutcome, int] = {}
        self.exemplars: dict[RunOutcome, Exemplar] = {}
        self.metrics: dict[type[GroupMetric], GroupMetric] = {
            one.kind: one.made() for one in GROUPS
        }
        self.histograms = {one.name: Buckets(one.bounds) for one in HISTOGRAMS}

    def of(self, kind: type[G], /) -> G:
        """The group's metric of that class."""
        return cast("G", self.metrics[kind])

    @property
    def runs(self) -> int:
        """How many runs ended."""
        return sum(self.finished.values())

    def merge(self, other: Group) -> None:
        """Add the runs of ``other``."""
        self.totals.add(other.totals)
        self.moved_in += other.moved_in
        self.moved_out += other.moved_out
        for outcome, count in other.finished.items():
            self.finished[outcome] = self.finished.get(outcome, 0) + count
        for kind, metric in self.metrics.items():
            metric.merge(other.metrics[kind])
        for name, buckets in self.histograms.items():
            buckets.add(other.histograms[name])
        add_exemplars(self.exemplars, other.exemplars)

    def copy(self) -> Group:
        """An independent copy."""
        group = Group()
        group.merge(self)
        return group

    def add_run(self, run: FinishedRun, totals: Totals) -> None:
        """Add a finished run, and the totals that were counted for it here."""
        self.totals.add(totals)
        self.finished[run.outcome] = self.finished.get(run.outcome, 0) + 1
        for kind, metric in self.metrics.items():
            if "loops" not in run.lost or kind not in _OF_LOOPS:
                metric.update(run)
        for one in HISTOGRAMS:
            value = one.read(run)
            if value is not None:
                self.histograms[one.name].observe(value, _exemplar(run, value))
        last = _exemplar(run, 1.0)
        if last is not None:
            self.exemplars[run.outcome] = last


def _exemplar(run: FinishedRun, value: float) -> Exemplar | None:
    if run.trace_id is None or run.ended is None:
        return None
    return Exemplar(run.trace_id, value, run.ended)

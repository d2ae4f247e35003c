"""One group of runs: what its finished runs add up to."""

from __future__ import annotations

from tidegauge.events import RunOutcome
from tidegauge.streaming_metrics.auv import AUV
from tidegauge.streaming_metrics.loop_ratio import LoopRatio
from tidegauge.streaming_metrics.records import FinishedRun
from tidegauge.streaming_metrics.success import SuccessCurve, SuccessRate
from tidegauge.streaming_metrics.totals import (
    RUN_STEP_BOUNDS,
    SUCCESS_TURN_BOUNDS,
    Buckets,
    Totals,
)

__all__ = ["Group"]


class Group:
    """Sums over the finished runs of one group. Never changed once it is published:
    :meth:`with_run` gives a new one, so that readers need no lock."""

    __slots__ = (
        "auv",
        "finished",
        "loop_ratio",
        "run_steps",
        "success_curve",
        "success_rate",
        "success_turn",
        "totals",
    )

    def __init__(self) -> None:
        self.totals = Totals()
        self.finished: dict[RunOutcome, int] = {}
        self.success_rate = SuccessRate()
        self.success_curve = SuccessCurve()
        self.auv = AUV()
        self.loop_ratio = LoopRatio()
        self.run_steps = Buckets(RUN_STEP_BOUNDS)
        self.success_turn = Buckets(SUCCESS_TURN_BOUNDS)

    @property
    def runs(self) -> int:
        """How many runs ended."""
        return sum(self.finished.values())

    def merge(self, other: Group) -> None:
        """Add the runs of ``other``."""
        self.totals.add(other.totals)
        for outcome, count in other.finished.items():
            self.finished[outcome] = self.finished.get(outcome, 0) + count
        self.success_rate.merge(other.success_rate)
        self.success_curve.merge(other.success_curve)
        self.auv.merge(other.auv)
        self.loop_ratio.merge(other.loop_ratio)
        self.run_steps.add(other.run_steps)
        self.success_turn.add(other.success_turn)

    def with_run(self, run: FinishedRun, totals: Totals) -> Group:
        """This group and one more finished run."""
        group = Group()
        group.merge(self)
        group.totals.add(totals)
        group.finished[run.outcome] = group.finished.get(run.outcome, 0) + 1
        for metric in (group.success_rate, group.success_curve, group.auv, group.loop_ratio):
            metric.update(run)
        group.run_steps.observe(run.steps)
        if run.success:
            group.success_turn.observe(max(run.steps, 1))
        return group

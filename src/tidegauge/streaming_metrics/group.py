"""One group of runs: what its finished runs add up to."""

from __future__ import annotations

from tidegauge.events import RunOutcome
from tidegauge.streaming_metrics.auv import AUV
from tidegauge.streaming_metrics.entropy_split import GroupEntropySplit
from tidegauge.streaming_metrics.horizon import SuccessByHorizon
from tidegauge.streaming_metrics.loop_ratio import LoopRatio
from tidegauge.streaming_metrics.loop_split import LoopActionShare, LoopSplit
from tidegauge.streaming_metrics.metric import GroupMetric
from tidegauge.streaming_metrics.pass_at_k import PassAtK
from tidegauge.streaming_metrics.premature_halt import PrematureHalts
from tidegauge.streaming_metrics.recall_lag import GroupRecallLag
from tidegauge.streaming_metrics.records import FinishedRun
from tidegauge.streaming_metrics.success import SuccessCurve, SuccessRate
from tidegauge.streaming_metrics.totals import (
    RUN_STEP_BOUNDS,
    STALE_SCORE_BOUNDS,
    SUCCESS_TURN_BOUNDS,
    Buckets,
    Exemplar,
    Totals,
    add_exemplars,
)

__all__ = ["Group"]


class Group:
    """Sums over the finished runs of one group. Never changed once it is published:
    :meth:`with_run` and :meth:`with_moved` give a new one, so that readers need no lock."""

    __slots__ = (
        "auv",
        "entropy_split",
        "exemplars",
        "finished",
        "loop_action_share",
        "loop_ratio",
        "loop_split",
        "moved_in",
        "moved_out",
        "pass_at_k",
        "premature_halts",
        "recall_lag",
        "run_steps",
        "stale_score_max",
        "success_by_horizon",
        "success_curve",
        "success_rate",
        "success_turn",
        "totals",
    )

    def __init__(self) -> None:
        self.totals = Totals()
        self.moved_in = 0  # runs that began in another engine
        self.moved_out = 0  # runs that went to another one
        self.finished: dict[RunOutcome, int] = {}
        self.exemplars: dict[RunOutcome, Exemplar] = {}  # the last run of each outcome
        self.success_rate = SuccessRate()
        self.success_curve = SuccessCurve()
        self.auv = AUV()
        self.loop_ratio = LoopRatio()
        self.loop_split = LoopSplit()
        self.loop_action_share = LoopActionShare()
        self.pass_at_k = PassAtK(max_tasks=1_000)  # copied at the end of every run
        self.success_by_horizon = SuccessByHorizon()
        self.premature_halts = PrematureHalts()
        self.recall_lag = GroupRecallLag()
        self.entropy_split = GroupEntropySplit()
        self.run_steps = Buckets(RUN_STEP_BOUNDS)
        self.success_turn = Buckets(SUCCESS_TURN_BOUNDS)
        self.stale_score_max = Buckets(STALE_SCORE_BOUNDS)

    @property
    def runs(self) -> int:
        """How many runs ended."""
        return sum(self.finished.values())

    def metrics(self) -> tuple[GroupMetric, ...]:
        """Its metrics, always in the same order."""
        return (
            self.success_rate,
            self.success_curve,
            self.auv,
            self.loop_ratio,
            self.loop_split,
            self.loop_action_share,
            self.pass_at_k,
            self.success_by_horizon,
            self.premature_halts,
            self.recall_lag,
            self.entropy_split,
        )

    def _of_loops(self) -> tuple[GroupMetric, ...]:
        """Those that need to know where a run looped."""
        return self.loop_ratio, self.loop_split, self.loop_action_share

    def merge(self, other: Group) -> None:
        """Add the runs of ``other``."""
        self.totals.add(other.totals)
        self.moved_in += other.moved_in
        self.moved_out += other.moved_out
        for outcome, count in other.finished.items():
            self.finished[outcome] = self.finished.get(outcome, 0) + count
        for mine, theirs in zip(self.metrics(), other.metrics(), strict=True):
            mine.merge(theirs)
        self.run_steps.add(other.run_steps)
        self.success_turn.add(other.success_turn)
        self.stale_score_max.add(other.stale_score_max)
        add_exemplars(self.exemplars, other.exemplars)

    def with_moved(self, *, out: Totals | None = None) -> Group:
        """This group and a run that came, or one that went after so much was counted of it here."""
        group = Group()
        group.merge(self)
        if out is None:
            group.moved_in += 1
        else:
            group.moved_out += 1
            group.totals.add(out)
        return group

    def with_run(self, run: FinishedRun, totals: Totals) -> Group:
        """This group and one more finished run."""
        group = Group()
        group.merge(self)
        group.totals.add(totals)
        group.finished[run.outcome] = group.finished.get(run.outcome, 0) + 1
        for metric in group.metrics():
            if "loops" not in run.lost or metric not in group._of_loops():
                metric.update(run)
        group.run_steps.observe(run.steps, _exemplar(run, run.steps))
        if run.success:
            turn = max(run.steps, 1)
            group.success_turn.observe(turn, _exemplar(run, turn))
        if run.stale_score_max is not None:
            worst = run.stale_score_max
            group.stale_score_max.observe(worst, _exemplar(run, worst))
        last = _exemplar(run, 1.0)
        if last is not None:
            group.exemplars[run.outcome] = last
        return group


def _exemplar(run: FinishedRun, value: float) -> Exemplar | None:
    if run.trace_id is None or run.ended is None:
        return None
    return Exemplar(run.trace_id, value, run.ended)

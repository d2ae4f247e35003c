"""Progress AUV: the area under one run's best progress so far."""

from __future__ import annotations

import math
from typing import ClassVar, Final

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.streaming_metrics.declaration import (
    Declaration,
    GroupHistogram,
    Measured,
    RunView,
    Signal,
)
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import ObservedStep


class ProgressAUV(Metric[ObservedStep]):
    """Area under the best progress so far over ``t_max`` turns, as a share of the whole.

    The area a run would have if nothing better came: each rise of the best progress at turn k
    adds its height times ``(t_max - k + 0.5) / t_max``. A turn past ``t_max`` adds nothing, and a
    turn that reports no progress leaves the best as it was. Progress beyond 0 and 1 counts as the
    nearer of the two. O(1) time and memory.

    Source: TIDE (arXiv 2602.02196), section 3.1 and appendix B.2, lemma 1 applied to progress.

    Args:
        t_max: turns within which progress counts; ``None``, the area is not measured.

    >>> auv = ProgressAUV(t_max=5)
    >>> for t, progress in enumerate([0.7, 0.325]):
    ...     auv.update(ObservedStep(t, progress=progress))
    >>> round(auv.value, 12)
    0.63
    """

    takes: ClassVar[type] = ObservedStep
    version: ClassVar[int] = 2
    __slots__ = ("_area", "best", "t_max", "turns")

    def __init__(self, *, t_max: int | None = None) -> None:
        self.t_max = t_max
        self.best: float | None = None
        self.turns = 0
        self._area = 0.0

    def update(self, step: ObservedStep) -> None:
        """Take the next observed step."""
        turn = step.t + 1
        self.turns = max(self.turns, turn)
        if step.progress is None or math.isnan(step.progress):
            return
        progress = min(max(step.progress, 0.0), 1.0)
        rise = progress - (self.best or 0.0)
        if self.best is None or rise > 0:
            self.best = progress
        if rise > 0 and self.t_max and turn <= self.t_max:
            self._area += rise * (self.t_max - turn + 0.5) / self.t_max

    @property
    def value(self) -> float | None:
        """The area, 0 to 1; ``None`` without ``t_max`` or while no progress was reported."""
        return self._area if self.best is not None and self.t_max else None

    @property
    def upper(self) -> float | None:
        """The area if the next turn completes the task: the most that the run can still reach."""
        if self.best is None or not self.t_max:
            return None
        left = max(self.t_max - self.turns - 0.5, 0.0)
        return self._area + (1 - self.best) * left / self.t_max


RUN_PROGRESS: Final = MetricDefinition(
    "tidegauge_run_progress",
    "gauge",
    "ratio",
    "Best progress the run has reported, 0 to 1. Only for the most troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)

RUN_PROGRESS_AUV: Final = MetricDefinition(
    "tidegauge_run_progress_auv",
    "gauge",
    "ratio",
    "Area under the run's best progress over its t_max turns, 0 to 1, if nothing better comes. "
    "Only for the most troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)
PROGRESS_AUV: Final = MetricDefinition(
    "tidegauge_progress_auv",
    "histogram",
    "ratio",
    "Area under the best progress of finished runs over their t_max turns, 0 to 1.",
)


def _upper(run: RunView) -> float | None:
    progress = run.find(ProgressAUV)
    return None if progress is None else progress.upper


DECLARATION: Final = Declaration(
    name="progress_auv",
    kind=ProgressAUV,
    make=lambda run: ProgressAUV(t_max=run.t_max),
    observed=True,
    takes_skipped=True,
    brought_by=("progress",),
    absent={"progress": None, "progress_auv": None},
    report=lambda run, progress: {"progress": progress.best, "progress_auv": progress.value},
    document=lambda report: {"progress_auv": report.progress_auv},
    ended=lambda run, progress: {"progress_auv": progress.value},
    signals=(
        Signal(
            name="progress_auv_upper",
            read=_upper,
            help="the highest progress AUV that the run can still reach: if its next turn "
            "completes the task; a rule holds at or below its threshold",
            message=lambda now, at: (
                f"the run can reach a progress AUV of {now.progress_auv_upper:.0%} at most"
            ),
            threshold="share",
            falls=True,
            score=False,
            of_skipped=True,
            stop="lost cause",
        ),
    ),
    of_run=(
        Measured(RUN_PROGRESS, lambda run: run.progress),
        Measured(RUN_PROGRESS_AUV, lambda run: run.progress_auv),
    ),
    histograms=(
        GroupHistogram(
            "progress_auv",
            PROGRESS_AUV,
            tuple(share / 10 for share in range(11)),
            lambda run: run.progress_auv,
        ),
    ),
)

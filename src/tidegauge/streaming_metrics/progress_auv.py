"""Progress AUV: the area under one run's best progress so far."""

from __future__ import annotations

import math
from typing import ClassVar, Final

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.streaming_metrics.declaration import Declaration, Measured
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import ObservedStep

__all__ = ["DECLARATION", "RUN_PROGRESS", "ProgressAUV"]


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
    __slots__ = ("_area", "best", "t_max")

    def __init__(self, *, t_max: int | None = None) -> None:
        self.t_max = t_max
        self.best: float | None = None
        self._area = 0.0

    def update(self, step: ObservedStep) -> None:
        """Take the next observed step."""
        if step.progress is None or math.isnan(step.progress):
            return
        progress = min(max(step.progress, 0.0), 1.0)
        rise = progress - (self.best or 0.0)
        if self.best is None or rise > 0:
            self.best = progress
        turn = step.t + 1
        if rise > 0 and self.t_max and turn <= self.t_max:
            self._area += rise * (self.t_max - turn + 0.5) / self.t_max

    @property
    def value(self) -> float | None:
        """The area, 0 to 1; ``None`` without ``t_max`` or while no progress was reported."""
        return self._area if self.best is not None and self.t_max else None


RUN_PROGRESS: Final = MetricDefinition(
    "tidegauge_run_progress",
    "gauge",
    "ratio",
    "Best progress the run has reported, 0 to 1. Only for the most troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)

DECLARATION: Final = Declaration(
    name="progress_auv",
    kind=ProgressAUV,
    make=lambda run: ProgressAUV(t_max=run.t_max),
    observed=True,
    brought_by=("progress",),
    absent={"progress": None, "progress_auv": None},
    report=lambda run, progress: {"progress": progress.best, "progress_auv": progress.value},
    document=lambda report: {"progress_auv": report.progress_auv},
    ended=lambda run, progress: {"progress_auv": progress.value},
    of_run=(Measured(RUN_PROGRESS, lambda run: run.progress),),
)

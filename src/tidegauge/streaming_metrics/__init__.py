"""Every number, one algorithm a file. This page is the catalogue.

Of one run, fed its steps: :class:`Loops`, :class:`LoopCost`, :class:`ResultStreak`,
:class:`Recurrence`, :class:`Novelty`, :class:`FailedRounds`, :class:`ProgressAUV`.

Of a group of runs, fed finished runs and adding up: :class:`SuccessRate`, :class:`SuccessCurve`,
:class:`AUV`, :class:`LoopRatio`.

:class:`Engine` holds the runs and gives snapshots.
"""

from tidegauge.streaming_metrics.auv import AUV
from tidegauge.streaming_metrics.engine import Engine
from tidegauge.streaming_metrics.failed_rounds import FailedRounds
from tidegauge.streaming_metrics.loop_cost import LoopCost
from tidegauge.streaming_metrics.loop_ratio import LoopRatio
from tidegauge.streaming_metrics.loops import Loops
from tidegauge.streaming_metrics.metric import GroupMetric, Metric
from tidegauge.streaming_metrics.novelty import Novelty
from tidegauge.streaming_metrics.progress_auv import ProgressAUV
from tidegauge.streaming_metrics.records import FinishedRun, IssuedStep, ObservedStep
from tidegauge.streaming_metrics.recurrence import Recurrence
from tidegauge.streaming_metrics.result_streak import ResultStreak
from tidegauge.streaming_metrics.run_report import GroupKey, RunReport
from tidegauge.streaming_metrics.snapshot import GroupSnapshot, Snapshot
from tidegauge.streaming_metrics.success import SuccessCurve, SuccessRate

__all__ = [
    "AUV",
    "Engine",
    "FailedRounds",
    "FinishedRun",
    "GroupKey",
    "GroupMetric",
    "GroupSnapshot",
    "IssuedStep",
    "LoopCost",
    "LoopRatio",
    "Loops",
    "Metric",
    "Novelty",
    "ObservedStep",
    "ProgressAUV",
    "Recurrence",
    "ResultStreak",
    "RunReport",
    "Snapshot",
    "SuccessCurve",
    "SuccessRate",
]

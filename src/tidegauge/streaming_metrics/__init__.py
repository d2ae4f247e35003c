"""Every number, one algorithm a file. This page is the catalogue.

Of one run, fed its steps:

- where it repeats itself: :class:`Loops`, :class:`LoopCost`, :class:`TideLoops`,
  :class:`GuiLoops`, :class:`ResultStreak`, :class:`StuckStreak`, :class:`EmptyStreak`,
  :class:`FailedRounds`, :class:`Recurrence`, :class:`Novelty`, :class:`ActionSimilarity`,
  :class:`Repetition`
- where it goes: :class:`Exploration`, :class:`StaleScore`, :class:`Navigation`
- how it gets on: :class:`ProgressAUV`, :class:`RecallLag`, :class:`EntropySplit`

Of a group of runs, fed finished runs and adding up:

- success: :class:`SuccessRate`, :class:`SuccessCurve`, :class:`AUV`, :class:`PassAtK`,
  :class:`SuccessByHorizon`, :class:`MemoryIndex`, :class:`PrematureHalts`
- loops: :class:`LoopRatio`, :class:`LoopSplit`, :class:`LoopActionShare`
- their steps: :class:`GroupRecallLag`, :class:`GroupEntropySplit`

Beside them: :class:`Normalise` and :class:`EmbeddingMatcher` say which states are the same;
:class:`Engine` holds the runs and gives snapshots; :class:`EventLog` keeps the last steps of runs
and what happens in them. :mod:`~tidegauge.streaming_metrics.registry` lists what each metric adds
to runs, reports, exporters and policies.
"""

from tidegauge.entropy import token_entropy
from tidegauge.streaming_metrics.auv import AUV
from tidegauge.streaming_metrics.embedding import EmbeddingMatcher
from tidegauge.streaming_metrics.empty_streak import EmptyStreak
from tidegauge.streaming_metrics.engine import Engine
from tidegauge.streaming_metrics.entropy_split import EntropySplit, GroupEntropySplit
from tidegauge.streaming_metrics.exploration import Exploration
from tidegauge.streaming_metrics.failed_rounds import FailedRounds
from tidegauge.streaming_metrics.horizon import SuccessByHorizon
from tidegauge.streaming_metrics.loop_cost import LoopCost
from tidegauge.streaming_metrics.loop_ratio import LoopRatio
from tidegauge.streaming_metrics.loop_split import LoopActionShare, LoopSplit
from tidegauge.streaming_metrics.loops import Loops
from tidegauge.streaming_metrics.memory_index import MemoryIndex
from tidegauge.streaming_metrics.metric import GroupMetric, Metric
from tidegauge.streaming_metrics.navigation import Navigation
from tidegauge.streaming_metrics.noise import NearStreak
from tidegauge.streaming_metrics.normalise import Normalise
from tidegauge.streaming_metrics.novelty import Novelty
from tidegauge.streaming_metrics.pass_at_k import PassAtK
from tidegauge.streaming_metrics.premature_halt import PrematureHalts
from tidegauge.streaming_metrics.progress_auv import ProgressAUV
from tidegauge.streaming_metrics.recall_lag import GroupRecallLag, RecallLag
from tidegauge.streaming_metrics.records import FinishedRun, IssuedStep, ObservedStep
from tidegauge.streaming_metrics.recurrence import Recurrence
from tidegauge.streaming_metrics.repetition import ActionSimilarity, Repetition
from tidegauge.streaming_metrics.result_streak import ResultStreak
from tidegauge.streaming_metrics.snapshot import (
    GroupKey,
    GroupSnapshot,
    RunReport,
    Snapshot,
    group_entry,
    run_entry,
)
from tidegauge.streaming_metrics.stale_score import StaleScore
from tidegauge.streaming_metrics.step_history import EventLog
from tidegauge.streaming_metrics.stuck_streak import StuckStreak
from tidegauge.streaming_metrics.success import SuccessCurve, SuccessRate
from tidegauge.streaming_metrics.tide_loops import GuiLoops, TideLoops

__all__ = [
    "AUV",
    "ActionSimilarity",
    "EmbeddingMatcher",
    "EmptyStreak",
    "Engine",
    "EntropySplit",
    "EventLog",
    "Exploration",
    "FailedRounds",
    "FinishedRun",
    "GroupEntropySplit",
    "GroupKey",
    "GroupMetric",
    "GroupRecallLag",
    "GroupSnapshot",
    "GuiLoops",
    "IssuedStep",
    "LoopActionShare",
    "LoopCost",
    "LoopRatio",
    "LoopSplit",
    "Loops",
    "MemoryIndex",
    "Metric",
    "Navigation",
    "NearStreak",
    "Normalise",
    "Novelty",
    "ObservedStep",
    "PassAtK",
    "PrematureHalts",
    "ProgressAUV",
    "RecallLag",
    "Recurrence",
    "Repetition",
    "ResultStreak",
    "RunReport",
    "Snapshot",
    "StaleScore",
    "StuckStreak",
    "SuccessByHorizon",
    "SuccessCurve",
    "SuccessRate",
    "TideLoops",
    "group_entry",
    "run_entry",
    "token_entropy",
]

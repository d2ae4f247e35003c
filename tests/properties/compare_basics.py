"""The metrics whose batch versions are in ``batch.py``."""

from __future__ import annotations

from typing import Any

from tidegauge.streaming_metrics.auv import AUV
from tidegauge.streaming_metrics.empty_streak import EmptyStreak
from tidegauge.streaming_metrics.exploration import Exploration
from tidegauge.streaming_metrics.failed_rounds import FailedRounds
from tidegauge.streaming_metrics.loop_cost import LoopCost
from tidegauge.streaming_metrics.loop_ratio import LoopRatio
from tidegauge.streaming_metrics.loops import Loops
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.navigation import Navigation, zone_of
from tidegauge.streaming_metrics.noise import NearStreak
from tidegauge.streaming_metrics.novelty import Novelty
from tidegauge.streaming_metrics.progress_auv import ProgressAUV
from tidegauge.streaming_metrics.recurrence import Recurrence
from tidegauge.streaming_metrics.repetition import ActionSimilarity
from tidegauge.streaming_metrics.result_streak import ResultStreak
from tidegauge.streaming_metrics.stale_score import StaleScore
from tidegauge.streaming_metrics.stuck_streak import StuckStreak
from tidegauge.streaming_metrics.success import SuccessCurve, SuccessRate
from tidegauge.streaming_metrics.tide_loops import GuiLoops, TideLoops
from tidegauge.streaming_metrics.token_rate import TokenRate

from . import batch, streams
from .counterpart import Counterpart


def curve(metric):
    return [metric.at(turn) for turn in batch.CURVE_TURNS] if metric.runs else None


COUNTERPARTS: dict[type[Metric[Any]], Counterpart] = {
    Loops: Counterpart(streams.issued_steps(), batch.loops),
    TideLoops: Counterpart(streams.issued_steps(), batch.tide_loops),
    GuiLoops: Counterpart(streams.issued_steps(), batch.gui_loops),
    LoopCost: Counterpart(streams.loop_spendings(), batch.loop_cost),
    ResultStreak: Counterpart(streams.observed_steps(), batch.result_streak),
    StuckStreak: Counterpart(streams.observed_steps(), batch.stuck_streak),
    NearStreak: Counterpart(streams.numbered_results(), batch.near_streak),
    EmptyStreak: Counterpart(streams.observed_steps(), batch.empty_streak),
    TokenRate: Counterpart(streams.spending_steps(), batch.token_rate),
    FailedRounds: Counterpart(streams.observed_steps(), batch.failed_rounds),
    Recurrence: Counterpart(streams.observed_steps(), batch.recurrence),
    Novelty: Counterpart(streams.observed_steps(), batch.novelty),
    ActionSimilarity: Counterpart(streams.chosen_actions(), batch.action_similarity),
    ProgressAUV: Counterpart(streams.observed_steps(), batch.progress_auv, {"t_max": 16}),
    StaleScore: Counterpart(streams.placed_steps(), batch.stale_score, {"place": "a/1"}),
    Navigation: Counterpart(
        streams.placed_steps(),
        lambda steps, place: batch.navigation(steps, place, zone_of),
        {"place": "a/1"},
    ),
    Exploration: Counterpart(streams.worlds(), batch.exploration),
    SuccessRate: Counterpart(streams.finished_runs(), batch.success_rate),
    SuccessCurve: Counterpart(streams.finished_runs(), batch.success_curve, seen={"curve": curve}),
    AUV: Counterpart(streams.finished_runs(), batch.auv),
    LoopRatio: Counterpart(streams.finished_runs(), batch.loop_ratio),
}

"""A run's numbers as plain data: an entry of the document of ``replay --json``."""

from __future__ import annotations

from typing import Any

from tidegauge.streaming_metrics import RunReport

__all__ = ["run_entry"]


def run_entry(report: RunReport) -> dict[str, Any]:
    """One run, as the documents of the command line tell it. ``None`` is what was not measured."""
    stopped = None
    if report.intervention == "stop":
        stopped = {"step": report.intervention_step, "reason": report.intervention_reason}
    loops_known = "loops" not in report.lost
    return {
        "run": report.run,
        "agent": report.agent,
        "task_group": report.task_group,
        "memory": report.memory,
        "steps": report.steps,
        "success": report.success,
        "finished": report.finished,
        "loop_steps": report.loop_steps if loops_known else None,
        "loop_ratio": report.loop_ratio,
        "cycles": report.cycles if loops_known else None,
        "cycle_steps": report.cycle_steps if loops_known else None,
        "loops": [
            {
                "first_step": first_step,
                "period": period,
                "repeats": repeats,
                "steps": period * repeats,
            }
            for first_step, period, repeats in report.loops
        ],
        "stale_score": report.stale_score,
        "stale_score_max": report.stale_score_max,
        "frontier": report.frontier,
        "pending": report.pending,
        "required": {
            "exploration": report.exploration_required,
            "exploitation": report.exploitation_required,
        },
        "errors": {
            "exploration": report.exploration_errors,
            "exploitation": report.exploitation_errors,
        },
        "exploration_error": report.exploration_error,
        "exploitation_error": report.exploitation_error,
        "failed_rounds_max": report.failed_rounds_max,
        "premature_halt": report.premature_halt,
        "progress_auv": report.progress_auv,
        "recall_lag": report.recall_lag,
        "novelty": report.novelty,
        "result_streak_max": report.result_streak_max,
        "stopped": stopped,
    }

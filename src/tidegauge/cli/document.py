"""The document that ``replay --json`` prints. ``null`` is what was not measured."""

from __future__ import annotations

import math
from typing import Any

from tidegauge.cli.recorded import RecordedRuns
from tidegauge.streaming_metrics import AUV, GroupSnapshot, RunReport

__all__ = ["document", "group_entry", "run_entry"]


def document(runs: RecordedRuns, *, skipped_lines: int) -> dict[str, Any]:
    """Every run, every group and the memory index of every task group, as plain data."""
    groups = list(runs.groups().values())
    return {
        "runs": [run_entry(report) for report in runs.reports()],
        "groups": [group_entry(group) for group in groups],
        "memory_index": _memory_index(groups),
        "skipped_lines": skipped_lines,
    }


def run_entry(report: RunReport) -> dict[str, Any]:
    """One run."""
    stopped = None
    if report.intervention == "stop":
        stopped = {"step": report.intervention_step, "reason": report.intervention_reason}
    return {
        "run": report.run,
        "agent": report.agent,
        "task_group": report.task_group,
        "memory": report.memory,
        "steps": report.steps,
        "success": report.success,
        "finished": report.finished,
        "loop_steps": report.loop_steps,
        "loop_ratio": report.loop_ratio,
        "cycles": report.cycles,
        "cycle_steps": report.cycle_steps,
        "loops": [
            {
                "first_step": first_step,
                "period": period,
                "repeats": repeats,
                "steps": period * repeats,
            }
            for first_step, period, repeats in report.loops
        ],
        "stale_score": None,
        "stale_score_max": None,
        "frontier": None,
        "pending": None,
        "required": {"exploration": None, "exploitation": None},
        "errors": {"exploration": None, "exploitation": None},
        "exploration_error": None,
        "exploitation_error": None,
        "failed_rounds_max": report.failed_rounds_max,
        "premature_halt": None,
        "progress_auv": report.progress_auv,
        "recall_lag": None,
        "novelty": report.novelty,
        "result_streak_max": report.result_streak_max,
        "stopped": stopped,
    }


def group_entry(group: GroupSnapshot) -> dict[str, Any]:
    """One group of runs."""
    finished = group.finished
    return {
        "agent": group.key.agent,
        "task_group": group.key.task_group,
        "memory": group.key.memory or None,
        "runs": group.runs_started,
        "success_rate": finished.success_rate.value,
        "auv": finished.auv.value,
        "auv_stderr": finished.auv.standard_error,
        "loop_ratio": loop_ratio(group),
        "exploration_error": None,
        "exploitation_error": None,
    }


def loop_ratio(group: GroupSnapshot) -> float | None:
    """Loop steps / steps of all runs of a group, the unfinished ones too."""
    totals = group.totals
    return sum(totals.loop_steps.values()) / totals.steps if totals.steps else None


def _memory_index(groups: list[GroupSnapshot]) -> list[dict[str, Any]]:
    """AUV with memory less AUV without, by task group: all of its agents together."""
    arms: dict[str, dict[str, AUV]] = {}
    for group in groups:
        by_arm = arms.setdefault(group.key.task_group, {})
        by_arm.setdefault(group.key.memory, AUV()).merge(group.finished.auv)
    entries = []
    for task_group, by_arm in arms.items():
        if "on" not in by_arm or "off" not in by_arm:
            continue
        on, off = by_arm["on"], by_arm["off"]
        entries.append(
            {
                "task_group": task_group,
                "on": on.value,
                "off": off.value,
                "value": _difference(on.value, off.value),
                "stderr": _combined(on.standard_error, off.standard_error),
            }
        )
    return entries


def _difference(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else left - right


def _combined(left: float | None, right: float | None) -> float | None:
    return None if left is None or right is None else math.hypot(left, right)

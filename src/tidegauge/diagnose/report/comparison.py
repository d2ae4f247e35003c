"""Groups and tasks beside each other, from the sums of the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidegauge.diagnose.recorded_run import ReportedRun
from tidegauge.streaming_metrics import AUV, GroupSnapshot, LoopRatio
from tidegauge.streaming_metrics.student import student_quantile

__all__ = ["auv_interval", "success_curve", "tasks", "with_curve"]

_CONFIDENCE = 0.95
_MAX_TURNS = 200


def auv_interval(auv: AUV) -> tuple[float, float] | None:
    """Student's 95% interval of an AUV; ``None`` with fewer than two runs.

    >>> auv_interval(AUV()) is None
    True
    """
    if auv.value is None or auv.standard_error is None:
        return None
    reach = student_quantile((1 + _CONFIDENCE) / 2, auv.runs - 1) * auv.standard_error
    return max(auv.value - reach, 0.0), min(auv.value + reach, 1.0)


def success_curve(group: GroupSnapshot, turns: int) -> list[float] | None:
    """P_t for t from 0 to ``turns``; ``None`` when nothing is known of success."""
    curve = group.finished.success_curve
    if not curve.runs:
        return None
    return [curve.at(turn) or 0.0 for turn in range(turns + 1)]


def with_curve(
    entry: Mapping[str, Any], group: GroupSnapshot, runs: Sequence[ReportedRun]
) -> dict[str, Any]:
    """A group's entry of ``replay --json`` with its interval and its curve."""
    turns = max((run.report.t_max or run.report.steps for run in runs), default=0)
    return {
        **entry,
        "auv_interval": auv_interval(group.finished.auv),
        "curve": success_curve(group, min(turns, _MAX_TURNS)),
        "unfinished": len(group.active),
        "looping_runs": sum(run.report.loop_steps > 0 for run in runs),
        "steps": group.totals.steps,
    }


def tasks(runs: Sequence[ReportedRun]) -> list[dict[str, Any]]:
    """Loop ratio and AUV of every task of every agent, as TIDE's figure 3 draws them.

    Only tasks whose AUV is known are told, and only runs that ended.
    """
    found: dict[tuple[str, str, str], tuple[AUV, LoopRatio, list[int]]] = {}
    for index, run in enumerate(runs):
        report = run.report
        if not report.finished:
            continue
        key = (report.agent, report.task_group, run.task or report.run)
        auv, ratio, members = found.setdefault(key, (AUV(), LoopRatio(), []))
        auv.update(run.finished_run())
        ratio.update(run.finished_run())
        members.append(index)
    return [
        {
            "agent": agent,
            "task_group": task_group,
            "task": task,
            "auv": auv.value,
            "loop_ratio": ratio.value,
            "runs": members,
        }
        for (agent, task_group, task), (auv, ratio, members) in found.items()
        if auv.value is not None and ratio.value is not None
    ]

"""The document that ``replay --json`` prints. ``null`` is what was not measured."""

from __future__ import annotations

from typing import Any

from tidegauge.cli.recorded import RecordedRuns
from tidegauge.exporters.jsonl import run_entry
from tidegauge.streaming_metrics import GroupSnapshot, MemoryIndex

__all__ = ["document", "group_entry"]


def document(runs: RecordedRuns, *, skipped_lines: int) -> dict[str, Any]:
    """Every run, every group and the memory index of every task group, as plain data."""
    groups = list(runs.groups().values())
    return {
        "runs": [run_entry(report) for report in runs.reports()],
        "groups": [group_entry(group) for group in groups],
        "memory_index": _memory_index(groups),
        "skipped_lines": skipped_lines,
    }


def group_entry(group: GroupSnapshot) -> dict[str, Any]:
    """One group of runs."""
    finished, totals = group.finished, group.totals
    judged = bool(totals.exploration_required or totals.exploitation_required)
    return {
        "agent": group.key.agent,
        "task_group": group.key.task_group,
        "memory": group.key.memory or None,
        "runs": group.runs_started,
        "success_rate": finished.success_rate.value,
        "auv": finished.auv.value,
        "auv_stderr": finished.auv.standard_error,
        "loop_ratio": loop_ratio(group),
        "exploration_error": _rate(totals.exploration_errors, totals.exploration_required, judged),
        "exploitation_error": _rate(
            totals.exploitation_errors, totals.exploitation_required, judged
        ),
    }


def loop_ratio(group: GroupSnapshot) -> float | None:
    """Loop steps / steps of all runs of a group, the unfinished ones too."""
    totals = group.totals
    return sum(totals.loop_steps.values()) / totals.steps if totals.steps else None


def _memory_index(groups: list[GroupSnapshot]) -> list[dict[str, Any]]:
    """What memory is worth in each task group that has runs of both arms, all agents together."""
    indexes: dict[str, MemoryIndex] = {}
    for group in groups:
        index = indexes.setdefault(group.key.task_group, MemoryIndex())
        index.add(group.key.memory, group.finished.auv)
    return [
        {
            "task_group": task_group,
            "on": index.arms["on"].value,
            "off": index.arms["off"].value,
            "value": index.value,
            "stderr": index.standard_error,
        }
        for task_group, index in indexes.items()
        if {"on", "off"} <= index.arms.keys()
    ]


def _rate(errors: int, required: int, judged: bool) -> float | None:
    """As for a run: 0 when only the other kind was required, nothing when neither was."""
    if not judged:
        return None
    return errors / required if required else 0.0

"""What the report knows of a run: its numbers, its steps, and the lines it was recorded in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegauge.streaming_metrics import RunReport
from tidegauge.streaming_metrics.auv import auv_contribution
from tidegauge.streaming_metrics.records import FinishedRun

__all__ = ["FIELDS", "ReportedRun", "ReportedStep", "fields_of"]

FIELDS = (
    "run",
    "agent",
    "task_group",
    "memory",
    "model",
    "steps",
    "t_max",
    "finished",
    "success",
    "outcome",
    "auv",
    "loop_steps",
    "loop_ratio",
    "cycles",
    "cycle_steps",
    "loops",
    "stale_score",
    "stale_score_max",
    "frontier",
    "pending",
    "exploration_required",
    "exploration_errors",
    "exploration_error",
    "exploitation_required",
    "exploitation_errors",
    "exploitation_error",
    "failed_rounds_max",
    "result_streak_max",
    "premature_halt",
    "progress_auv",
    "recall_lag",
    "novelty",
    "tokens",
    "distinct_places",
    "backtracks",
    "stopped",
)
"""The fields of a run, as they are called in ``replay --json`` where they are there. What is
nested there has one name here; ``loops`` is how many there are, ``stopped`` the reason."""


def fields_of(report: RunReport) -> dict[str, Any]:
    """The fields of a run. ``None``: not measured.

    ``auv`` is what the run contributes to its group's: the area above its success, see
    :func:`~tidegauge.streaming_metrics.auv.auv_contribution`.
    """
    auv = None
    if report.finished and report.t_max is not None and report.success is not None:
        auv = auv_contribution(report.steps if report.success else None, report.t_max)
    special = {
        "auv": auv,
        "loops": len(report.loops),
        "stopped": report.intervention_reason if report.intervention == "stop" else None,
    }
    return {name: special[name] if name in special else getattr(report, name) for name in FIELDS}


@dataclass(slots=True)
class ReportedStep:
    """One step of a run.

    Attributes:
        name: name of its action.
        arguments: the arguments of its calls, as text; empty without contents.
        place: what stands for where the agent was before it.
        label: the place in words; empty where only a digest is known.
        line: index of its line among those of its run.
        outcome_line: the same of the line that tells its outcome.
        failed: whether it failed; ``None``, not known.
        measured: what the engine says of it, as ``replay --steps-out`` writes it.
        interventions: (what, why) of each intervention at it.
    """

    name: str
    arguments: str
    place: str
    label: str
    line: int
    outcome_line: int
    failed: bool | None = None
    measured: Mapping[str, Any] = field(default_factory=dict)
    interventions: list[tuple[str, str]] = field(default_factory=list)


@dataclass(slots=True)
class ReportedRun:
    """One run.

    Attributes:
        report: its numbers.
        task: what it was to do; empty, not told.
        steps: its steps, in order.
        lines: the lines it was recorded in.
    """

    report: RunReport
    task: str
    steps: Sequence[ReportedStep]
    lines: Sequence[bytes]

    def finished_run(self) -> FinishedRun:
        """What the metrics of a group are fed of it."""
        report = self.report
        return FinishedRun(
            success=report.success if report.finished else None,
            steps=report.steps,
            t_max=report.t_max,
            loop_steps=report.loop_steps,
        )

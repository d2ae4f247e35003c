"""The data of a run for the report: its numbers, its steps and its recorded lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegauge.streaming_metrics import RunReport
from tidegauge.streaming_metrics.auv import auv_contribution
from tidegauge.streaming_metrics.records import FinishedRun

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
    "tide_loop_steps",
    "tide_loop_ratio",
    "tide_cycles",
    "tide_cycle_steps",
    "loops",
    "lost_tokens",
    "lost_seconds",
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
    "stuck_streak_max",
    "empty_streak",
    "skipped_steps",
    "loop_evidence_max",
    "premature_halt",
    "cut_short",
    "progress_auv",
    "recall_lag",
    "novelty",
    "tokens",
    "distinct_places",
    "backtracks",
    "stopped",
    "refused_calls",
)
"""The fields of a run, with the names of ``replay --json``. Nested fields have one name here;
``loops`` is the number of loops, ``stopped`` the reason."""


def fields_of(report: RunReport) -> dict[str, Any]:
    """The fields of a run. ``None``: not measured.

    ``auv`` is the run's contribution to that of its group, see
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
        place: id of the place before the step.
        label: the place in words; empty if only a digest is known.
        line: index of its line among those of its run.
        outcome_line: index of the line with its result.
        failed: whether it failed; ``None``: unknown.
        measured: its measurements, as in ``replay --steps-out``.
        interventions: (action, reason) of each intervention at this step.
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
        task: its task; empty if unknown.
        steps: its steps, in order.
        lines: its recorded lines.
    """

    report: RunReport
    task: str
    steps: Sequence[ReportedStep]
    lines: Sequence[bytes]

    def finished_run(self) -> FinishedRun:
        """The record for the metrics of a group."""
        report = self.report
        return FinishedRun(
            success=report.success if report.finished else None,
            steps=report.steps,
            t_max=report.t_max,
            loop_steps=report.loop_steps,
        )

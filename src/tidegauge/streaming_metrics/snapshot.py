"""A snapshot of an engine: the sums of every group and every active run at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tidegauge.streaming_metrics.group import Group
from tidegauge.streaming_metrics.premature_halt import PrematureHalts
from tidegauge.streaming_metrics.registry import GROUPS
from tidegauge.streaming_metrics.run_report import GroupKey, RunReport
from tidegauge.streaming_metrics.totals import Totals


@dataclass(slots=True)
class GroupSnapshot:
    """One group: its finished runs, its active runs, and the sums over both."""

    key: GroupKey
    finished: Group
    stale_at: int
    totals: Totals = field(default_factory=Totals)
    active: list[RunReport] = field(default_factory=list)

    @property
    def runs_started(self) -> int:
        """Number of runs that began here: ended, active, or moved to another engine."""
        moved = self.finished.moved_out - self.finished.moved_in
        return self.finished.runs + len(self.active) + moved

    @property
    def placed(self) -> bool:
        """Whether a run of the group has reported a place."""
        return bool(
            self.totals.exploration_required
            or self.totals.exploitation_required
            or self.finished.of(PrematureHalts).runs
            or any(run.place is not None for run in self.active)
        )

    @property
    def loop_ratio(self) -> float | None:
        """Loop steps / steps of all runs, including active ones."""
        totals = self.totals
        return sum(totals.loop_steps.values()) / totals.steps if totals.steps else None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All groups, and the engine's own health."""

    groups: list[GroupSnapshot]
    started: float
    """When the engine began to count, in seconds since the epoch."""
    evicted_runs: int
    dropped_events: int
    names_beyond_limit: Mapping[str, int]
    """Names that were counted as ``other``, by kind."""

    @property
    def active(self) -> list[RunReport]:
        """Every active run."""
        return [run for group in self.groups for run in group.active]


def group_entry(group: GroupSnapshot) -> Mapping[str, Any]:
    """A group's numbers as plain data: an entry of the document of ``replay --json``."""
    totals = group.totals
    judged = bool(totals.exploration_required or totals.exploitation_required)
    entry = {
        "agent": group.key.agent,
        "task_group": group.key.task_group,
        "memory": group.key.memory or None,
        "runs": group.runs_started,
        "loop_ratio": group.loop_ratio,
        "exploration_error": _rate(totals.exploration_errors, totals.exploration_required, judged),
        "exploitation_error": _rate(
            totals.exploitation_errors, totals.exploitation_required, judged
        ),
    }
    for one in GROUPS:
        if one.document is not None:
            entry.update(one.document(group.finished.of(one.kind)))
    return entry


def _rate(errors: int, required: int, judged: bool) -> float | None:
    """As for a run: 0 if only the other kind was required, ``None`` if neither was."""
    if not judged:
        return None
    return errors / required if required else 0.0

"""What an engine shows: every group's sums and every active run, at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field

from tidegauge.streaming_metrics.group import Group
from tidegauge.streaming_metrics.run_report import GroupKey, RunReport
from tidegauge.streaming_metrics.totals import Totals

__all__ = ["GroupSnapshot", "Snapshot"]


@dataclass(slots=True)
class GroupSnapshot:
    """One group: its finished runs, its active runs, and the counters over both."""

    key: GroupKey
    finished: Group
    totals: Totals = field(default_factory=Totals)
    active: list[RunReport] = field(default_factory=list)
    stale_at: int = 5

    @property
    def runs_started(self) -> int:
        """Runs that began here: those that ended, go on, or went to another engine."""
        moved = self.finished.moved_out - self.finished.moved_in
        return self.finished.runs + len(self.active) + moved

    @property
    def runs_looping(self) -> int:
        """Active runs inside a loop whose first repetition is complete, and not excused."""
        return sum(1 for run in self.active if run.loop_repeats and not run.excused)

    @property
    def runs_unguarded(self) -> int:
        """Active runs whose policy was switched off after an internal error."""
        return sum(1 for run in self.active if run.unguarded)

    @property
    def runs_stale(self) -> int | None:
        """Active runs whose stale score is ``stale_at`` or more; ``None``, none is measured."""
        scores = [run.stale_score for run in self.active if run.stale_score is not None]
        return sum(score >= self.stale_at for score in scores) if scores else None

    def auv_bounds(self) -> tuple[float, float] | None:
        """Where the AUV can still end with the runs that are going on."""
        flying = [(run.steps, run.t_max) for run in self.active if run.t_max is not None]
        return self.finished.auv.bounds(flying)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All groups, and the engine's own health."""

    groups: list[GroupSnapshot]
    evicted_runs: int
    dropped_events: int

    @property
    def active(self) -> list[RunReport]:
        """Every active run."""
        return [run for group in self.groups for run in group.active]

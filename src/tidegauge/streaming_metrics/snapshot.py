"""What is read of an engine: reports of runs, groups, and a snapshot of all at one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple, TypeVar, cast

from tidegauge.events import RunOutcome
from tidegauge.streaming_metrics.buckets import Buckets, Exemplar, add_exemplars
from tidegauge.streaming_metrics.metric import GroupMetric
from tidegauge.streaming_metrics.premature_halt import PrematureHalts
from tidegauge.streaming_metrics.records import FinishedRun
from tidegauge.streaming_metrics.registry import ABSENT_FIELDS, GROUPS, HISTOGRAMS, RUNS
from tidegauge.streaming_metrics.totals import Totals


class GroupKey(NamedTuple):
    """What runs are grouped by. ``memory`` is empty where no arm was reported."""

    agent: str
    task_group: str
    memory: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """The measurements of one run, so far or in total. ``None``: not measured.

    In addition to the fields below, it has those that metrics declare, such as ``loop_ratio``.

    Attributes:
        agent_name: the agent's name, where it is another than ``agent``, by which it was counted.
        unguarded: whether its policy was switched off after an internal error.
        lost: the metrics that have no value after the error.
        numbers: the fields of the metrics, by name.
    """

    run: str
    group: GroupKey
    agent: str
    agent_name: str | None
    task_group: str
    memory: str | None
    model: str | None
    trace_id: str | None
    steps: int
    t_max: int | None
    finished: bool
    success: bool | None
    outcome: RunOutcome
    tokens: float | None
    unguarded: bool
    lost: tuple[str, ...]
    numbers: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        if name not in ABSENT_FIELDS:  # also while it is made or copied
            raise AttributeError(f"a run's report has no field {name}")
        return self.numbers[name]

    def replaced(self, **values: Any) -> RunReport:
        """The same report with other values in these fields."""
        own = {name: value for name, value in values.items() if name in _OWN}
        others = {name: value for name, value in values.items() if name not in _OWN}
        return replace(self, **own, numbers={**self.numbers, **others})

    def as_dict(self) -> dict[str, Any]:
        """Every field by name."""
        return {**{name: getattr(self, name) for name in _OWN}, **self.numbers}


_OWN: Final = tuple(one.name for one in fields(RunReport) if one.name != "numbers")


def run_entry(report: RunReport) -> dict[str, Any]:
    """A run's numbers as plain data: an entry of the document of ``replay --json``.

    ``None`` is what was not measured.
    """
    entry: dict[str, Any] = {
        "run": report.run,
        "agent": report.agent,
        "task_group": report.task_group,
        "memory": report.memory,
        "steps": report.steps,
        "success": report.success,
        "finished": report.finished,
    }
    if report.agent_name is not None:
        entry["agent_name"] = report.agent_name
    for metric in RUNS:
        if metric.document is not None:
            entry.update(metric.document(report))
    return entry


G = TypeVar("G", bound=GroupMetric)

_OF_LOOPS: Final = frozenset(one.kind for one in GROUPS if one.loops)
"""Metrics of groups that need the loops of a run."""


class Group:
    """Sums over the finished runs of one group. An engine replaces its groups by changed copies.

    Attributes:
        totals: sums over their steps.
        moved_in: runs that began in another engine.
        moved_out: runs that moved to another engine.
        finished: how many runs ended, by outcome.
        exemplars: the last run of each outcome.
        metrics: the group's metrics, by class.
        histograms: its histograms, by name.
    """

    __slots__ = (
        "exemplars",
        "finished",
        "histograms",
        "metrics",
        "moved_in",
        "moved_out",
        "totals",
    )

    def __init__(self) -> None:
        self.totals = Totals()
        self.moved_in = 0
        self.moved_out = 0
        self.finished: dict[RunOutcome, int] = {}
        self.exemplars: dict[RunOutcome, Exemplar] = {}
        self.metrics: dict[type[GroupMetric], GroupMetric] = {
            one.kind: one.made() for one in GROUPS
        }
        self.histograms = {one.name: Buckets(one.bounds) for one in HISTOGRAMS}

    def of(self, kind: type[G], /) -> G:
        """The group's metric of that class."""
        return cast("G", self.metrics[kind])

    @property
    def runs(self) -> int:
        """How many runs ended."""
        return sum(self.finished.values())

    def merge(self, other: Group) -> None:
        """Add the runs of ``other``."""
        self.totals.add(other.totals)
        self.moved_in += other.moved_in
        self.moved_out += other.moved_out
        for outcome, count in other.finished.items():
            self.finished[outcome] = self.finished.get(outcome, 0) + count
        for kind, metric in self.metrics.items():
            metric.merge(other.metrics[kind])
        for name, buckets in self.histograms.items():
            buckets.add(other.histograms[name])
        add_exemplars(self.exemplars, other.exemplars)

    def copy(self) -> Group:
        """An independent copy."""
        group = Group()
        group.merge(self)
        return group

    def add_run(self, run: FinishedRun, totals: Totals) -> None:
        """Add a finished run, and the totals that were counted for it here."""
        self.totals.add(totals)
        self.finished[run.outcome] = self.finished.get(run.outcome, 0) + 1
        for kind, metric in self.metrics.items():
            if "loops" not in run.lost or kind not in _OF_LOOPS:
                metric.update(run)
        for one in HISTOGRAMS:
            value = one.read(run)
            if value is not None:
                self.histograms[one.name].observe(value, _exemplar(run, value))
        last = _exemplar(run, 1.0)
        if last is not None:
            self.exemplars[run.outcome] = last


def _exemplar(run: FinishedRun, value: float) -> Exemplar | None:
    if run.trace_id is None or run.ended is None:
        return None
    return Exemplar(run.trace_id, value, run.ended)


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

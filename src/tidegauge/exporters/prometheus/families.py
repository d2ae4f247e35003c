"""What an engine shows now, as the catalogue's metrics: computed when somebody asks.

One table a kind of subject (a group, an arm of a memory experiment, a run) says how each metric
is read off it. A fault in one of them costs that metric, is counted, and leaves the rest.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from tidegauge import catalog
from tidegauge._guard import guarded, internal_errors
from tidegauge._span_faults import span_faults
from tidegauge.catalog import MetricDefinition
from tidegauge.events import Identity
from tidegauge.exporters.prometheus.labels import label_value
from tidegauge.streaming_metrics.engine import Engine
from tidegauge.streaming_metrics.group import Group
from tidegauge.streaming_metrics.limits import OTHER
from tidegauge.streaming_metrics.memory_index import MemoryIndex
from tidegauge.streaming_metrics.run_report import RunReport
from tidegauge.streaming_metrics.snapshot import GroupSnapshot, Snapshot
from tidegauge.streaming_metrics.success import SuccessRate
from tidegauge.streaming_metrics.totals import Buckets, Exemplar

__all__ = ["MAX_RUNS", "Family", "More", "PlaceLabel", "Row", "cumulative", "read_families"]

PlaceLabel: TypeAlias = Callable[[Identity], str]
"""What stands for a place as a label's value: places are contents."""

MAX_RUNS: Final = 20
"""How many active runs have series of their own."""

WHERE: Final = "prometheus"
"""Under which name faults of this package are counted."""

S = TypeVar("S")
Labels: TypeAlias = tuple[str, ...]
Reading: TypeAlias = float | Buckets | Mapping[Labels, float] | None
"""A value, or one for each value of the metric's own labels; ``None``: not measured."""

More: TypeAlias = Callable[[], Mapping[MetricDefinition, Mapping[Labels, float | Buckets]]]
"""Tells metrics of the catalogue that are none of the engine's: by the values of their labels."""

Row: TypeAlias = tuple[Labels, float | Buckets]
"""The values of all labels of a series, in the catalogue's order, and its value."""


class Family(NamedTuple):
    """One metric and its series; of a counter, the exemplars of those that have one."""

    metric: MetricDefinition
    rows: Sequence[Row]
    exemplars: Mapping[Labels, Exemplar] = {}


def read_families(
    engine: Engine, *, place_label: PlaceLabel | None = None, more: More | None = None
) -> list[Family]:
    """Every metric that is measured now, in the catalogue's order. Never raises.

    Args:
        engine: what is read.
        place_label: what is shown of a place; left out, places are not shown.
        more: tells metrics that are none of the engine's.
    """
    snapshot = _snapshot(engine)
    measured = dict(_measured(snapshot, place_label) if snapshot is not None else {})
    measured.update(_told(more) if more is not None else {})
    measured.update(_health(snapshot))  # last: it tells of the faults just now
    exemplars = _exemplars(snapshot) if snapshot is not None else {}
    return [
        Family(metric, rows, exemplars.get(metric, {}))
        for metric in catalog.METRICS
        if (rows := measured.get(metric))
    ]


def cumulative(buckets: Buckets) -> list[tuple[str, int]]:
    """(upper bound, observations up to it) of each bucket, as Prometheus has them.

    >>> cumulative(Buckets((0.5, 10.0)))
    [('0.5', 0), ('10.0', 0), ('+Inf', 0)]
    """
    return list(zip(_bounds(tuple(buckets.bounds)), accumulate(buckets.counts), strict=True))


@lru_cache
def _bounds(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return (*(str(float(bound)) for bound in bounds), "+Inf")


@guarded(WHERE, default={}, interrupting="run")
def _told(more: More) -> dict[MetricDefinition, Sequence[Row]]:
    return {
        metric: [
            (
                tuple([label_value(label) for label in labels]),
                value if isinstance(value, Buckets) else float(value),
            )
            for labels, value in values.items()
        ]
        for metric, values in more().items()
    }


@guarded(WHERE, default=None, interrupting="run")
def _snapshot(engine: Engine) -> Snapshot | None:
    return engine.snapshot()


@guarded(WHERE, default={}, interrupting="run")
def _exemplars(snapshot: Snapshot) -> dict[MetricDefinition, dict[Labels, Exemplar]]:
    """The last exemplar of each series of the counters that have them."""
    found: dict[MetricDefinition, dict[Labels, Exemplar]] = {}
    for labels, group in _by_labels(snapshot.groups, lambda key: key[:2]).items():
        for outcome, exemplar in group.finished.exemplars.items():
            found.setdefault(catalog.RUNS_FINISHED, {})[*labels, outcome] = exemplar
        for (family, *own), exemplar in group.totals.exemplars.items():
            shown = tuple([label_value(value) for value in own])
            found.setdefault(_WITH_EXEMPLARS[family], {})[*labels, *shown] = exemplar
    return found


@guarded(WHERE, default={}, interrupting="run")
def _measured(
    snapshot: Snapshot, place_label: PlaceLabel | None
) -> dict[MetricDefinition, Sequence[Row]]:
    arms = _by_labels(snapshot.groups, lambda key: key)
    groups = _by_labels(snapshot.groups, lambda key: key[:2])
    runs: dict[Labels, RunReport] = {
        (label_value(run.group.agent), label_value(run.group.task_group), label_value(run.run)): run
        for run in _most_troubled(snapshot.active)
    }
    memory: dict[Labels, list[GroupSnapshot]] = {}
    for labels, arm in arms.items():
        memory.setdefault(labels[:2], []).append(arm)
    return {
        catalog.MEMORY_INDEX: _rows(_memory_index, memory),
        **{metric: _rows(read, groups) for metric, read in _OF_GROUP.items()},
        **{metric: _rows(read, arms) for metric, read in _OF_ARM.items()},
        **{metric: _rows(read, runs) for metric, read in _OF_RUN.items()},
        catalog.RUN_PLACE: _rows(partial(_place, place_label), runs),
    }


@guarded(WHERE, default={}, interrupting="run")
def _health(snapshot: Snapshot | None) -> dict[MetricDefinition, Sequence[Row]]:
    rows: dict[MetricDefinition, Sequence[Row]] = {}
    if snapshot is not None:
        rows[catalog.EVICTED_RUNS] = [((), float(snapshot.evicted_runs))]
        rows[catalog.DROPPED_EVENTS] = [((), float(snapshot.dropped_events))]
    faults = _counts(internal_errors.counts(), known=(WHERE,))
    rows[catalog.INTERNAL_ERRORS] = [(labels, float(count)) for labels, count in faults.items()]
    for metric, counts in span_faults.metrics().items():
        rows[metric] = [
            (tuple([label_value(label) for label in labels]), float(count))
            for labels, count in counts.items()
        ]
    return rows


@guarded(WHERE, default=(), interrupting="run")
def _rows(read: Callable[[S], Reading], subjects: Mapping[Labels, S]) -> Sequence[Row]:
    rows: list[Row] = []
    for labels, subject in subjects.items():
        value = read(subject)
        if isinstance(value, Mapping):
            rows += [((*labels, *own), float(number)) for own, number in value.items()]
        elif value is not None:
            rows.append((labels, value if isinstance(value, Buckets) else float(value)))
    return rows


def _by_labels(
    groups: Iterable[GroupSnapshot], part: Callable[[Labels], Labels]
) -> dict[Labels, GroupSnapshot]:
    """The groups added up over what ``part`` leaves out of their keys."""
    sharing: dict[Labels, list[GroupSnapshot]] = {}
    for group in groups:
        labels = tuple([label_value(value) for value in part(group.key)])
        sharing.setdefault(labels, []).append(group)
    return {labels: _added_up(found) for labels, found in sharing.items()}


def _added_up(groups: list[GroupSnapshot]) -> GroupSnapshot:
    if len(groups) == 1:
        return groups[0]
    total = GroupSnapshot(groups[0].key, Group())
    for group in groups:
        total.finished.merge(group.finished)
        total.totals.add(group.totals)
        total.active.extend(group.active)
    return total


def _most_troubled(runs: Iterable[RunReport]) -> list[RunReport]:
    return heapq.nlargest(MAX_RUNS, (run for run in runs if not run.finished), key=_trouble)


def _trouble(run: RunReport) -> tuple[int, int, int, int, str]:
    """The worse the run, the greater; its id makes runs in equal trouble keep their places."""
    return (
        run.loop_repeats,
        run.result_streak or 0,
        run.failed_rounds or 0,
        run.steps,
        str(run.run),
    )


def _counts(counts: Mapping[Any, int], known: Iterable[str]) -> dict[Labels, int]:
    """Counts by the value of one label; 0 for values that are known beforehand."""
    found: dict[Labels, int] = {(value,): 0 for value in known}
    found.update({(label_value(value),): count for value, count in counts.items()})
    return found


def _auv_counter(group: GroupSnapshot, value: float) -> float | None:
    """Told from the moment a run can add to it: AUV without a ``t_max`` is not measured."""
    measurable = group.finished.auv.runs or any(run.t_max is not None for run in group.active)
    return value if measurable else None


def _auv_bound(group: GroupSnapshot, which: int) -> float | None:
    bounds = group.auv_bounds()
    return None if bounds is None else bounds[which]


def _placed(group: GroupSnapshot) -> bool:
    """Whether a run of the group has told where it is: told from its first place on."""
    return bool(
        group.totals.exploration_required
        or group.totals.exploitation_required
        or group.finished.premature_halts.runs
        or any(run.place is not None for run in group.active)
    )


def _by_behavior(group: GroupSnapshot, exploration: int, exploitation: int) -> Reading:
    if not _placed(group):
        return None
    return {("exploration",): exploration, ("exploitation",): exploitation}


def _horizons(group: GroupSnapshot) -> Iterable[tuple[int, SuccessRate]]:
    return group.finished.success_by_horizon.by_operations.items()


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _stale_score(runs: Iterable[RunReport]) -> Reading:
    scores = [run.stale_score for run in runs if run.stale_score is not None]
    if not scores:
        return None
    return {("mean",): sum(scores) / len(scores), ("max",): max(scores)}


def _place(place_label: PlaceLabel | None, run: RunReport) -> Reading:
    if place_label is None or run.place is None:
        return None
    return {(label_value(place_label(run.place)),): 1}


def _memory_index(arms: Iterable[GroupSnapshot]) -> float | None:
    index = MemoryIndex()
    for arm in arms:
        index.add(arm.key.memory, arm.finished.auv)
    return index.value


_OF_GROUP: Final[Mapping[MetricDefinition, Callable[[GroupSnapshot], Reading]]] = {
    catalog.RUNS_STARTED: lambda group: group.runs_started,
    catalog.RUNS_FINISHED: lambda group: _counts(
        group.finished.finished, known=catalog.RUNS_FINISHED.values
    ),
    catalog.STEPS: lambda group: group.totals.steps,
    # Which actions will loop is not known, but that "other" ones have not: with it the loop
    # ratio of a group that never looped is 0, as measured, and not absent.
    catalog.LOOP_STEPS: lambda group: _counts(group.totals.loop_steps, known=(OTHER,)),
    catalog.CYCLE_STEPS: lambda group: group.totals.cycle_steps,
    catalog.LOOPS: lambda group: _counts(group.totals.onsets, known=catalog.LOOPS.values),
    catalog.LOOP_TOKENS: lambda group: group.totals.loop_tokens,
    catalog.LOOP_SECONDS: lambda group: group.totals.loop_seconds,
    catalog.BEHAVIOR_ERRORS: lambda group: _by_behavior(
        group, group.totals.exploration_errors, group.totals.exploitation_errors
    ),
    catalog.BEHAVIOR_REQUIRED_STEPS: lambda group: _by_behavior(
        group, group.totals.exploration_required, group.totals.exploitation_required
    ),
    catalog.PREMATURE_HALTS: lambda group: (
        group.finished.premature_halts.halts if _placed(group) else None
    ),
    catalog.HORIZON_RUNS: lambda group: {
        (str(operations),): rate.runs for operations, rate in _horizons(group)
    },
    catalog.HORIZON_SOLVED_RUNS: lambda group: {
        (str(operations),): rate.solved for operations, rate in _horizons(group)
    },
    catalog.BACKTRACKS: lambda group: group.totals.backtracks if _placed(group) else None,
    catalog.DISPLACED_LEADS: lambda group: group.totals.displaced_leads if _placed(group) else None,
    catalog.NOT_COMPARABLE: lambda group: {
        (label_value(action), part): count
        for (action, part), count in group.totals.not_comparable.items()
    },
    catalog.INTERVENTIONS: lambda group: {
        (label_value(action), label_value(reason)): count
        for (action, reason), count in group.totals.interventions.items()
    },
    catalog.SAVED_STEPS: lambda group: group.totals.saved_steps,
    catalog.SAVED_TOKENS: lambda group: group.totals.saved_tokens,
    catalog.SAVED_SECONDS: lambda group: group.totals.saved_seconds,
    catalog.RUNS_ACTIVE: lambda group: len(group.active),
    catalog.RUNS_LOOPING: lambda group: group.runs_looping,
    catalog.RUNS_STALE: lambda group: group.runs_stale,
    catalog.RUNS_UNGUARDED: lambda group: group.runs_unguarded,
    catalog.FRONTIER_PLACES: lambda group: _sum([run.frontier for run in group.active]),
    catalog.PENDING_TASKS: lambda group: _sum([run.pending for run in group.active]),
    catalog.STALE_SCORE: lambda group: _stale_score(group.active),
    catalog.AUV_LOWER: lambda group: _auv_bound(group, 0),
    catalog.AUV_UPPER: lambda group: _auv_bound(group, 1),
    catalog.SUCCESS_RATE: lambda group: group.finished.success_rate.value,
    catalog.SUCCESS_TURN: lambda group: group.finished.success_turn,
    catalog.FINISHED_RUN_STEPS: lambda group: group.finished.run_steps,
    catalog.STALE_SCORE_MAX: lambda group: group.finished.stale_score_max,
    catalog.LEAD_AGE: lambda group: group.totals.lead_ages,
    catalog.RECALL_LAG: lambda group: group.totals.recall_lags,
    catalog.STEP_DURATION: lambda group: group.totals.step_seconds,
}

_WITH_EXEMPLARS: Final = {"loops": catalog.LOOPS, "interventions": catalog.INTERVENTIONS}

_OF_ARM: Final[Mapping[MetricDefinition, Callable[[GroupSnapshot], Reading]]] = {
    catalog.AUV_SUM: lambda arm: _auv_counter(arm, arm.finished.auv.total),
    catalog.AUV_RUNS: lambda arm: _auv_counter(arm, arm.finished.auv.runs),
    catalog.AUV: lambda arm: arm.finished.auv.value,
}

_OF_RUN: Final[Mapping[MetricDefinition, Callable[[RunReport], Reading]]] = {
    catalog.RUN_LOOP_REPEATS: lambda run: run.loop_repeats,
    catalog.RUN_STEPS: lambda run: run.steps,
    catalog.RUN_PROGRESS: lambda run: run.progress,
    catalog.RUN_STALE_SCORE: lambda run: run.stale_score,
    catalog.RUN_FRONTIER_PLACES: lambda run: run.frontier,
    catalog.RUN_PENDING_TASKS: lambda run: run.pending,
}

"""The metrics of an engine as neutral families of samples, computed on request for all exporters.

A fault in a metric costs only that metric, and is counted.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate, chain, zip_longest
from operator import itemgetter
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from tidegauge import catalog
from tidegauge._span_counts import sampling_counts, span_faults
from tidegauge.catalog import MetricDefinition
from tidegauge.safety.guard import guarded, internal_errors
from tidegauge.streaming_metrics.auv import AUV
from tidegauge.streaming_metrics.buckets import Buckets, Exemplar
from tidegauge.streaming_metrics.declaration import Labels, MetricValue, PlaceLabel
from tidegauge.streaming_metrics.engine import Engine
from tidegauge.streaming_metrics.exploration import RUN_PLACE
from tidegauge.streaming_metrics.interventions import INTERVENTIONS
from tidegauge.streaming_metrics.loops import LOOPS
from tidegauge.streaming_metrics.memory_index import MEMORY_INDEX, MemoryIndex
from tidegauge.streaming_metrics.registry import METRICS, OF_ARMS, OF_GROUPS, OF_RUNS
from tidegauge.streaming_metrics.run_counts import RUNS_FINISHED
from tidegauge.streaming_metrics.snapshot import Group, GroupKey, GroupSnapshot, RunReport, Snapshot
from tidegauge.streaming_metrics.trouble import SEVERITY, TROUBLES, Trouble

MAX_RUNS: Final = 20
"""Number of active runs with their own series."""

MAX_LABEL: Final = 128
"""Limit of a label value in characters."""

WHERE: Final = "exporters"
"""The ``where`` of internal errors in this module, for all exporters."""

S = TypeVar("S")

More: TypeAlias = Callable[[], Mapping[MetricDefinition, Mapping[Labels, float | Buckets]]]
"""Returns metrics of the catalog from outside the engine, by their label values."""

Row: TypeAlias = tuple[Labels, float | Buckets]
"""The label values of a series, in the order of the catalog, and its value."""


class Family(NamedTuple):
    """One metric and its series, and the exemplars of the series of a counter."""

    metric: MetricDefinition
    rows: Sequence[Row]
    exemplars: Mapping[Labels, Exemplar] = {}


def read_families(
    engine: Engine, *, place_label: PlaceLabel | None = None, more: More | None = None
) -> list[Family]:
    """Every measured metric, in the order of the catalog. Never raises."""
    snapshot = _snapshot(engine)
    measured = dict(_measured(snapshot, place_label) if snapshot is not None else {})
    measured.update(_from(more) if more is not None else {})
    measured.update(_health(snapshot))  # last: it includes the faults just now
    exemplars = _exemplars(snapshot) if snapshot is not None else {}
    return [
        Family(metric, rows, exemplars.get(metric, {}))
        for metric in METRICS
        if (rows := measured.get(metric))
    ]


class Reader:
    """Reads the metrics of an engine for exporters.

    Args:
        place_label: converts places to label values; without it, places are not exported.
        more: returns metrics other than the engine's.

    >>> from tidegauge.events import RunStarted
    >>> engine = Engine()
    >>> engine.run_started(RunStarted(run="r1", agent="browser", task_group="shop"))
    >>> families = {family.metric.name: family.rows for family in Reader(engine).families()}
    >>> families["tidegauge_runs_active"]
    [(('browser', 'shop'), 1.0)]
    """

    def __init__(
        self, engine: Engine, *, place_label: PlaceLabel | None = None, more: More | None = None
    ) -> None:
        self.engine = engine
        self._place_label = place_label
        self._more = more

    def families(self) -> list[Family]:
        """Every measured metric, in the order of the catalog. Never raises."""
        return read_families(self.engine, place_label=self._place_label, more=self._more)


class Exporter(Protocol):
    """Exports the families of a reader, from :meth:`start` to :meth:`close`."""

    def start(self, reader: Reader) -> None:
        """Start exporting."""

    def close(self) -> object:
        """Stop exporting; a second call does nothing."""


def cumulative(buckets: Buckets) -> list[tuple[str, int]]:
    """(upper bound, observations up to it) of each bucket, as in Prometheus.

    >>> cumulative(Buckets((0.5, 10.0)))
    [('0.5', 0), ('10.0', 0), ('+Inf', 0)]
    """
    return list(zip(_bounds(tuple(buckets.bounds)), accumulate(buckets.counts), strict=True))


_BIDIRECTIONAL: Final = {
    code: f"\\u{code:04x}"
    for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
}


def visible(text: str) -> str:
    r"""The text with its bidirectional control characters as escapes.

    They reorder what follows: a name could look like another one.

    >>> visible("exe.\u202efdp")
    'exe.\\u202efdp'
    """
    return text if text.isascii() else text.translate(_BIDIRECTIONAL)


def label_value(value: object) -> str:
    """A value as a label value.

    A text that is too long, or that UTF-8 cannot encode, is cut and gets a digest of the whole text
    at its end, so that different texts stay different series.

    >>> label_value("browser")
    'browser'
    >>> label_value("find it " * 100)[-20:]
    ' it find it…28afe79d'
    """
    text = visible(str(value))
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        encoded = text.encode("utf-8", "backslashreplace")
        text = encoded.decode()
    else:
        if len(text) <= MAX_LABEL:
            return text
    digest = hashlib.blake2b(encoded, digest_size=4).hexdigest()
    return f"{text[: MAX_LABEL - len(digest) - 1]}…{digest}"


@lru_cache
def _bounds(bounds: tuple[float, ...]) -> tuple[str, ...]:
    return (*(str(float(bound)) for bound in bounds), "+Inf")


@guarded(WHERE, default={}, interrupting="run")
def _from(more: More) -> dict[MetricDefinition, Sequence[Row]]:
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
            found.setdefault(RUNS_FINISHED, {})[*labels, outcome] = exemplar
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
        MEMORY_INDEX: _rows(_memory_index, memory),
        RUN_PLACE: _rows(partial(_place, place_label), runs),
        **{one.metric: _rows(one.read, groups) for one in OF_GROUPS},
        **{one.metric: _rows(one.read, arms) for one in OF_ARMS},
        **{one.metric: _rows(one.read, runs) for one in OF_RUNS},
    }


@guarded(WHERE, default={}, interrupting="run")
def _health(snapshot: Snapshot | None) -> dict[MetricDefinition, Sequence[Row]]:
    rows: dict[MetricDefinition, Sequence[Row]] = {}
    if snapshot is not None:
        rows[catalog.STARTED] = [((), snapshot.started)]
        rows[catalog.EVICTED_RUNS] = [((), float(snapshot.evicted_runs))]
        rows[catalog.DROPPED_EVENTS] = [((), float(snapshot.dropped_events))]
        beyond_limit = snapshot.names_beyond_limit
        rows[catalog.NAMES_BEYOND_LIMIT] = [
            ((kind,), float(beyond_limit[kind])) for kind in catalog.NAMES_BEYOND_LIMIT.values
        ]
    faults = {WHERE: 0, **internal_errors.counts()}
    rows[catalog.INTERNAL_ERRORS] = [
        ((label_value(where),), float(count)) for where, count in faults.items()
    ]
    for metric, found in {**span_faults.metrics(), **sampling_counts.metrics()}.items():
        rows[metric] = [
            (tuple([label_value(label) for label in labels]), float(count))
            for labels, count in found.items()
        ]
    return rows


@guarded(WHERE, default=(), interrupting="run")
def _rows(read: Callable[[S], MetricValue], subjects: Mapping[Labels, S]) -> Sequence[Row]:
    rows: list[Row] = []
    for labels, subject in subjects.items():
        value = read(subject)
        if isinstance(value, Mapping):
            rows += [
                ((*labels, *map(label_value, own)), float(number)) for own, number in value.items()
            ]
        elif value is not None:
            rows.append((labels, value if isinstance(value, Buckets) else float(value)))
    return rows


def _by_labels(
    groups: Iterable[GroupSnapshot], part: Callable[[Labels], Labels]
) -> dict[Labels, GroupSnapshot]:
    """The groups by ``part`` of their keys; groups with the same part are added up."""
    sharing: dict[Labels, list[GroupSnapshot]] = {}
    for group in groups:
        labels = tuple([label_value(value) for value in part(group.key)])
        sharing.setdefault(labels, []).append(group)
    return {labels: _added_up(found) for labels, found in sharing.items()}


def _added_up(groups: list[GroupSnapshot]) -> GroupSnapshot:
    if len(groups) == 1:
        return groups[0]
    total = GroupSnapshot(groups[0].key, Group(), stale_at=groups[0].stale_at)
    for group in groups:
        total.finished.merge(group.finished)
        total.totals.add(group.totals)
        total.active.extend(group.active)
    return total


def _most_troubled(runs: Iterable[RunReport]) -> list[RunReport]:
    """The runs with their own series.

    Every alert names a run: so the worst of each kind of trouble come in turn, and of each kind
    first the worst of every group. What is left goes to those nearest to trouble, and the longest.
    """
    active = [run for run in runs if not run.finished]
    ranked = [_by_severity(active, trouble) for trouble in TROUBLES]
    worst = (run for tier in zip_longest(*ranked) for run in tier if run is not None)
    others = heapq.nlargest(MAX_RUNS, active, key=_nearness)
    found: dict[str, RunReport] = {}
    for run in chain(worst, others):
        if len(found) == MAX_RUNS:
            break
        found.setdefault(run.run, run)
    return list(found.values())


def _nearness(run: RunReport) -> tuple[int, int, int, int, str]:
    return (
        *(run.loop_repeats, run.result_streak or 0, run.failed_rounds or 0),
        *(run.steps, run.run),
    )


def _by_severity(runs: Iterable[RunReport], trouble: Trouble) -> list[RunReport]:
    """The runs in this trouble: the worst of every group, then the second worst, and so on."""
    severity, seen = SEVERITY[trouble], Counter[GroupKey]()
    found = [run for run in runs if trouble in run.troubles]
    found.sort(key=lambda run: (severity(run), run.steps, run.run), reverse=True)
    places: list[tuple[int, RunReport]] = []
    for run in found:
        places.append((seen[run.group], run))
        seen[run.group] += 1
    return [run for _, run in sorted(places, key=itemgetter(0))]


def _place(place_label: PlaceLabel | None, run: RunReport) -> MetricValue:
    if place_label is None or run.place is None:
        return None
    return {(label_value(place_label(run.place)),): 1}


def _memory_index(arms: Iterable[GroupSnapshot]) -> float | None:
    index = MemoryIndex()
    for arm in arms:
        index.add(arm.key.memory, arm.finished.of(AUV))
    return index.value


_WITH_EXEMPLARS: Final = {"loops": LOOPS, "interventions": INTERVENTIONS}

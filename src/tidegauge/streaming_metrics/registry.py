"""All metrics. To add one, add its declaration here.

The metrics take a step in the order of their declarations: one that reads another comes after it.
It is also the order of reports and of the table in the docs. :func:`planned_updates` says which
updates a step needs, by the metrics that its run has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from operator import itemgetter
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from tidegauge.catalog import GROUP_LABELS, OTHER_METRICS, MetricDefinition
from tidegauge.events import RunStarted
from tidegauge.streaming_metrics import (
    answers,
    auv,
    calls_per_step,
    chanting_answers,
    empty_streak,
    entropy_split,
    exploration,
    failed_rounds,
    features,
    horizon,
    interventions,
    loop_cost,
    loop_ratio,
    loop_split,
    loops,
    memory_index,
    navigation,
    noise,
    novelty,
    pass_at_k,
    polling_allowance,
    premature_halt,
    progress_auv,
    recall_lag,
    recurrence,
    repetition,
    result_streak,
    run_counts,
    stagnation,
    stale_score,
    stuck_streak,
    success,
    tide_loops,
    token_rate,
    trouble,
)
from tidegauge.streaming_metrics.declaration import (
    Declaration,
    GroupDeclaration,
    GroupHistogram,
    GroupView,
    Measured,
    MetricValue,
    RunSettings,
    RunView,
    Signal,
    Sum,
)
from tidegauge.streaming_metrics.metric import Stateful
from tidegauge.streaming_metrics.records import IssuedStep, ObservedStep

RUNS: Final[tuple[Declaration[Any], ...]] = (
    run_counts.DECLARATION,
    token_rate.DECLARATION,
    calls_per_step.DECLARATION,
    chanting_answers.DECLARATION,
    recurrence.DECLARATION,
    novelty.DECLARATION,
    polling_allowance.DECLARATION,
    loops.DECLARATION,
    answers.DECLARATION,
    loop_cost.DECLARATION,
    tide_loops.DECLARATION,
    recall_lag.DECLARATION,
    result_streak.DECLARATION,
    stuck_streak.DECLARATION,
    noise.NEAR,
    noise.LEFT_OUT,
    empty_streak.DECLARATION,
    failed_rounds.DECLARATION,
    progress_auv.DECLARATION,
    entropy_split.DECLARATION,
    stale_score.DECLARATION,
    exploration.DECLARATION,
    navigation.DECLARATION,
    repetition.DECLARATION,
    stagnation.DECLARATION,
    features.DECLARATION,
    interventions.DECLARATION,
    premature_halt.DECLARATION,
    trouble.DECLARATION,
)
"""The metrics of runs."""

GROUPS: Final[tuple[GroupDeclaration[Any], ...]] = (
    success.RATE,
    success.CURVE,
    auv.OF_GROUPS,
    loop_ratio.OF_GROUPS,
    loop_split.SPLIT,
    loop_split.SHARE,
    pass_at_k.OF_GROUPS,
    horizon.OF_GROUPS,
    premature_halt.OF_GROUPS,
    recall_lag.OF_GROUPS,
    entropy_split.OF_GROUPS,
)
"""The metrics of groups, over the runs that ended."""

SUMS: Final[tuple[Sum, ...]] = tuple(one for metric in RUNS for one in metric.sums)
"""The sums that runs and groups keep."""

KEPT: Final = tuple(
    (metric.name, metric.kind, one.name, one.kept_as)
    for metric in RUNS
    for one in metric.sums
    if metric.kind is not None and one.kept_as is not None
)
"""The sums that metrics add up themselves: metric, its class, sum and attribute."""

HISTOGRAMS: Final[tuple[GroupHistogram, ...]] = (
    *(one for metric in RUNS for one in metric.histograms),
    *(one for metric in GROUPS for one in metric.histograms),
)
"""The histograms of groups, over the runs that ended."""

SIGNALS: Final[Mapping[str, Signal]] = MappingProxyType(
    {signal.name: signal for metric in RUNS for signal in metric.signals}
)
"""The signals for policy rules, by name."""

SIGNAL_READERS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        **{name: signal.read for name, signal in SIGNALS.items()},
        **{name: read for metric in RUNS for name, read in metric.details.items()},
    }
)
"""How to read each number of :class:`~tidegauge.events.Signals` from a run."""

ABSENT_FIELDS: Final[Mapping[str, Any]] = MappingProxyType(
    {name: value for metric in RUNS for name, value in metric.absent.items()}
)
"""The fields that metrics add to a run's report, each with its value for "not measured"."""


def _histogram(name: str) -> Callable[[GroupView], MetricValue]:
    def read(group: GroupView) -> MetricValue:
        found: MetricValue = group.finished.histograms[name]
        return found

    return read


OF_GROUPS: Final[tuple[Measured[GroupView], ...]] = (
    *(one for metric in RUNS for one in metric.of_group),
    *(one for metric in GROUPS for one in metric.of_group),
    *(Measured(one.metric, _histogram(one.name)) for one in HISTOGRAMS),
)
"""Metrics of the catalog that are read from a group, all arms of a memory experiment together."""

OF_ARMS: Final[tuple[Measured[GroupView], ...]] = tuple(
    one for metric in GROUPS for one in metric.of_arm
)
"""Metrics of the catalog that are read from each arm of a memory experiment."""

OF_RUNS: Final[tuple[Measured[Any], ...]] = tuple(one for metric in RUNS for one in metric.of_run)
"""Metrics of the catalog that are read from the report of a single run."""

METRICS: Final[tuple[MetricDefinition, ...]] = (
    *(one.metric for one in (*OF_GROUPS, *OF_ARMS)),
    memory_index.MEMORY_INDEX,
    *(one.metric for one in OF_RUNS),
    exploration.RUN_PLACE,
    *OTHER_METRICS,
)
"""The whole catalog, in the order of its documentation."""


_ONLY_TROUBLED: Final = " Only for the most troubled active runs."


def _metric_row(metric: MetricDefinition) -> str:
    """A row, without labels that the heading names, and without values that the help names."""
    shown = [label for label in metric.labels if label not in {*GROUP_LABELS, "run"}]
    if metric.values and not all(value in metric.help for value in metric.values):
        shown[-1] += "=" + "/".join(metric.values)
    labels = "{" + ",".join(shown) + "}" if shown else ""
    return f"| `{metric.name}{labels}` | {metric.help.removesuffix(_ONLY_TROUBLED)} |"


def metrics_tables() -> str:
    """The catalog as the Markdown tables of ``docs/prometheus.md``.

    >>> print(metrics_tables().splitlines()[4])
    | `tidegauge_runs_started_total` | Runs started, finished or not. |
    """
    sections: dict[str, list[str]] = {
        f"{kind}s {of}": []
        for of in ("by agent and task group", "of troubled runs", "of the process")
        for kind in ("Counter", "Histogram", "Gauge")
    }
    for metric in METRICS:
        by_agent = metric.labels[:2] == GROUP_LABELS
        of = "of the process" if not by_agent else "by agent and task group"
        of = "of troubled runs" if "run" in metric.labels else of
        sections[f"{metric.kind.capitalize()}s {of}"].append(_metric_row(metric))
    return "\n\n".join(
        "\n".join([f"### {title}", "", "| metric | meaning |", "| --- | --- |", *rows])
        for title, rows in sections.items()
        if rows
    )


def signals_table() -> str:
    """The signals as the Markdown table of ``docs/interventions.md``."""
    rows = ["| signal | value | a stop is for |", "| --- | --- | --- |"]
    rows += [f"| `{signal.name}` | {signal.help} | {signal.stop} |" for signal in SIGNALS.values()]
    return "\n".join(rows) + "\n"


ISSUED: Final = 0
OBSERVED: Final = 1
ANSWERED: Final = 2
"""The moments at which a policy is asked; metrics take steps at the first two."""

Update: TypeAlias = Callable[[Any], object]
"""Gives a step to a metric. Returns true if trouble begins."""

_Steps: TypeAlias = type[IssuedStep] | type[ObservedStep]

Plan: TypeAlias = tuple[tuple[Update, ...], tuple[str, ...]]
"""The updates that a step needs at one moment, in the order of the metrics, and their names."""

NO_PLANS: Final[tuple[Plan, ...]] = (((), ()),) * 4

Missing: TypeAlias = tuple[Callable[[Any], Any], Any]
"""Reads the fields that bring metrics which a run does not have, and their default values."""

_RECORDS: Final[tuple[_Steps, _Steps]] = (IssuedStep, ObservedStep)
_CALLED_FOR: Final = tuple(
    tuple(one for one in RUNS if set(one.brought_by) & set(record._fields)) for record in _RECORDS
)


def is_there_from_start(
    metric: Declaration[Any], started: RunStarted, settings: RunSettings
) -> bool:
    """Whether a run has the metric from the start."""
    if metric.brought_by_start is not None:
        return metric.brought_by_start(started, settings)
    return not metric.brought_by


def planned_updates(
    run: RunView, metrics: Mapping[type[Stateful], Any], lost: tuple[str, ...]
) -> tuple[tuple[Plan, ...], tuple[Missing | None, ...]]:
    """The updates for each moment, and what would bring metrics that the run does not have.

    Both for steps that are issued and observed, then for such that only wait or think.

    Args:
        run: the run, which some updates need.
        metrics: those that it has.
        lost: names of those that failed.
    """
    planned, names, absent = _planned(frozenset(metrics), lost)
    bound = [
        getattr(metrics[kind], update)
        if isinstance(update, str)
        else partial(update, run, None if kind is None else metrics[kind])
        for kind, update in planned
    ]
    return tuple([(tuple([bound[i] for i in of]), called) for of, called in names]), absent


@lru_cache(1_000)
def _planned(there: frozenset[type[Stateful]], lost: tuple[str, ...]) -> Any:
    """The updates of runs with these metrics; for each moment, which of them, and their names."""
    fed = {metric.feeds for metric in RUNS if metric.feeds and metric.kind in there}
    planned: list[tuple[type[Stateful] | None, str | Callable[..., object]]] = []
    of: tuple[list[int], ...] = ([], [], [], [])
    names: tuple[list[str], ...] = ([], [], [], [])
    for metric in RUNS:
        kind = metric.kind
        if metric.name in lost or kind in fed or (kind is not None and kind not in there):
            continue
        for moment, update in enumerate((metric.issued, metric.observed)):
            if not update:
                continue
            for at in (moment, moment + 2) if metric.takes_skipped else (moment,):
                of[at].append(len(planned))
                names[at].append(metric.name)
            planned.append((kind, "update" if update is True else update))
    absent = (_missing(0, there), _missing(1, there), _missing(0, there), _missing(1, there))
    return planned, [(tuple(of[at]), tuple(names[at])) for at in range(4)], absent


def brought_metrics(moment: int, record: Any) -> list[Declaration[Any]]:
    """The metrics that a record calls for."""
    # No generator: what a signal handler raises while one is closed would be lost.
    return [
        metric
        for metric in _CALLED_FOR[moment]
        if [one for one in metric.brought_by if getattr(record, one) != _default(moment, one)]
    ]


def _default(moment: int, name: str) -> Any:
    return _RECORDS[moment]._field_defaults[name]


def _missing(moment: int, there: frozenset[type[Stateful]]) -> Missing | None:
    record = _RECORDS[moment]
    names = {
        name for one in _CALLED_FOR[moment] if one.kind not in there for name in one.brought_by
    }
    fields = [name for name in record._fields if name in names]
    if not fields:
        return None
    read = itemgetter(*(record._fields.index(name) for name in fields))
    nothing = tuple(_default(moment, name) for name in fields)
    return read, nothing if len(fields) > 1 else nothing[0]

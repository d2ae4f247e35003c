"""Which metrics a run has, and which of their updates each step needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, TypeAlias

from tidegauge.events import RunStarted
from tidegauge.streaming_metrics.declaration import Declaration, RunSettings
from tidegauge.streaming_metrics.metric import Stateful
from tidegauge.streaming_metrics.records import IssuedStep, ObservedStep
from tidegauge.streaming_metrics.registry import RUNS

ISSUED: Final = 0
OBSERVED: Final = 1

Update: TypeAlias = tuple[str, Callable[..., None], Stateful | None, bool]
"""A metric's name, its update function, the metric, and whether the step is the only argument."""

_Steps: TypeAlias = type[IssuedStep] | type[ObservedStep]

Plan: TypeAlias = tuple[Update, ...]
"""The updates that a step needs at one moment, in the order of the metrics."""

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
    metrics: Mapping[type[Stateful], Any], lost: Sequence[str]
) -> tuple[tuple[Plan, ...], tuple[Missing | None, ...]]:
    """The updates for each moment, and what would bring metrics that the run does not have.

    Both for steps that are issued and observed, then for such that only wait or think.

    Args:
        metrics: those that the run has.
        lost: names of those that failed.
    """
    fed = {metric.feeds for metric in RUNS if metric.feeds and metric.kind in metrics}
    plans: tuple[list[Update], ...] = ([], [], [], [])
    for metric in RUNS:
        kind = metric.kind
        if metric.name in lost or kind in fed:
            continue
        found = None if kind is None else metrics.get(kind)
        if kind is not None and found is None:
            continue
        for moment, update in enumerate((metric.issued, metric.observed)):
            if update is True:
                planned: Update = (metric.name, found.update, None, True)  # type: ignore[union-attr]
            elif update:
                planned = (metric.name, update, found, False)
            else:
                continue
            plans[moment].append(planned)
            if metric.takes_skipped:
                plans[moment + 2].append(planned)
    there = frozenset(metrics)
    absent = (_missing(0, there), _missing(1, there), _missing(0, there), _missing(1, there))
    return tuple(map(tuple, plans)), absent


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


@lru_cache(1_000)
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

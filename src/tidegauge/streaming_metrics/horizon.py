"""Success by horizon: how long a task may be before the agent breaks down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final, Self

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.streaming_metrics.contrast import Split
from tidegauge.streaming_metrics.declaration import (
    GroupDeclaration,
    GroupView,
    Measured,
    MetricValue,
)
from tidegauge.streaming_metrics.metric import GroupMetric
from tidegauge.streaming_metrics.records import FinishedRun
from tidegauge.streaming_metrics.success import SuccessRate

_BUCKETS: Final = 21
LAST_BUCKET: Final = 2 ** (_BUCKETS - 1)
"""The last bucket; what is longer lies in it as well."""


def horizon_bucket(amount: int) -> int:
    """Bucket of a number of operations or a height: the next power of two, named by its end.

    >>> [horizon_bucket(amount) for amount in (0, 1, 2, 3, 4, 5, 120)]
    [1, 1, 2, 4, 4, 8, 128]
    """
    return 1 << (min(max(amount, 1), LAST_BUCKET) - 1).bit_length()


class SuccessByHorizon(GroupMetric):
    """Success rate by how many operations a task needs, and by how high its tree is.

    Buckets are powers of two: 1, 2, 3 to 4, 5 to 8, and so on. Runs that report neither number, or
    whose success is unknown, are ignored. O(1) a run; at most 21 buckets of either kind.

    Source: LORE (The Agent's Marathon), section 4, figures 3 and 4, in buckets.

    >>> horizon = SuccessByHorizon()
    >>> for operations, success in [(3, True), (4, True), (7, True), (8, False), (120, False)]:
    ...     horizon.update(FinishedRun(success, steps=9, operations=operations))
    >>> {bucket: rate.value for bucket, rate in horizon.by_operations.items()}
    {4: 1.0, 8: 0.5, 128: 0.0}
    """

    holds: ClassVar[tuple[type, ...]] = (SuccessRate,)
    __slots__ = ("_by_height", "_by_operations", "_rate")

    def __init__(self) -> None:
        self._rate = SuccessRate()
        self._by_operations = Split(SuccessRate, other=LAST_BUCKET, max_keys=_BUCKETS)
        self._by_height = Split(SuccessRate, other=LAST_BUCKET, max_keys=_BUCKETS)

    def update(self, step: FinishedRun) -> None:
        """Take a finished run."""
        if step.success is None or (step.operations is None and step.height is None):
            return
        self._rate.update(step)
        if step.operations is not None:
            self._by_operations.update(horizon_bucket(step.operations), step)
        if step.height is not None:
            self._by_height.update(horizon_bucket(step.height), step)

    def merge(self, other: Self) -> None:
        """Add the runs of ``other``."""
        self._rate.merge(other._rate)
        self._by_operations.merge(other._by_operations)
        self._by_height.merge(other._by_height)

    @property
    def by_operations(self) -> Mapping[int, SuccessRate]:
        """Success rate by bucket of operations; buckets without a run are absent."""
        return dict(sorted(self._by_operations.parts.items()))

    @property
    def by_height(self) -> Mapping[int, SuccessRate]:
        """Success rate by bucket of height; buckets without a run are absent."""
        return dict(sorted(self._by_height.parts.items()))

    @property
    def value(self) -> float | None:
        """Success rate of the runs that reported a horizon; ``None`` without any."""
        return self._rate.value


HORIZON_RUNS: Final = MetricDefinition(
    "tidegauge_horizon_runs_total",
    "counter",
    "runs",
    "Finished runs with known success, by their number of operations, rounded up to a "
    "power of two.",
    labels=(*GROUP_LABELS, "operations"),
)
HORIZON_SOLVED_RUNS: Final = MetricDefinition(
    "tidegauge_horizon_solved_runs_total",
    "counter",
    "runs",
    "Solved runs among them. Divided by tidegauge_horizon_runs_total, the success "
    "rate by length of the task.",
    labels=(*GROUP_LABELS, "operations"),
)


def _runs(group: GroupView) -> MetricValue:
    by_operations = group.finished.of(SuccessByHorizon).by_operations
    return {(str(operations),): rate.runs for operations, rate in by_operations.items()}


def _solved(group: GroupView) -> MetricValue:
    by_operations = group.finished.of(SuccessByHorizon).by_operations
    return {(str(operations),): rate.solved for operations, rate in by_operations.items()}


OF_GROUPS: Final = GroupDeclaration(
    name="success_by_horizon",
    kind=SuccessByHorizon,
    of_group=(Measured(HORIZON_RUNS, _runs), Measured(HORIZON_SOLVED_RUNS, _solved)),
)

"""Recall lag: how long ago the agent last saw what it now uses."""

from __future__ import annotations

from bisect import bisect_left
from typing import ClassVar, Final, Self

from tidegauge.catalog import MetricDefinition
from tidegauge.events import Identity
from tidegauge.streaming_metrics.buckets import Buckets
from tidegauge.streaming_metrics.declaration import (
    Declaration,
    GroupDeclaration,
    Measured,
    RunView,
    Sum,
    nothing,
)
from tidegauge.streaming_metrics.evicting_dict import EvictingDict
from tidegauge.streaming_metrics.metric import GroupMetric, Metric
from tidegauge.streaming_metrics.records import FinishedRun, IssuedStep, RecallCounts

RECALL_LAG_BOUNDS: Final = (1, 2, 3, 5, 8, 10, 15, 20, 30, 50, 100, 200)
"""Upper bounds of the buckets, in steps; one more is for what exceeds them all."""

_BUCKETS: Final = len(RECALL_LAG_BOUNDS) + 1


class RecallLag(Metric[IssuedStep]):
    """Mean number of steps since an entity that the action uses was last seen.

    When action a_t uses an entity whose last sighting before step t was in the state of step k,
    its lag is t - k, so that 1 is the least. What the state of step t itself shows is read, not
    recalled: it counts as a sighting from the next step on. An entity that was never seen before
    has no lag; one that an action uses twice has one.

    O(1) for each entity that a step reports. Memory grows with the distinct entities, up to
    ``max_entities``, past which the one seen longest ago is forgotten.

    Source: TIDE (arXiv 2602.02196), appendix C.5, equations 19 and 20.

    Args:
        max_entities: distinct entities remembered.

    >>> lag = RecallLag()
    >>> lag.update(IssuedStep(0, b"s0", b"look", mentions=("key", "lamp")))
    >>> lag.update(IssuedStep(1, b"s1", b"take", uses=("lamp",)))
    >>> lag.update(IssuedStep(2, b"s2", b"go"))
    >>> lag.update(IssuedStep(3, b"s3", b"open", uses=("key", "door")))
    >>> lag.value, lag.lags
    (2.0, 2)
    """

    takes: ClassVar[type] = IssuedStep
    version: ClassVar[int] = 2
    __slots__ = ("_last_seen", "counts", "dropped_entities", "max_entities", "total")

    def __init__(self, *, max_entities: int = 10_000) -> None:
        self.max_entities = max_entities
        self.dropped_entities = 0
        self.total = 0  # steps, over all lags
        self.counts = [0] * _BUCKETS  # lags by bucket
        # the entity seen longest ago first
        self._last_seen: EvictingDict[Identity, int] = EvictingDict()

    def update(self, step: IssuedStep) -> None:
        """Take the next issued step."""
        last_seen, t = self._last_seen, step.t
        # The entities are the user's: one that cannot be looked up raises here, in either loop.
        used = [last_seen.get(entity) for entity in dict.fromkeys(step.uses)]
        mentioned = [(entity, entity in last_seen) for entity in step.mentions]
        for seen in used:
            if seen is not None:
                self.total += t - seen
                self.counts[bisect_left(RECALL_LAG_BOUNDS, t - seen)] += 1
        for entity, known in mentioned:
            if known or last_seen.get(entity) == t:  # the second: mentioned twice in this step
                last_seen.pop(entity)
            last_seen[entity] = t
        while len(last_seen) > self.max_entities:
            last_seen.evict()
            self.dropped_entities += 1

    @property
    def lags(self) -> int:
        """How many lags there were."""
        return sum(self.counts)

    @property
    def recall(self) -> RecallCounts | None:
        """What adds up over runs; ``None`` while nothing was recalled."""
        return RecallCounts(self.total, tuple(self.counts)) if self.lags else None

    @property
    def value(self) -> float | None:
        """Mean lag in steps; ``None`` while nothing was recalled."""
        return self.total / self.lags if self.lags else None


class GroupRecallLag(GroupMetric):
    """Recall lags of a group's finished runs, distinguished by success. O(1) time and memory.

    Solved runs tend to use what they saw lately; a long tail in runs that fail is a sign of
    information that was there and came too late.

    Source: TIDE (arXiv 2602.02196), appendix B.6, figure 7.

    >>> def run(success, lag):
    ...     recall = RecallLag()
    ...     recall.update(IssuedStep(0, b"", b"", mentions=("key",)))
    ...     recall.update(IssuedStep(lag, b"", b"", uses=("key",)))
    ...     return FinishedRun(success, steps=lag + 1, recall=recall.recall)
    >>> lags = GroupRecallLag()
    >>> for success, lag in [(True, 1), (True, 2), (False, 12)]:
    ...     lags.update(run(success, lag))
    >>> lags.mean(success=True), lags.mean(success=False), lags.value
    (1.5, 12.0, 5.0)
    """

    __slots__ = ("_counts", "_totals")

    def __init__(self) -> None:
        # by success; None, not known
        self._totals: dict[bool | None, int] = {True: 0, False: 0, None: 0}
        self._counts: dict[bool | None, list[int]] = {
            True: [0] * _BUCKETS,
            False: [0] * _BUCKETS,
            None: [0] * _BUCKETS,
        }

    def update(self, step: FinishedRun) -> None:
        """Take a finished run."""
        if step.recall is not None:
            self._add(step.success, step.recall)

    def merge(self, other: Self) -> None:
        """Add the runs of ``other``."""
        for success in self._totals:
            self._add(success, other.recall(success=success))

    def recall(self, *, success: bool | None) -> RecallCounts:
        """Lags of the runs that succeeded, failed, or (``None``) of which it is not known."""
        return RecallCounts(self._totals[success], tuple(self._counts[success]))

    def mean(self, *, success: bool | None) -> float | None:
        """Mean lag in those runs; ``None`` while they recalled nothing."""
        lags = sum(self._counts[success])
        return self._totals[success] / lags if lags else None

    @property
    def value(self) -> float | None:
        """Mean lag in all runs, in steps; ``None`` while nothing was recalled."""
        lags = sum(map(sum, self._counts.values()))
        return sum(self._totals.values()) / lags if lags else None

    def _add(self, success: bool | None, recall: RecallCounts) -> None:
        self._totals[success] += recall.total
        self._counts[success] = [
            mine + theirs for mine, theirs in zip(self._counts[success], recall.counts, strict=True)
        ]


RECALL_LAG: Final = MetricDefinition(
    "tidegauge_recall_lag_steps",
    "histogram",
    "steps",
    "Steps since an action's entities were last seen, where runs report entities.",
)


def _issued(run: RunView, lag: RecallLag, step: IssuedStep) -> None:
    if not step.uses and not step.mentions:
        return
    lag.update(step)
    recall = lag.recall
    if recall is not None:
        lags = run.totals.recall_lags = Buckets([float(bound) for bound in RECALL_LAG_BOUNDS])
        lags.counts, lags.total = list(recall.counts), float(recall.total)


DECLARATION: Final = Declaration(
    name="recall_lag",
    kind=RecallLag,
    issued=_issued,
    takes_skipped=True,
    brought_by=("uses", "mentions"),
    sums=(Sum("recall_lags", nothing),),
    absent={"recall_lag": None},
    report=lambda run, lag: {"recall_lag": lag.value},
    document=lambda report: {"recall_lag": report.recall_lag},
    ended=lambda run, lag: {"recall": lag.recall},
    of_group=(Measured(RECALL_LAG, lambda group: group.totals.recall_lags),),
)

OF_GROUPS: Final = GroupDeclaration(
    name="recall_lag",
    kind=GroupRecallLag,
    document=lambda lags: {
        "recall_lag": {
            "success": lags.mean(success=True),
            "failure": lags.mean(success=False),
        }
    },
)

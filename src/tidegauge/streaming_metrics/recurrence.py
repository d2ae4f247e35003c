"""Recurrence: the last action had this result before, recently or long ago."""

from __future__ import annotations

from typing import ClassVar, Final

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.streaming_metrics.declaration import (
    Attribute,
    Declaration,
    Measured,
    Signal,
    Sum,
    over_active_runs,
    times,
    zero,
)
from tidegauge.streaming_metrics.evicting_dict import EvictingDict
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import ObservedStep


class Recurrence(Metric[ObservedStep]):
    """How often the last (action, result) occurred before in the run.

    Sees what consecutive repeats cannot: the same failing write at steps 17, 19 and 22 with
    other turns between. A call that succeeded in changing something is no repetition. O(1) a step;
    memory grows with the distinct pairs, up to ``max_pairs``, past which one of the outcome seen
    longest ago is forgotten.

    Args:
        max_pairs: how many distinct pairs are remembered.

    >>> recurrence = Recurrence()
    >>> for t, action in enumerate([b"write", b"ask", b"write", b"ask", b"write"]):
    ...     recurrence.update(ObservedStep(t, action=action, outcome=b"failed"))
    >>> recurrence.value
    2
    """

    takes: ClassVar[type] = ObservedStep
    version: ClassVar[int] = 4
    __slots__ = (
        "_counts",
        "_pairs",
        "current",
        "dropped_pairs",
        "max_pairs",
        "maximum",
        "recurring",
    )

    def __init__(self, *, max_pairs: int = 10_000) -> None:
        self.max_pairs = max_pairs
        self.dropped_pairs = 0
        self.recurring = 0  # results that the same action had before
        self.current: int | None = None
        self.maximum: int | None = None
        # By result, the least recently seen one first: the only action that had it, once, or
        # how often each of its actions did. Most results of a run occur once, and so cost little.
        self._counts: EvictingDict[bytes, bytes | EvictingDict[bytes, int]] = EvictingDict()
        self._pairs = 0

    def update(self, step: ObservedStep) -> None:
        """Take the next observed step."""
        action, outcome = step.action, step.outcome
        if outcome is None or step.changed:
            self.current = None if outcome is None else 0
            self.maximum = self.current if self.maximum is None else self.maximum
            return
        seen = 0
        counts = self._counts.get(outcome)
        if counts is None:
            self._counts[outcome] = action
        else:
            if isinstance(counts, bytes):
                counts = EvictingDict([(counts, 1)])
            seen = counts.get(action, 0)
            if seen and len(counts) > 1:
                counts.renew(action, seen + 1)
            else:
                counts[action] = seen + 1
            self._counts.renew(outcome, counts)
        self.current = seen
        if seen:
            self.recurring += 1
        if self.maximum is None or seen > self.maximum:
            self.maximum = seen
        if not seen:
            self._pairs += 1
            if self._pairs > self.max_pairs:
                self._forget_one()

    def count(self, action: bytes, outcome: bytes | None) -> int:
        """How often the action had this result so far."""
        counts = None if outcome is None else self._counts.get(outcome)
        if counts is None or isinstance(counts, bytes):
            return int(counts == action)
        return counts.get(action, 0)

    @property
    def value(self) -> int | None:
        """Earlier occurrences of the last step's pair; ``None``, its result is unknown."""
        return self.current

    def _forget_one(self) -> None:
        outcomes = self._counts
        # As many outcomes as pairs: each came with one action.
        counts = None if len(outcomes) == self._pairs else outcomes[outcomes.oldest()]
        if isinstance(counts, EvictingDict) and len(counts) > 1:
            counts.evict()
        else:
            outcomes.evict()
        self._pairs -= 1
        self.dropped_pairs += 1


RECURRING_RESULTS: Final = MetricDefinition(
    "tidegauge_recurring_results_total",
    "counter",
    "results",
    "Results that the same action had before in its run. Divided by "
    "tidegauge_results_total, a share.",
)
RECURRENCE: Final = MetricDefinition(
    "tidegauge_recurrence",
    "gauge",
    "results",
    "How often the last action of active runs had the same result before: mean and maximum.",
    labels=(*GROUP_LABELS, "stat"),
    values=("mean", "max"),
)
RUN_RECURRENCE: Final = MetricDefinition(
    "tidegauge_run_recurrence",
    "gauge",
    "results",
    "How often the run's last action had the same result before. Only for the most troubled "
    "active runs.",
    labels=(*GROUP_LABELS, "run"),
)


DECLARATION: Final = Declaration(
    name="recurrence",
    kind=Recurrence,
    make=lambda run: Recurrence(max_pairs=run.settings.max_distinct),
    observed=True,
    sums=(Sum("recurring_results", zero, "recurring"),),
    absent={"recurrence": None, "recurrence_max": None},
    report=lambda run, recurrence: {
        "recurrence": recurrence.value,
        "recurrence_max": recurrence.maximum,
    },
    signals=(
        Signal(
            name="recurrence",
            read=Attribute(Recurrence, "current"),
            help="how often the last action had the same result before, recently or long ago",
            message=lambda now, at: (
                f"an action has had the same result {times(now.recurrence or 0)} before"
            ),
        ),
    ),
    of_group=(
        Measured(RECURRING_RESULTS, lambda group: group.totals.recurring_results),
        Measured(RECURRENCE, over_active_runs("recurrence")),
    ),
    of_run=(Measured(RUN_RECURRENCE, lambda run: run.recurrence),),
)

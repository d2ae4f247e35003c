"""Novelty: how much of what comes back is new."""

from __future__ import annotations

from collections import deque
from typing import ClassVar, Final

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.streaming_metrics.declaration import (
    Attribute,
    Declaration,
    Measured,
    Signal,
    Sum,
    over_active_runs,
    zero,
)
from tidegauge.streaming_metrics.evicting_dict import EvictingDict
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import ObservedStep


class Novelty(Metric[ObservedStep]):
    """Share of the last ``window`` steps whose result was new to the run.

    Steps without a known result are ignored, and so are calls that succeeded in changing something
    and say nothing new. O(1) a step; memory grows with the distinct
    outcomes, up to ``max_outcomes``, past which the one seen longest ago is forgotten.

    Args:
        window: how many steps back.
        max_outcomes: number of distinct results that are remembered.

    >>> novelty = Novelty()
    >>> for t, outcome in enumerate([b"a", b"b", b"a", b"b"]):
    ...     novelty.update(ObservedStep(t, outcome=outcome))
    >>> novelty.value
    0.5
    """

    takes: ClassVar[type] = ObservedStep
    version: ClassVar[int] = 4
    __slots__ = (
        "_new",
        "_recent",
        "_seen",
        "current",
        "dropped_outcomes",
        "latest",
        "max_outcomes",
        "new_results",
        "results",
        "window",
    )

    def __init__(self, *, window: int = 12, max_outcomes: int = 10_000) -> None:
        self.window = window
        self.max_outcomes = max_outcomes
        self.dropped_outcomes = 0
        self.results = 0
        self.new_results = 0
        self.current: float | None = None
        self.latest = False  # whether the last observed result was new
        self._recent: deque[bool] = deque(maxlen=window)
        self._new = 0
        self._seen: EvictingDict[bytes, None] = EvictingDict()  # the one seen longest ago first

    def update(self, step: ObservedStep) -> None:
        """Take the next observed step."""
        outcome = step.outcome
        if outcome is None:
            return
        seen, recent = self._seen, self._recent
        new = self.latest = outcome not in seen
        self.results += 1
        self.new_results += new
        if step.changed and not new:
            seen.renew(outcome, None)
            return
        among = self._new + new
        if len(recent) == self.window:
            among -= recent[0]
        if new:
            if len(seen) >= self.max_outcomes:
                seen.evict()
                self.dropped_outcomes += 1
            seen[outcome] = None
        else:
            seen.renew(outcome, None)
        recent.append(new)
        self._new = among
        self.current = among / len(recent)

    @property
    def value(self) -> float | None:
        """Share of new results, 0 to 1; ``None`` until a result is observed."""
        return self.current


RESULTS: Final = MetricDefinition(
    "tidegauge_results_total",
    "counter",
    "results",
    "Results of steps that can be compared.",
)
NEW_RESULTS: Final = MetricDefinition(
    "tidegauge_new_results_total",
    "counter",
    "results",
    "Results that were new to their run. Divided by tidegauge_results_total, the novelty.",
)
NOVELTY: Final = MetricDefinition(
    "tidegauge_novelty",
    "gauge",
    "ratio",
    "Share of the last 12 results that were new to the run, over active runs: mean and minimum.",
    labels=(*GROUP_LABELS, "stat"),
    values=("mean", "min"),
)
RUN_NOVELTY: Final = MetricDefinition(
    "tidegauge_run_novelty",
    "gauge",
    "ratio",
    "Share of the run's last 12 results that were new to it. Only for the most troubled active "
    "runs.",
    labels=(*GROUP_LABELS, "run"),
)


DECLARATION: Final = Declaration(
    name="novelty",
    kind=Novelty,
    make=lambda run: Novelty(max_outcomes=run.settings.max_distinct),
    observed=True,
    sums=(Sum("results", zero, "results"), Sum("new_results", zero, "new_results")),
    absent={"novelty": None},
    report=lambda run, novelty: {"novelty": novelty.value},
    document=lambda report: {"novelty": report.novelty},
    signals=(
        Signal(
            name="novelty",
            read=Attribute(Novelty, "current"),
            help="share of the last 12 results that were new to the run; a rule holds at or below "
            "its threshold",
            message=lambda now, at: f"{now.novelty:.0%} of the last results were new",
            threshold="share",
            falls=True,
            score=False,
        ),
    ),
    of_group=(
        Measured(RESULTS, lambda group: group.totals.results),
        Measured(NEW_RESULTS, lambda group: group.totals.new_results),
        Measured(NOVELTY, over_active_runs("novelty", worst="min")),
    ),
    of_run=(Measured(RUN_NOVELTY, lambda run: run.novelty),),
)

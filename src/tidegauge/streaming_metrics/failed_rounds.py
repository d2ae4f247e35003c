"""Failed rounds: how many rounds in a row failed as a whole."""

from __future__ import annotations

from typing import ClassVar, Final

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.streaming_metrics.declaration import (
    Attribute,
    Declaration,
    GroupView,
    Measured,
    Signal,
)
from tidegauge.streaming_metrics.loops import loops_on
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import ObservedStep

FAILING: Final = 7
"""Failed rounds in a row from which a run is failing. Of the recorded runs that succeed, 2.3% have
3 of them, and 0.2% have 7."""


class FailedRounds(Metric[ObservedStep]):
    """Consecutive rounds with at least one call, every call failed.

    Any success ends the count, and so does a round of which it is not known whether it failed: the
    number is what is certain. Rounds without a call don't count either way. O(1).

    Source: LORE (The Agent's Marathon), appendix C, where two are allowed and the third ends the
    run.

    >>> rounds = FailedRounds()
    >>> for t, failed in enumerate([False, True, True]):
    ...     _ = rounds.update(ObservedStep(t, failed=failed))
    >>> rounds.value
    2
    """

    takes: ClassVar[type] = ObservedStep
    unsaved: ClassVar[frozenset[str]] = frozenset({"onset_at"})
    __slots__ = ("current", "maximum", "onset_at")

    def __init__(self, *, onset_at: int = 3) -> None:
        self.onset_at = onset_at
        self.current: int | None = None
        self.maximum: int | None = None

    def update(self, step: ObservedStep) -> bool:
        """Take the next observed round. Returns whether the count has come to ``onset_at``."""
        if not step.calls:
            return False
        if step.failed is None:
            self.current = None if self.maximum is None else 0
            return False
        current = self.current = (self.current or 0) + 1 if step.failed else 0
        if self.maximum is None or current > self.maximum:
            self.maximum = current
        return current == self.onset_at

    @property
    def value(self) -> int | None:
        """Failed rounds in a row up to now; ``None`` while no round's success was known."""
        return self.current


HIGHEST_FAILED_ROUNDS: Final = MetricDefinition(
    "tidegauge_highest_failed_rounds",
    "gauge",
    "rounds",
    "Consecutive rounds in which every call failed, up to now: the highest number of "
    "an active run.",
)
RUNS_FAILING: Final = MetricDefinition(
    "tidegauge_runs_failing",
    "gauge",
    "runs",
    f"Active runs in which every call of at least the last {FAILING} rounds failed, without those "
    "in a loop that lasts.",
)
RUN_FAILED_ROUNDS: Final = MetricDefinition(
    "tidegauge_run_failed_rounds",
    "gauge",
    "rounds",
    "Consecutive rounds of the run in which every call failed, up to now. Only for the most "
    "troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)


def _highest(group: GroupView) -> int | None:
    """``None``: of no active run it is known whether a round failed."""
    known = [run.failed_rounds for run in group.active if run.failed_rounds is not None]
    return max(known, default=None)


def _failing(group: GroupView) -> int | None:
    """``None``: of no active run it is known whether a round failed."""
    known = [run for run in group.active if run.failed_rounds is not None]
    failing = (run for run in known if run.failed_rounds >= FAILING and not loops_on(run))
    return sum(1 for _ in failing) if known or not group.active else None


DECLARATION: Final = Declaration(
    name="failed_rounds",
    kind=FailedRounds,
    make=lambda run: FailedRounds(onset_at=run.settings.onset_at),
    observed=True,
    absent={"failed_rounds": None, "failed_rounds_max": None},
    report=lambda run, rounds: {
        "failed_rounds": rounds.value,
        "failed_rounds_max": rounds.maximum,
    },
    document=lambda report: {"failed_rounds_max": report.failed_rounds_max},
    signals=(
        Signal(
            name="failed_rounds",
            read=Attribute(FailedRounds, "current"),
            help="consecutive rounds in which every call failed (LORE ends a run at the third)",
            message=lambda now, at: f"{now.failed_rounds} rounds in a row failed",
            moment="observed",
        ),
    ),
    of_group=(Measured(HIGHEST_FAILED_ROUNDS, _highest), Measured(RUNS_FAILING, _failing)),
    of_run=(Measured(RUN_FAILED_ROUNDS, lambda run: run.failed_rounds),),
)

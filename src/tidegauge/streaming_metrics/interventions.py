"""Interventions of a policy in a run, and what a stop would have saved."""

from __future__ import annotations

from typing import Any, Final

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.streaming_metrics.buckets import addable
from tidegauge.streaming_metrics.declaration import (
    Declaration,
    Measured,
    RunView,
    Sum,
    no_counts,
    zero,
    zero_amount,
)
from tidegauge.streaming_metrics.metric import Stateful
from tidegauge.streaming_metrics.records import IssuedStep, ObservedStep


class Interventions(Stateful):
    """When a run was stopped, or would have been. O(1) time and memory.

    A stop that is only observed would have saved every later step, with its tokens and seconds. If
    it would have happened before the action ran, it would also have saved that step, but for the
    tokens that chose it.

    Attributes:
        stopped: the step and the reason of the stop; ``None``, the run was not stopped.
        would_stop: the same of the first stop that was only observed.
        saved_from: the first step that a stop would have saved.

    >>> interventions = Interventions()
    >>> interventions.observed_stop(4, "loop_repeats", waits=True)
    >>> interventions.would_stop, interventions.saved_from
    ((4, 'loop_repeats'), 4)
    """

    __slots__ = ("saved_from", "stopped", "would_stop")

    def __init__(self) -> None:
        self.stopped: tuple[int, str] | None = None
        self.would_stop: tuple[int, str] | None = None
        self.saved_from: int | None = None

    def stop(self, step: int, reason: str) -> None:
        """The run is stopped; the first stop counts."""
        self.stopped = self.stopped or (step, reason)

    def observed_stop(self, step: int, reason: str, *, waits: bool) -> None:
        """The run would have been stopped; ``waits``: the step has no result yet."""
        if self.would_stop is None:
            self.would_stop = (step, reason)
            # A stop at the moment of issue saves the step itself.
            self.saved_from = step if waits else step + 1


INTERVENTIONS: Final = MetricDefinition(
    "tidegauge_interventions_total",
    "counter",
    "interventions",
    "Interventions (nudge, block, stop), or what an observe-only policy would do "
    "(would_stop), by the signal that exceeded its threshold. Stops count once per "
    "run.",
    labels=(*GROUP_LABELS, "action", "reason"),
)
SAVED_STEPS: Final = MetricDefinition(
    "tidegauge_would_have_saved_steps_total",
    "counter",
    "steps",
    "Steps that runs took after an observe-only policy would have stopped them.",
)
SAVED_TOKENS: Final = MetricDefinition(
    "tidegauge_would_have_saved_tokens_total",
    "counter",
    "tokens",
    "Tokens spent on those steps, where they are reported.",
)
SAVED_SECONDS: Final = MetricDefinition(
    "tidegauge_would_have_saved_seconds_total",
    "counter",
    "seconds",
    "Time spent on those steps.",
)


def _issued(run: RunView, interventions: Interventions, step: IssuedStep) -> None:
    if interventions.saved_from is not None:
        run.totals.saved_steps += 1
        if step.choice_tokens is not None:
            run.totals.saved_tokens += addable(step.choice_tokens)


def _observed(run: RunView, interventions: Interventions, step: ObservedStep) -> None:
    if interventions.saved_from is not None and step.t >= interventions.saved_from:
        tokens, seconds = step.result_tokens, step.seconds
        if tokens is not None:
            run.totals.saved_tokens += addable(tokens)
        if seconds is not None:
            run.totals.saved_seconds += addable(seconds)


def _report(run: RunView, interventions: Interventions) -> dict[str, Any]:
    report: dict[str, Any] = {}
    if interventions.would_stop is not None:
        report.update(
            saved_steps=run.totals.saved_steps,
            saved_tokens=run.totals.saved_tokens,
            saved_seconds=run.totals.saved_seconds,
        )
    happened = interventions.stopped or interventions.would_stop
    if happened is not None:
        report.update(
            intervention="stop" if interventions.stopped else "would_stop",
            intervention_step=happened[0],
            intervention_reason=happened[1],
        )
    return report


def _document(report: Any) -> dict[str, Any]:
    stopped = None
    if report.intervention == "stop":
        stopped = {"step": report.intervention_step, "reason": report.intervention_reason}
    return {"stopped": stopped}


DECLARATION: Final = Declaration(
    name="interventions",
    kind=Interventions,
    issued=_issued,
    takes_skipped=True,
    observed=_observed,
    # A run gets it with its first intervention.
    brought_by_start=lambda started, settings: False,
    sums=(
        Sum("interventions", no_counts),  # by (action, reason)
        # after the first stop that a policy would have made
        Sum("saved_steps", zero),
        Sum("saved_tokens", zero_amount),
        Sum("saved_seconds", zero_amount),
    ),
    absent=dict.fromkeys(
        (
            "intervention",
            "intervention_step",
            "intervention_reason",
            "saved_steps",
            "saved_tokens",
            "saved_seconds",
        )
    ),
    report=_report,
    document=_document,
    of_group=(
        Measured(INTERVENTIONS, lambda group: dict(group.totals.interventions)),
        Measured(SAVED_STEPS, lambda group: group.totals.saved_steps),
        Measured(SAVED_TOKENS, lambda group: group.totals.saved_tokens),
        Measured(SAVED_SECONDS, lambda group: group.totals.saved_seconds),
    ),
)

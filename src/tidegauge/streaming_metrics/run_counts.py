"""What is counted of every run, whatever it reports: runs, steps, their time, refused calls."""

from __future__ import annotations

import time
from typing import Any, Final, get_args

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.events import RunOutcome, made
from tidegauge.streaming_metrics.buckets import Buckets, Exemplar
from tidegauge.streaming_metrics.declaration import (
    Declaration,
    GroupHistogram,
    Measured,
    RunView,
    Signal,
    Sum,
    counts,
    no_counts,
    zero,
)
from tidegauge.streaming_metrics.records import ObservedStep

_SECOND_BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

RUNS_STARTED: Final = MetricDefinition(
    "tidegauge_runs_started_total",
    "counter",
    "runs",
    "Runs started, finished or not.",
)
RUNS_FINISHED: Final = MetricDefinition(
    "tidegauge_runs_finished_total",
    "counter",
    "runs",
    "Runs finished, by outcome: success or failure as reported, stopped by a policy, "
    "error for an exception of the agent, unknown without a report.",
    labels=(*GROUP_LABELS, "outcome"),
    values=get_args(RunOutcome),
)
STEPS: Final = MetricDefinition(
    "tidegauge_steps_total",
    "counter",
    "steps",
    "Steps issued. Several tool calls chosen in one model turn are one step.",
)
REFUSED_CALLS: Final = MetricDefinition(
    "tidegauge_refused_calls_total",
    "counter",
    "calls",
    "Calls that were not run, because the policy blocked them or had stopped the run. A "
    "blocked call is a step, and so is the call at which a run is stopped; later ones are not.",
)
RUNS_ACTIVE: Final = MetricDefinition(
    "tidegauge_runs_active",
    "gauge",
    "runs",
    "Runs that are active now.",
)
RUNS_UNGUARDED: Final = MetricDefinition(
    "tidegauge_runs_unguarded",
    "gauge",
    "runs",
    "Active runs whose policy an internal error has switched off: they are measured only.",
)
RUN_STEPS: Final = MetricDefinition(
    "tidegauge_run_steps",
    "gauge",
    "steps",
    "Steps the run has taken. Only for the most troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)
FINISHED_RUN_STEPS: Final = MetricDefinition(
    "tidegauge_finished_run_steps",
    "histogram",
    "steps",
    "Steps of finished runs.",
)
STEP_DURATION: Final = MetricDefinition(
    "tidegauge_step_duration_seconds",
    "histogram",
    "seconds",
    "Seconds from a step's action to its result.",
)
NOT_COMPARABLE: Final = MetricDefinition(
    "tidegauge_not_comparable_total",
    "counter",
    "steps",
    "Steps with a part (arguments, result or state) that cannot be compared and "
    "equals nothing. Give the tool a key=.",
    labels=(*GROUP_LABELS, "action", "part"),
)


def _observed(run: RunView, _: None, step: ObservedStep) -> None:
    seconds = step.seconds
    if seconds is not None:
        trace_id = run.started.trace_id
        seen = None if trace_id is None else made(Exemplar, (trace_id, seconds, time.time()))
        run.totals.step_seconds.observe(seconds, seen)


DECLARATION: Final[Declaration[Any]] = Declaration(
    name="step_seconds",
    observed=_observed,
    takes_skipped=True,
    sums=(
        Sum("steps", zero),
        Sum("refused_calls", zero),
        Sum("step_seconds", lambda: Buckets(_SECOND_BOUNDS)),
        Sum("not_comparable", no_counts),  # by (action, part)
    ),
    absent={"refused_calls": 0},
    report=lambda run, _: {"refused_calls": run.totals.refused_calls},
    document=lambda report: {"refused_calls": report.refused_calls},
    signals=(
        Signal(
            name="steps",
            read=lambda run: run.steps,
            help="steps the run has taken; the next one exceeds the limit",
            message=lambda now, at: f"more than {at:.0f} steps",
            score=False,
            of_skipped=True,
            stop="lost cause",
        ),
        Signal(
            name="tokens",
            read=lambda run: run.tokens,
            help="tokens the run has spent",
            message=lambda now, at: f"{now.tokens:,.0f} tokens were spent",
            of_skipped=True,
            stop="lost cause",
        ),
    ),
    details={"completed_steps": lambda run: run.completed_steps},
    of_group=(
        Measured(RUNS_STARTED, lambda group: group.runs_started),
        Measured(
            RUNS_FINISHED,
            lambda group: counts(group.finished.finished, known=RUNS_FINISHED.values),
        ),
        Measured(STEPS, lambda group: group.totals.steps),
        Measured(REFUSED_CALLS, lambda group: group.totals.refused_calls),
        Measured(RUNS_ACTIVE, lambda group: len(group.active)),
        Measured(RUNS_UNGUARDED, lambda group: sum(run.unguarded for run in group.active)),
        Measured(NOT_COMPARABLE, lambda group: dict(group.totals.not_comparable)),
        Measured(STEP_DURATION, lambda group: group.totals.step_seconds),
    ),
    of_run=(Measured(RUN_STEPS, lambda run: run.steps),),
    histograms=(
        GroupHistogram(
            "run_steps",
            FINISHED_RUN_STEPS,
            (1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0, 200.0, 500.0, 1000.0),
            lambda run: run.steps,
        ),
    ),
)

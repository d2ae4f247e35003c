"""The run dashboard: what one run does, and since when and where it loops."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.board import EVENTS, MATCHERS, RUNS, STEPS, Row, board, label_variable
from dashboards.panels import BAD, REPEATS, SCORE, SECONDS, SHARE, WATCH, Panel, Query
from dashboards.queries import QueryScope, quantile, total
from dashboards.ratios import AUV, ratio
from dashboards.visualizations import bars, big_number, lines, stretches
from tidegauge.catalog import MetricDefinition
from tidegauge.streaming_metrics.answers import RUN_TURNS_WITHOUT_CALLS
from tidegauge.streaming_metrics.entropy_split import RUN_ACTION_ENTROPY
from tidegauge.streaming_metrics.exploration import (
    RUN_FRONTIER_PLACES,
    RUN_PENDING_TASKS,
    RUN_PLACE,
)
from tidegauge.streaming_metrics.loops import LOOPS, RUN_LOOP_REPEATS
from tidegauge.streaming_metrics.noise import RUN_NEAR_STREAK
from tidegauge.streaming_metrics.novelty import RUN_NOVELTY
from tidegauge.streaming_metrics.progress_auv import RUN_PROGRESS, RUN_PROGRESS_AUV
from tidegauge.streaming_metrics.recurrence import RUN_RECURRENCE
from tidegauge.streaming_metrics.repetition import (
    RUN_ACTION_SIMILARITY,
    RUN_REPETITION,
    RUN_REPETITION_RECENT,
)
from tidegauge.streaming_metrics.run_counts import RUN_STEPS, STEP_DURATION
from tidegauge.streaming_metrics.stagnation import RUN_STAGNATION
from tidegauge.streaming_metrics.stale_score import RUN_STALE_SCORE, STALE_SCORE_MAX

_RUN: Final = QueryScope("", {**MATCHERS, "run": '="$run"'})
_PLACES: Final = 12
_STALE: Final = ((5, WATCH), (10, BAD))


def run() -> Dashboard:
    """The dashboard of one active run in trouble."""
    of = [f"{label}{match}" for label, match in MATCHERS.items()]
    return board(
        "tidegauge-run",
        "Agents: run",
        "One of the 20 most troubled active runs of each process. Other runs are not exported "
        "one by one. A run that has ended is shown up to its end.",
        [
            Row("Now", _now()),
            Row("Navigation", _navigation()),
            Row("Repetition", _repetition()),
            Row("Its group, and traces", _group()),
        ],
        variables=[label_variable("run", "Run", RUN_STEPS, *of, single=True)],
    )


def _of_run(metric: MetricDefinition) -> str:
    return total(_RUN.series(metric), operator="max")


def _places() -> str:
    """The places of the run where it stayed longest within the time shown."""
    here = total(_RUN.series(RUN_PLACE), ["place"], operator="max")
    samples = f"count_over_time({_RUN.series(RUN_PLACE)}[$__range] @ end())"
    return f"{here}\n  and on (place) topk({_PLACES}, {total(samples, ['place'])})"


def _now() -> list[Panel]:
    return [
        big_number(
            "Loop repeats",
            "How often the run has repeated its current loop. From 3 on, progress is unlikely: "
            "stop the run, or hand it over.",
            Query(_of_run(RUN_LOOP_REPEATS)),
            now=False,
            steps=REPEATS,
        ),
        big_number(
            "Stale score",
            "How much the run revisits known places and actions since its last progress. 0: new "
            "places. 10 or more: the run is lost.",
            Query(_of_run(RUN_STALE_SCORE)),
            now=False,
            unit=SCORE,
            steps=_STALE,
        ),
        big_number(
            "Steps",
            "Steps the run has taken. Compare with its step limit.",
            Query(_of_run(RUN_STEPS)),
            now=False,
        ),
        big_number(
            "Progress",
            "Best progress the run has reported. Empty for agents that report none.",
            Query(_of_run(RUN_PROGRESS)),
            now=False,
            unit=SHARE,
        ),
        big_number(
            "Frontier",
            "Places the run has seen and not visited: what it could still try. Empty for agents "
            "that report no places.",
            Query(_of_run(RUN_FRONTIER_PLACES)),
            now=False,
        ),
        big_number(
            "Pending",
            "Tasks that are ready and not done: what the run could do now. Empty for agents that "
            "report no tasks.",
            Query(_of_run(RUN_PENDING_TASKS)),
            now=False,
        ),
    ]


def _navigation() -> list[Panel]:
    return [
        lines(
            "Stale score",
            "Rises with every step that revisits known places or actions, and falls to 0 with "
            "progress. A saw-tooth is healthy. A ramp is a run that is lost.",
            Query(_of_run(RUN_STALE_SCORE), "stale score"),
            unit=SCORE,
            steps=_STALE,
        ),
        lines(
            "Loop repeats",
            "0 outside of loops. A ramp is a run that is stuck.",
            Query(_of_run(RUN_LOOP_REPEATS), "loop repeats"),
            Query(_of_run(RUN_TURNS_WITHOUT_CALLS), "answers in a row without a call"),
            steps=REPEATS,
        ),
        stretches(
            "Places",
            f"When the run was where: the {_PLACES} places where it stayed longest. Rows that "
            "alternate are the loop. Places are digests, unless contents are captured. Empty for "
            "agents that report no places.",
            Query(_places(), "{{place}}"),
        ),
        lines(
            "Frontier and pending tasks",
            "What the run could still try, and what it could do now. If both stay flat while "
            "steps continue, the run does neither. Empty for agents that report no places.",
            Query(_of_run(RUN_FRONTIER_PLACES), "frontier"),
            Query(_of_run(RUN_PENDING_TASKS), "pending"),
        ),
        lines(
            "Steps",
            "Steep: the run acts without thinking. Flat: the run waits for a tool.",
            Query(_of_run(RUN_STEPS), "steps"),
        ),
    ]


def _repetition() -> list[Panel]:
    unmeasured = "Empty unless repetition is measured: see docs/prometheus.md."
    return [
        lines(
            "Stagnation",
            "The combined score: steps, repeated work, loops, streaks and failures. It rises by 1 "
            f"a step while the run works, and faster while it repeats itself. {unmeasured}",
            Query(_of_run(RUN_STAGNATION), "stagnation"),
            Query(_of_run(RUN_REPETITION), "repeated steps"),
            Query(_of_run(RUN_REPETITION_RECENT), "repeated of the last 16 steps"),
            Query(_of_run(RUN_STEPS), "steps"),
            unit=SCORE,
        ),
        lines(
            "Similarity of the last action, and novelty",
            "How similar the last action is to an earlier one, and which share of the last 12 "
            "results was new. Similar actions with new results are work; similar actions without "
            "are a near-loop. Similarity is absent unless repetition is measured.",
            Query(_of_run(RUN_ACTION_SIMILARITY), "similarity"),
            Query(_of_run(RUN_NOVELTY), "novelty"),
            unit=SHARE,
        ).max(1),
        lines(
            "Recurrence",
            "How often the last action had the same result before, recently or long ago; and in a "
            "row the same but for numbers that change every time (near streak: empty while no "
            "result has one).",
            Query(_of_run(RUN_RECURRENCE), "recurrence"),
            Query(_of_run(RUN_NEAR_STREAK), "near streak"),
        ),
        lines(
            "Action entropy",
            "How uncertain the agent was of its last action, nats per token. If it falls while "
            "the run loops, the agent is certain of what does not work. Empty for agents that "
            "report no log-probabilities.",
            Query(_of_run(RUN_ACTION_ENTROPY), "action entropy"),
            unit=SCORE,
        ),
    ]


def _group() -> list[Panel]:
    return [
        lines(
            "Progress of the run, AUV of its agent",
            "The run's best progress and the area under it (progress AUV), which rises as long as "
            "progress does, and the AUV of the selected agent and group. Empty without "
            "progress and without t_max.",
            Query(_of_run(RUN_PROGRESS), "progress"),
            Query(_of_run(RUN_PROGRESS_AUV), "progress AUV"),
            Query(ratio(AUV, RUNS), "AUV"),
            unit=SHARE,
        ).max(1),
        bars(
            "Loop onsets",
            "Loops of the selected agents that began, by kind. Each dot is a run and links to its "
            "trace.",
            Query(total(EVENTS.increase(LOOPS), ["kind"]), "{{kind}}", exemplars=True),
        ),
        lines(
            "Step duration",
            "Seconds that 50% (p50) and 95% (p95) of the steps do not exceed. Each dot is a step "
            "and links to its trace.",
            Query(quantile(STEPS, STEP_DURATION, 0.5), "p50", exemplars=True),
            Query(quantile(STEPS, STEP_DURATION, 0.95), "p95", exemplars=True),
            unit=SECONDS,
        ),
        lines(
            "Highest stale score of ended runs",
            "Stale score that 50% (p50) and 95% (p95) of the ended runs did not exceed, to compare "
            "this run with. Each dot is a run and links to its trace.",
            *(
                Query(quantile(RUNS, STALE_SCORE_MAX, share), legend, exemplars=True)
                for share, legend in ((0.5, "p50"), (0.95, "p95"))
            ),
            unit=SCORE,
        ),
    ]

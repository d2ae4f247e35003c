"""One run: what it is doing, since when it goes round in circles, and where."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.models.dashboard import Dashboard

from tidegauge import catalog
from tidegauge.catalog import MetricDefinition
from tidegauge.dashboards.board import EVENTS, MATCHERS, RUNS, STEPS, board, label_variable
from tidegauge.dashboards.colours import BAD, WATCH
from tidegauge.dashboards.over_time import bars, lines, stretches
from tidegauge.dashboards.panels import REPEATS, SCORE, SECONDS, SHARE, Panel, Query
from tidegauge.dashboards.queries import Scope, quantile, total
from tidegauge.dashboards.ratios import AUV, ratio
from tidegauge.dashboards.right_now import big_number

__all__ = ["run"]

_RUN: Final = Scope("", {**MATCHERS, "run": '="$run"'})
_PLACES: Final = 12
_STALE: Final = ((5, WATCH), (10, BAD))


def run() -> Dashboard:
    """The dashboard of one of the troubled runs."""
    of = [f"{label}{match}" for label, match in MATCHERS.items()]
    return board(
        "tidegauge-run",
        "Agents: run",
        "One of the 20 most troubled active runs of each process: others are not told one by "
        "one, and a run that has ended is shown up to its end.",
        [
            ("Now", _now()),
            ("Tracks", _tracks()),
            ("Its group, and traces", _group()),
        ],
        variables=[label_variable("run", "Run", catalog.RUN_STEPS, *of, single=True)],
    )


def _of_run(metric: MetricDefinition) -> str:
    return total(_RUN.series(metric), operator="max")


def _places() -> str:
    """The places of the run, only those where it was for longest in all of the time shown."""
    here = total(_RUN.series(catalog.RUN_PLACE), ["place"], operator="max")
    samples = f"count_over_time({_RUN.series(catalog.RUN_PLACE)}[$__range] @ end())"
    return f"{here}\n  and on (place) topk({_PLACES}, {total(samples, ['place'])})"


def _now() -> list[Panel]:
    return [
        big_number(
            "Loop repeats",
            "How often the run has repeated the loop it is in. From 3 on nothing new is to be "
            "expected: stop it, or hand it over.",
            Query(_of_run(catalog.RUN_LOOP_REPEATS)),
            now=False,
            steps=REPEATS,
        ),
        big_number(
            "Stale score",
            "How much it goes over its own tracks since its last progress: 0 is new ground, from "
            "10 on it is lost.",
            Query(_of_run(catalog.RUN_STALE_SCORE)),
            now=False,
            unit=SCORE,
            steps=_STALE,
        ),
        big_number(
            "Steps",
            "Steps it has taken. Compare with its limit.",
            Query(_of_run(catalog.RUN_STEPS)),
            now=False,
        ),
        big_number(
            "Progress",
            "Best progress it has reported. Empty for agents that report none.",
            Query(_of_run(catalog.RUN_PROGRESS)),
            now=False,
            unit=SHARE,
        ),
        big_number(
            "Frontier",
            "Places it has seen and not visited: what it could still try. Empty for agents that "
            "do not tell where they are.",
            Query(_of_run(catalog.RUN_FRONTIER_PLACES)),
            now=False,
        ),
        big_number(
            "Pending",
            "Tasks that are ready and not achieved: what it could do now. Empty for agents that "
            "tell no tasks.",
            Query(_of_run(catalog.RUN_PENDING_TASKS)),
            now=False,
        ),
    ]


def _tracks() -> list[Panel]:
    return [
        lines(
            "Stale score",
            "Rises with every step over old tracks, falls to 0 with progress. A saw-tooth is "
            "healthy; a ramp is a run that is lost.",
            Query(_of_run(catalog.RUN_STALE_SCORE), "stale score"),
            unit=SCORE,
            steps=_STALE,
        ),
        lines(
            "Loop repeats",
            "0 outside of loops. A ramp is a run that is stuck.",
            Query(_of_run(catalog.RUN_LOOP_REPEATS), "loop repeats"),
            steps=REPEATS,
        ),
        stretches(
            "Places",
            f"When the run stood where: the {_PLACES} places where it was for longest. Rows that "
            "take turns are the loop. Places are digests, unless contents are asked for. Empty for "
            "agents that do not tell where they are.",
            Query(_places(), "{{place}}"),
        ),
        lines(
            "Frontier and pending tasks",
            "What the run could still try, and what it could do now. Both flat while steps go on: "
            "it does neither. Empty for agents that do not tell where they are.",
            Query(_of_run(catalog.RUN_FRONTIER_PLACES), "frontier"),
            Query(_of_run(catalog.RUN_PENDING_TASKS), "pending"),
        ),
        lines(
            "Steps",
            "Steep is a run that acts without thinking; flat is one that waits for a tool.",
            Query(_of_run(catalog.RUN_STEPS), "steps"),
        ),
    ]


def _group() -> list[Panel]:
    return [
        lines(
            "Progress of the run, AUV of its agent",
            "The run's best progress beside how early runs of the chosen agent and group are "
            "solved. Empty without progress and without t_max.",
            Query(_of_run(catalog.RUN_PROGRESS), "progress"),
            Query(ratio(AUV, RUNS), "AUV"),
            unit=SHARE,
        ).max(1),
        bars(
            "Loops beginning",
            "Loops of the chosen agents that began, by kind. The dots are runs: each leads to its "
            "trace.",
            Query(total(EVENTS.increase(catalog.LOOPS), ["kind"]), "{{kind}}", exemplars=True),
        ),
        lines(
            "Seconds of a step",
            "What half of the steps, and all but one in twenty, stay under.",
            Query(quantile(STEPS, catalog.STEP_DURATION, 0.5), "half"),
            Query(quantile(STEPS, catalog.STEP_DURATION, 0.95), "all but 5 %"),
            unit=SECONDS,
        ),
        lines(
            "Worst stale score of ended runs",
            "What half of the ended runs, and all but one in twenty, stayed under: how this run "
            "compares. The dots are runs: each leads to its trace.",
            *(
                Query(quantile(RUNS, catalog.STALE_SCORE_MAX, share), legend, exemplars=True)
                for share, legend in ((0.5, "half"), (0.95, "all but 5 %"))
            ),
            unit=SCORE,
        ),
    ]

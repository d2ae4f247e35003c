"""Why agents fail: AUV, loops and memory beside each other, by group (TIDE's triad)."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.models.dashboard import Dashboard

from tidegauge import catalog
from tidegauge.dashboards.board import EVENTS, NOW, RUNS, board
from tidegauge.dashboards.colours import BAD, WATCH
from tidegauge.dashboards.over_time import bars, lines, turns_over_time
from tidegauge.dashboards.panels import SCORE, SHARE, Panel, Query
from tidegauge.dashboards.queries import GROUP, quantile, total
from tidegauge.dashboards.ratios import (
    AUV,
    BACKTRACK_RATIO,
    BEHAVIOR_ERROR,
    CYCLE_RATIO,
    ENDURANCE,
    JUDGED_SCORE,
    LOOP_RATIO,
    LOOP_TIME_RATIO,
    LOW_SCORES,
    PREMATURE_HALT_RATIO,
    SUCCESS_RATE,
    loop_action_share,
    memory_index,
    ratio,
    success_curve,
)
from tidegauge.dashboards.right_now import Column, by_number, grid, ranking

__all__ = ["diagnosis"]

_BY_GROUP: Final = "{{agent}} {{task_group}}"
_LOOP_STEPS: Final = ((0.1, WATCH), (0.3, BAD))


def diagnosis() -> Dashboard:
    """The dashboard for the day after."""
    return board(
        "tidegauge-diagnosis",
        "Agents: diagnosis",
        "How early runs are solved, how much of them is loops, and what memory is worth. To "
        "compare models, give each an agent name or a task group of its own.",
        [
            ("By agent and task group", [_triad()]),
            ("Over time", _over_time()),
            ("Success over turns", _curve()),
            ("Endurance and loops", _endurance()),
            ("Judges", _judges()),
        ],
    )


def _triad() -> Panel:
    columns = {
        "Success": Column(ratio(SUCCESS_RATE, RUNS, GROUP)),
        "AUV": Column(ratio(AUV, RUNS, GROUP)),
        "Loop ratio": Column(ratio(LOOP_RATIO, RUNS, GROUP), _LOOP_STEPS),
        "Memory index": Column(memory_index(RUNS, GROUP)),
        "Cycle ratio": Column(ratio(CYCLE_RATIO, RUNS, GROUP)),
        "Time in loops": Column(ratio(LOOP_TIME_RATIO, RUNS, GROUP), _LOOP_STEPS),
        "Backtracks": Column(ratio(BACKTRACK_RATIO, RUNS, GROUP)),
        "Premature halts": Column(ratio(PREMATURE_HALT_RATIO, RUNS, GROUP)),
    }
    return grid(
        "Triad",
        "Low AUV with a low loop ratio: the agent works and does not get there, so look at its "
        "tools and knowledge. Low AUV with a high one: it is stuck, so let a policy step in. A "
        "memory index at or under 0: memory costs and brings nothing. Columns are empty for "
        "agents that do not tell what they need.",
        columns,
    )


def _over_time() -> list[Panel]:
    return [
        lines(
            "AUV",
            "How many runs are solved and how early, 0 to 1. Empty until runs tell a t_max.",
            Query(ratio(AUV, RUNS, GROUP), _BY_GROUP),
            unit=SHARE,
        ).max(1),
        lines(
            "Loop ratio",
            "Share of steps that repeat a cycle just closed.",
            Query(ratio(LOOP_RATIO, RUNS, GROUP), _BY_GROUP),
            unit=SHARE,
            steps=_LOOP_STEPS,
        ),
        lines(
            "Memory index",
            "AUV with memory minus AUV without, -1 to 1. Empty until runs of both kinds have "
            "ended (memory=on and memory=off).",
            Query(memory_index(RUNS, GROUP), _BY_GROUP),
            unit=SHARE,
            least=None,
        )
        .axis_soft_min(-0.1)
        .axis_soft_max(0.1),
        lines(
            "Behavior errors",
            "Steps that neither made progress nor came nearer to it, by what was called for. "
            "Empty for agents that do not tell where they are.",
            Query(ratio(BEHAVIOR_ERROR, RUNS, GROUP), f"{_BY_GROUP}: {{{{kind}}}}"),
            unit=SHARE,
        ).max(1),
        lines(
            "Stale score of active runs",
            "How much they go over their own tracks since their last progress, on average and at "
            "worst. The average rises: it is not one run, it is the agent or its task.",
            Query(total(NOW.series(catalog.STALE_SCORE, 'stat="max"'), operator="max"), "worst"),
            Query(total(NOW.series(catalog.STALE_SCORE, 'stat="mean"'), operator="avg"), "mean"),
            unit=SCORE,
        ),
        lines(
            "Frontier and pending tasks of active runs",
            "What they could still try, and what they could do now, added up. Both grow: agents "
            "see more than they use. Empty for agents that do not tell where they are.",
            Query(total(NOW.series(catalog.FRONTIER_PLACES)), "frontier"),
            Query(total(NOW.series(catalog.PENDING_TASKS)), "pending"),
        ),
    ]


def _curve() -> list[Panel]:
    return [
        turns_over_time(
            "At which turn runs are solved",
            "Share of all runs that were solved at these turns, over time: the steps of the curve "
            "P_t. A band that climbs: runs take longer. One that pales: fewer are solved. Empty "
            "when no agent says whether it succeeded.",
            success_curve(RUNS),
        ),
        by_number(
            "Success within t turns (P_t)",
            "Share of runs solved within so many turns. Flat at the end: more turns would not "
            "help. Still rising: t_max is too small. Empty when no agent says whether it "
            "succeeded.",
            success_curve(RUNS, upto='le!="+Inf"'),
            "le",
        ).height(10),
    ]


def _endurance() -> list[Panel]:
    return [
        by_number(
            "Endurance: success by operations needed",
            "Success rate of tasks by how many operations they need, up to the next power of two. "
            "Where it breaks down, tasks have to be split. Empty for agents that do not tell "
            "operations.",
            ratio(ENDURANCE, RUNS),
            "operations",
        ),
        ranking(
            "Loop action share",
            "Of all loop steps, the share of each action: the tool to look at first. Empty "
            "without loops.",
            Query(f"sort_desc({loop_action_share(RUNS)} > 0)", "{{action}}"),
        ),
        lines(
            "Steps of ended runs",
            "What half of the ended runs, and all but one in twenty, stayed under.",
            *(
                Query(quantile(RUNS, catalog.FINISHED_RUN_STEPS, share), legend)
                for share, legend in ((0.5, "half"), (0.95, "all but 5 %"))
            ),
        ).span(8),
        lines(
            "Leads and recall",
            "Steps from a place being seen to its visit, and since what an action uses was last "
            "seen: the half of them stays under. Growing: the agent forgets. Empty for agents that "
            "tell neither places nor entities.",
            *(
                Query(quantile(RUNS, metric, 0.5), legend)
                for metric, legend in (
                    (catalog.LEAD_AGE, "lead age"),
                    (catalog.RECALL_LAG, "recall lag"),
                )
            ),
        ).span(8),
        bars(
            "Leads displaced",
            "Places that ended runs had seen, never visited, and lost sight of for newer ones. "
            "Many: the agent takes up more than it follows. Empty for agents that do not tell "
            "where they are.",
            Query(total(EVENTS.increase(catalog.DISPLACED_LEADS), GROUP), _BY_GROUP),
        ).span(8),
    ]


def _judges() -> list[Panel]:
    return [
        ranking(
            "Judged scores",
            "Mean score, 1 to 4, that judges gave ended runs, by competency. The lowest one is "
            "where the agent's prompt has to say more. Empty where no runs are judged.",
            Query(f"sort({ratio(JUDGED_SCORE, RUNS)})", "{{competency}}"),
            unit=SCORE,
        ),
        lines(
            "Runs with a low score",
            "Share of the judged runs that got a 1 or a 2, by competency. One that rises after a "
            "change of model or prompt is what that change costs. Empty where no runs are judged.",
            Query(ratio(LOW_SCORES, RUNS), "{{competency}}"),
            unit=SHARE,
        ).max(1),
        bars(
            "Judgements that failed, runs that were dropped",
            "Competencies that could not be scored, and runs that were not judged, by reason. "
            "Dropped as queue_full: judge a smaller share, or more runs at a time. Empty where no "
            "runs are judged.",
            Query(
                total(EVENTS.increase(catalog.FAILED_JUDGEMENTS), ["reason"]),
                "failed: {{reason}}",
            ),
            Query(
                total(EVENTS.increase(catalog.DROPPED_JUDGEMENTS), ["reason"]),
                "dropped: {{reason}}",
            ),
        ).span(24),
    ]

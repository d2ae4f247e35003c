"""The diagnosis dashboard: AUV, loop ratio and memory index, by agent and task group."""

from __future__ import annotations

from typing import Final

from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.board import EVENTS, NOW, RUNS, Row, board
from dashboards.panels import BAD, SCORE, SHARE, WATCH, Panel, Query
from dashboards.queries import GROUP, quantile, total
from dashboards.ratios import (
    ACTION_ENTROPY,
    AUV,
    BACKTRACK_RATIO,
    BEHAVIOR_ERROR,
    CUT_SHORT_RATIO,
    ENDURANCE,
    JUDGED_SCORE,
    LOOP_RATIO,
    LOOP_TIME_RATIO,
    LOW_SCORES,
    PREMATURE_HALT_RATIO,
    SUCCESS_RATE,
    TIDE_CYCLE_RATIO,
    TIDE_LOOP_RATIO,
    loop_action_share,
    memory_index,
    ratio,
    success_curve,
)
from dashboards.visualizations import (
    Column,
    bars,
    by_number,
    grid,
    lines,
    ranking,
    turns_over_time,
)
from tidegauge import catalog
from tidegauge.streaming_metrics.exploration import (
    DISPLACED_LEADS,
    FRONTIER_PLACES,
    LEAD_AGE,
    PENDING_TASKS,
)
from tidegauge.streaming_metrics.loop_split import LOOP_SPLIT
from tidegauge.streaming_metrics.pass_at_k import PASS_AT_K
from tidegauge.streaming_metrics.progress_auv import PROGRESS_AUV
from tidegauge.streaming_metrics.recall_lag import RECALL_LAG
from tidegauge.streaming_metrics.run_counts import FINISHED_RUN_STEPS, RUNS_ACTIVE
from tidegauge.streaming_metrics.stale_score import STALE_SCORE

_BY_GROUP: Final = "{{agent}} {{task_group}}"
_LOOP_STEPS: Final = ((0.1, WATCH), (0.3, BAD))


def diagnosis() -> Dashboard:
    """The dashboard to find out why agents fail."""
    return board(
        "tidegauge-diagnosis",
        "Agents: diagnosis",
        "How early runs succeed, how much of them is loops, and what memory is worth. To compare "
        "models, give each its own agent name or task group.",
        [
            Row("By agent and task group", [_scores()]),
            Row("Over time", _over_time()),
            Row("Success over turns and attempts", _curve()),
            Row("Endurance and loops", _endurance()),
            Row("Judges", _judges(), collapsed=True),
        ],
    )


def _scores() -> Panel:
    columns = {
        "Success": Column(ratio(SUCCESS_RATE, RUNS, GROUP)),
        "AUV": Column(ratio(AUV, RUNS, GROUP)),
        "Loop ratio": Column(ratio(LOOP_RATIO, RUNS, GROUP), _LOOP_STEPS),
        "Memory index": Column(memory_index(RUNS, GROUP)),
        "TIDE loop ratio": Column(ratio(TIDE_LOOP_RATIO, RUNS, GROUP)),
        "TIDE cycle ratio": Column(ratio(TIDE_CYCLE_RATIO, RUNS, GROUP)),
        "Time in loops": Column(ratio(LOOP_TIME_RATIO, RUNS, GROUP), _LOOP_STEPS),
        "Backtracks": Column(ratio(BACKTRACK_RATIO, RUNS, GROUP)),
        "Premature halts": Column(ratio(PREMATURE_HALT_RATIO, RUNS, GROUP)),
        "Cut short": Column(ratio(CUT_SHORT_RATIO, RUNS, GROUP)),
    }
    return grid(
        "AUV, loop ratio and memory index",
        "Low AUV with a low loop ratio: the agent works and fails; check its tools and "
        "knowledge. Low AUV with a high loop ratio: the agent is stuck; let a policy intervene. A "
        "memory index of 0 or less: memory costs tokens and brings nothing. A column is empty "
        "when agents do not report what it needs.",
        columns,
    )


def _over_time() -> list[Panel]:
    return [
        lines(
            "AUV",
            "Area under the curve of success over turns: how many runs succeed and how early, 0 to "
            "1. Empty until runs report a t_max.",
            Query(ratio(AUV, RUNS, GROUP), _BY_GROUP),
            unit=SHARE,
        ).max(1),
        lines(
            "Loop ratio",
            "Share of steps that repeat, one by one, the steps just before them.",
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
            "Steps that neither made progress nor came closer to it, by whether the step required "
            "exploration or exploitation. Empty for agents that report no places.",
            Query(ratio(BEHAVIOR_ERROR, RUNS, GROUP), f"{_BY_GROUP}: {{{{kind}}}}"),
            unit=SHARE,
        ).max(1),
        lines(
            "Stale score of active runs",
            "How much active runs revisit known places and actions since their last progress: mean "
            "and maximum. If the mean rises, the agent or its task is the cause, not a single run.",
            Query(total(NOW.series(STALE_SCORE, 'stat="max"'), operator="max"), "max"),
            Query(_mean_stale_score(), "mean"),
            unit=SCORE,
        ),
        lines(
            "Frontier and pending tasks of active runs",
            "Sums over active runs: places seen and not visited, and tasks ready and not done. If "
            "both grow, agents see more than they use. Empty for agents that report no places.",
            Query(total(NOW.series(FRONTIER_PLACES)), "frontier"),
            Query(total(NOW.series(PENDING_TASKS)), "pending"),
        ),
    ]


def _mean_stale_score() -> str:
    """The mean over all processes and groups, weighted by their active runs."""
    mean, runs = NOW.series(STALE_SCORE, 'stat="mean"'), NOW.series(RUNS_ACTIVE)
    return f"sum({mean} * ignoring (stat) {runs})\n  / (sum({runs} and ignoring (stat) {mean}) > 0)"


def _curve() -> list[Panel]:
    return [
        turns_over_time(
            "At which turn runs succeed",
            "Share of all runs that succeeded at these turns, over time: the steps of the curve "
            "P_t. A band that moves up: runs take longer. A band that fades: fewer runs succeed. "
            "Empty when no agent reports success.",
            success_curve(RUNS),
        ).span(8),
        by_number(
            "Success within t turns (P_t)",
            "Share of runs that succeeded within t turns. Flat at the end: more turns would not "
            "help. Still rising: t_max is too small. Empty when no agent reports success.",
            success_curve(RUNS, upto='le!="+Inf"'),
            "le",
        )
        .span(8)
        .height(10),
        by_number(
            "Success within k attempts (pass@k)",
            "Chance that one of k attempts at a task solves it, mean over the selected groups. Far "
            "above the bar of 1: the agent can do the tasks but is unreliable; try again. No "
            "higher: it cannot do them. Empty until a task has an ended run with a known success.",
            total(NOW.series(PASS_AT_K), ["k"], operator="avg"),
            "k",
        )
        .span(8)
        .height(10),
    ]


def _endurance() -> list[Panel]:
    return [
        by_number(
            "Endurance: success by operations needed",
            "Success rate by the number of operations that the task needs, rounded up to a power "
            "of two. Where it drops sharply, split the tasks. Empty for agents that do not report "
            "operations.",
            ratio(ENDURANCE, RUNS),
            "operations",
        ),
        ranking(
            "Loop action share",
            "Share of each action in all loop steps. The first one is the tool to check. Empty "
            "without loops.",
            Query(f"sort_desc({loop_action_share(RUNS)} > 0)", "{{action}}"),
        ),
        lines(
            "AUV of runs with loops, minus AUV without",
            "Below 0: runs that loop do worse, so a policy that stops loops is worth a try. Near "
            "0: loops are harmless. Hard tasks make runs loop and fail, so compare within one task "
            "group. Empty until runs with loops and runs without have ended and reported a t_max.",
            Query(total(NOW.series(LOOP_SPLIT), GROUP, operator="avg"), _BY_GROUP),
            unit=SHARE,
            least=None,
        )
        .axis_soft_min(-0.1)
        .axis_soft_max(0.1),
        lines(
            "Action entropy",
            "Mean entropy of the model's choices in ended runs, in nats per token. Low in loop "
            "steps: the agent insists; a nudge or a higher temperature may help. High: it tries at "
            "random. Empty for agents that report no entropy.",
            Query(ratio(ACTION_ENTROPY, RUNS), "{{steps}}"),
            unit=SCORE,
        ),
        lines(
            "Steps of ended runs",
            "Steps that 50% (p50) and 95% (p95) of the ended runs did not exceed.",
            *(
                Query(quantile(RUNS, FINISHED_RUN_STEPS, share), legend)
                for share, legend in ((0.5, "p50"), (0.95, "p95"))
            ),
        ).span(6),
        lines(
            "Progress AUV of ended runs",
            "Area under the best progress that ended runs reported, over their t_max turns: 25%, "
            "50% and 75% of the runs had no more. Empty for agents that report no progress.",
            *(
                Query(quantile(RUNS, PROGRESS_AUV, share), f"p{share * 100:.0f}")
                for share in (0.25, 0.5, 0.75)
            ),
            unit=SHARE,
        ).span(6),
        lines(
            "Lead age and recall lag, p50",
            "Lead age: steps from the first sight of a place to its visit. Recall lag: steps since "
            "an action's entities were last seen. If they grow, the agent forgets. Empty for "
            "agents that report neither places nor entities.",
            *(
                Query(quantile(RUNS, metric, 0.5), legend)
                for metric, legend in (
                    (LEAD_AGE, "lead age"),
                    (RECALL_LAG, "recall lag"),
                )
            ),
        ).span(6),
        bars(
            "Displaced leads",
            "Places that ended runs had seen, never visited, and dropped in favor of newer ones. "
            "Many: the agent collects more leads than it follows. Empty for agents that report no "
            "places.",
            Query(total(EVENTS.increase(DISPLACED_LEADS), GROUP), _BY_GROUP),
        ).span(6),
    ]


def _judges() -> list[Panel]:
    return [
        ranking(
            "Judged scores",
            "Mean score of ended runs, 1 to 4, by competency. The competency with the lowest score "
            "is where to improve the agent's prompt. Empty when no runs are judged.",
            Query(f"sort({ratio(JUDGED_SCORE, RUNS)})", "{{competency}}"),
            unit=SCORE,
        ),
        lines(
            "Runs with a low score",
            "Share of the judged runs with a score of 1 or 2, by competency. If it rises after a "
            "change of model or prompt, the change caused it. Empty when no runs are judged.",
            Query(ratio(LOW_SCORES, RUNS), "{{competency}}"),
            unit=SHARE,
        ).max(1),
        bars(
            "Failed judgements, dropped runs",
            "Competencies that could not be scored, and runs that were not judged, by reason. "
            "Dropped as queue_full: judge a smaller share of the runs, or more runs concurrently. "
            "Empty when no runs are judged.",
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

"""The fleet dashboard: is anything wrong, and with which agent?"""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models.dashboard import Dashboard

from dashboards.board import EVENTS, NOW, RUNS, SHOWN, STEPS, Row, board
from dashboards.central_row import central_row
from dashboards.coding_row import coding_row
from dashboards.panels import (
    BAD,
    COUNT,
    REPEATS,
    SCORE,
    SECONDS,
    SHARE,
    WATCH,
    Panel,
    Query,
)
from dashboards.queries import GROUP, new_events, total, wilson_interval
from dashboards.ratios import (
    BEHAVIOR_ERROR,
    EXCEEDED_RATIO,
    LOOP_RATIO,
    NOVELTY_RATIO,
    RECURRENCE_RATIO,
    REPETITION_RATIO,
    SUCCESS_RATE,
    auv_bound,
    ratio,
)
from dashboards.visualizations import (
    amounts,
    bars,
    big_number,
    lines,
    ranking,
    with_band,
)
from tidegauge import catalog
from tidegauge.catalog import MetricDefinition
from tidegauge.streaming_metrics.answers import ANSWERS
from tidegauge.streaming_metrics.auv import AUV_LOWER, AUV_RUNS, AUV_SUM, AUV_UPPER
from tidegauge.streaming_metrics.calls_per_step import DUPLICATE_CALLS, MOST_CALLS
from tidegauge.streaming_metrics.chanting_answers import CHANTING_ANSWERS, RUNS_CHANTING
from tidegauge.streaming_metrics.interventions import (
    INTERVENTIONS,
    SAVED_SECONDS,
    SAVED_STEPS,
    SAVED_TOKENS,
)
from tidegauge.streaming_metrics.loop_cost import LOOP_SECONDS, LOOP_TOKENS
from tidegauge.streaming_metrics.loops import LOOP_STEPS, RUN_LOOP_REPEATS, RUNS_LOOPING
from tidegauge.streaming_metrics.noise import NEAR_STREAK
from tidegauge.streaming_metrics.novelty import NOVELTY
from tidegauge.streaming_metrics.recurrence import RECURRENCE
from tidegauge.streaming_metrics.repetition import ACTION_SIMILARITY, REPETITION, REPETITION_RECENT
from tidegauge.streaming_metrics.run_counts import (
    NOT_COMPARABLE,
    RUNS_ACTIVE,
    RUNS_FINISHED,
    RUNS_UNGUARDED,
)
from tidegauge.streaming_metrics.stagnation import RUN_STAGNATION, STAGNATION
from tidegauge.streaming_metrics.stale_score import RUNS_STALE

_THRESHOLD = "{{agent}} {{task_group}}: {{score}}"
_LOOP_STEPS = ((0.1, WATCH), (0.3, BAD))
_LOOPING_RUNS = ((0.05, WATCH), (0.2, BAD))


def fleet() -> Dashboard:
    """The dashboard to watch all day."""
    return board(
        "tidegauge-fleet",
        "Agents: fleet",
        "All agents: what runs, what loops, what loops cost, and whether tidegauge is healthy.",
        [
            Row("Now", _now()),
            Row("Loops", _loops()),
            Row("Near-loops: the same again in other words", _near_loops()),
            Row("Outcomes", _outcomes()),
            Row("Cost of loops, and interventions", _costs()),
            Row("Coding agents of this machine: tidegauge watch", coding_row(), collapsed=True),
            Row("Health of tidegauge", _health()),
            Row(
                "Central processes: receivers, gateways, workers, decisions",
                central_row(),
                collapsed=True,
            ),
        ],
    )


def _now() -> list[Panel]:
    return [
        big_number(
            "Running now",
            "Active runs. If there are none while agents should be working, check that they are up "
            "and that Prometheus scrapes them.",
            Query(total(NOW.series(RUNS_ACTIVE))),
        ),
        big_number(
            "Looping now",
            "Share of the active runs that repeat a cycle step for step; the row below has their "
            "number. If it is high, find the agent below, select the run on the run dashboard, and "
            "stop it or let a policy stop it. Empty while nothing runs.",
            Query(f"{total(NOW.series(RUNS_LOOPING))}\n  / ({total(NOW.series(RUNS_ACTIVE))} > 0)"),
            unit=SHARE,
            steps=_LOOPING_RUNS,
        ),
        big_number(
            "Stale now",
            "Share of the active runs that revisit known places and actions without progress. Most "
            "end in a loop or at their step limit. Empty while nothing runs.",
            Query(f"{total(NOW.series(RUNS_STALE))}\n  / ({total(NOW.series(RUNS_ACTIVE))} > 0)"),
            unit=SHARE,
            steps=_LOOPING_RUNS,
        ),
        big_number(
            "Loop ratio",
            "Share of all steps that repeat the cycle just closed. A low share is normal. If it "
            "rises, see the panel by agent below.",
            Query(ratio(LOOP_RATIO, STEPS)),
            unit=SHARE,
            steps=_LOOP_STEPS,
        ),
        big_number(
            "Success rate",
            "Successful runs over runs with a known success, within the time selected above. Empty "
            "when no agent reports success.",
            Query(ratio(SUCCESS_RATE, RUNS)),
            unit=SHARE,
        ),
        big_number(
            "Internal errors",
            "Errors inside tidegauge. They do not reach agents, but each is a defect: the row "
            "Health of tidegauge shows where it happened.",
            Query(new_events(RUNS, catalog.INTERNAL_ERRORS, by=())),
            steps=[(1, WATCH)],
        ),
    ]


def _loops() -> list[Panel]:
    runs = total(NOW.series(RUN_LOOP_REPEATS), ["agent", "run"], operator="max")
    of_agent = dashboard.DashboardLink("Runs of this agent").url(
        "/d/tidegauge-run?var-agent=${__field.labels.agent}&${__url_time_range}"
    )
    of_run = dashboard.DashboardLink("This run").url(
        "/d/tidegauge-run?var-run=${__field.labels.run}&${__url_time_range}"
    )
    return [
        lines(
            "Runs in trouble",
            "Running, stale and looping runs, and those whose model repeats itself inside of its "
            "answer. Runs that stay in a loop are stuck: only you or a policy can stop them.",
            Query(total(NOW.series(RUNS_ACTIVE)), "running"),
            Query(total(NOW.series(RUNS_STALE)), "stale"),
            Query(total(NOW.series(RUNS_LOOPING)), "looping"),
            Query(total(NOW.series(RUNS_CHANTING)), "chanting"),
        ).span(8),
        lines(
            "Loop ratio by agent",
            "Share of an agent's steps that repeat the cycle just closed. If one agent rises, its "
            "prompt or a tool changed. If all rise at once, a service they share is down. Click a "
            "line to see the agent's runs.",
            Query(ratio(LOOP_RATIO, STEPS, ["agent"]), "{{agent}}"),
            unit=SHARE,
            steps=_LOOP_STEPS,
        )
        .span(8)
        .data_links([of_agent]),
        ranking(
            "Most repeats now",
            "The runs that have repeated their loop most often: stop these first. Click a bar to "
            "see the run. Empty while no run loops.",
            Query(f"sort_desc(topk(5, {runs} > 0))", "{{agent}}: {{run}}"),
            unit=COUNT,
            steps=REPEATS,
        )
        .span(8)
        .data_links([of_run]),
    ]


def _worst(metric: MetricDefinition, stat: str) -> str:
    return total(NOW.series(metric, f'stat="{stat}"'), operator=stat)


def _near_loops() -> list[Panel]:
    runs = total(NOW.series(RUN_STAGNATION), ["agent", "run"], operator="max")
    of_run = dashboard.DashboardLink("This run").url(
        "/d/tidegauge-run?var-run=${__field.labels.run}&${__url_time_range}"
    )
    unmeasured = "Empty unless repetition is measured: see docs/prometheus.md."
    return [
        lines(
            "Repeated work by agent",
            "Share of an agent's steps that went into doing again what the run had done, in the "
            f"same or other words. Loops are part of it. {unmeasured}",
            Query(ratio(REPETITION_RATIO, STEPS, ["agent"]), "{{agent}}"),
            unit=SHARE,
        ).span(8),
        lines(
            "Novelty by agent",
            "Share of an agent's results that were new to their run. If it falls, the agent goes "
            "round in what it knows.",
            Query(ratio(NOVELTY_RATIO, STEPS, ["agent"]), "{{agent}}"),
            unit=SHARE,
        ).span(8),
        lines(
            "Recurring results by agent",
            "Share of an agent's results that the same action had before in the run, recently or "
            "long ago. Returning is part of working: compare an agent with itself.",
            Query(ratio(RECURRENCE_RATIO, STEPS, ["agent"]), "{{agent}}"),
            unit=SHARE,
        ).span(8),
        lines(
            "Similarity and novelty of active runs",
            "The highest similarity of a last action to an earlier one, and the lowest share of "
            "new results. An action is similar in healthy work, too: look at both together. The "
            "similarity is absent unless repetition is measured.",
            Query(_worst(ACTION_SIMILARITY, "max"), "highest similarity"),
            Query(_worst(NOVELTY, "min"), "lowest novelty"),
            unit=SHARE,
        ).span(8),
        lines(
            "Stagnation, repetition and recurrence of active runs",
            "The highest of each. Stagnation rises with every step, so a ramp alone is a long run; "
            "a ramp of repetition or recurrence is a run that does the same again, or a long one. "
            "The recent repetition, of the last 16 steps, does not add up. A near streak is one "
            "call whose results differ only in numbers; it is empty while no result has one.",
            Query(_worst(STAGNATION, "max"), "highest stagnation"),
            Query(_worst(REPETITION, "max"), "highest repetition"),
            Query(_worst(REPETITION_RECENT, "max"), "highest recent repetition"),
            Query(_worst(RECURRENCE, "max"), "highest recurrence"),
            Query(_worst(NEAR_STREAK, "max"), "longest near streak"),
            unit=SCORE,
        ).span(8),
        ranking(
            "Highest stagnation now",
            "The runs with the highest combined score of steps, repeated work, loops, streaks and "
            f"failures. Click a bar to see the run. Empty while nothing runs. {unmeasured}",
            Query(f"sort_desc(topk(5, {runs}))", "{{agent}}: {{run}}"),
            unit=SCORE,
        )
        .span(8)
        .data_links([of_run]),
    ]


def _outcomes() -> list[Panel]:
    solved, known = (
        total(RUNS.increase(term.metric, *term.matchers))
        for term in (SUCCESS_RATE.part, SUCCESS_RATE.whole)
    )
    return [
        _within(
            "Success rate, with its 95% interval",
            "Successful runs over runs with a known success, with the Wilson 95% confidence "
            "interval. A fall within the interval may be chance. Empty when no agent reports "
            "success.",
            Query(wilson_interval(solved, known, upper=True), "upper bound"),
            Query(ratio(SUCCESS_RATE, RUNS), "success rate"),
            Query(wilson_interval(solved, known, upper=False), "lower bound"),
        ),
        _within(
            "AUV, with its bounds",
            "Area under the curve of success over turns, 0 to 1, since the processes started. The "
            "lower bound assumes that no active run succeeds, the upper bound that every active "
            "run succeeds at its next turn. Empty until runs report a t_max.",
            Query(auv_bound(AUV_UPPER, NOW), "upper bound"),
            Query(
                # Not of rates: the bounds cover everything since the processes started.
                f"{total(NOW.series(AUV_SUM))}\n  / ({total(NOW.series(AUV_RUNS))} > 0)",
                "AUV",
            ),
            Query(auv_bound(AUV_LOWER, NOW), "lower bound"),
        ),
        lines(
            "Exploration error and exploitation error",
            "Share of the steps that required exploration, or exploitation, and did not do it. A "
            "high exploration error: the agent does not find new places. A high exploitation "
            "error: it does not use what it found. Empty for agents that report no places.",
            Query(ratio(BEHAVIOR_ERROR, STEPS), "{{kind}}"),
            unit=SHARE,
        ).max(1),
        bars(
            "Runs ended, by outcome",
            "error: the agent raised an exception. stopped: a policy ended the run. unknown: the "
            "run reported no success.",
            Query(total(EVENTS.increase(RUNS_FINISHED), ["outcome"]), "{{outcome}}"),
        ),
    ]


def _latest(metric: MetricDefinition) -> str:
    return total(NOW.series(metric), [*GROUP, "score"], operator="max")


def _within(title: str, description: str, *queries: Query) -> Panel:
    """A share inside the band of its bounds."""
    panel = lines(title, description, *queries, unit=SHARE).max(1)
    return with_band(panel, low="lower bound", high="upper bound")


def _costs() -> list[Panel]:
    return [
        bars(
            "Steps lost in loops",
            "Steps from the first repeated one of each loop on, by agent.",
            Query(total(EVENTS.increase(LOOP_STEPS), ["agent"]), "{{agent}}"),
        ),
        bars(
            "Tokens lost in loops",
            "Tokens of these steps, by agent. Zero for agents that report no tokens.",
            Query(total(EVENTS.increase(LOOP_TOKENS), ["agent"]), "{{agent}}"),
        ),
        bars(
            "Seconds lost in loops",
            "Time of these steps, by agent. A policy that stops loops would save it.",
            Query(total(EVENTS.increase(LOOP_SECONDS), ["agent"]), "{{agent}}"),
            unit=SECONDS,
        ),
        bars(
            "Chanting answers and duplicate calls",
            "Answers of models of which nearly all of the last part repeats itself, and calls "
            "with the same tool and arguments as another one of their turn. Both cost tokens and "
            "bring nothing new: let a policy cut such answers and block such turns. Beside them, "
            "the most calls that an active run has chosen at once. Empty until the first one.",
            Query(total(EVENTS.increase(CHANTING_ANSWERS), ["agent"]), "{{agent}}: answers"),
            Query(total(EVENTS.increase(DUPLICATE_CALLS), ["agent"]), "{{agent}}: calls"),
            Query(
                total(NOW.series(MOST_CALLS), ["agent"], operator="max"),
                "{{agent}}: most calls at once",
            ),
        ),
        bars(
            "Answers without a call",
            "Answers of models that chose no call, and were no run's last one. Many of them: "
            "agents that only talk. Let a policy stop loops of them.",
            Query(total(EVENTS.increase(ANSWERS), ["agent"]), "{{agent}}"),
        ),
        bars(
            "Interventions",
            "Nudges, blocked calls and stops by policies, and stops that an observe-only policy "
            "would have made (would_stop). If would_stop is frequent, let the policy stop runs. "
            "Empty until the first intervention.",
            Query(total(EVENTS.increase(INTERVENTIONS), ["action"]), "{{action}}"),
        ),
        amounts(
            "Possible savings of observe-only policies",
            "Steps, tokens and time spent, over the time shown, after an observe-only policy "
            "would have stopped the run.",
            steps=(total(SHOWN.increase(SAVED_STEPS)), COUNT),
            tokens=(total(SHOWN.increase(SAVED_TOKENS)), COUNT),
            time=(total(SHOWN.increase(SAVED_SECONDS)), SECONDS),
        ),
        lines(
            "Successful runs above a calibrated threshold",
            "Share of the successful runs whose score exceeded the threshold, and the share that "
            "the threshold allows (alpha). If it stays above alpha, runs have changed since the "
            "calibration: calibrate again. Empty without calibrated thresholds.",
            Query(ratio(EXCEEDED_RATIO, RUNS, GROUP), _THRESHOLD),
            Query(
                _latest(catalog.POLICY_ALPHA),
                f"{_THRESHOLD}, alpha",
            ),
            unit=SHARE,
        ),
        lines(
            "Are the scores those of the calibration?",
            "The p-value of a comparison of the last 50 successful runs with those that the "
            "threshold was learned from. Below 0.01, runs have changed: calibrate again. Empty "
            "without calibrated thresholds.",
            Query(
                total(NOW.series(catalog.POLICY_SHIFT), [*GROUP, "score"], operator="min"),
                _THRESHOLD,
            ),
            unit=SHARE,
        ),
        ranking(
            "Age of calibrated thresholds",
            "Time since each threshold was calibrated. Calibrate again after every change of "
            "model, prompt or tools. Empty without calibrated thresholds.",
            Query(
                f"sort_desc(time() - {_latest(catalog.POLICY_CALIBRATED)})",
                _THRESHOLD,
            ),
            unit=SECONDS,
        ),
    ]


def _health() -> list[Panel]:
    return [
        bars(
            "Internal errors",
            "Errors inside tidegauge that were caught so that agents continue, by place. Each is a "
            "defect: read the log of the process, and report it. Empty until the first one.",
            Query(total(EVENTS.increase(catalog.INTERNAL_ERRORS), ["where"]), "{{where}}"),
        ).span(6),
        bars(
            "Dropped events, evicted runs, names beyond the limit",
            "Dropped events belong to no active run. Evicted runs were idle for too long, or there "
            "were too many; if they were alive, raise max_runs or idle_seconds. Names beyond the "
            "limit are counted as other: give fewer names, or raise max_groups or max_actions.",
            Query(total(EVENTS.increase(catalog.DROPPED_EVENTS)), "dropped events"),
            Query(total(EVENTS.increase(catalog.EVICTED_RUNS)), "evicted runs"),
            Query(
                total(EVENTS.increase(catalog.NAMES_BEYOND_LIMIT), ["kind"]),
                "counted as other: {{kind}}",
            ),
        ).span(6),
        bars(
            "Runs without their policy",
            "Active runs whose policy was switched off after an internal error. They are measured, "
            "but not nudged, blocked or stopped.",
            Query(total(NOW.series(RUNS_UNGUARDED), ["agent"]), "{{agent}}"),
        ).span(6),
        bars(
            "Steps that cannot be compared",
            "Steps whose arguments, result or state cannot be compared, so that no loop is found "
            "in them. Give the tool a key=. Empty when every step can be compared.",
            Query(
                total(EVENTS.increase(NOT_COMPARABLE), ["action", "part"]),
                "{{action}}: {{part}}",
            ),
        ).span(6),
        bars(
            "Recording: lines written and lost",
            "Lines of step events written, and lines lost, by reason: the disk is full or too "
            "slow; and failures of the run store, after which a waiting run continues as a new "
            "one in another process. Empty when nothing is recorded.",
            Query(total(EVENTS.increase(catalog.RECORDED_LINES)), "written"),
            Query(total(EVENTS.increase(catalog.DROPPED_LINES), ["reason"]), "lost: {{reason}}"),
            Query(total(EVENTS.increase(catalog.RUN_STORE_FAILURES)), "run store failures"),
            Query(total(EVENTS.increase(catalog.UNKNOWN_RESUMES)), "unknown resumes"),
        ).span(6),
        bars(
            "Sampling: runs by decision, spans lost",
            "Runs whose spans were exported, by reason, or not (not_troubled), and spans that the "
            "exporter lost. See docs/sampling.md. Empty when all runs are exported.",
            Query(
                total(EVENTS.increase(catalog.SAMPLING_DECISIONS), ["reason"]), "runs: {{reason}}"
            ),
            Query(
                total(
                    EVENTS.increase(catalog.SAMPLING_DROPPED_SPANS, 'reason!="not_troubled"'),
                    ["reason"],
                ),
                "spans lost: {{reason}}",
            ),
        ).span(6),
        bars(
            "External spans: lost, repaired, unread, clock skew",
            "Calls in spans of other instrumentations that are not counted, spans that are counted "
            "despite a fault, spans that look like those of an agent and made no step, by scope, "
            "contents in log records that were not read, and contradicting times of two hosts, by "
            "service. See docs/external-spans.md. Empty when no such spans are read.",
            Query(total(EVENTS.increase(catalog.DROPPED_SPANS), ["reason"]), "lost: {{reason}}"),
            Query(total(EVENTS.increase(catalog.REPAIRED_SPANS), ["fault"]), "repaired: {{fault}}"),
            Query(
                total(EVENTS.increase(catalog.UNREAD_SPANS), ["scope", "reason"]),
                "unread: {{scope}}, {{reason}}",
            ),
            Query(
                total(EVENTS.increase(catalog.DROPPED_CONTENTS), ["reason"]), "contents: {{reason}}"
            ),
            Query(total(EVENTS.increase(catalog.CLOCK_SKEW), ["service"]), "clock: {{service}}"),
        ).span(6),
    ]

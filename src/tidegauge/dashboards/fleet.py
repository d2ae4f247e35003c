"""The fleet: is anything wrong, and with which agent? Read in five seconds."""

from __future__ import annotations

from grafana_foundation_sdk.builders import dashboard
from grafana_foundation_sdk.models.dashboard import Dashboard

from tidegauge import catalog
from tidegauge.catalog import MetricDefinition
from tidegauge.dashboards.board import EVENTS, NOW, RUNS, SHOWN, STEPS, board
from tidegauge.dashboards.central import central
from tidegauge.dashboards.colours import BAD, WATCH
from tidegauge.dashboards.over_time import bars, lines, with_band
from tidegauge.dashboards.panels import COUNT, REPEATS, SECONDS, SHARE, Panel, Query
from tidegauge.dashboards.queries import GROUP, new_events, total, wilson_interval
from tidegauge.dashboards.ratios import (
    BEHAVIOR_ERROR,
    CROSSED_RATIO,
    LOOP_RATIO,
    SUCCESS_RATE,
    auv_bound,
    ratio,
)
from tidegauge.dashboards.right_now import amounts, big_number, ranking

__all__ = ["fleet"]

_LINE = "{{agent}} {{task_group}}: {{score}}"
_LOOP_STEPS = ((0.1, WATCH), (0.3, BAD))


def fleet() -> Dashboard:
    """The dashboard that hangs on the wall."""
    return board(
        "tidegauge-fleet",
        "Agents: fleet",
        "All agents: what runs, what loops, what it costs, and whether tidegauge itself is well.",
        [
            ("Now", _now()),
            ("Loops", _loops()),
            ("Outcomes", _outcomes()),
            ("What loops cost, and what was done about them", _costs()),
            ("tidegauge itself", _health()),
            ("Measured centrally: receivers, gateways, workers, decisions", central()),
        ],
    )


def _now() -> list[Panel]:
    return [
        big_number(
            "Running now",
            "Runs going on. None while agents should be working: look whether they are up and "
            "whether Prometheus scrapes them.",
            Query(total(NOW.series(catalog.RUNS_ACTIVE))),
        ),
        big_number(
            "Looping now",
            "Runs that repeat themselves, step for step. Any: find the agent below, choose the "
            "run on the run dashboard, stop it or let a policy do so.",
            Query(total(NOW.series(catalog.RUNS_LOOPING))),
            steps=[(1, BAD)],
        ),
        big_number(
            "Stale now",
            "Runs that go over their own tracks without progress. Most end in a loop or at their "
            "step limit: look at them before they do. Empty while nothing runs.",
            Query(total(NOW.series(catalog.RUNS_STALE))),
            steps=[(1, WATCH), (5, BAD)],
        ),
        big_number(
            "Loop ratio",
            "Share of all steps that repeat a cycle just closed. Some is usual; when it rises, "
            "see by agent below.",
            Query(ratio(LOOP_RATIO, STEPS)),
            unit=SHARE,
            steps=_LOOP_STEPS,
        ),
        big_number(
            "Success rate",
            "Solved runs over runs whose success is known, within the time chosen above. Empty "
            "when no agent says whether it succeeded.",
            Query(ratio(SUCCESS_RATE, RUNS)),
            unit=SHARE,
        ),
        big_number(
            "Our own faults",
            "Faults of tidegauge itself, which agents do not notice. Any is a defect: the row "
            "tidegauge itself says where.",
            Query(new_events(RUNS, catalog.INTERNAL_ERRORS, by=())),
            steps=[(1, WATCH)],
        ),
    ]


def _loops() -> list[Panel]:
    runs = total(NOW.series(catalog.RUN_LOOP_REPEATS), ["agent", "run"], operator="max")
    of_agent = dashboard.DashboardLink("Runs of this agent").url(
        "/d/tidegauge-run?var-agent=${__field.labels.agent}&${__url_time_range}"
    )
    of_run = dashboard.DashboardLink("This run").url(
        "/d/tidegauge-run?var-run=${__field.labels.run}&${__url_time_range}"
    )
    return [
        lines(
            "Runs in trouble",
            "Running, stale and looping runs. Looping runs that stay are stuck: nothing stops "
            "them but you or a policy.",
            Query(total(NOW.series(catalog.RUNS_ACTIVE)), "running"),
            Query(total(NOW.series(catalog.RUNS_STALE)), "stale"),
            Query(total(NOW.series(catalog.RUNS_LOOPING)), "looping"),
        ).span(8),
        lines(
            "Loop ratio by agent",
            "Share of an agent's steps that repeat a cycle just closed. One agent alone: its "
            "prompt or a tool changed. All at once: something they share is down. A line leads "
            "to the agent's runs.",
            Query(ratio(LOOP_RATIO, STEPS, ["agent"]), "{{agent}}"),
            unit=SHARE,
            steps=_LOOP_STEPS,
        )
        .span(8)
        .data_links([of_agent]),
        ranking(
            "Most repeats now",
            "The runs that have repeated their loop most often: stop these first. A bar leads to "
            "the run. Empty while no run loops.",
            Query(f"sort_desc(topk(5, {runs} > 0))", "{{agent}}: {{run}}"),
            unit=COUNT,
            steps=REPEATS,
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
            "Success rate, with its 95 % interval",
            "Solved runs over runs whose success is known, and between which values it is certain "
            "to lie, given so few runs (Wilson). A fall within the interval is no news. "
            "Empty when no agent says whether it succeeded.",
            Query(wilson_interval(solved, known, upper=True), "at most"),
            Query(ratio(SUCCESS_RATE, RUNS), "success rate"),
            Query(wilson_interval(solved, known, upper=False), "at least"),
        ),
        _within(
            "AUV, with its bounds",
            "How many runs are solved and how early, 0 to 1, since the processes started. The "
            "bounds hold if no active run is ever solved (at least) and if every one is solved at "
            "its next turn (at most). Empty until runs tell a t_max.",
            Query(auv_bound(catalog.AUV_UPPER, NOW), "at most"),
            Query(
                # Not of rates: the bounds are of everything since the processes started.
                f"{total(NOW.series(catalog.AUV_SUM))}\n"
                f"  / ({total(NOW.series(catalog.AUV_RUNS))} > 0)",
                "AUV",
            ),
            Query(auv_bound(catalog.AUV_LOWER, NOW), "at least"),
        ),
        lines(
            "Exploration against exploitation error",
            "Of the steps that should have looked for something new, or done what was ready, "
            "those that did not. Exploration: the agent does not find its way. Exploitation: it "
            "found it and does not go. Empty for agents that do not tell where they are.",
            Query(ratio(BEHAVIOR_ERROR, STEPS), "{{kind}}"),
            unit=SHARE,
        ).max(1),
        bars(
            "Runs ended, by outcome",
            "Errors are exceptions of the agent; stopped ones were ended by a policy; unknown: "
            "nobody said.",
            Query(total(EVENTS.increase(catalog.RUNS_FINISHED), ["outcome"]), "{{outcome}}"),
        ),
    ]


def _latest(metric: MetricDefinition) -> str:
    return total(NOW.series(metric), [*GROUP, "score"], operator="max")


def _within(title: str, description: str, *queries: Query) -> Panel:
    """A share, within the band of which it is certain."""
    panel = lines(title, description, *queries, unit=SHARE).max(1)
    return with_band(panel, low="at least", high="at most")


def _costs() -> list[Panel]:
    return [
        bars(
            "Tokens lost in loops",
            "Tokens spent on loop steps, by agent. Zero for agents that do not tell tokens.",
            Query(total(EVENTS.increase(catalog.LOOP_TOKENS), ["agent"]), "{{agent}}"),
        ),
        bars(
            "Seconds lost in loops",
            "Time spent on loop steps, by agent: what a policy that stops loops would save.",
            Query(total(EVENTS.increase(catalog.LOOP_SECONDS), ["agent"]), "{{agent}}"),
            unit=SECONDS,
        ),
        bars(
            "Interventions",
            "Nudges, blocked calls and stops by policy, and stops that one which only observes "
            "would have made (would_stop). Many would_stop: let the policy stop. Empty until the "
            "first one.",
            Query(total(EVENTS.increase(catalog.INTERVENTIONS), ["action"]), "{{action}}"),
        ),
        amounts(
            "What observing policies would have saved",
            "Steps, tokens and time spent, in all of the time shown, after a policy that only "
            "observes would have stopped the run: the price of not letting it.",
            steps=(total(SHOWN.increase(catalog.SAVED_STEPS)), COUNT),
            tokens=(total(SHOWN.increase(catalog.SAVED_TOKENS)), COUNT),
            time=(total(SHOWN.increase(catalog.SAVED_SECONDS)), SECONDS),
        ),
        lines(
            "Good runs that crossed a calibrated line",
            "Share of the successful runs whose score went above their line, beside the share that "
            "the line promises at most (alpha). Above it for long: runs are not what they were, so "
            "calibrate again. Empty without calibrated lines.",
            Query(ratio(CROSSED_RATIO, RUNS, GROUP), _LINE),
            Query(
                _latest(catalog.POLICY_ALPHA),
                f"{_LINE}, promised",
            ),
            unit=SHARE,
        ),
        ranking(
            "Age of calibrated lines",
            "Time since each line was calibrated. Models, prompts and tools change: calibrate "
            "again after every such change. Empty without calibrated lines.",
            Query(
                f"sort_desc(time() - {_latest(catalog.POLICY_CALIBRATED)})",
                _LINE,
            ),
            unit=SECONDS,
        ),
    ]


def _health() -> list[Panel]:
    return [
        bars(
            "Our own faults",
            "Faults swallowed so that agents go on, by place. Any is a defect: see the logs of "
            "the process, and report it. Empty until the first one.",
            Query(total(EVENTS.increase(catalog.INTERNAL_ERRORS), ["where"]), "{{where}}"),
        ).span(6),
        bars(
            "Dropped events, evicted runs",
            "Dropped: events that belong to no active run. Evicted: runs that were idle for too "
            "long, or one too many; raise max_runs or idle_seconds if they were alive.",
            Query(total(EVENTS.increase(catalog.DROPPED_EVENTS)), "dropped events"),
            Query(total(EVENTS.increase(catalog.EVICTED_RUNS)), "evicted runs"),
        ).span(6),
        bars(
            "Runs without their policy",
            "Active runs whose policy was switched off after an internal error: they are still "
            "measured, but not nudged, blocked or stopped.",
            Query(total(NOW.series(catalog.RUNS_UNGUARDED), ["agent"]), "{{agent}}"),
        ).span(6),
        bars(
            "Steps that cannot be compared",
            "Arguments, results or states that cannot be compared, so that no loop is found in "
            "them. Give the tool a key=. Empty where every step can be compared.",
            Query(
                total(EVENTS.increase(catalog.NOT_COMPARABLE), ["action", "part"]),
                "{{action}}: {{part}}",
            ),
        ).span(6),
        bars(
            "Recording: lines written and lost",
            "Lines of step events that were written, and those that were lost, by reason: the "
            "disk is full or too slow. Empty where nothing is recorded.",
            Query(total(EVENTS.increase(catalog.RECORDED_LINES)), "written"),
            Query(total(EVENTS.increase(catalog.DROPPED_LINES), ["reason"]), "lost: {{reason}}"),
        ).span(6),
        bars(
            "Spans of other instrumentations: lost, repaired, clock skew",
            "Calls in spans of other instrumentations that are not counted; spans that are counted "
            "despite a fault; and contradicting times of two hosts, by service. "
            "docs/others-spans.md explains each. Empty where no spans are read.",
            Query(total(EVENTS.increase(catalog.DROPPED_SPANS), ["reason"]), "lost: {{reason}}"),
            Query(total(EVENTS.increase(catalog.REPAIRED_SPANS), ["fault"]), "repaired: {{fault}}"),
            Query(total(EVENTS.increase(catalog.CLOCK_SKEW), ["service"]), "clock: {{service}}"),
        ).span(6),
    ]

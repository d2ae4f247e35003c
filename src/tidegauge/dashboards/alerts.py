"""All alerts: on agents, on tidegauge in their processes, on what is measured centrally."""

from __future__ import annotations

from typing import Any, Final

from tidegauge import catalog
from tidegauge.dashboards.alert import LATELY, PROCESS, RUNBOOKS, WHERE, Alert
from tidegauge.dashboards.central_alerts import CENTRAL_ALERTS
from tidegauge.dashboards.queries import GROUP, Scope, new_events, total
from tidegauge.dashboards.ratios import CROSSED_RATIO, LOOP_RATIO, SUCCESS_RATE
from tidegauge.dashboards.rules import USUAL_LOOP_RATIO, USUAL_SUCCESS_RATE, recorded

__all__ = ["ALERTS", "alerting_groups"]

_ONSET_INTERVAL: Final = "500ms"
"""A loop is told soon after it was scraped, however seldom other rules are evaluated."""

_DAY: Final = Scope("1d")
_NAMED: Final = "{{ $labels.agent }} ({{ $labels.task_group }})"


def _success_falling() -> str:
    """By how much success is below what is usual, where chance alone does not explain it.

    Three standard deviations of as many runs as there were, and at least ten of them.
    """
    now, usual = recorded(SUCCESS_RATE), USUAL_SUCCESS_RATE.name
    known = SUCCESS_RATE.whole
    runs = total(Scope(SUCCESS_RATE.window).increase(known.metric, *known.matchers), GROUP)
    return (
        f"({usual} - {now})\n"
        f"and ({usual} - {now} > 3 * sqrt({usual} * (1 - {usual}) / {runs}))\n"
        f"and ({runs} >= 10)"
    )


def _loop_share_unusual() -> str:
    """By how much loops are above what is usual, where there are steps enough to tell."""
    steps = total(Scope(LOOP_RATIO.window).increase(LOOP_RATIO.whole.metric), GROUP)
    return f"({recorded(LOOP_RATIO)} - {USUAL_LOOP_RATIO.name})\nand ({steps} >= 50)"


_LINE: Final = (*GROUP, "score")
_MONTH_SECONDS: Final = 30 * 86_400


def _promise_broken() -> str:
    """By how much more good runs cross a line than it promises, where chance does not explain it.

    Two standard deviations of as many good runs as ended within a day, and at least twenty.
    """
    crossed, runs = (
        total(_DAY.increase(term.metric, *term.matchers), _LINE)
        for term in (CROSSED_RATIO.part, CROSSED_RATIO.whole)
    )
    alpha = f"max by ({', '.join(_LINE)}) ({catalog.POLICY_ALPHA.name})"
    above = f"{crossed} / ({runs} >= 20) - {alpha}"
    return f"({above})\nand ({above} > 2 * sqrt({alpha} * (1 - {alpha}) / {runs}))"


ALERTS: Final = (
    Alert(
        "TidegaugeLoopOnset",
        total(Scope("").series(catalog.RUNS_LOOPING), GROUP),
        above=0,
        severity="warning",
        held="0s",
        summary=f"{_NAMED} loops: {{{{ $value }}}} of its runs repeat themselves step for step.",
        runbook="loop-onset",
    ),
    Alert(
        "TidegaugeLoopShareUnusual",
        _loop_share_unusual(),
        above=0.1,
        severity="warning",
        held="5m",
        summary=f"{_NAMED} loops more than usual: its loop ratio is "
        "{{ $value | humanizePercentage }} above what it stays under for most of a day.",
        runbook="loop-share-unusual",
    ),
    Alert(
        "TidegaugeRunsStale",
        total(Scope("").series(catalog.RUNS_STALE), GROUP),
        above=0,
        severity="warning",
        held="5m",
        summary=f"{_NAMED} is lost: {{{{ $value }}}} of its runs go over their own tracks without "
        "progress.",
        runbook="runs-stale",
    ),
    Alert(
        "TidegaugeSuccessFalling",
        _success_falling(),
        above=0.1,
        severity="critical",
        held="15m",
        summary=f"{_NAMED} succeeds less than usual: its success rate is "
        "{{ $value | humanizePercentage }} below that of the day before.",
        runbook="success-falling",
    ),
    Alert(
        "TidegaugeFailedRounds",
        new_events(LATELY, catalog.LOOPS, 'kind="failed_rounds"'),
        above=0,
        severity="warning",
        held="0s",
        summary=f"{_NAMED} fails round after round: {{{{ $value | humanize }}}} rows of failed "
        "calls within ten minutes.",
        runbook="failed-rounds",
    ),
    Alert(
        "TidegaugePromiseBroken",
        _promise_broken(),
        above=0,
        severity="warning",
        held="15m",
        summary=f"Good runs of {_NAMED} cross their line of {{{{ $labels.score }}}} more often "
        "than it promises: {{ $value | humanizePercentage }} more of them within a day.",
        runbook="promise-broken",
    ),
    Alert(
        "TidegaugePolicyOutdated",
        f"time() - max by ({', '.join(_LINE)}) ({catalog.POLICY_CALIBRATED.name})",
        above=_MONTH_SECONDS,
        severity="info",
        held="1h",
        summary=f"The line of {{{{ $labels.score }}}} for {_NAMED} was learned "
        "{{ $value | humanizeDuration }} ago: learn it anew from recent runs.",
        runbook="policy-outdated",
    ),
    Alert(
        "TidegaugeInternalErrors",
        new_events(LATELY, catalog.INTERNAL_ERRORS, by=(*PROCESS, "where")),
        above=0,
        severity="warning",
        held="0s",
        summary=f"tidegauge in {WHERE} has a fault of its own in {{{{ $labels.where }}}}; agents "
        "go on, their numbers may be wrong.",
        runbook="internal-errors",
    ),
    Alert(
        "TidegaugeEventsDropped",
        new_events(LATELY, catalog.DROPPED_EVENTS, by=PROCESS),
        above=0,
        severity="info",
        held="5m",
        summary=f"tidegauge in {WHERE} drops events that belong to no active run: "
        "{{ $value | humanize }} within ten minutes.",
        runbook="events-dropped",
    ),
    Alert(
        "TidegaugeRecordingDropping",
        new_events(LATELY, catalog.DROPPED_LINES, by=(*PROCESS, "reason")),
        above=0,
        severity="warning",
        held="1m",
        summary=f"The recording in {WHERE} loses lines ({{{{ $labels.reason }}}}): "
        "{{ $value | humanize }} within ten minutes.",
        runbook="recording-dropping",
    ),
    *CENTRAL_ALERTS,
)
"""All of them, the most urgent to an operator of agents first."""


def alerting_groups(runbooks: str = RUNBOOKS) -> list[dict[str, Any]]:
    """The groups of alerts, as Prometheus reads them: loops are looked for twice a second."""
    onset, *others = [_rule(alert, runbooks) for alert in ALERTS]
    return [
        {"name": "tidegauge-onset", "interval": _ONSET_INTERVAL, "rules": [onset]},
        {"name": "tidegauge-alerts", "rules": others},
    ]


def _rule(alert: Alert, runbooks: str) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.held,
        "labels": {"severity": alert.severity},
        "annotations": alert.annotations(runbooks),
    }

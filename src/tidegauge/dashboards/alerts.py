"""Alerts on agents, on tidegauge inside their processes, and on the central processes."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from tidegauge import catalog
from tidegauge.dashboards.coding_row import sessions_looping
from tidegauge.dashboards.queries import GROUP, QueryScope, new_events, total
from tidegauge.dashboards.ratios import (
    EXCEEDED_RATIO,
    LOOP_RATIO,
    SUCCESS_RATE,
    USUAL_LOOP_RATIO,
    USUAL_SUCCESS_RATE,
    recorded,
)
from tidegauge.streaming_metrics.loops import LOOPS, RUNS_LOOPING
from tidegauge.streaming_metrics.run_counts import RUN_STEPS
from tidegauge.streaming_metrics.stale_score import RUNS_STALE

__all__ = ["ALERTS", "RUNBOOKS", "Alert", "alerting_groups"]

RUNBOOKS: Final = "docs/runbooks"
"""Default location of the runbooks."""

_RECENT: Final = QueryScope("10m")
"""How long an alert on a single event stays active."""

_PROCESS: Final = ("job", "instance")
"""Labels of alerts on tidegauge itself."""

_RUN: Final = (*GROUP, "run")
_FLEET: Final = ("job",)
_SCORED: Final = (*GROUP, "score")
_DAY: Final = QueryScope("1d")
_ONSET_INTERVAL: Final = "500ms"
"""Evaluation interval of the loop onset alert, so that it fires soon after a scrape."""

_MONTH_SECONDS: Final = 30 * 86_400
_GROUP_NAME: Final = "{{ $labels.agent }} ({{ $labels.task_group }})"
_INSTANCE: Final = "{{ $labels.instance }}"


class Alert(NamedTuple):
    """A value and its threshold.

    Attributes:
        name: name of the alert in Prometheus and in Grafana.
        value: PromQL; the labels of its series are those of the alert.
        threshold: the alert is active while the value is greater.
        severity: ``critical``: act now; ``warning``: act today; ``info``: act when you have time.
        pending: how long the alert is active before it fires (Prometheus's ``for``).
        summary: one sentence, with ``$labels`` and ``$value`` as templates.
        runbook: file name of its runbook, without the suffix.
    """

    name: str
    value: str
    threshold: float
    severity: str
    pending: str
    summary: str
    runbook: str

    @property
    def expression(self) -> str:
        """The condition, for Prometheus."""
        return f"({self.value})\n> {self.threshold:g}"

    def annotations(self, runbooks: str = RUNBOOKS) -> dict[str, str]:
        """The summary, and the link to the runbook."""
        return {
            "summary": self.summary,
            "runbook_url": f"{runbooks.rstrip('/')}/{self.runbook}.md",
        }


def _joined(operator: str, *expressions: str) -> str:
    return "(" + f")\n{operator} (".join(expressions) + ")"


def _success_falling() -> str:
    """By how much success is below what is usual, where chance alone does not explain it.

    The drop must exceed three standard deviations of as many runs as ended, at least ten.
    """
    now, usual = recorded(SUCCESS_RATE), USUAL_SUCCESS_RATE.name
    known = SUCCESS_RATE.whole
    runs = total(QueryScope(SUCCESS_RATE.window).increase(known.metric, *known.matchers), GROUP)
    return (
        f"({usual} - {now})\n"
        f"and ({usual} - {now} > 3 * sqrt({usual} * (1 - {usual}) / {runs}))\n"
        f"and ({runs} >= 10)"
    )


def _loop_share_unusual() -> str:
    """By how much the loop ratio is above what is usual, given at least 50 steps."""
    steps = total(QueryScope(LOOP_RATIO.window).increase(LOOP_RATIO.whole.metric), GROUP)
    return f"({recorded(LOOP_RATIO)} - {USUAL_LOOP_RATIO.name})\nand ({steps} >= 50)"


def _false_stops() -> str:
    """By how much more successful runs exceed a threshold than alpha allows, beyond chance.

    The excess must be greater than two standard deviations of as many successful runs as ended
    within a day, at least twenty.
    """
    exceeded, runs = (
        total(_DAY.increase(term.metric, *term.matchers), _SCORED)
        for term in (EXCEEDED_RATIO.part, EXCEEDED_RATIO.whole)
    )
    alpha = f"max by ({', '.join(_SCORED)}) ({catalog.POLICY_ALPHA.name})"
    excess = f"{exceeded} / ({runs} >= 20) - {alpha}"
    return f"({excess})\nand ({excess} > 2 * sqrt({alpha} * (1 - {alpha}) / {runs}))"


def _worker_behind() -> str:
    """Seconds of work that wait, where the lag does not shrink.

    In seconds, because a thousand messages are little for one fleet and an hour for another. For
    a worker that consumes nothing the value is infinite.
    """
    lag = QueryScope("").series(catalog.WORKER_LAG)
    waiting, before = (total(series, _PROCESS) for series in (lag, f"{lag} offset 5m"))
    consumed = total(QueryScope("5m").rate(catalog.WORKER_MESSAGES), _PROCESS)
    return f"({waiting} / {consumed})\nand ({waiting} >= {before})"


def _no_worker() -> str:
    """The highest number of partitions assigned within a day, where none is assigned now.

    While one worker lives, Kafka assigns all partitions to it. So a lower number alone only means
    that partitions are being reassigned.
    """
    held = total(
        f"max_over_time({_DAY.over_window(catalog.WORKER_PARTITIONS)})", _FLEET, operator="max"
    )
    now = total(QueryScope("").series(catalog.WORKER_PARTITIONS), _FLEET)
    return f"{held}\nunless ({now} > 0)"


def _session_looping() -> str:
    """Repeats of each coding agent's session that is in a loop, and took a step a while ago.

    The hooks of an agent that was killed do not say so: its run is open until it has been idle for
    long, and loops no more.
    """
    scope = QueryScope("5m")
    steps = total(f"changes({scope.over_window(RUN_STEPS)}) > 0", _RUN, operator="max")
    return f"{sessions_looping(scope, *GROUP)}\nand ({steps})"


_AGENTS: Final = (
    Alert(
        "TidegaugeLoopOnset",
        total(QueryScope("").series(RUNS_LOOPING), GROUP),
        threshold=0,
        severity="warning",
        pending="0s",
        summary=f"{_GROUP_NAME} is looping: {{{{ $value }}}} of its runs repeat a cycle.",
        runbook="loop-onset",
    ),
    Alert(
        "TidegaugeSessionLooping",
        _session_looping(),
        threshold=0,
        severity="warning",
        pending="2m",
        summary="A session of {{ $labels.agent }} has looped for two minutes: it has repeated a "
        "cycle {{ $value }} times (run {{ $labels.run }}).",
        runbook="session-looping",
    ),
    Alert(
        "TidegaugeLoopShareUnusual",
        _loop_share_unusual(),
        threshold=0.1,
        severity="warning",
        pending="5m",
        summary=f"{_GROUP_NAME} loops more than usual: its loop ratio is "
        "{{ $value | humanizePercentage }} above the p95 of the last day.",
        runbook="loop-share-unusual",
    ),
    Alert(
        "TidegaugeRunsStale",
        total(QueryScope("").series(RUNS_STALE), GROUP),
        threshold=0,
        severity="warning",
        pending="5m",
        summary=f"{_GROUP_NAME} makes no progress: {{{{ $value }}}} of its runs only revisit known "
        "places and actions.",
        runbook="runs-stale",
    ),
    Alert(
        "TidegaugeSuccessFalling",
        _success_falling(),
        threshold=0.1,
        severity="critical",
        pending="15m",
        summary=f"{_GROUP_NAME} succeeds less than usual: its success rate is "
        "{{ $value | humanizePercentage }} below that of the day before.",
        runbook="success-falling",
    ),
    Alert(
        "TidegaugeFailedRounds",
        new_events(_RECENT, LOOPS, 'kind="failed_rounds"'),
        threshold=0,
        severity="warning",
        pending="0s",
        summary=f"Calls of {_GROUP_NAME} fail repeatedly: {{{{ $value | humanize }}}} series of "
        "failed rounds within ten minutes.",
        runbook="failed-rounds",
    ),
    Alert(
        "TidegaugeFalseStopsAboveBound",
        _false_stops(),
        threshold=0,
        severity="warning",
        pending="15m",
        summary=f"Successful runs of {_GROUP_NAME} exceed their threshold of "
        "{{ $labels.score }} more often than alpha allows: by "
        "{{ $value | humanizePercentage }} within a day.",
        runbook="false-stops-above-bound",
    ),
    Alert(
        "TidegaugePolicyOutdated",
        f"time() - max by ({', '.join(_SCORED)}) ({catalog.POLICY_CALIBRATED.name})",
        threshold=_MONTH_SECONDS,
        severity="info",
        pending="1h",
        summary=f"The threshold of {{{{ $labels.score }}}} for {_GROUP_NAME} was calibrated "
        "{{ $value | humanizeDuration }} ago: calibrate it again from recent runs.",
        runbook="policy-outdated",
    ),
)

_PROCESSES: Final = (
    Alert(
        "TidegaugeInternalErrors",
        new_events(_RECENT, catalog.INTERNAL_ERRORS, by=(*_PROCESS, "where")),
        threshold=0,
        severity="warning",
        pending="0s",
        summary=f"tidegauge in {_INSTANCE} has an internal error in {{{{ $labels.where }}}}. "
        "Agents continue, but their numbers may be wrong.",
        runbook="internal-errors",
    ),
    Alert(
        "TidegaugeEventsDropped",
        new_events(_RECENT, catalog.DROPPED_EVENTS, by=_PROCESS),
        threshold=0,
        severity="info",
        pending="5m",
        summary=f"tidegauge in {_INSTANCE} drops events that belong to no active run: "
        "{{ $value | humanize }} within ten minutes.",
        runbook="events-dropped",
    ),
    Alert(
        "TidegaugeRecordingDropping",
        new_events(_RECENT, catalog.DROPPED_LINES, by=(*_PROCESS, "reason")),
        threshold=0,
        severity="warning",
        pending="1m",
        summary=f"The recording in {_INSTANCE} loses lines ({{{{ $labels.reason }}}}): "
        "{{ $value | humanize }} within ten minutes.",
        runbook="recording-dropping",
    ),
)

_CENTRAL: Final = (
    Alert(
        "TidegaugeReceiverDropping",
        _joined(
            "or",
            new_events(_RECENT, catalog.SPANS_REFUSED, by=(*_PROCESS, "reason")),
            new_events(_RECENT, catalog.SPANS_NOT_FORWARDED, by=(*_PROCESS, "reason")),
        ),
        threshold=0,
        severity="warning",
        pending="1m",
        summary=f"The receiver in {_INSTANCE} loses spans ({{{{ $labels.reason }}}}): "
        "{{ $value | humanize }} within ten minutes.",
        runbook="receiver-dropping",
    ),
    Alert(
        "TidegaugeNoWorker",
        _no_worker(),
        threshold=0,
        severity="critical",
        pending="5m",
        summary="No worker of {{ $labels.job }} has a partition: no run of this fleet is measured "
        "or stopped.",
        runbook="no-worker",
    ),
    Alert(
        "TidegaugeWorkerBehind",
        _worker_behind(),
        threshold=60,
        severity="warning",
        pending="5m",
        summary=f"The worker in {_INSTANCE} lags by {{{{ $value | humanizeDuration }}}} of its "
        "work and does not catch up.",
        runbook="worker-behind",
    ),
    Alert(
        "TidegaugeMessagesLost",
        _joined(
            "or",
            new_events(_RECENT, catalog.GATEWAY_FAILED_MESSAGES, by=(*_PROCESS, "reason")),
            new_events(_RECENT, catalog.WORKER_DEAD_LETTERS, by=(*_PROCESS, "reason")),
        ),
        threshold=0,
        severity="warning",
        pending="1m",
        summary=f"Messages of the fleet are not measured ({{{{ $labels.reason }}}}): "
        f"{{{{ $value | humanize }}}} within ten minutes, in {_INSTANCE}.",
        runbook="messages-lost",
    ),
    Alert(
        "TidegaugeDecisionsLost",
        _joined(
            "+",
            new_events(_RECENT, catalog.DECISIONS_SKIPPED, by=_PROCESS),
            new_events(_RECENT, catalog.DECISIONS_DROPPED_RUNS, by=_PROCESS),
        ),
        threshold=0,
        severity="warning",
        pending="1m",
        summary=f"The decisions server in {_INSTANCE} skips or evicts decisions: "
        "{{ $value | humanize }} within ten minutes. A stop may be among them.",
        runbook="decisions-lost",
    ),
)

ALERTS: Final = (*_AGENTS, *_PROCESSES, *_CENTRAL)
"""All alerts."""


def alerting_groups(runbooks: str = RUNBOOKS) -> list[dict[str, Any]]:
    """The rule groups for Prometheus. Loop onsets are evaluated twice a second."""
    onset, *others = [_rule(alert, runbooks) for alert in ALERTS]
    return [
        {"name": "tidegauge-onset", "interval": _ONSET_INTERVAL, "rules": [onset]},
        {"name": "tidegauge-alerts", "rules": others},
    ]


def _rule(alert: Alert, runbooks: str) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.pending,
        "labels": {"severity": alert.severity},
        "annotations": alert.annotations(runbooks),
    }

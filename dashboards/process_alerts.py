"""Alerts on tidegauge itself: inside agents' processes, and in the central ones."""

from __future__ import annotations

from typing import Final

from dashboards.alert import FLEET, INSTANCE, Alert, counted
from dashboards.queries import PROCESS, QueryScope, new_events, total
from tidegauge import catalog

_NOW: Final = QueryScope("")
_EVENTS: Final = QueryScope("5m")
"""Window of alerts on single events: a few scrapes. Then ``keep_firing`` holds them."""

_HELD: Final = "5m"
_PENDING: Final = QueryScope("5m")
_DAY: Final = QueryScope("1d")
_JOB: Final = ("job",)


def _joined(operator: str, *expressions: str) -> str:
    return "(" + f")\n{operator} (".join(expressions) + ")"


def _no_worker() -> str:
    """The highest number of partitions assigned within a day, where none is assigned now.

    While one worker lives, Kafka assigns all partitions to it. So a lower number alone only means
    that partitions are being reassigned. Without workers the lag is not known, but nothing waits
    if the lag was 0 when they were last there, and gateways have delivered nothing since: for as
    long as the alert is pending.
    """
    held = total(
        f"max_over_time({_DAY.over_window(catalog.WORKER_PARTITIONS)})", _JOB, operator="max"
    )
    now = total(_NOW.series(catalog.WORKER_PARTITIONS), _JOB)
    lag = total(_NOW.series(catalog.WORKER_LAG), _JOB)
    delivered = total(_PENDING.increase(catalog.GATEWAY_MESSAGES))
    return (
        f"{held}\nunless ({now} > 0)\n"
        f"unless (last_over_time({lag}[{_DAY.window}:1m]) == 0 and on () ({delivered} == 0))"
    )


def _worker_behind() -> str:
    """Seconds of work that wait, where the lag does not shrink.

    In seconds, because a thousand messages are little for one fleet and an hour for another. For
    a worker that consumes nothing the value is infinite.
    """
    lag = _NOW.series(catalog.WORKER_LAG)
    waiting, before = (total(series, PROCESS) for series in (lag, f"{lag} offset 5m"))
    consumed = total(QueryScope("5m").rate(catalog.WORKER_MESSAGES), PROCESS)
    return f"({waiting} / {consumed})\nand ({waiting} >= {before})"


PROCESS_ALERTS: Final = (
    Alert(
        "TidegaugeInternalErrors",
        new_events(_EVENTS, catalog.INTERNAL_ERRORS, by=(*PROCESS, "where")),
        threshold=0,
        severity="warning",
        pending="0s",
        keep_firing=_HELD,
        summary=f"tidegauge in {INSTANCE} had "
        f"{counted('internal error', 'internal errors')} in {{{{ $labels.where }}}}. "
        "Agents continue, but their numbers may be wrong.",
        runbook="internal-errors",
        panel=(FLEET, "Internal errors"),
    ),
    Alert(
        "TidegaugeEventsDropped",
        new_events(_EVENTS, catalog.DROPPED_EVENTS, by=PROCESS),
        threshold=0,
        severity="info",
        pending="5m",
        keep_firing=_HELD,
        summary=f"tidegauge in {INSTANCE} has dropped {counted('event', 'events')} of no active "
        "run within five minutes.",
        runbook="events-dropped",
        panel=(FLEET, "Dropped events, evicted runs, names beyond the limit"),
    ),
    Alert(
        "TidegaugeRecordingDropping",
        new_events(_EVENTS, catalog.DROPPED_LINES, by=(*PROCESS, "reason")),
        threshold=0,
        severity="warning",
        pending="1m",
        keep_firing=_HELD,
        summary=f"The recording in {INSTANCE} has lost {counted('line', 'lines')} within five "
        "minutes ({{ $labels.reason }}).",
        runbook="recording-dropping",
        panel=(FLEET, "Recording: lines written and lost"),
    ),
    Alert(
        "TidegaugeReceiverDropping",
        _joined(
            "or",
            new_events(_EVENTS, catalog.SPANS_REFUSED, by=(*PROCESS, "reason")),
            new_events(_EVENTS, catalog.SPANS_NOT_FORWARDED, by=(*PROCESS, "reason")),
        ),
        threshold=0,
        severity="warning",
        pending="1m",
        keep_firing=_HELD,
        summary=f"The receiver in {INSTANCE} has lost {counted('span', 'spans')} within five "
        "minutes ({{ $labels.reason }}).",
        runbook="receiver-dropping",
        panel=(FLEET, "Receiver: spans rejected or not forwarded"),
    ),
    Alert(
        "TidegaugeNoWorker",
        _no_worker(),
        threshold=0,
        severity="critical",
        pending=_PENDING.window,
        summary="No worker of {{ $labels.job }} has a partition, and messages wait: no run of this "
        "fleet is measured or stopped.",
        runbook="no-worker",
        panel=(FLEET, "Worker: partitions"),
    ),
    Alert(
        "TidegaugeWorkerBehind",
        _worker_behind(),
        threshold=60,
        severity="warning",
        pending="5m",
        summary=f"The worker in {INSTANCE} lags by {{{{ $value | humanizeDuration }}}} of its "
        "work and does not catch up.",
        runbook="worker-behind",
        panel=(FLEET, "Worker: lag"),
    ),
    Alert(
        "TidegaugeMessagesLost",
        _joined(
            "or",
            new_events(_EVENTS, catalog.GATEWAY_FAILED_MESSAGES, by=(*PROCESS, "reason")),
            new_events(_EVENTS, catalog.WORKER_DEAD_LETTERS, by=(*PROCESS, "reason")),
        ),
        threshold=0,
        severity="warning",
        pending="1m",
        keep_firing=_HELD,
        summary=f"{counted('message', 'messages')} of the fleet "
        "{{ if lt $value 1.5 }}was{{ else }}were{{ end }} not measured within five minutes "
        f"({{{{ $labels.reason }}}}), in {INSTANCE}.",
        runbook="messages-lost",
        panel=(FLEET, "Gateway: messages delivered and aborted"),
    ),
    Alert(
        "TidegaugeDecisionsLost",
        _joined(
            "+",
            new_events(_EVENTS, catalog.DECISIONS_SKIPPED, by=PROCESS),
            new_events(_EVENTS, catalog.DECISIONS_DROPPED_RUNS, by=PROCESS),
        ),
        threshold=0,
        severity="warning",
        pending="1m",
        keep_firing=_HELD,
        summary=f"The decisions server in {INSTANCE} has skipped or evicted "
        f"{counted('decision', 'decisions')} within five minutes. A stop may be among them.",
        runbook="decisions-lost",
        panel=(FLEET, "Decisions: records read, skipped, evicted"),
    ),
)
"""All of them."""

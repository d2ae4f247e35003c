"""Alerts on what is measured apart from the agents: receivers, gateways, workers, decisions."""

from __future__ import annotations

from typing import Final

from tidegauge import catalog
from tidegauge.dashboards.alert import LATELY, PROCESS, WHERE, Alert
from tidegauge.dashboards.queries import Scope, new_events, total

__all__ = ["CENTRAL_ALERTS"]

_DAY: Final = Scope("1d")
_FLEET: Final = ("job",)


def _worker_behind() -> str:
    """How many seconds of work wait, where they are not getting fewer.

    In seconds, as a thousand messages are nothing to one fleet and an hour to another. Of a
    worker that takes nothing they are infinitely many.
    """
    lag = Scope("").series(catalog.WORKER_LAG)
    waiting, before = (total(series, PROCESS) for series in (lag, f"{lag} offset 5m"))
    taken = total(Scope("5m").rate(catalog.WORKER_MESSAGES), PROCESS)
    return f"({waiting} / {taken})\nand ({waiting} >= {before})"


def _no_worker() -> str:
    """The most partitions that a worker has held within a day, where none holds any now.

    As long as one worker lives Kafka gives it all partitions, so fewer than there were tells of
    no more than that they go from worker to worker.
    """
    held = total(
        f"max_over_time({_DAY.over_window(catalog.WORKER_PARTITIONS)})", _FLEET, operator="max"
    )
    now = total(Scope("").series(catalog.WORKER_PARTITIONS), _FLEET)
    return f"{held}\nunless ({now} > 0)"


CENTRAL_ALERTS: Final = (
    Alert(
        "TidegaugeReceiverDropping",
        "("
        + new_events(LATELY, catalog.SPANS_REFUSED, by=(*PROCESS, "reason"))
        + ")\nor ("
        + new_events(LATELY, catalog.SPANS_NOT_FORWARDED, by=(*PROCESS, "reason"))
        + ")",
        above=0,
        severity="warning",
        held="1m",
        summary=f"The receiver in {WHERE} loses spans ({{{{ $labels.reason }}}}): "
        "{{ $value | humanize }} within ten minutes.",
        runbook="receiver-dropping",
    ),
    Alert(
        "TidegaugeNoWorker",
        _no_worker(),
        above=0,
        severity="critical",
        held="5m",
        summary="No worker of {{ $labels.job }} holds a partition: none of its fleet's runs is "
        "measured, nor stopped.",
        runbook="no-worker",
    ),
    Alert(
        "TidegaugeWorkerBehind",
        _worker_behind(),
        above=60,
        severity="warning",
        held="5m",
        summary=f"The worker in {WHERE} is behind and does not catch up: what waits is "
        "{{ $value | humanizeDuration }} of its work.",
        runbook="worker-behind",
    ),
    Alert(
        "TidegaugeMessagesLost",
        "("
        + new_events(LATELY, catalog.GATEWAY_FAILED_MESSAGES, by=(*PROCESS, "reason"))
        + ")\nor ("
        + new_events(LATELY, catalog.WORKER_DEAD_LETTERS, by=(*PROCESS, "reason"))
        + ")",
        above=0,
        severity="warning",
        held="1m",
        summary=f"Messages of the fleet are not measured ({{{{ $labels.reason }}}}): "
        f"{{{{ $value | humanize }}}} within ten minutes, in {WHERE}.",
        runbook="messages-lost",
    ),
    Alert(
        "TidegaugeDecisionsLost",
        "("
        + new_events(LATELY, catalog.DECISIONS_SKIPPED, by=PROCESS)
        + ")\n+ ("
        + new_events(LATELY, catalog.DECISIONS_DROPPED_RUNS, by=PROCESS)
        + ")",
        above=0,
        severity="warning",
        held="1m",
        summary=f"The decisions server in {WHERE} skips or forgets decisions: "
        "{{ $value | humanize }} within ten minutes. A stop may be among them.",
        runbook="decisions-lost",
    ),
)

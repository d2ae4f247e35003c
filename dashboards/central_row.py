"""The row of the central processes: receivers, gateways, workers and decisions servers.

Each process is identified by its ``instance`` label and has the same colour in every panel.
"""

from __future__ import annotations

from typing import Final

from dashboards.board import EVENTS, NOW
from dashboards.panels import BYTES, COUNT, SECONDS, Panel, Query
from dashboards.queries import total
from dashboards.visualizations import areas, bars, lines
from tidegauge import catalog
from tidegauge.catalog import MetricDefinition

_THIRD: Final = 8
"""A third of a row's 24 columns."""


def central_row() -> list[Panel]:
    """The panels, in the order in which spans move from process to process."""
    return [*_receivers(), *_gateways(), *_workers(), *_decisions()]


def _receivers() -> list[Panel]:
    return [
        bars(
            "Receiver: spans",
            "Spans accepted, forwarded, received more than once (counted once), and received after "
            "their run ended (not counted). If many are late, raise the allowed lateness. Empty "
            "without a receiver.",
            Query(total(EVENTS.increase(catalog.SPANS_RECEIVED)), "accepted"),
            Query(total(EVENTS.increase(catalog.SPANS_FORWARDED)), "forwarded"),
            Query(total(EVENTS.increase(catalog.SPANS_DUPLICATE)), "duplicates"),
            Query(total(EVENTS.increase(catalog.SPANS_LATE)), "late"),
        ).span(_THIRD),
        bars(
            "Receiver: spans rejected or not forwarded",
            "Spans that tidegauge serve rejected or could not forward, by reason. Empty without "
            "a receiver.",
            Query(
                total(EVENTS.increase(catalog.SPANS_REFUSED), ["reason"]), "rejected: {{reason}}"
            ),
            Query(
                total(EVENTS.increase(catalog.SPANS_NOT_FORWARDED), ["reason"]),
                "not forwarded: {{reason}}",
            ),
        ).span(_THIRD),
        lines(
            "Receiver: queues",
            "Accepted spans that are not yet assembled, open traces, and requests that are not yet "
            "forwarded. If they grow, the receiver cannot keep up. Gateways have their own panel "
            "below. Empty without a receiver that measures.",
            Query(total(NOW.series(catalog.SPANS_QUEUED)), "spans"),
            Query(total(NOW.series(catalog.TRACES_OPEN)), "traces"),
            Query(total(NOW.series(catalog.REQUESTS_TO_FORWARD)), "requests to forward"),
        ).span(_THIRD),
    ]


def _gateways() -> list[Panel]:
    return [
        bars(
            "Gateway: messages delivered and aborted",
            "Messages of spans that gateways delivered to the brokers, and messages they aborted, "
            "by reason. The spans of an aborted message are lost. Empty without a gateway.",
            Query(total(EVENTS.increase(catalog.GATEWAY_MESSAGES)), "delivered"),
            Query(
                total(EVENTS.increase(catalog.GATEWAY_FAILED_MESSAGES), ["reason"]),
                "aborted: {{reason}}",
            ),
        ).span(_THIRD),
        _by_process(
            "Gateway: queued messages",
            "Messages not yet delivered, by gateway. If all grow, the brokers are unreachable or "
            "too slow. If one grows, check its network. Empty without a gateway.",
            catalog.GATEWAY_QUEUED_MESSAGES,
        ),
    ]


def _workers() -> list[Panel]:
    return [
        _by_process(
            "Worker: lag",
            "Messages not yet consumed, by worker. If all grow, add workers, up to the number of "
            "partitions. If one grows, check whether it is short of processor time or stuck. Empty "
            "without a worker.",
            catalog.WORKER_LAG,
        ),
        _by_process(
            "Worker: live runs",
            "Live runs by worker. When a worker dies, its runs move to the others. If one worker "
            "has far more than the others, check whether it has more partitions. Empty without a "
            "worker.",
            catalog.WORKER_RUNS,
        ),
        _by_process(
            "Worker: partitions",
            "Partitions assigned to each worker. Their sum is the number of partitions of the "
            "topic, except briefly while they are reassigned. A worker without partitions is idle: "
            "there are more workers than partitions. Empty without a worker.",
            catalog.WORKER_PARTITIONS,
        ),
        bars(
            "Worker: messages consumed",
            "Messages that each worker consumed. If there are none while gateways deliver, no "
            "worker has their partitions. Empty without a worker.",
            Query(
                total(EVENTS.increase(catalog.WORKER_MESSAGES), ["instance"]),
                "{{instance}}",
            ),
        ).span(_THIRD),
        bars(
            "Worker: dead letters",
            "Messages that no worker could process, by reason. They are in the dead letter topic "
            "with a description of the error. If the reason is version, upgrade the workers first. "
            "Empty without a worker.",
            Query(total(EVENTS.increase(catalog.WORKER_DEAD_LETTERS), ["reason"]), "{{reason}}"),
        ).span(_THIRD),
        bars(
            "Worker: duplicate, late, aborted",
            "Spans and steps that arrived more than once (counted once) or after their run ended "
            "(not counted). If many are late, raise the allowed lateness or find what delays them. "
            "Aborted runs exceeded their limit of state. Empty without a worker.",
            Query(total(EVENTS.increase(catalog.WORKER_DUPLICATES)), "duplicates"),
            Query(total(EVENTS.increase(catalog.WORKER_LATE)), "late"),
            Query(total(EVENTS.increase(catalog.WORKER_ABORTED)), "aborted"),
        ).span(_THIRD),
        bars(
            "Worker: records produced",
            "Summaries and decisions that workers produced. If there are no summaries while runs "
            "are live, the root spans of the runs do not arrive. Empty without a worker.",
            Query(total(EVENTS.increase(catalog.WORKER_PRODUCED, 'kind="summary"')), "summaries"),
            Query(total(EVENTS.increase(catalog.WORKER_PRODUCED, 'kind="decision"')), "decisions"),
        ).span(_THIRD),
        _by_process(
            "Worker: state of live runs",
            "Bytes of state from which another worker can restore the live runs. If it grows while "
            "the number of runs does not, some runs never end: lower the idle time that ends them. "
            "Empty without a worker.",
            catalog.WORKER_STATE_BYTES,
            unit=BYTES,
        ),
        bars(
            "Worker: runs restored",
            "Live runs that a worker restored with a partition, because workers started, stopped "
            "or died. If it happens again and again, a worker dies or hangs: read its log. Empty "
            "without a worker.",
            Query(
                total(EVENTS.increase(catalog.WORKER_RESTORED_RUNS), ["instance"]), "{{instance}}"
            ),
        ).span(_THIRD),
        lines(
            "Worker: time to restore",
            "Seconds that each worker took to restore the state of its partitions, the last time. "
            "Meanwhile the runs of these partitions are not measured. If it is too long, keep the "
            "state on a persistent disk, or add partitions and workers. Empty without a worker.",
            _of_process(catalog.WORKER_RESTORE_SECONDS),
            unit=SECONDS,
        ).span(_THIRD),
    ]


def _decisions() -> list[Panel]:
    return [
        bars(
            "Decisions: records read, skipped, evicted",
            "Decision records that servers read, records they skipped as invalid (by reason), and "
            "runs they evicted because there were too many (raise max_runs). A stop in a skipped "
            "record or an evicted run may not reach its agent. Empty without a decisions server.",
            Query(total(EVENTS.increase(catalog.DECISIONS_READ)), "read"),
            Query(
                total(EVENTS.increase(catalog.DECISIONS_SKIPPED), ["reason"]), "skipped: {{reason}}"
            ),
            Query(total(EVENTS.increase(catalog.DECISIONS_DROPPED_RUNS)), "evicted"),
        ).span(_THIRD),
        bars(
            "Decisions: requests",
            "Requests of agents, by answer. Busy: add servers, or raise max_connections. Not "
            "ready: a server has just started. Unauthorized: a token is wrong. Refused: the "
            "request is invalid. Empty without a decisions server.",
            Query(total(EVENTS.increase(catalog.DECISIONS_REQUESTS), ["answer"]), "{{answer}}"),
        ).span(_THIRD),
        lines(
            "Decisions: known runs",
            "Runs for which each server knows a decision or a recent end. All servers know about "
            "the same number; one that knows fewer is still reading, or cannot reach the brokers. "
            "Empty without a decisions server.",
            _of_process(catalog.DECISIONS_RUNS),
        ).span(_THIRD),
    ]


def _by_process(
    title: str, description: str, metric: MetricDefinition, *, unit: str = COUNT
) -> Panel:
    """A gauge of every process, stacked."""
    return areas(title, description, _of_process(metric), unit=unit).span(_THIRD)


def _of_process(metric: MetricDefinition) -> Query:
    return Query(total(NOW.series(metric), ["instance"]), "{{instance}}")

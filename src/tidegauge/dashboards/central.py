"""The row of what is measured apart from the agents: receivers, gateways, workers, decisions.

Each of these processes is known by its ``instance``: it has the same colour in all panels.
"""

from __future__ import annotations

from typing import Final

from tidegauge import catalog
from tidegauge.catalog import MetricDefinition
from tidegauge.dashboards.board import EVENTS, NOW
from tidegauge.dashboards.over_time import areas, bars, lines
from tidegauge.dashboards.panels import BYTES, COUNT, SECONDS, Panel, Query
from tidegauge.dashboards.queries import total

__all__ = ["central"]

_THIRD: Final = 8
"""Of the 24 columns of a row."""


def central() -> list[Panel]:
    """Its panels: in the order in which spans go from process to process."""
    return [*_receivers(), *_gateways(), *_workers(), *_decisions()]


def _receivers() -> list[Panel]:
    return [
        bars(
            "Receiver: spans",
            "Spans taken, passed on, arrived twice (and counted once), or after the end of their "
            "run (and not counted). Many late ones: raise how long it waits for them. Empty "
            "without a receiver.",
            Query(total(EVENTS.increase(catalog.SPANS_RECEIVED)), "taken"),
            Query(total(EVENTS.increase(catalog.SPANS_FORWARDED)), "passed on"),
            Query(total(EVENTS.increase(catalog.SPANS_DUPLICATE)), "twice"),
            Query(total(EVENTS.increase(catalog.SPANS_LATE)), "late"),
        ).span(_THIRD),
        bars(
            "Receiver: spans not taken, not passed on",
            "Spans that tidegauge serve refused, or could not pass on, by reason. Empty without "
            "a receiver.",
            Query(total(EVENTS.increase(catalog.SPANS_REFUSED), ["reason"]), "refused: {{reason}}"),
            Query(
                total(EVENTS.increase(catalog.SPANS_NOT_FORWARDED), ["reason"]),
                "not passed on: {{reason}}",
            ),
        ).span(_THIRD),
        lines(
            "Receiver: what waits",
            "Spans taken and not yet assembled, traces that are open, requests not yet passed on. "
            "Growing: it cannot keep up. Gateways have none of it: what waits in them is told "
            "below. Empty where no receiver measures.",
            Query(total(NOW.series(catalog.SPANS_QUEUED)), "spans"),
            Query(total(NOW.series(catalog.TRACES_OPEN)), "traces"),
            Query(total(NOW.series(catalog.REQUESTS_TO_FORWARD)), "requests to pass on"),
        ).span(_THIRD),
    ]


def _gateways() -> list[Panel]:
    return [
        bars(
            "Gateway: messages delivered and given up",
            "Messages of spans that gateways of a fleet delivered to the brokers, and those that "
            "they gave up, by reason: spans that were taken and are lost. Empty without a gateway.",
            Query(total(EVENTS.increase(catalog.GATEWAY_MESSAGES)), "delivered"),
            Query(
                total(EVENTS.increase(catalog.GATEWAY_FAILED_MESSAGES), ["reason"]),
                "given up: {{reason}}",
            ),
        ).span(_THIRD),
        _shared_out(
            "Gateway: messages that wait",
            "Messages not yet delivered, by gateway. Growing in all: the brokers cannot be "
            "reached, or not keep up. In one alone: look at its way to them. Empty without a "
            "gateway.",
            catalog.GATEWAY_QUEUED_MESSAGES,
        ),
    ]


def _workers() -> list[Panel]:
    return [
        _shared_out(
            "Worker: messages that wait",
            "Messages not yet taken, by worker. Growing in all: add workers, up to the number of "
            "partitions. In one alone: see whether it is short of processor time, or stuck. Empty "
            "without a worker.",
            catalog.WORKER_LAG,
        ),
        _shared_out(
            "Worker: live runs",
            "Runs that each worker holds. When one dies its runs go to the others. Far more on "
            "one than on the others: see whether it holds more partitions. Empty without a worker.",
            catalog.WORKER_RUNS,
        ),
        _shared_out(
            "Worker: partitions",
            "Partitions that each worker holds: together as many as the topic has. For a moment "
            "fewer: they are on their way from a worker to another. One with none has nothing to "
            "do: there are more workers than partitions. Empty without a worker.",
            catalog.WORKER_PARTITIONS,
        ),
        bars(
            "Worker: messages taken",
            "Messages that each worker took. None while gateways deliver: nobody holds their "
            "partitions. Empty without a worker.",
            Query(
                total(EVENTS.increase(catalog.WORKER_MESSAGES), ["instance"]),
                "{{instance}}",
            ),
        ).span(_THIRD),
        bars(
            "Worker: dead letters",
            "Messages that no worker could take, by reason: they are in the topic of dead letters, "
            "with what is wrong. Version: upgrade the workers first. Empty without a worker.",
            Query(total(EVENTS.increase(catalog.WORKER_DEAD_LETTERS), ["reason"]), "{{reason}}"),
        ).span(_THIRD),
        bars(
            "Worker: twice, late, given up",
            "Spans and steps that came again (and counted once), or after the end of their run "
            "(and not counted). Many late ones: raise settle_seconds, or look for what delays "
            "them. Runs given up took more room than max_kept_bytes leaves. Empty without a "
            "worker.",
            Query(total(EVENTS.increase(catalog.WORKER_DUPLICATES)), "twice"),
            Query(total(EVENTS.increase(catalog.WORKER_LATE)), "late"),
            Query(total(EVENTS.increase(catalog.WORKER_GIVEN_UP)), "given up"),
        ).span(_THIRD),
        bars(
            "Worker: what was told",
            "Summaries and decisions written. No summaries while runs are live: they do not end, "
            "so their roots do not arrive. Empty without a worker.",
            Query(total(EVENTS.increase(catalog.WORKER_TOLD, 'kind="summary"')), "summaries"),
            Query(total(EVENTS.increase(catalog.WORKER_TOLD, 'kind="decision"')), "decisions"),
        ).span(_THIRD),
        _shared_out(
            "Worker: what is kept of live runs",
            "So that another worker can go on with them. Growing while the number of runs does "
            "not: some never end; a lower idle_seconds ends them. Empty without a worker.",
            catalog.WORKER_KEPT_BYTES,
            unit=BYTES,
        ),
        bars(
            "Worker: runs restored",
            "Live runs that came to a worker with a partition, when workers start, stop or die. "
            "Again and again: a worker dies or hangs, see its log. Empty without a worker.",
            Query(
                total(EVENTS.increase(catalog.WORKER_RESTORED_RUNS), ["instance"]), "{{instance}}"
            ),
        ).span(_THIRD),
        lines(
            "Worker: time to restore",
            "How long it took each worker, the last time, until it knew the past of its "
            "partitions: so long nobody measured their runs. Too long: keep its state on a disk "
            "that stays, or share the runs out over more partitions and workers. Empty without a "
            "worker.",
            _by_instance(catalog.WORKER_RESTORE_SECONDS),
            unit=SECONDS,
        ).span(_THIRD),
    ]


def _decisions() -> list[Panel]:
    return [
        bars(
            "Decisions: records read, skipped, forgotten",
            "Records of decisions that servers took, each all of them; skipped: they could not, by "
            "reason; forgotten: runs, because there were too many, so raise max_runs. Of either, a "
            "stop may not reach its agent. Empty without a decisions server.",
            Query(total(EVENTS.increase(catalog.DECISIONS_READ)), "read"),
            Query(
                total(EVENTS.increase(catalog.DECISIONS_SKIPPED), ["reason"]), "skipped: {{reason}}"
            ),
            Query(total(EVENTS.increase(catalog.DECISIONS_DROPPED_RUNS)), "forgotten"),
        ).span(_THIRD),
        bars(
            "Decisions: requests",
            "What agents were answered. Busy: add servers, or raise max_connections. Not ready: a "
            "server has just started. Unauthorized: a token is wrong. Refused: not asked as it "
            "should be. Empty without a decisions server.",
            Query(total(EVENTS.increase(catalog.DECISIONS_REQUESTS), ["answer"]), "{{answer}}"),
        ).span(_THIRD),
        lines(
            "Decisions: runs known",
            "Runs that each server knows a decision of, or that they ended a while ago. About the "
            "same for all: one that knows fewer is still reading, or does not reach the brokers. "
            "Empty without a decisions server.",
            _by_instance(catalog.DECISIONS_RUNS),
        ).span(_THIRD),
    ]


def _shared_out(
    title: str, description: str, metric: MetricDefinition, *, unit: str = COUNT
) -> Panel:
    """What the processes hold, which adds up."""
    return areas(title, description, _by_instance(metric), unit=unit).span(_THIRD)


def _by_instance(metric: MetricDefinition) -> Query:
    return Query(total(NOW.series(metric), ["instance"]), "{{instance}}")

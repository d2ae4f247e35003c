"""A worker of a fleet: the one engine, fed by the partitions that it holds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from opentelemetry._logs import NoOpLogger
from opentelemetry.trace import NoOpTracer

from tidegauge import catalog
from tidegauge.catalog import MetricDefinition
from tidegauge.errors import MissingExtraError
from tidegauge.exporters.page import Page
from tidegauge.fleet.message import Message
from tidegauge.fleet.partition import MAX_KEPT_BYTES, Partition
from tidegauge.fleet.sink import FleetSink
from tidegauge.instrumentation.current import set_recorder
from tidegauge.instrumentation.otlp.limits import ASSEMBLY_LIMITS, AssemblyLimits
from tidegauge.instrumentation.recorder import Recorder
from tidegauge.instrumentation.spans.watched import RunDefaults
from tidegauge.pipeline import EngineSink
from tidegauge.policies import Policy
from tidegauge.streaming_metrics import Chronicle, Engine, RunReport
from tidegauge.tracer import SpanFactory

__all__ = ["Worker", "WorkerSettings"]

_STUCK_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """What a worker is made from.

    Args:
        brokers: addresses of some of the brokers.
        topic: what it reads.
        group: the workers that share the topic.
        state_dir: where it keeps state.
        config: properties of the Kafka clients.
        policy: decides; what it decides is told.
        defaults: what runs are known by where their spans don't say.
        limits: how much of a partition is held, and for how long.
        max_kept_bytes: how much is kept of the live runs of a partition.
        t_max: turns within which success counts, for runs that don't say.
        max_groups: (agent, task group) pairs told apart in metrics; later ones are ``other``.
        max_actions: action names told apart in metrics; later ones are ``other``.
        commit_seconds: how often what was done is made to last.
        exactly_once: tell summaries and decisions once, also when a worker dies; they are told
            when what they follow from is committed, and not before.
        page: whether there is a live page.
        digest_key: key of the digests of places, so that all workers show the same.
    """

    brokers: str
    topic: str
    group: str = "tidegauge"
    state_dir: Path = Path("tidegauge-state")
    config: Mapping[str, Any] = field(default_factory=dict, repr=False)
    policy: Policy = field(default_factory=Policy)
    defaults: RunDefaults | None = None
    limits: AssemblyLimits = ASSEMBLY_LIMITS
    max_kept_bytes: int = MAX_KEPT_BYTES
    t_max: int | None = None
    max_groups: int = 200
    max_actions: int = 50
    commit_seconds: float = 1.0
    exactly_once: bool = False
    page: bool = True
    digest_key: bytes | None = field(default=None, repr=False)


class Worker:
    """One of a group of workers that share the partitions of a topic.

    Args:
        settings: what it is made from.

    Attributes:
        engine: holds the runs.
        page: the live page; ``None`` without one.
        spans: gives places the form in which they are shown.

    Raises:
        MissingExtraError: Quix Streams is not installed.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        try:
            from tidegauge.fleet.application import FleetApplication
        except ImportError as error:
            raise MissingExtraError("quixstreams", extra="worker") from error
        self._settings = settings
        # What is gone through again shows when it happened.
        chronicle = Chronicle(clock=lambda: self._sink.now) if settings.page else None
        self.engine = Engine(
            # Partitions say when a run is over, by the times of their logs.
            clock=None,
            max_runs=sys.maxsize,
            max_groups=settings.max_groups,
            max_actions=settings.max_actions,
            t_max=settings.t_max,
            repetition=settings.policy.lines.reads_words,
            on_finished=self._run_finished,
            chronicle=chronicle,
        )
        live = EngineSink(self.engine, settings.policy)
        self._crossings = live.crossings
        self._sink = FleetSink(live, self._tell)
        self.spans = SpanFactory(
            NoOpTracer(), NoOpLogger("tidegauge"), digest_key=settings.digest_key
        )
        self.page = (
            None
            if chronicle is None
            else Page(self.engine, chronicle, digest=self.spans.exported_digest)
        )
        set_recorder(Recorder(self._sink, self.spans))
        self._application = FleetApplication(
            settings.brokers,
            settings.topic,
            settings.group,
            state_dir=settings.state_dir,
            make_partition=self._make_partition,
            commit_seconds=settings.commit_seconds,
            exactly_once=settings.exactly_once,
            config=settings.config,
        )

    @property
    def alive(self) -> bool:
        """Whether messages are taken, or waited for, or the past of partitions is gathered."""
        application = self._application
        return application.restoring or time.monotonic() - application.beat < _STUCK_SECONDS

    @property
    def ready(self) -> bool:
        """Whether it has its partitions and knows their past."""
        return self.alive and self._application.ready

    def run(self) -> None:
        """Work until SIGTERM or Ctrl-C, in the main thread."""
        self._application.run()

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float]]:
        """Its health, as the catalogue's metrics: by metric and the values of its labels."""
        application = self._application
        partitions = tuple(application.partitions.values())
        counts = application.counts
        told: dict[MetricDefinition, Mapping[tuple[str, ...], float]] = {
            **self._crossings.metrics(),
            catalog.WORKER_PARTITIONS: {(): len(partitions)},
            catalog.WORKER_RUNS: {(): len(self._sink)},
            catalog.WORKER_LAG: {(): application.lag},
            catalog.WORKER_MESSAGES: {(): counts.messages},
            catalog.WORKER_DUPLICATES: {(): counts.duplicates},
            catalog.WORKER_LATE: {(): counts.late},
            catalog.WORKER_GIVEN_UP: {(): counts.given_up},
            catalog.WORKER_DEAD_LETTERS: {
                (reason,): application.outlet.dead_letters.get(reason, 0)
                for reason in catalog.WORKER_DEAD_LETTERS.values
            },
            catalog.WORKER_TOLD: {
                (kind,): application.outlet.told.get(kind, 0) for kind in catalog.WORKER_TOLD.values
            },
            catalog.WORKER_KEPT_BYTES: {(): sum([one.kept_bytes for one in partitions])},
            catalog.WORKER_RESTORED_RUNS: {(): application.restored_runs},
        }
        if application.restore_seconds is not None:
            told[catalog.WORKER_RESTORE_SECONDS] = {(): application.restore_seconds}
        return told

    def _make_partition(self, refuse: Callable[[Message, str], None]) -> Partition:
        settings = self._settings
        return Partition(
            self._sink,
            refuse,
            defaults=settings.defaults,
            limits=settings.limits,
            max_kept_bytes=settings.max_kept_bytes,
        )

    def _tell(self, kind: str, key: str, record: bytes) -> None:
        self._application.outlet.tell(kind, key, record)

    def _run_finished(self, report: RunReport) -> None:
        self._sink.run_finished(report)

"""A worker of a fleet: one engine, fed by the partitions that are assigned to it."""

from __future__ import annotations

import sys
import threading
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
from tidegauge.exporters.reading import Reader
from tidegauge.fleet.kafka_records import Message
from tidegauge.fleet.partition import MAX_STATE_BYTES, Partition
from tidegauge.fleet.sink import FleetSink
from tidegauge.foreign_spans.external_run import RunDefaults
from tidegauge.policies import Policy
from tidegauge.receivers.assembly import ASSEMBLY_LIMITS, AssemblyLimits
from tidegauge.runs.current import set_recorder
from tidegauge.runs.recorder import Recorder
from tidegauge.streaming_metrics import Engine, EventLog
from tidegauge.streaming_metrics.normalise import volatile
from tidegauge.tracer import SpanFactory

_STUCK_SECONDS: Final = 60.0
_WATCH_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """Settings of a worker.

    Args:
        group: the consumer group of the workers that share the topic.
        defaults: attributes of runs whose spans do not give them.
        max_state_bytes: limit of the changelog of a partition's live runs.
        t_max: turns within which success counts, for runs that do not give it.
        detect_polls: whether calls that wait are taken for polls, as of the engine.
        repetition: measure the similarity of actions also if the policy does not need it.
        max_groups: distinct (agent, task group) pairs in metrics; further ones are ``other``.
        max_actions: distinct action names in metrics; further ones are ``other``.
        exactly_once: write summaries and decisions once, even if a worker dies; they become visible
            when their input is committed.
        convert: reads messages of another writer than gateways, see :class:`FleetApplication`.
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
    max_state_bytes: int = MAX_STATE_BYTES
    t_max: int | None = None
    detect_polls: bool | None = None
    repetition: bool = False
    max_groups: int = 200
    max_actions: int = 50
    commit_seconds: float = 1.0
    exactly_once: bool = False
    convert: Callable[[bytes | None, bytes | None], bytes] | None = None
    page: bool = True
    digest_key: bytes | None = field(default=None, repr=False)


class Worker:
    """One of a group of workers that share the partitions of a topic.

    Attributes:
        spans: encodes places for the metrics.

    Raises:
        MissingExtraError: Quix Streams is not installed.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        try:
            from tidegauge.fleet.application import FleetApplication
        except ImportError as error:
            raise MissingExtraError("quixstreams", extra="worker") from error
        self._settings = settings
        # Restored events show the time of the original ones.
        event_log = EventLog(clock=lambda: self._sink.now) if settings.page else None
        self.engine = Engine(
            # Partitions end idle runs, by the times of their logs.
            clock=None,
            max_runs=sys.maxsize,
            max_groups=settings.max_groups,
            max_actions=settings.max_actions,
            t_max=settings.t_max,
            normaliser=volatile(),
            detect_polls=settings.detect_polls,
            repetition=settings.repetition or settings.policy.reads_words,
            features=settings.policy.reads_features,
            token_rate=settings.policy.reads_token_rate,
            on_finished=lambda report: self._sink.run_finished(report),  # noqa: PLW0108 -- made below
            event_log=event_log,
        )
        self._sink = FleetSink(self.engine, settings.policy, self._produce)
        self.spans = SpanFactory(
            NoOpTracer(), NoOpLogger("tidegauge"), digest_key=settings.digest_key
        )
        self.page = (
            None if event_log is None else Page(event_log, digest=self.spans.exported_digest)
        )
        if self.page is not None:
            self.page.start(Reader(self.engine))
        set_recorder(
            Recorder(
                self._sink,
                self.spans,
                on_refused=self.engine.refused,
                on_model_call=self._sink.model_called if settings.policy.budgets else None,
            )
        )
        self._application = FleetApplication(
            settings.brokers,
            settings.topic,
            settings.group,
            state_dir=settings.state_dir,
            make_partition=self._make_partition,
            commit_seconds=settings.commit_seconds,
            exactly_once=settings.exactly_once,
            config=settings.config,
            convert=settings.convert,
        )

    @property
    def alive(self) -> bool:
        """Whether it processes messages, waits for them, or restores partitions."""
        application = self._application
        return application.restoring or time.monotonic() - application.beat < _STUCK_SECONDS

    @property
    def ready(self) -> bool:
        """Whether it has its partitions and has restored them."""
        return self.alive and self._application.ready

    def run(self, on_stuck: Callable[[str], None]) -> None:
        """Work until SIGTERM or Ctrl-C, in the main thread.

        Args:
            on_stuck: called in another thread, once, if a Kafka client does not return from a call.
                Only ending the process helps then: nothing that was not committed is lost.
        """
        over = threading.Event()
        watching = threading.Thread(
            target=self._watch, args=(over, on_stuck), name="tidegauge-watch", daemon=True
        )
        watching.start()
        try:
            self._application.run()
        finally:
            over.set()

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float]]:
        """Its health, as metrics of the catalogue: by metric and the values of its labels."""
        application = self._application
        partitions = tuple(application.partitions.values())
        counts = application.counts
        metrics: dict[MetricDefinition, Mapping[tuple[str, ...], float]] = {
            **self._sink.crossings.metrics(),
            catalog.WORKER_PARTITIONS: {(): len(partitions)},
            catalog.WORKER_RUNS: {(): len(self._sink)},
            catalog.WORKER_LAG: {(): application.lag},
            catalog.WORKER_MESSAGES: {(): counts.messages},
            catalog.WORKER_DUPLICATES: {(): counts.duplicates},
            catalog.WORKER_LATE: {(): counts.late},
            catalog.WORKER_ABORTED: {(): counts.aborted},
            catalog.WORKER_DEAD_LETTERS: {
                (reason,): application.output.dead_letters.get(reason, 0)
                for reason in catalog.WORKER_DEAD_LETTERS.values
            },
            catalog.WORKER_PRODUCED: {
                (kind,): application.output.produced.get(kind, 0)
                for kind in catalog.WORKER_PRODUCED.values
            },
            catalog.WORKER_STATE_BYTES: {(): sum([one.state_bytes for one in partitions])},
            catalog.WORKER_RESTORED_RUNS: {(): application.restored_runs},
        }
        if application.restore_seconds is not None:
            metrics[catalog.WORKER_RESTORE_SECONDS] = {(): application.restore_seconds}
        return metrics

    def _watch(self, over: threading.Event, on_stuck: Callable[[str], None]) -> None:
        while not over.wait(_WATCH_SECONDS):
            if not self.alive:
                on_stuck(f"the brokers have not answered for {_STUCK_SECONDS:.0f} seconds")
                return

    def _make_partition(self, reject: Callable[[Message, str], None]) -> Partition:
        settings = self._settings
        return Partition(
            self._sink,
            reject,
            defaults=settings.defaults,
            limits=settings.limits,
            max_state_bytes=settings.max_state_bytes,
            max_record_bytes=self._application.max_message,
        )

    def _produce(self, kind: str, key: str, record: bytes) -> None:
        self._application.output.produce(kind, key, record)

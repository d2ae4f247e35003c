"""``tidegauge worker``: measures the runs of a fleet, in a group of workers that shares a topic."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tidegauge.cli.command_settings import (
    COUNT,
    FILE,
    FLAG,
    POLICY,
    SECONDS,
    SWITCH,
    TEXT,
    one_of,
    setting,
    settings_options,
)
from tidegauge.cli.server_settings import (
    MeasuringSettings,
    given_policy,
    print_metrics_addresses,
    rarely_collected,
    read_key,
)
from tidegauge.cli.terminal import VisibleLog, print_line
from tidegauge.errors import ConfigurationError, MissingExtraError

if TYPE_CHECKING:
    from tidegauge.fleet.partition_worker import WorkerSettings
    from tidegauge.policies import Policy

_BROKER_TIMEOUT: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class WorkerCommandSettings(MeasuringSettings):
    """Settings of ``tidegauge worker``."""

    kafka: str = setting(TEXT, MISSING, "Brokers: HOST:PORT, separated by commas.")
    topic: str = setting(TEXT, MISSING, "The topic that the gateways write to.")
    repetition: bool = setting(
        FLAG,
        False,
        "Measure how similar each action is to earlier ones: needs gateways with --kafka-contents.",
    )
    format: str = setting(
        one_of("gateway", "otlp"),
        "gateway",
        "Who writes the topic: gateways, or the Kafka exporter of an OpenTelemetry Collector with "
        "partition_traces_by_id: true (otlp).",
    )
    group: str = setting(
        TEXT, "tidegauge", help="The consumer group; its workers share the topic's partitions."
    )
    state_dir: str = setting(FILE, "tidegauge-state", help="The folder that holds the state.")
    policy: str | None = setting(
        POLICY,
        None,
        "Rules that decide when a run must stop, as in loop_repeats=3,steps=50, or the file "
        "of a policy (.toml). Decisions are written to TOPIC.decisions.",
    )
    prices: str | None = setting(
        FILE,
        None,
        'TOML file with the $ per million tokens of each model, as in "my-model" = 1.5, for '
        "budgets in $ of the policy.",
    )
    digest_key_file: str | None = setting(FILE, None, "Key of the digests of places in metrics.")
    max_traces: int = setting(COUNT, 10_000, "Limit of open traces per partition.")
    max_runs: int = setting(COUNT, 10_000, "Limit of open runs per partition.")
    max_remembered_spans: int = setting(
        COUNT, 500_000, "Spans remembered per partition, to recognize duplicates."
    )
    max_state_bytes: int = setting(
        COUNT,
        512 * 1024 * 1024,
        "State of the live runs of one partition; beyond this the largest run is ended.",
    )
    commit_seconds: float = setting(SECONDS, 1.0, "How often work is committed.")
    exactly_once: bool = setting(
        SWITCH,
        False,
        "Write each summary and decision exactly once, even when a worker dies. Readers see "
        "it when its input is committed.",
    )


@click.command()
@settings_options(WorkerCommandSettings, "TIDEGAUGE_WORKER")
def worker(settings: WorkerCommandSettings) -> None:
    """Measure the runs of a fleet: what the gateways have written to a Kafka topic.

    Start as many as you like under one --group: the topic's partitions are shared among them, and
    when one leaves, the others continue its live runs. Each serves /metrics. Summaries of runs are
    written to TOPIC.summaries, decisions of a policy to TOPIC.decisions ('tidegauge decisions'
    serves them to agents), records that cannot be read to TOPIC.dead-letters.

    \b
    Examples:
      tidegauge serve --kafka broker:9092 --topic agents     the gateway before it
      tidegauge worker --kafka broker:9092 --topic agents
      tidegauge worker --kafka broker:9092 --topic agents --policy loop_repeats=3
      tidegauge worker --config worker.toml --state-dir /var/lib/tidegauge

    A setting is taken from its flag, else from the variable TIDEGAUGE_WORKER_ and its name
    (TIDEGAUGE_WORKER_STATE_DIR), else from the file.

    SIGTERM and Ctrl-C: commit the work done, exit code 0. Exit code 1: the brokers cannot be
    reached, or the state cannot be stored; 2: wrong usage.
    """
    _log_warnings()
    if find_spec("quixstreams") is None:
        raise MissingExtraError("quixstreams", extra="worker")
    from tidegauge.exporters.reading import Reader
    from tidegauge.fleet.partition_worker import Worker

    worker_settings = _worker_settings(settings)
    _check(worker_settings)
    with _errors_in_one_line():
        one = Worker(worker_settings)
    server = settings.start_metrics_server(
        Reader(one.engine, place_label=one.spans.exported_place, more=one.metrics),
        probes={"/healthz": lambda: one.alive, "/readyz": lambda: one.ready},
        page=one.page,
    )
    try:
        print_metrics_addresses(server)
        settings.warn_if_exposed(
            "read the metrics and the live page",
            "set tls_client_ca, or restrict who reaches the port",
        )
        with _errors_in_one_line(), rarely_collected():
            one.run(_exit_at_once)
        print_line("stopped: all measured work is committed")
    finally:
        server.close()


def _worker_settings(settings: WorkerCommandSettings) -> WorkerSettings:
    from tidegauge.fleet.partition_worker import WorkerSettings
    from tidegauge.foreign_spans.external_run import RunDefaults

    return WorkerSettings(
        brokers=settings.kafka,
        topic=settings.topic,
        group=settings.group,
        state_dir=Path(settings.state_dir),
        config=settings.kafka_properties(),
        policy=_policy(settings),
        defaults=RunDefaults(task_group=settings.task_group),
        limits=settings.assembly_limits,
        max_state_bytes=settings.max_state_bytes,
        t_max=settings.t_max,
        detect_polls=settings.detect_polls,
        repetition=settings.repetition,
        commit_seconds=settings.commit_seconds,
        exactly_once=settings.exactly_once,
        convert=_from_otlp() if settings.format == "otlp" else None,
        page=settings.page,
        digest_key=read_key(settings.digest_key_file),
    )


def _from_otlp() -> Callable[[bytes | None, bytes | None], bytes]:
    """Reads messages of a Collector; of contents, the state has digests only."""
    from tidegauge.fleet.gateway import from_otlp
    from tidegauge.recordings import ContentEncoder
    from tidegauge.streaming_metrics.normalise import volatile

    return partial(from_otlp, encoder=ContentEncoder(bytes.hex, plain=False, normaliser=volatile()))


def _policy(settings: WorkerCommandSettings) -> Policy:
    from tidegauge.pipeline import Settings
    from tidegauge.policies.prices import read_prices

    policy = Settings(
        guard=settings.guard,
        guard_share=settings.guard_share,
        prices={} if settings.prices is None else read_prices(settings.prices),
        **given_policy(settings.policy),
    ).decides()
    shared = [budget.per for budget in policy.budgets if budget.per != "run"]
    if shared or policy.breakers:
        what = f"a budget per {shared[0]}" if shared else "a breaker"
        raise ConfigurationError(
            f"{what} counts the runs of one process, and workers share theirs; use budgets per "
            "run, or set it where the agents run"
        )
    return policy


def _check(settings: WorkerSettings) -> None:
    """Check that the topic exists: Quix Streams would create it."""
    from tidegauge.fleet.brokers import (
        BrokerErrors,
        check_topic,
        client_config,
        new_producer,
    )

    errors = BrokerErrors()
    producer = new_producer(client_config(settings.brokers, settings.config, errors))
    check_topic(producer, settings.brokers, settings.topic, errors, _BROKER_TIMEOUT)


@contextlib.contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """An error of the brokers or of the state ends the worker with one line."""
    from confluent_kafka import KafkaException
    from quixstreams.exceptions import QuixException

    try:
        yield
    except (KafkaException, QuixException) as error:
        raise OSError(_line(error)) from error
    except Exception as error:
        if type(error) is not Exception:
            raise
        # RocksDB's errors have no class of their own.
        raise OSError(f"cannot store the state: {_line(error)}") from error


def _exit_at_once(reason: str) -> None:
    """End the process while its main thread is in a call that does not return."""
    print_line(f"tidegauge: {reason}; restart the worker, which loses nothing", err=True)
    os._exit(1)


def _line(error: BaseException) -> str:
    # When a rebalance fails, only the cause says why.
    text = " ".join(str(error).split()) or type(error).__name__
    return text if error.__cause__ is None else f"{text}: {_line(error.__cause__)}"


def _log_warnings() -> None:
    """Warnings on standard error, a line each."""
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine("tidegauge: %(message)s"))
    for name in ("quixstreams", "tidegauge"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.WARNING)
        logger.addHandler(handler)
        logger.propagate = False


class _OneLine(VisibleLog):
    def formatException(self, ei: Any) -> str:  # noqa: N802 -- the base class's name
        return ""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(super().format(record).split())

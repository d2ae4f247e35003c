"""``tidegauge worker``: measures the runs of a fleet, as one of a group that shares a topic."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tidegauge.cli.collecting import seldom_collected
from tidegauge.cli.exposure import host_names, warn_if_exposed
from tidegauge.cli.secret import read_secret
from tidegauge.cli.worker_settings import SETTINGS
from tidegauge.errors import ConfigurationError, MissingExtraError

if TYPE_CHECKING:
    from tidegauge.exporters.prometheus import MetricsServer
    from tidegauge.fleet.worker import Worker, WorkerSettings
    from tidegauge.policies import Policy

__all__ = ["worker"]

_PATIENCE: Final = 10.0


@click.command(context_settings={"max_content_width": 100})
@click.option(
    "--config",
    metavar="FILE",
    envvar="TIDEGAUGE_WORKER_CONFIG",
    type=click.Path(dir_okay=False),
    help="A TOML file with any of the settings below, by their names with _ for -.",
)
@SETTINGS.options
def worker(*, config: str | None, **flags: str | None) -> None:
    """Measure the runs of a fleet: what the gateways have written to a Kafka topic.

    Start as many as you like under one --group: the topic's partitions are shared among them, and
    the live runs of one that goes are gone on with by the others. Each has its /metrics; what
    became of runs is written to TOPIC.summaries, what a policy decides to TOPIC.decisions
    ('tidegauge decisions' serves it to agents), what cannot be read to TOPIC.dead-letters.

    \b
    Examples:
      tidegauge serve --kafka broker:9092 --topic agents     the gateway before it
      tidegauge worker --kafka broker:9092 --topic agents
      tidegauge worker --kafka broker:9092 --topic agents --policy loop_repeats=3
      tidegauge worker --config worker.toml --state-dir /var/lib/tidegauge

    A setting is taken from its flag, else from the variable TIDEGAUGE_WORKER_ and its name
    (TIDEGAUGE_WORKER_STATE_DIR), else from the file.

    SIGTERM and Ctrl-C: what was done is made to last, exit code 0. Exit code 1: the brokers cannot
    be reached, or state not be kept; 2: wrong usage.
    """
    told = SETTINGS.read(flags, config)
    for name in ("kafka", "topic"):
        if told[name] is None:
            raise ConfigurationError(f"{name} is to be said: there is nothing to read without it")
    if told["metrics_port"] is None:
        raise ConfigurationError("metrics_port cannot be off: without metrics there is no use")
    _log_warnings()
    if find_spec("quixstreams") is None:
        raise MissingExtraError("quixstreams", extra="worker")
    from tidegauge.fleet.worker import Worker

    settings = _settings(told)
    _check(settings)
    with _told_in_a_line():
        one = Worker(settings)
    server = _metrics_server(told, one)
    try:
        if server.page_url is not None:
            click.echo(f"live page: {server.page_url}")
        click.echo(f"metrics: {server.url}")
        if told["tls_client_ca"] is None:
            warn_if_exposed(
                told["host"],
                "read the metrics and the live page",
                "set tls_client_ca, or restrict who reaches the port",
            )
        with _told_in_a_line(), seldom_collected():
            one.run()
        click.echo("stopped: what was done is committed")
    finally:
        server.stop()


def _settings(told: dict[str, Any]) -> WorkerSettings:
    from tidegauge.cli.kafka_config import read_kafka_config
    from tidegauge.fleet.worker import WorkerSettings
    from tidegauge.instrumentation.otlp.limits import AssemblyLimits
    from tidegauge.instrumentation.spans.watched import RunDefaults

    config, key_file = told["kafka_config"], told["digest_key_file"]
    return WorkerSettings(
        brokers=told["kafka"],
        topic=told["topic"],
        group=told["group"],
        state_dir=Path(told["state_dir"]),
        config={} if config is None else read_kafka_config(config),
        policy=_policy(told["policy"]),
        defaults=RunDefaults(task_group=told["task_group"]),
        limits=AssemblyLimits(
            settle_seconds=told["settle_seconds"],
            idle_seconds=told["idle_seconds"],
            traces=told["max_traces"],
            runs=told["max_runs"],
            spans=told["max_remembered_spans"],
        ),
        max_kept_bytes=told["max_kept_bytes"],
        t_max=told["t_max"],
        commit_seconds=told["commit_seconds"],
        exactly_once=told["exactly_once"],
        page=told["page"],
        digest_key=None if key_file is None else read_secret(key_file, "key").encode(),
    )


def _policy(told: str | None) -> Policy:
    from tidegauge.pipeline import Settings
    from tidegauge.policies import parse_rules, read_policy

    if told is None:
        return Settings().decides()
    if told.endswith(".toml"):
        return read_policy(told).policy()
    return Settings(rules=parse_rules(told)).decides()


def _check(settings: WorkerSettings) -> None:
    """Whether the topic is there: Quix Streams would make one."""
    from tidegauge.instrumentation.kafka.brokers import (
        Complaints,
        check_topic,
        client_config,
        new_producer,
    )

    complaints = Complaints()
    producer = new_producer(client_config(settings.brokers, settings.config, complaints))
    check_topic(producer, settings.brokers, settings.topic, complaints, _PATIENCE)


@contextlib.contextmanager
def _told_in_a_line() -> Iterator[None]:
    """What goes wrong with brokers or with state ends the worker with one line."""
    from confluent_kafka import KafkaException
    from quixstreams.exceptions import QuixException

    try:
        yield
    except (KafkaException, QuixException) as error:
        raise OSError(_line(error)) from error
    except Exception as error:
        if type(error) is not Exception:
            raise
        raise OSError(f"state cannot be kept: {_line(error)}") from error  # RocksDB's have no class


def _line(error: BaseException) -> str:
    # Quix Streams says of what fails in a rebalance only that it did.
    told = " ".join(str(error).split()) or type(error).__name__
    return told if error.__cause__ is None else f"{told}: {_line(error.__cause__)}"


def _log_warnings() -> None:
    """Warnings on standard error, a line each."""
    handler = logging.StreamHandler()
    handler.setFormatter(_OneLine("tidegauge: %(message)s"))
    for name in ("quixstreams", "tidegauge"):
        logger = logging.getLogger(name)
        logger.setLevel(logging.WARNING)
        logger.addHandler(handler)
        logger.propagate = False


class _OneLine(logging.Formatter):
    def formatException(self, ei: Any) -> str:  # noqa: N802 -- the base class's name
        return ""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(super().format(record).split())


def _metrics_server(told: dict[str, Any], one: Worker) -> MetricsServer:
    from tidegauge.exporters.prometheus import MetricsServer

    host, port = told["host"], told["metrics_port"]
    try:
        return MetricsServer(
            one.engine,
            host=host,
            port=port,
            place_label=one.spans.exported_place,
            certificate=told["tls_certificate"],
            key=told["tls_key"],
            client_ca=told["tls_client_ca"],
            more=one.metrics,
            probes={"/healthz": lambda: one.alive, "/readyz": lambda: one.ready},
            page=one.page,
            allowed_hosts=host_names(told["allowed_hosts"]),
        )
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"cannot listen on {host}:{port} for metrics: {why}") from error

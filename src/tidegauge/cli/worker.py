"""``tidegauge worker``: measures the runs of a fleet, in a group of workers that shares a topic."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tidegauge.cli.collecting import seldom_collected
from tidegauge.cli.exposure import warn_if_exposed
from tidegauge.cli.metrics_server import require_metrics_port, start_metrics_server
from tidegauge.cli.secret import read_secret
from tidegauge.cli.shared_settings import assembly_limits
from tidegauge.cli.worker_settings import SETTINGS
from tidegauge.errors import ConfigurationError, MissingExtraError

if TYPE_CHECKING:
    from tidegauge.fleet.worker import WorkerSettings
    from tidegauge.policies import Policy

__all__ = ["worker"]

_PATIENCE: Final = 10.0


@click.command(context_settings={"max_content_width": 100})
@SETTINGS.options
def worker(*, config: str | None, **flags: str | None) -> None:
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
    values = SETTINGS.read(flags, config)
    for name in ("kafka", "topic"):
        if values[name] is None:
            raise ConfigurationError(f"{name} must be set: there is nothing to read without it")
    require_metrics_port(values)
    _log_warnings()
    if find_spec("quixstreams") is None:
        raise MissingExtraError("quixstreams", extra="worker")
    from tidegauge.fleet.worker import Worker

    settings = _settings(values)
    _check(settings)
    with _errors_in_one_line():
        one = Worker(settings)
    server = start_metrics_server(
        one.engine,
        values,
        place_label=one.spans.exported_place,
        more=one.metrics,
        probes={"/healthz": lambda: one.alive, "/readyz": lambda: one.ready},
        page=one.page,
    )
    try:
        if server.page_url is not None:
            click.echo(f"live page: {server.page_url}")
        click.echo(f"metrics: {server.url}")
        if values["tls_client_ca"] is None:
            warn_if_exposed(
                values["host"],
                "read the metrics and the live page",
                "set tls_client_ca, or restrict who reaches the port",
            )
        with _errors_in_one_line(), seldom_collected():
            one.run()
        click.echo("stopped: what was done is committed")
    finally:
        server.stop()


def _settings(values: dict[str, Any]) -> WorkerSettings:
    from tidegauge.cli.kafka_config import read_kafka_config
    from tidegauge.fleet.worker import WorkerSettings
    from tidegauge.instrumentation.spans.watched import RunDefaults

    config, key_file = values["kafka_config"], values["digest_key_file"]
    return WorkerSettings(
        brokers=values["kafka"],
        topic=values["topic"],
        group=values["group"],
        state_dir=Path(values["state_dir"]),
        config={} if config is None else read_kafka_config(config),
        policy=_policy(values["policy"]),
        defaults=RunDefaults(task_group=values["task_group"]),
        limits=assembly_limits(values),
        max_kept_bytes=values["max_kept_bytes"],
        t_max=values["t_max"],
        commit_seconds=values["commit_seconds"],
        exactly_once=values["exactly_once"],
        page=values["page"],
        digest_key=None if key_file is None else read_secret(key_file, "key").encode(),
    )


def _policy(values: str | None) -> Policy:
    from tidegauge.pipeline import Settings
    from tidegauge.policies import parse_rules, read_policy

    if values is None:
        return Settings().decides()
    if values.endswith(".toml"):
        return read_policy(values).policy()
    return Settings(rules=parse_rules(values)).decides()


def _check(settings: WorkerSettings) -> None:
    """Check that the topic exists: Quix Streams would create it."""
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
        raise OSError(
            f"state cannot be stored: {_line(error)}"
        ) from error  # RocksDB's have no class


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


class _OneLine(logging.Formatter):
    def formatException(self, ei: Any) -> str:  # noqa: N802 -- the base class's name
        return ""

    def format(self, record: logging.LogRecord) -> str:
        return " ".join(super().format(record).split())

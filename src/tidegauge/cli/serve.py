"""``tidegauge serve``: the standalone OTLP receiver."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import click

from tidegauge.cli.collecting import seldom_collected
from tidegauge.cli.exposure import host_names, tls_files, warn_if_exposed
from tidegauge.cli.metrics_server import start_metrics_server
from tidegauge.cli.secret import read_secret, read_token
from tidegauge.cli.serve_settings import SETTINGS
from tidegauge.cli.shared_settings import assembly_limits
from tidegauge.errors import ConfigurationError

if TYPE_CHECKING:
    from tidegauge.exporters.prometheus import MetricsServer
    from tidegauge.instrumentation.kafka.gateway import Gateway
    from tidegauge.instrumentation.otlp.receiver import Receiver, ReceiverSettings
    from tidegauge.pipeline import Pipeline

__all__ = ["serve"]

_TOKEN = "TIDEGAUGE_SERVE_TOKEN"  # noqa: S105 -- the name of a variable
_FORWARD_TOKEN = "TIDEGAUGE_SERVE_FORWARD_TOKEN"  # noqa: S105


@click.command(context_settings={"max_content_width": 100})
@SETTINGS.options
def serve(*, config: str | None, **flags: str | None) -> None:
    """Receive the spans of agents in any language, and serve their metrics.

    Point the OTLP exporter of your agents here (OTEL_EXPORTER_OTLP_ENDPOINT), Prometheus at
    /metrics, and a browser at /. Spans of the OpenTelemetry GenAI conventions, OpenInference,
    OpenLLMetry and pydantic-ai become runs and steps; all others are accepted and ignored.

    \b
    Examples:
      tidegauge serve
      tidegauge serve --host 0.0.0.0 --token-file token --tls-certificate c.pem --tls-key k.pem
      tidegauge serve --forward-to http://collector:4318   see all, keep your backend
      tidegauge serve --config serve.toml
      tidegauge serve --kafka broker:9092 --topic agents   a gateway of a fleet

    A setting is taken from its flag, else from the variable TIDEGAUGE_SERVE_ and its name
    (TIDEGAUGE_SERVE_GRPC_PORT), else from the file. The bearer token may also be in
    TIDEGAUGE_SERVE_TOKEN, that of the forward_to endpoint in TIDEGAUGE_SERVE_FORWARD_TOKEN.

    SIGTERM and Ctrl-C: stop receiving, measure and forward what was received, exit code 0.
    Exit code 1: cannot listen on a port, read a file, or reach the brokers;
    2: wrong usage.
    """
    values = SETTINGS.read(flags, config)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    _check_gateway(values)
    settings = _receiver_settings(values)
    pipeline = _pipeline(values)
    try:
        _serve(values, settings, pipeline, stop)
    finally:
        pipeline.shutdown()


def _serve(
    values: dict[str, Any], settings: ReceiverSettings, pipeline: Pipeline, stop: threading.Event
) -> None:
    from tidegauge.instrumentation.otlp.receiver import Receiver

    gateway = None if values["kafka"] is None else _gateway(values)
    try:
        receiver = Receiver(settings, gateway)
    except BaseException:
        if gateway is not None:
            gateway.close(0.0)
        raise
    done = "measured" if gateway is None else "delivered"
    metrics = None
    try:
        metrics = _metrics_server(values, pipeline, receiver, lambda: not stop.is_set())
        for name, url in receiver.urls.items():
            click.echo(f"OTLP over {name.replace('http', 'HTTP').replace('grpc', 'gRPC')}: {url}")
        if metrics.page_url is not None:
            click.echo(f"live page: {metrics.page_url}")
        click.echo(f"metrics: {metrics.url}")
        _warn_if_exposed(values, settings)
        with seldom_collected():
            stop.wait()
        click.echo(f"stopping: what was received is {done}")
    finally:
        # Metrics last: the numbers of what was drained may still be scraped.
        drained = receiver.stop(values["shutdown_seconds"])
        if metrics is not None:
            metrics.stop()
    if not drained:
        click.echo(f"stopped; not everything received could be {done} and forwarded", err=True)


def _warn_if_exposed(values: dict[str, Any], settings: ReceiverSettings) -> None:
    if values["tls_client_ca"] is not None:
        return
    what, protection = "read the metrics and the live page", "set tls_client_ca"
    if settings.token is None:
        what, protection = f"send spans and {what}", f"set token_file and TLS, or {protection}"
    warn_if_exposed(values["host"], what, f"{protection}, or restrict who reaches the ports")


def _pipeline(values: dict[str, Any]) -> Pipeline:
    from tidegauge.pipeline import configure
    from tidegauge.policies import parse_rules, read_policy

    settings: dict[str, Any] = {
        "observe_only": True,  # the agents run elsewhere
        "serve_metrics": False,
        "page": values["page"] and values["kafka"] is None,  # a gateway has no runs to show
        "page_contents": values["page_contents"],
        "max_runs": values["max_runs"],
        # The assembly of traces ends idle runs first, and gives the reason.
        "idle_seconds": values["idle_seconds"] * 2 or 1.0,
        "t_max": values["t_max"],
        "record_to": values["record_to"],
    }
    policy = values["policy"]
    if policy is not None and policy.endswith(".toml"):
        read_policy(policy)  # reports errors in it at once
        settings["policy"] = policy
    elif policy is not None:
        settings["rules"] = parse_rules(policy)
    return configure(**settings)


def _receiver_settings(values: dict[str, Any]) -> ReceiverSettings:
    from tidegauge.instrumentation.otlp.limits import ReadLimits
    from tidegauge.instrumentation.otlp.listening import Listening
    from tidegauge.instrumentation.otlp.receiver import ReceiverSettings
    from tidegauge.instrumentation.otlp.sending import Forwarding
    from tidegauge.instrumentation.spans.watched import RunDefaults

    def listening(port: int | None) -> Listening | None:
        if port is None:
            return None
        most = values["max_request_bytes"], values["max_connections"]
        return Listening(
            values["host"], port, *most, allowed_hosts=host_names(values["allowed_hosts"])
        )

    forwarding = None
    if values["forward_to"] is not None:
        token = read_token(values["forward_token_file"], _FORWARD_TOKEN, sent=True)
        forwarding = Forwarding(
            values["forward_to"],
            {} if token is None else {"Authorization": f"Bearer {token}"},
            values["forward_queue_bytes"],
            values["forward_timeout"],
            values["forward_give_up_after"],
            values["forward_ca"],
        )
    return ReceiverSettings(
        grpc=listening(values["grpc_port"]),
        http=listening(values["http_port"]),
        tls=tls_files(values),
        token=read_token(values["token_file"], _TOKEN),
        defaults=RunDefaults(task_group=values["task_group"]),
        read=ReadLimits(
            values["max_request_spans"], values["max_attributes"], values["max_attribute_length"]
        ),
        assembly=assembly_limits(values),
        queued_spans=values["max_queued_spans"],
        forwarding=forwarding,
    )


def _check_gateway(values: dict[str, Any]) -> None:
    """Whether the settings of a gateway go together: before anything is started."""
    if values["kafka"] is None:
        for name in ("topic", "kafka_config", "kafka_digest_key_file"):
            if values[name] is not None:
                raise ConfigurationError(f"{name} is of no use without kafka")
        return
    if values["topic"] is None:
        raise ConfigurationError("kafka and topic go together")
    for name in ("policy", "record_to", "task_group", "t_max"):
        if values[name] is not None:
            raise ConfigurationError(
                f"{name} does not go with kafka: nothing is measured here, set it where the worker "
                "runs"
            )


def _gateway(values: dict[str, Any]) -> Gateway:
    from tidegauge.cli.kafka_config import read_kafka_config
    from tidegauge.exporters.jsonl import Contents
    from tidegauge.instrumentation.kafka.gateway import Gateway, GatewaySettings

    config, digest = values["kafka_config"], _digest(values["kafka_digest_key_file"])
    return Gateway(
        GatewaySettings(
            brokers=values["kafka"],
            topic=values["topic"],
            shown=Contents(digest, plain=values["kafka_contents"]),
            digests=Contents(digest, plain=False),
            config={} if config is None else read_kafka_config(config),
            queue_bytes=values["kafka_queue_bytes"],
        )
    )


def _digest(key_file: str | None) -> Callable[[bytes], str]:
    """What is sent in place of a digest."""
    if key_file is None:
        return bytes.hex
    key = read_secret(key_file, "key").encode()
    if len(key) > blake2b.MAX_KEY_SIZE:
        raise ConfigurationError(f"{key_file}: the key must have at most 64 bytes")
    return lambda digest: blake2b(digest, digest_size=16, key=key).hexdigest()


def _metrics_server(
    values: dict[str, Any], pipeline: Pipeline, receiver: Receiver, running: Callable[[], bool]
) -> MetricsServer:
    return start_metrics_server(
        pipeline.engine,
        values,
        place_label=pipeline.recorder.spans.exported_place,
        more=lambda: {**pipeline.more_metrics(), **receiver.metrics()},
        probes={
            "/healthz": lambda: receiver.ready or not running(),
            "/readyz": lambda: receiver.ready and running(),
        },
        page=pipeline.page,
    )

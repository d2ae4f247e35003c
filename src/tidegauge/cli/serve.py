"""``tidegauge serve``: the standalone OTLP receiver."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import click

from tidegauge.cli.collecting import seldom_collected
from tidegauge.cli.exposure import host_names, warn_if_exposed
from tidegauge.cli.secret import read_secret, read_token
from tidegauge.cli.serve_settings import SETTINGS
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
@click.option(
    "--config",
    metavar="FILE",
    envvar="TIDEGAUGE_SERVE_CONFIG",
    type=click.Path(dir_okay=False),
    help="A TOML file with any of the settings below, by their names with _ for -.",
)
@SETTINGS.options
def serve(*, config: str | None, **flags: str | None) -> None:
    """Receive the spans of agents in any language, and serve their metrics.

    Point the OTLP exporter of your agents here (OTEL_EXPORTER_OTLP_ENDPOINT), Prometheus at
    /metrics, and a browser at /. Spans of the OpenTelemetry GenAI conventions, OpenInference,
    OpenLLMetry and pydantic-ai become runs and steps; all others are taken, and left alone.

    \b
    Examples:
      tidegauge serve
      tidegauge serve --host 0.0.0.0 --token-file token --tls-certificate c.pem --tls-key k.pem
      tidegauge serve --forward-to http://collector:4318   see all, keep your backend
      tidegauge serve --config serve.toml
      tidegauge serve --kafka broker:9092 --topic agents   a gateway of a fleet

    A setting is taken from its flag, else from the variable TIDEGAUGE_SERVE_ and its name
    (TIDEGAUGE_SERVE_GRPC_PORT), else from the file. The bearer token may also be in
    TIDEGAUGE_SERVE_TOKEN, that of the endpoint behind in TIDEGAUGE_SERVE_FORWARD_TOKEN.

    SIGTERM and Ctrl-C: no more is taken, what was taken is measured and passed on, exit code 0.
    Exit code 1: a port cannot be listened on, a file not be read, or brokers not be reached;
    2: wrong usage.
    """
    told = SETTINGS.read(flags, config)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    _check_gateway(told)
    settings = _receiver_settings(told)
    pipeline = _pipeline(told)
    try:
        _serve(told, settings, pipeline, stop)
    finally:
        pipeline.shutdown()


def _serve(
    told: dict[str, Any], settings: ReceiverSettings, pipeline: Pipeline, stop: threading.Event
) -> None:
    from tidegauge.instrumentation.otlp.receiver import Receiver

    gateway = None if told["kafka"] is None else _gateway(told)
    try:
        receiver = Receiver(settings, gateway)
    except BaseException:
        if gateway is not None:
            gateway.close(0.0)
        raise
    done = "measured" if gateway is None else "delivered"
    metrics = None
    try:
        metrics = _metrics_server(told, pipeline, receiver, lambda: not stop.is_set())
        for name, url in receiver.urls.items():
            click.echo(f"OTLP over {name.replace('http', 'HTTP').replace('grpc', 'gRPC')}: {url}")
        if metrics.page_url is not None:
            click.echo(f"live page: {metrics.page_url}")
        click.echo(f"metrics: {metrics.url}")
        _warn_if_exposed(told, settings)
        with seldom_collected():
            stop.wait()
        click.echo(f"stopping: what was taken is {done}")
    finally:
        # Metrics last: the numbers of what was drained may still be scraped.
        drained = receiver.stop(told["shutdown_seconds"])
        if metrics is not None:
            metrics.stop()
    if not drained:
        click.echo(f"stopped; not all that was taken could be {done} and passed on", err=True)


def _warn_if_exposed(told: dict[str, Any], settings: ReceiverSettings) -> None:
    if told["tls_client_ca"] is not None:
        return
    what, protection = "read the metrics and the live page", "set tls_client_ca"
    if settings.token is None:
        what, protection = f"send spans and {what}", f"set token_file and TLS, or {protection}"
    warn_if_exposed(told["host"], what, f"{protection}, or restrict who reaches the ports")


def _pipeline(told: dict[str, Any]) -> Pipeline:
    from tidegauge.pipeline import configure
    from tidegauge.policies import parse_rules, read_policy

    settings: dict[str, Any] = {
        "observe_only": True,  # the agents are elsewhere
        "serve_metrics": False,
        "page": told["page"] and told["kafka"] is None,  # there is nothing to be seen
        "page_contents": told["page_contents"],
        "max_runs": told["max_runs"],
        "idle_seconds": told["idle_seconds"] * 2 or 1.0,  # the assembly knows first, and tells why
        "t_max": told["t_max"],
        "record_to": told["record_to"],
    }
    policy = told["policy"]
    if policy is not None and policy.endswith(".toml"):
        read_policy(policy)  # says at once what is wrong with it
        settings["policy"] = policy
    elif policy is not None:
        settings["rules"] = parse_rules(policy)
    return configure(**settings)


def _receiver_settings(told: dict[str, Any]) -> ReceiverSettings:
    from tidegauge.instrumentation.otlp.limits import AssemblyLimits, ReadLimits
    from tidegauge.instrumentation.otlp.listening import Listening
    from tidegauge.instrumentation.otlp.receiver import ReceiverSettings
    from tidegauge.instrumentation.otlp.sending import Forwarding
    from tidegauge.instrumentation.spans.watched import RunDefaults

    def listening(port: int | None) -> Listening | None:
        if port is None:
            return None
        most = told["max_request_bytes"], told["max_connections"]
        return Listening(told["host"], port, *most, allowed_hosts=host_names(told["allowed_hosts"]))

    forwarding = None
    if told["forward_to"] is not None:
        token = read_token(told["forward_token_file"], _FORWARD_TOKEN)
        forwarding = Forwarding(
            told["forward_to"],
            {} if token is None else {"Authorization": f"Bearer {token}"},
            told["forward_queue_bytes"],
            told["forward_timeout"],
            told["forward_give_up_after"],
            told["forward_ca"],
        )
    return ReceiverSettings(
        grpc=listening(told["grpc_port"]),
        http=listening(told["http_port"]),
        tls=_tls(told),
        token=read_token(told["token_file"], _TOKEN),
        defaults=RunDefaults(task_group=told["task_group"]),
        read=ReadLimits(
            told["max_request_spans"], told["max_attributes"], told["max_attribute_length"]
        ),
        assembly=AssemblyLimits(
            settle_seconds=told["settle_seconds"],
            idle_seconds=told["idle_seconds"],
            traces=told["max_traces"],
            runs=told["max_runs"],
            spans=told["max_remembered_spans"],
        ),
        queued_spans=told["max_queued_spans"],
        forwarding=forwarding,
    )


def _check_gateway(told: dict[str, Any]) -> None:
    """Whether the settings of a gateway go together: before anything is started."""
    if told["kafka"] is None:
        for name in ("topic", "kafka_config", "kafka_digest_key_file"):
            if told[name] is not None:
                raise ConfigurationError(f"{name} is of no use without kafka")
        return
    if told["topic"] is None:
        raise ConfigurationError("kafka and topic go together")
    for name in ("policy", "record_to", "task_group", "t_max"):
        if told[name] is not None:
            raise ConfigurationError(
                f"{name} does not go with kafka: nothing is measured here, set it where the worker "
                "runs"
            )


def _gateway(told: dict[str, Any]) -> Gateway:
    from tidegauge.cli.kafka_config import read_kafka_config
    from tidegauge.exporters.jsonl import Contents
    from tidegauge.instrumentation.kafka.gateway import Gateway, GatewaySettings

    config, digest = told["kafka_config"], _digest(told["kafka_digest_key_file"])
    return Gateway(
        GatewaySettings(
            brokers=told["kafka"],
            topic=told["topic"],
            shown=Contents(digest, plain=told["kafka_contents"]),
            digests=Contents(digest, plain=False),
            config={} if config is None else read_kafka_config(config),
            queue_bytes=told["kafka_queue_bytes"],
        )
    )


def _digest(key_file: str | None) -> Callable[[bytes], str]:
    """What is sent in place of a digest."""
    if key_file is None:
        return bytes.hex
    key = read_secret(key_file, "key").encode()
    if len(key) > blake2b.MAX_KEY_SIZE:
        raise ConfigurationError(f"{key_file}: the key is to have 64 bytes at most")
    return lambda digest: blake2b(digest, digest_size=16, key=key).hexdigest()


def _tls(told: dict[str, Any]) -> Any:
    from tidegauge.instrumentation.otlp.listening import Tls

    certificate, key, client_ca = (
        told[name] for name in ("tls_certificate", "tls_key", "tls_client_ca")
    )
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None or key is None:
        raise ConfigurationError("tls_certificate and tls_key go together")
    return Tls(certificate, key, client_ca)


def _metrics_server(
    told: dict[str, Any], pipeline: Pipeline, receiver: Receiver, going_on: Callable[[], bool]
) -> MetricsServer:
    from tidegauge.exporters.prometheus import MetricsServer

    host, port = told["host"], told["metrics_port"]
    if port is None:
        raise ConfigurationError("metrics_port cannot be off: without metrics there is no use")
    try:
        return MetricsServer(
            pipeline.engine,
            host=host,
            port=port,
            place_label=pipeline.recorder.spans.exported_place,
            certificate=told["tls_certificate"],
            key=told["tls_key"],
            client_ca=told["tls_client_ca"],
            more=lambda: {**pipeline.more_metrics(), **receiver.metrics()},
            probes={
                "/healthz": lambda: receiver.ready or not going_on(),
                "/readyz": lambda: receiver.ready and going_on(),
            },
            page=pipeline.page,
            allowed_hosts=host_names(told["allowed_hosts"]),
        )
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"cannot listen on {host}:{port} for metrics: {why}") from error

"""``tidegauge serve``: the standalone OTLP receiver."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import click

from tidegauge.catalog import DROPPED_LINES
from tidegauge.cli.command_settings import (
    COUNT,
    FILE,
    POLICY,
    PORT_OR_OFF,
    SECONDS,
    SWITCH,
    TEXT,
    URL,
    number,
    setting,
    settings_options,
)
from tidegauge.cli.server_settings import (
    PRICES_HELP,
    RUNBOOKS_HELP,
    MeasuringSettings,
    given_policy,
    print_metrics_addresses,
    rarely_collected,
    read_key,
    read_token,
    returning_memory,
    set_on_signal,
)
from tidegauge.cli.terminal import print_line
from tidegauge.errors import ConfigurationError

if TYPE_CHECKING:
    from tidegauge.fleet.gateway import Gateway
    from tidegauge.net.listener import Listener
    from tidegauge.pipeline import Pipeline
    from tidegauge.receivers.forwarding import Forwarding
    from tidegauge.receivers.receiver import ReceiverSettings

_TOKEN: Final = "TIDEGAUGE_SERVE_TOKEN"  # noqa: S105 -- the name of a variable
_FORWARD_TOKEN: Final = "TIDEGAUGE_SERVE_FORWARD_TOKEN"  # noqa: S105
_MEBIBYTE: Final = 1024 * 1024
_PENDING: Final = 3
"""The part of the memory of what is open that calls may take which wait for spans around them."""
_CLOSING: Final = 0.1
"""Share of the time for the shutdown in which files and providers are closed."""

# The operating system cannot wait for any time: a day is long enough.
_UP_TO_A_DAY: Final = number(float, "SECONDS", 0, 86_400)


@dataclass(frozen=True, kw_only=True)
class ServeSettings(MeasuringSettings):
    """Settings of ``tidegauge serve``."""

    grpc_port: int | None = setting(PORT_OR_OFF, 4317, "OTLP over gRPC; off disables it.")
    http_port: int | None = setting(PORT_OR_OFF, 4318, "OTLP over HTTP; off disables it.")
    page_contents: bool = setting(SWITCH, False, "Show arguments and results on the live page.")
    trace_url: str | None = setting(
        TEXT, None, "Address of the page of a trace, with {trace_id} in it, for the live page."
    )
    prices: str | None = setting(FILE, None, PRICES_HELP)
    runbooks: str | None = setting(URL, None, RUNBOOKS_HELP)
    policy: str | None = setting(
        POLICY,
        None,
        "Rules that are counted when they would have stopped a run, as in "
        "loop_repeats=3,steps=50, or the file of a policy (.toml). TIDEGAUGE_POLICY can name "
        "it, too. Nothing is stopped: the agents run elsewhere.",
    )
    record_to: str | None = setting(
        FILE, None, "Record the runs as step events in this file, for replay."
    )
    token_file: str | None = setting(FILE, None, "Senders must send the bearer token in this file.")
    forward_to: str | None = setting(
        TEXT,
        None,
        "Forward the requests to this OTLP endpoint: http://HOST:4318 or grpc://HOST:4317.",
    )
    forward_token_file: str | None = setting(FILE, None, "Bearer token for that endpoint.")
    forward_ca: str | None = setting(FILE, None, "Trust only these certificates for that endpoint.")
    forward_queue_bytes: int = setting(
        COUNT, 64 * _MEBIBYTE, "Bytes that may wait for that endpoint."
    )
    forward_timeout: float = setting(_UP_TO_A_DAY, 10.0, "Time limit of one attempt to forward.")
    forward_give_up_after: float = setting(
        SECONDS, 60.0, "Drop a request that could not be forwarded for this long."
    )
    kafka: str | None = setting(
        TEXT,
        None,
        "Run as a gateway of a fleet: send the spans to these brokers (HOST:PORT, separated "
        "by commas) for tidegauge worker to measure. Nothing is measured here.",
    )
    topic: str | None = setting(TEXT, None, "The topic to write to; it must exist.")
    kafka_contents: bool = setting(
        SWITCH, False, "Send arguments, results and tasks in plain text; off, send digests of them."
    )
    kafka_digest_key_file: str | None = setting(
        FILE,
        None,
        "File with the key of these digests, the same for all gateways. Without a key, short "
        "contents can be guessed.",
    )
    kafka_queue_bytes: int = setting(
        COUNT,
        64 * _MEBIBYTE,
        "Bytes that may wait for the brokers; beyond this, senders must wait.",
    )
    max_request_bytes: int = setting(
        number(int, "N", 1, 1024 * _MEBIBYTE),
        16 * _MEBIBYTE,
        help="Size limit of a request, also after decompression.",
    )
    max_request_spans: int = setting(COUNT, 100_000, "Spans read from one request.")
    max_attributes: int = setting(COUNT, 2_000, "Attributes read from one span.")
    max_attribute_length: int = setting(COUNT, 1_048_576, "Characters read from one attribute.")
    max_connections: int = setting(
        COUNT, 64, "Limit of connections (HTTP) and of concurrent requests (gRPC)."
    )
    max_state_bytes: int = setting(
        COUNT,
        160 * _MEBIBYTE,
        "Memory of the open traces and runs, in bytes; beyond this, those idle for longest are "
        "ended.",
    )
    max_queued_spans: int = setting(
        COUNT, 100_000, "Spans that may wait; beyond this, senders must wait."
    )
    shutdown_seconds: float = setting(
        _UP_TO_A_DAY,
        10.0,
        "Time limit of the shutdown. What there is no time for is lost, and counted in a line.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.kafka is None:
            for name in ("topic", "kafka_config", "kafka_digest_key_file"):
                if getattr(self, name) is not None:
                    raise ConfigurationError(f"{name} has no effect without kafka; set kafka, too")
            return
        if self.topic is None:
            raise ConfigurationError("kafka needs a topic; set topic, too")
        for name in ("policy", "record_to", "task_group", "t_max"):
            if getattr(self, name) is not None:
                raise ConfigurationError(
                    f"{name} cannot be combined with kafka, because a gateway measures nothing; "
                    "set it for the worker"
                )


@click.command()
@settings_options(ServeSettings, "TIDEGAUGE_SERVE")
def serve(settings: ServeSettings) -> None:
    """Receive the spans of agents in any language, and serve their metrics.

    Point the OTLP exporter of your agents here (OTEL_EXPORTER_OTLP_ENDPOINT), Prometheus at
    /metrics, and a browser at /. Agents' spans become runs and steps, by whatever convention of
    docs/external-spans.md (OpenTelemetry GenAI, OpenInference, OpenLLMetry, Langfuse and others);
    all other spans are accepted and ignored.

    \b
    Examples:
      tidegauge serve
      tidegauge serve --host 0.0.0.0 --token-file token \\
                      --tls-certificate c.pem --tls-key k.pem
      tidegauge serve --forward-to http://collector:4318  keeps your backend
      tidegauge serve --config serve.toml
      tidegauge serve --kafka broker:9092 --topic agents  a gateway of a fleet

    A setting is taken from its flag, else from the variable TIDEGAUGE_SERVE_ and its name
    (TIDEGAUGE_SERVE_GRPC_PORT), else from the file. The bearer token may also be in
    TIDEGAUGE_SERVE_TOKEN, that of the forward_to endpoint in TIDEGAUGE_SERVE_FORWARD_TOKEN.

    SIGTERM and Ctrl-C: stop receiving, measure and forward what was received, end the open runs,
    exit code 0; a line counts what --shutdown-seconds was too short for.
    Exit code 1: cannot listen on a port, read a file, or reach the brokers;
    2: wrong usage.
    """
    stop = set_on_signal()
    returning_memory()
    receiver_settings = _receiver_settings(settings)
    pipeline = _pipeline(settings)
    lost: list[str] = []
    try:
        lost += _serve(settings, receiver_settings, pipeline, stop)
    finally:
        pipeline.shutdown(_CLOSING * settings.shutdown_seconds)
    counts: Mapping[tuple[str, ...], Any] = pipeline.more_metrics().get(DROPPED_LINES, {})
    if lines := float(sum(counts.values())):
        lost.append(f"the recording lacks {lines:,.0f} lines")
    if lost:
        print_line(f"stopped, but {', '.join(lost)}", err=True)


def _serve(
    settings: ServeSettings,
    receiver_settings: ReceiverSettings,
    pipeline: Pipeline,
    stop: threading.Event,
) -> list[str]:
    """Serve until the signal; what is lost then, in words."""
    from tidegauge.exporters.reading import Reader
    from tidegauge.receivers.receiver import Receiver

    gateway = _gateway(settings)
    try:
        receiver = Receiver(receiver_settings, gateway)
    except BaseException:
        if gateway is not None:
            gateway.close(0.0)
        raise
    done = "measured" if gateway is None else "delivered"
    metrics = None
    stopping = contextlib.ExitStack()
    try:
        # A gateway has a metrics server, too, for its own health.
        reader = Reader(
            pipeline.engine,
            place_label=pipeline.recorder.spans.exported_place,
            more=lambda: {**pipeline.more_metrics(), **receiver.metrics()},
        )
        metrics = settings.start_metrics_server(
            reader,
            probes={
                "/healthz": lambda: receiver.ready or stop.is_set(),
                "/readyz": lambda: receiver.ready and not stop.is_set(),
            },
            page=pipeline.page,
        )
        if pipeline.page is not None:
            pipeline.page.invite(*invitation(receiver.urls))
        for name, url in receiver.urls.items():
            print_line(f"OTLP over {name.replace('http', 'HTTP').replace('grpc', 'gRPC')}: {url}")
        print_metrics_addresses(metrics)
        exposed, protection = "read the metrics and the live page", "set tls_client_ca"
        if receiver_settings.token is None:
            exposed = f"send spans and {exposed}"
            protection = f"set token_file and TLS, or {protection}"
        settings.warn_if_exposed(exposed, f"{protection}, or restrict who reaches the ports")
        stopping.enter_context(rarely_collected())  # also while it stops
        stop.wait()
        print_line(f"stopping: received spans are being {done}")
    finally:
        with stopping:
            # Metrics last: the numbers of what was drained may still be scraped.
            lost = receiver.stop((1 - _CLOSING) * settings.shutdown_seconds)
            if metrics is not None:
                metrics.close()
    return lost


def invitation(urls: Mapping[str, str]) -> tuple[str, str]:
    """What the empty page says: where spans are received, and how an agent sends them."""
    protocol = "http" if "http" in urls else "grpc"
    url = urls.get(protocol, "")
    lines = (
        f"export OTEL_EXPORTER_OTLP_ENDPOINT={url}",
        f"export OTEL_EXPORTER_OTLP_PROTOCOL={'http/protobuf' if protocol == 'http' else protocol}",
        "export OTEL_BSP_SCHEDULE_DELAY=200  # send often",
        "export OTEL_SERVICE_NAME=my-agent",
        "python my_agent.py  # an agent in any language that sends OpenTelemetry spans",
    )
    return f"Send spans to {url}, in the shell of an agent:", "\n".join(lines)


def _pipeline(settings: ServeSettings) -> Pipeline:
    from tidegauge.pipeline import configure
    from tidegauge.policies.prices import read_prices

    return configure(
        observe_only=True,  # the agents run elsewhere
        serve_metrics=False,
        page=settings.page and settings.kafka is None,  # a gateway has no runs to show
        page_contents=settings.page_contents,
        trace_url=settings.trace_url,
        prices={} if settings.prices is None else read_prices(settings.prices),
        runbooks=settings.runbooks,
        max_runs=settings.max_runs,
        # The assembly of traces ends idle runs first, and gives the reason.
        idle_seconds=settings.idle_seconds * 2 or 1.0,
        t_max=settings.t_max,
        detect_polls=settings.detect_polls,
        repetition=settings.repetition,
        record_to=settings.record_to,
        guard=settings.guard,
        guard_share=settings.guard_share,
        **given_policy(settings.policy),
    )


def _receiver_settings(settings: ServeSettings) -> ReceiverSettings:
    from tidegauge.foreign_spans.external_run import RunDefaults
    from tidegauge.receivers.decoding import ReadLimits
    from tidegauge.receivers.receiver import ReceiverSettings

    return ReceiverSettings(
        grpc=_listener(settings, settings.grpc_port),
        http=_listener(settings, settings.http_port),
        tls=settings.tls,
        token=read_token(settings.token_file, _TOKEN),
        defaults=RunDefaults(task_group=settings.task_group),
        read=ReadLimits(
            settings.max_request_spans, settings.max_attributes, settings.max_attribute_length
        ),
        assembly=settings.assembly_limits._replace(
            state_bytes=settings.max_state_bytes,
            pending_bytes=settings.max_state_bytes // _PENDING,
        ),
        queued_spans=settings.max_queued_spans,
        forwarding=_forwarding(settings),
    )


def _listener(settings: ServeSettings, port: int | None) -> Listener | None:
    from tidegauge.net.listener import Listener

    if port is None:
        return None
    return Listener(
        settings.host,
        port,
        max_bytes=settings.max_request_bytes,
        max_connections=settings.max_connections,
        allowed_hosts=settings.host_names,
    )


def _forwarding(settings: ServeSettings) -> Forwarding | None:
    from tidegauge.receivers.forwarding import Forwarding

    if settings.forward_to is None:
        return None
    token = read_token(settings.forward_token_file, _FORWARD_TOKEN, sent=True)
    return Forwarding(
        settings.forward_to,
        {} if token is None else {"Authorization": f"Bearer {token}"},
        settings.forward_queue_bytes,
        settings.forward_timeout,
        settings.forward_give_up_after,
        settings.forward_ca,
    )


def _gateway(settings: ServeSettings) -> Gateway | None:
    from tidegauge.recordings import ContentEncoder
    from tidegauge.streaming_metrics.normalise import volatile

    if settings.kafka is None or settings.topic is None:
        return None
    from tidegauge.fleet.gateway import Gateway, GatewaySettings

    digest = _digest(read_key(settings.kafka_digest_key_file))
    return Gateway(
        GatewaySettings(
            brokers=settings.kafka,
            topic=settings.topic,
            encoder=ContentEncoder(digest, plain=settings.kafka_contents, normaliser=volatile()),
            digests=ContentEncoder(digest, plain=False, normaliser=volatile()),
            config=settings.kafka_properties(),
            queue_bytes=settings.kafka_queue_bytes,
        )
    )


def _digest(key: bytes | None) -> Callable[[bytes], str]:
    """What is sent instead of a digest."""
    if key is None:
        return bytes.hex
    return lambda digest: blake2b(digest, digest_size=16, key=key).hexdigest()

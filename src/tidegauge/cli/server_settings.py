"""Settings that ``serve``, ``worker`` and ``decisions`` share, and what is started from them.

No error message shows what is in the files and variables that hold secrets.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import os
import signal
import socket
import threading
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from tidegauge.cli.command_settings import (
    COUNT,
    DETECT_POLLS_HELP,
    FILE,
    GUARD,
    GUARD_HELP,
    GUARD_SHARE,
    GUARD_SHARE_HELP,
    PORT,
    SECONDS,
    SWITCH,
    TEXT,
    setting,
)
from tidegauge.cli.terminal import print_line
from tidegauge.errors import ConfigurationError
from tidegauge.net.listener import is_loopback

if TYPE_CHECKING:
    from tidegauge.exporters.prometheus import MetricsServer
    from tidegauge.exporters.reading import Reader
    from tidegauge.net.listener import Tls
    from tidegauge.receivers.assembly import AssemblyLimits


PRICES_HELP: Final = (
    'TOML file with the $ per million tokens of each model, as in "my-model" = 1.5; the live page '
    "then shows what runs and loops cost in $, and budgets in $ of the policy take these prices."
)
RUNBOOKS_HELP: Final = (
    "Address that serves docs/runbooks, for links of the live page. TIDEGAUGE_RUNBOOKS can name "
    "it, too."
)


KafkaProperties: TypeAlias = dict[str, str | int | float | bool]


def read_secret(path: str, what: str) -> str:
    """Read a secret of some kind from a file, without the white space around it."""
    try:
        with open(path, encoding="utf-8") as file:
            secret = file.read().strip()
    except UnicodeDecodeError:
        raise ConfigurationError(
            f"{path}: the file is not UTF-8; write the {what} as UTF-8 text"
        ) from None
    if not secret:
        raise ConfigurationError(f"{path}: the file is empty; put the {what} in it")
    return secret


def read_key(path: str | None) -> bytes | None:
    """The key of digests in a file; ``None`` without a file."""
    if path is None:
        return None
    key = read_secret(path, "key").encode()
    if len(key) > blake2b.MAX_KEY_SIZE:
        raise ConfigurationError(
            f"{path}: the key has {len(key)} bytes; use at most {blake2b.MAX_KEY_SIZE}"
        )
    return key


def read_token(path: str | None, variable: str, *, sent: bool = False) -> str | None:
    """The bearer token in a file, else that in a variable; ``None``, neither is set.

    A variable that is set but empty is an error: a secret was not filled in.

    Args:
        sent: whether it is sent in a header, which must be able to carry it.
    """
    token = _from_variable(variable) if path is None else read_secret(path, "token")
    if sent and token is not None and not (token.isascii() and token.isprintable()):
        raise ConfigurationError(
            f"{path or variable}: the token has a character that a header cannot carry; "
            "use one line of printable ASCII"
        )
    return token


def _from_variable(variable: str) -> str | None:
    token = os.environ.get(variable)
    if token is None:
        return None
    if not token.strip():
        raise ConfigurationError(f"{variable} is empty; set a token, or unset the variable")
    try:
        token.encode()
    except UnicodeEncodeError:  # what Python makes of other bytes
        raise ConfigurationError(f"{variable} is not UTF-8; set a token in UTF-8") from None
    return token.strip()


def read_kafka_config(path: str) -> KafkaProperties:
    """librdkafka's properties in a TOML file: ``security.protocol``, ``sasl.username``, ..."""
    with open(path, "rb") as file:
        try:
            content = tomllib.load(file)
        except tomllib.TOMLDecodeError as error:
            # Python's message also quotes the file.
            place = str(error).rpartition("(")[2].rstrip(")")
            raise ConfigurationError(f"{path} is not valid TOML: {place}") from None
        except UnicodeDecodeError:
            raise ConfigurationError(f"{path} is not UTF-8; write it as UTF-8 text") from None
    found: KafkaProperties = {}
    for name, value in _properties(content):
        if name in ("bootstrap.servers", "metadata.broker.list"):
            raise ConfigurationError(f"{path}: remove {name}; set the brokers with --kafka")
        if not isinstance(value, str | int | float | bool):
            raise ConfigurationError(
                f"{path}: {name} has the type {type(value).__name__}; "
                "use text, a number, true or false"
            )
        found[name] = value
    return found


def _properties(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names with dots in them, which TOML takes for tables unless they are quoted."""
    for key, value in content.items():
        name = prefix + key
        if isinstance(value, Mapping):
            yield from _properties(value, f"{name}.")
        else:
            yield name, value


_COLLECT_AFTER: Final = (50_000, 20, 50)
_MMAP_THRESHOLD, _ARENA_MAX = -3, -8  # the numbers of glibc


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings of every command that serves: address, host names, TLS, Kafka's properties."""

    host: str = setting(TEXT, "127.0.0.1", help="Address to listen on.")
    allowed_hosts: str | None = setting(
        TEXT,
        None,
        "Further host names that clients may use, separated by commas. Loopback names and the "
        "address itself are always allowed. Off: on a loopback address no others, elsewhere all.",
    )
    tls_certificate: str | None = setting(
        FILE, None, "Use TLS on every port, with this certificate."
    )
    tls_key: str | None = setting(FILE, None, "The private key of that certificate.")
    tls_client_ca: str | None = setting(
        FILE,
        None,
        "Accept only clients whose certificate is signed by one of the certificates in this file.",
    )
    kafka_config: str | None = setting(
        FILE, None, "TOML file of librdkafka properties: authentication, TLS, limits."
    )

    def __post_init__(self) -> None:
        tls = (self.tls_certificate, self.tls_key, self.tls_client_ca)
        if any(tls) and not (self.tls_certificate and self.tls_key):
            raise ConfigurationError(
                "TLS needs a certificate and its key; set both tls_certificate and tls_key"
            )

    @property
    def host_names(self) -> tuple[str, ...]:
        """The names in ``allowed_hosts``.

        >>> ServerSettings(allowed_hosts="gauge.example, gauge.internal").host_names
        ('gauge.example', 'gauge.internal')
        """
        names = (self.allowed_hosts or "").split(",")
        return tuple(name.strip() for name in names if name.strip())

    @property
    def tls(self) -> Tls | None:
        """The files of TLS; ``None``: without TLS."""
        from tidegauge.net.listener import Tls

        return Tls.from_files(self.tls_certificate, self.tls_key, self.tls_client_ca)

    def kafka_properties(self) -> KafkaProperties:
        """The properties in the file ``kafka_config``."""
        return {} if self.kafka_config is None else read_kafka_config(self.kafka_config)

    def warn_if_exposed(self, exposed: str, protection: str) -> None:
        """Warn on standard error if other machines can connect without a client certificate.

        Args:
            exposed: what other machines can do.
            protection: how to prevent it.
        """
        if self.tls_client_ca is None and not is_loopback(self.host):
            print_line(
                f"warning: {self.host} is reachable from other machines, and any of them can "
                f"{exposed}; {protection}",
                err=True,
            )


@dataclass(frozen=True, kw_only=True)
class MeasuringSettings(ServerSettings):
    """Settings of the commands that measure runs: metrics, defaults and limits of runs."""

    metrics_port: int = setting(PORT, 9464, "/metrics, /healthz and /readyz; / is the live page.")
    page: bool = setting(SWITCH, True, "Serve the live page at /; off, / serves the metrics, too.")
    task_group: str | None = setting(TEXT, None, "Task group of runs that name none.")
    t_max: int | None = setting(COUNT, None, "Turns within which success counts towards AUV.")
    detect_polls: bool | None = setting(SWITCH, None, DETECT_POLLS_HELP)
    repetition: bool = setting(
        SWITCH, True, "Measure how similar each action is to earlier ones: near-loops, stagnation."
    )
    guard: Any = setting(GUARD, None, GUARD_HELP)
    guard_share: float = setting(GUARD_SHARE, 1.0, GUARD_SHARE_HELP)
    allowed_lateness: float = setting(
        SECONDS, 0.5, "How long to wait for earlier spans that arrive late."
    )
    idle_seconds: float = setting(SECONDS, 600.0, "End a run that sends no span for this long.")
    max_traces: int = setting(COUNT, 10_000, "Limit of open traces.")
    max_runs: int = setting(COUNT, 10_000, "Limit of open runs.")
    max_remembered_spans: int = setting(
        COUNT, 500_000, "Spans remembered, to recognize duplicates."
    )

    @property
    def assembly_limits(self) -> AssemblyLimits:
        """The limits of assembling spans into runs."""
        from tidegauge.receivers.assembly import AssemblyLimits

        return AssemblyLimits(
            allowed_lateness=self.allowed_lateness,
            idle_seconds=self.idle_seconds,
            traces=self.max_traces,
            runs=self.max_runs,
            spans=self.max_remembered_spans,
        )

    def start_metrics_server(self, reader: Reader, **contents: Any) -> MetricsServer:
        """Serve ``/metrics`` of a reader, and other contents of the ``MetricsServer``."""
        from tidegauge.exporters.prometheus import MetricsServer

        server = MetricsServer(
            host=self.host,
            port=self.metrics_port,
            certificate=self.tls_certificate,
            key=self.tls_key,
            client_ca=self.tls_client_ca,
            allowed_hosts=self.host_names,
            **contents,
        )
        server.start(reader)
        return server


def given_policy(policy: str | None) -> dict[str, Any]:
    """Rules, or the name of a policy file, as settings of :func:`~tidegauge.configure`."""
    from tidegauge.policies import parse_rules

    if policy is None or policy.endswith(".toml"):
        return {"policy": policy}
    return {"rules": parse_rules(policy)}


def print_metrics_addresses(server: MetricsServer) -> None:
    """Print where the live page and the metrics are."""
    if server.page_url is not None:
        print_line(f"live page: {server.page_url}")
    print_line(f"metrics: {server.url}")


def usable_port(host: str, port: int) -> int:
    """The port; if it is in use, 0 for a free one, and a line says so."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.create_server((host, port), family=family):
            return port
    except OSError as error:
        print_line(f"port {port}: {error.strerror}; using a free port")
        return 0


def set_on_signal() -> threading.Event:
    """An event that SIGTERM and Ctrl-C set."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def returning_memory() -> None:
    """Give large texts back to the system when they are freed, where the C library is glibc.

    Without it, each thread that receives has a separate heap, in which they leave holes. Call it
    before threads are started.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_ARENA_MAX, 2)
        mallopt(_MMAP_THRESHOLD, 32_768)


@contextlib.contextmanager
def rarely_collected() -> Iterator[None]:
    """Run Python's garbage collector rarely, and never on the objects that exist now.

    The objects made for a span are freed by reference counting once it is measured; until then
    the collector would scan all of them again and again.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
        # All memory is freed with the process: it must not be looked through before, for seconds.
        atexit.unregister(gc.freeze)
        atexit.register(gc.freeze)

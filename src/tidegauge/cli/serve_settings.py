"""The settings of ``tidegauge serve``: one table for flags, environment and TOML file.

What a flag says goes before what the environment says (``TIDEGAUGE_SERVE_`` and the flag's name),
and that before the file; what nobody says is the default.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import click

from tidegauge.errors import ConfigurationError

__all__ = ["SETTINGS", "Setting", "options", "read_settings"]

Kind: TypeAlias = Literal["text", "port", "count", "seconds", "file", "switch"]

_PREFIX: Final = "TIDEGAUGE_SERVE_"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Args:
        name: in the file; with dashes it is the flag, in capitals the variable.
        kind: what it takes.
        default: when nobody says; ``None``, it is off.
        help: what it does.
    """

    name: str
    kind: Kind
    default: str | int | float | bool | None
    help: str

    @property
    def variable(self) -> str:
        """The environment variable.

        >>> SETTINGS[1].variable
        'TIDEGAUGE_SERVE_GRPC_PORT'
        """
        return _PREFIX + self.name.upper()

    @property
    def flag(self) -> str:
        """The flag."""
        return "--" + self.name.replace("_", "-")

    @property
    def shown_default(self) -> str:
        """The default, as it would be told.

        >>> [setting.shown_default for setting in SETTINGS[:2]]
        ['127.0.0.1', '4317']
        """
        default = self.default
        if default is None or isinstance(default, bool):
            return "on" if default else "off"
        return f"{default:g}" if isinstance(default, float) else str(default)

    def value(self, told: object, where: str) -> Any:
        """What was told, checked.

        Args:
            told: a text, or a value of the file.
            where: whence, for the message.

        Raises:
            ConfigurationError: it is of the wrong kind.

        >>> Setting("grpc_port", "port", 4317, "").value("4400", "somewhere")
        4400
        """
        try:
            return _CHECKS[self.kind](told)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"{where}: {self.name} is to be {_MEANINGS[self.kind]}, not {told!r}"
            ) from error


def _text(told: object) -> str:
    if not isinstance(told, str) or not told:
        raise TypeError
    return told


def _port(told: object) -> int | None:
    if told in ("off", "none", ""):
        return None
    number = _whole(told)
    if not 0 <= number <= 65_535:
        raise ValueError
    return number


def _count(told: object) -> int:
    number = _whole(told)
    if number < 1:
        raise ValueError
    return number


def _whole(told: object) -> int:
    if isinstance(told, bool) or not isinstance(told, int | str):
        raise TypeError
    return int(told)


def _seconds(told: object) -> float:
    if isinstance(told, bool) or not isinstance(told, int | float | str):
        raise TypeError
    number = float(told)
    if not 0 <= number < float("inf"):
        raise ValueError
    return number


def _switch(told: object) -> bool:
    if isinstance(told, bool):
        return told
    if told not in ("on", "off"):
        raise ValueError
    return told == "on"


_CHECKS: Final[Mapping[Kind, Callable[[object], Any]]] = {
    "text": _text,
    "file": _text,
    "port": _port,
    "count": _count,
    "seconds": _seconds,
    "switch": _switch,
}
_MEANINGS: Final[Mapping[Kind, str]] = {
    "text": "a text",
    "file": "the path of a file",
    "port": "a port from 0 to 65535, or off",
    "count": "a whole number, 1 or more",
    "seconds": "a number of seconds",
    "switch": "on or off",
}
_METAVARS: Final[Mapping[Kind, str]] = {
    "text": "TEXT",
    "file": "FILE",
    "port": "PORT",
    "count": "N",
    "seconds": "SECONDS",
    "switch": "on|off",
}

SETTINGS: Final = (
    Setting("host", "text", "127.0.0.1", "Address to listen on, for all three ports."),
    Setting("grpc_port", "port", 4317, "OTLP over gRPC; off, not at all."),
    Setting("http_port", "port", 4318, "OTLP over HTTP; off, not at all."),
    Setting("metrics_port", "port", 9464, "/metrics, /healthz and /readyz; / is the live page."),
    Setting("page", "switch", True, "The live page at /; off, the metrics are there, too."),
    Setting("page_contents", "switch", False, "Let the page show arguments and results."),
    Setting("task_group", "text", None, "Task group of runs that name none."),
    Setting("t_max", "count", None, "Turns within which success counts towards AUV."),
    Setting(
        "policy",
        "text",
        None,
        "Rules whose crossing is counted as an intervention that would have stopped the run, as in "
        "loop_repeats=3,steps=50, or the file of a policy (.toml); TIDEGAUGE_POLICY can name it, "
        "too. Nothing is stopped: the agents are elsewhere.",
    ),
    Setting("record_to", "file", None, "Record the runs as step events here, to be replayed."),
    Setting("token_file", "file", None, "Senders are to show the bearer token in this file."),
    Setting("tls_certificate", "file", None, "Speak TLS on all ports, with this certificate."),
    Setting("tls_key", "file", None, "Its private key."),
    Setting("tls_client_ca", "file", None, "Answer only clients with a certificate by these."),
    Setting(
        "forward_to",
        "text",
        None,
        "Pass the requests on to this OTLP endpoint: http://HOST:4318 or grpc://HOST:4317.",
    ),
    Setting("forward_token_file", "file", None, "Bearer token to show to that endpoint."),
    Setting("forward_ca", "file", None, "Trust that endpoint's certificate by these alone."),
    Setting("forward_queue_bytes", "count", 64 * 1024 * 1024, "Bytes that wait for it at most."),
    Setting("forward_timeout", "seconds", 10.0, "Time for one attempt."),
    Setting("forward_give_up_after", "seconds", 60.0, "After so long a request is dropped."),
    Setting("settle_seconds", "seconds", 0.5, "How long later spans may overtake earlier ones."),
    Setting("idle_seconds", "seconds", 600.0, "A run without a span for so long is ended."),
    Setting("max_request_bytes", "count", 16 * 1024 * 1024, "Of a request, also decompressed."),
    Setting("max_request_spans", "count", 100_000, "Spans read of one request."),
    Setting("max_attributes", "count", 2_000, "Attributes read of one span."),
    Setting("max_attribute_length", "count", 1_048_576, "Characters read of one attribute."),
    Setting("max_connections", "count", 64, "Connections (HTTP), requests (gRPC) at a time."),
    Setting("max_queued_spans", "count", 100_000, "Spans that wait; then senders are told to."),
    Setting("max_traces", "count", 10_000, "Open traces held."),
    Setting("max_runs", "count", 10_000, "Open runs held."),
    Setting("max_remembered_spans", "count", 500_000, "Spans remembered, to know them again."),
    Setting("shutdown_seconds", "seconds", 5.0, "Time for each step of the shutdown."),
)
"""All of them."""


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a command with a flag for every setting."""
    for setting in reversed(SETTINGS):
        command = click.option(
            setting.flag,
            setting.name,
            metavar=_METAVARS[setting.kind],
            help=f"{setting.help}  [{setting.shown_default}]",
        )(command)
    return command


def read_settings(flags: Mapping[str, str | None], config: str | None) -> dict[str, Any]:
    """Every setting: from the flags, the environment, the file, or by default.

    Args:
        flags: by setting; ``None``, not given.
        config: path of the TOML file, if there is one.

    Raises:
        ConfigurationError: a value that cannot work, or a setting in the file that is none.
        OSError: the file cannot be read.
    """
    file = {} if config is None else _read_file(config)
    found: dict[str, Any] = {}
    for setting in SETTINGS:
        flag, variable = flags.get(setting.name), os.environ.get(setting.variable)
        if flag is not None:
            found[setting.name] = setting.value(flag, setting.flag)
        elif variable:
            found[setting.name] = setting.value(variable, setting.variable)
        elif setting.name in file:
            found[setting.name] = setting.value(file[setting.name], str(config))
        else:
            found[setting.name] = setting.default
    return found


def _read_file(path: str) -> dict[str, Any]:
    with open(path, "rb") as file:
        try:
            told = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path}: {error}") from error
    known = {setting.name for setting in SETTINGS}
    for name in told:
        if name not in known:
            raise ConfigurationError(
                f"{path}: unknown setting {name!r}; known: {', '.join(sorted(known))}"
            )
    return told

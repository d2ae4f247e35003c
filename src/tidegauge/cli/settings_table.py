"""The settings of a command that serves: one table for flags, environment and TOML file.

A flag takes precedence over its environment variable (the table's prefix and the flag's name, as in
``TIDEGAUGE_SERVE_GRPC_PORT``), and the variable over the file. Without any of them, the default
holds. An empty variable is ignored, except that of a file, which is an error: most of these files
protect something, as a token or a certificate does.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import click

from tidegauge.errors import ConfigurationError

__all__ = ["Setting", "SettingsTable"]

Kind: TypeAlias = Literal["text", "port", "count", "seconds", "file", "switch"]


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Args:
        name: in the file; with dashes it is the flag, in capitals the variable.
        kind: what it takes.
        default: without a flag, a variable or the file; ``None``, it is off.
        help: what it does.
        most: the highest value of a number; ``None``, there is none.
    """

    name: str
    kind: Kind
    default: str | int | float | bool | None
    help: str
    most: int | None = None

    @property
    def flag(self) -> str:
        """The flag."""
        return "--" + self.name.replace("_", "-")

    @property
    def shown_default(self) -> str:
        """The default, as a user would write it.

        >>> Setting("grpc_port", "port", 4317, "").shown_default
        '4317'
        """
        default = self.default
        if default is None or isinstance(default, bool):
            return "on" if default else "off"
        return f"{default:g}" if isinstance(default, float) else str(default)

    def value(self, given: object, where: str) -> Any:
        """The checked value of what a user wrote.

        Args:
            given: a text, or a value of the file.
            where: its origin, for the message.

        Raises:
            ConfigurationError: the value is of the wrong kind.

        >>> Setting("grpc_port", "port", 4317, "").value("4400", "somewhere")
        4400
        """
        try:
            value = _CHECKS[self.kind](given)
            if self.most is not None and value > self.most:
                raise ValueError
        except (TypeError, ValueError, OverflowError) as error:
            meaning = _MEANINGS[self.kind]
            if self.most is not None:
                meaning += f", at most {self.most}"
            raise ConfigurationError(
                f"{where}: {self.name} must be {meaning}, not {given!r}"
            ) from error
        return value


def _text(given: object) -> str:
    if not isinstance(given, str) or not given.strip():
        raise TypeError
    return given


def _port(given: object) -> int | None:
    if given in ("off", "none", ""):
        return None
    number = _whole(given)
    if not 0 <= number <= 65_535:
        raise ValueError
    return number


def _count(given: object) -> int:
    number = _whole(given)
    if number < 1:
        raise ValueError
    return number


def _whole(given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int | str):
        raise TypeError
    return int(given)


def _seconds(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float | str):
        raise TypeError
    number = float(given)
    if not 0 <= number < float("inf"):
        raise ValueError
    return number


def _switch(given: object) -> bool:
    if isinstance(given, bool):
        return given
    if given not in ("on", "off"):
        raise ValueError
    return given == "on"


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


class SettingsTable:
    """All settings of one command.

    Args:
        prefix: what the names of the environment variables begin with.
        settings: all settings.

    >>> table = SettingsTable("TIDEGAUGE_SERVE_", [Setting("grpc_port", "port", 4317, "")])
    >>> table.variable(table.settings[0])
    'TIDEGAUGE_SERVE_GRPC_PORT'
    >>> table.read({"grpc_port": "off"}, None)
    {'grpc_port': None}
    """

    def __init__(self, prefix: str, settings: Iterable[Setting]) -> None:
        self.prefix = prefix
        self.settings = tuple(settings)

    def __iter__(self) -> Iterator[Setting]:
        return iter(self.settings)

    def variable(self, setting: Setting) -> str:
        """The environment variable of a setting."""
        return self.prefix + setting.name.upper()

    def options(self, command: Callable[..., Any]) -> Callable[..., Any]:
        """Decorate a command with ``--config`` and a flag for every setting."""
        for setting in reversed(self.settings):
            command = click.option(
                setting.flag,
                setting.name,
                metavar=_METAVARS[setting.kind],
                help=f"{setting.help}  [{setting.shown_default}]",
            )(command)
        return click.option(
            "--config",
            metavar="FILE",
            envvar=f"{self.prefix}CONFIG",
            type=click.Path(dir_okay=False),
            help="A TOML file with any of the settings below, by their names with _ for -.",
        )(command)

    def read(self, flags: Mapping[str, str | None], config: str | None) -> dict[str, Any]:
        """Every setting: from the flags, the environment, the file, or by default.

        Args:
            flags: values by setting; ``None``, not given.
            config: path of the TOML file, if there is one.

        Raises:
            ConfigurationError: a value is of the wrong kind, or the file has an unknown setting.
            OSError: the file cannot be read.
        """
        file = {} if config is None else self._read_file(config)
        found: dict[str, Any] = {}
        for setting in self.settings:
            name, variable = setting.name, self.variable(setting)
            flag, variable_value = flags.get(name), os.environ.get(variable)
            if flag is not None:
                found[name] = setting.value(flag, setting.flag)
            elif variable_value or (variable_value is not None and setting.kind == "file"):
                found[name] = setting.value(variable_value, variable)
            elif name in file:
                found[name] = setting.value(file[name], str(config))
            else:
                found[name] = setting.default
        return found

    def _read_file(self, path: str) -> dict[str, Any]:
        with open(path, "rb") as file:
            try:
                content = tomllib.load(file)
            except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
                raise ConfigurationError(f"{path}: {error}") from error
        known = {setting.name for setting in self.settings}
        for name in content:
            if name not in known:
                raise ConfigurationError(
                    f"{path}: unknown setting {name!r}; known: {', '.join(sorted(known))}"
                )
        return content

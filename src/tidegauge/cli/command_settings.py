"""Settings of a command as a frozen dataclass, each field an option of click.

For the commands that serve, a setting is also an environment variable and a TOML key. click takes
the value from the flag, else from the variable, else from the file that ``--config`` names, else
from the default. An empty variable is ignored, except that of a file, which is an error: most of
these files protect something, as a token or a certificate does.
"""

from __future__ import annotations

import functools
import math
import os
import tomllib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import MISSING, Field, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click
from click.core import ParameterSource

from tidegauge import settings as kinds
from tidegauge.errors import ConfigurationError
from tidegauge.settings import PORTS, Range

if TYPE_CHECKING:
    ParamType: TypeAlias = click.ParamType[Any]
else:
    ParamType = click.ParamType  # generic only in newer versions of click


class SettingType(ParamType):
    """A type of values, from a function that raises ``ValueError`` with the reason and the remedy.

    Args:
        name: what the help shows instead of a value.
        parse: gives the value of what a user wrote: text, or a value of a TOML file.
    """

    def __init__(self, name: str, parse: Callable[[Any], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def number(
    kind: type[int] | type[float],
    name: str,
    low: int,
    high: int | None = None,
    *,
    exclusive: bool = False,
    off: bool = False,
) -> SettingType:
    """A number in a :class:`~tidegauge.settings.Range`.

    Args:
        name: what the help shows in its place.
        low: see the range, as ``high`` and ``exclusive``.
        off: whether ``off`` is a value, too: it gives ``None``.

    >>> PORT.convert("4317", None, None)
    4317
    >>> PORT.convert(99999, None, None)
    Traceback (most recent call last):
        ...
    click.exceptions.BadParameter: 99999 is out of range; use 0 to 65535
    >>> SECONDS.convert("nan", None, None)
    Traceback (most recent call last):
        ...
    click.exceptions.BadParameter: nan is out of range; use 0 or more
    """
    taken = Range(low, high, exclusive)
    use = f"{taken}, or off" if off else str(taken)
    types = (int, str) if kind is int else (int, float, str)

    def parse(value: Any) -> int | float | None:
        if off and value in ("off", "none", ""):
            return None
        try:
            if isinstance(value, bool) or not isinstance(value, types):
                raise ValueError
            found = kind(value)
        except ValueError:
            what = "a whole number" if kind is int else "a number"
            raise ValueError(f"{value!r} is not {what}; use {use}") from None
        except OverflowError:
            found = math.inf
        if found not in taken:
            raise ValueError(f"{value} is out of range; use {use}")
        return found

    return SettingType(name, parse)


def _text(name: str, use: str) -> SettingType:
    def parse(value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{value!r} is not {use}")
        return value

    return SettingType(name, parse)


def _policy(value: Any) -> str:
    """Rules, or the name of a policy file, checked before anything is started."""
    from tidegauge.policies import parse_rules, read_policy

    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a policy; use rules or the name of a .toml file")
    read_policy(value) if value.endswith(".toml") else parse_rules(value)
    return value


def one_of(*values: str) -> SettingType:
    """A setting that has one of these values."""
    read = kinds.one_of(*values).read

    def parse(value: Any) -> Any:
        with suppress(ValueError):
            return read(value)
        raise ValueError(f"{value!r} is not known; use {' or '.join(values)}")

    return SettingType("|".join(values), parse)


def _switch(value: Any) -> bool:
    if value not in ("on", "off") and not isinstance(value, bool):
        raise ValueError(f"{value!r} is not a switch; use on or off")
    return value in ("on", True)


FLAG: Final = click.BOOL
FILES: Final = click.Path(allow_dash=True)
IN_FILE: Final = click.Path(exists=True, dir_okay=False, path_type=Path)
OUT_FILE: Final = click.Path(dir_okay=False, writable=True, path_type=Path)
OUT_FOLDER: Final = click.Path(file_okay=False, path_type=Path)
TEXT: Final = _text("TEXT", "text; use at least one character, in quotes in a file")
URL: Final = _text("URL", "an address; use one such as https://grafana.example")
FILE: Final = _text("FILE", "a path; use the path of a file")
POLICY: Final = SettingType("POLICY", _policy)
GUARD: Final = one_of("watch", "stuck")
GUARD_HELP: Final = (
    "stuck: runs that are stuck by the preset's rules are stopped; watch: it is counted. Rules of "
    "--policy for the same signal take precedence."
)
GUARD_SHARE: Final = number(float, "SHARE", 0, 1)
GUARD_SHARE_HELP: Final = "Share of the runs in which --guard stuck stops; a run's id decides."
SWITCH: Final = SettingType("on|off", _switch)
DETECT_POLLS_HELP: Final = (
    "Calls that wait are polls: commands that sleep or follow a log, agents' own tools for output "
    "that is still to come, looks at what another call started. For 60 steps without a new result, "
    "they are in no loop. off: they are calls like any other; default: on in sessions of coding "
    "agents."
)
PORT: Final = number(int, "PORT", PORTS.low, PORTS.high)
PORT_OR_OFF: Final = number(int, "PORT", PORTS.low, PORTS.high, off=True)
COUNT: Final = number(int, "N", 1)
SECONDS: Final = number(float, "SECONDS", 0)


def setting(kind: ParamType, default: Any, help: str, *flags: str, **options: Any) -> Any:
    """A field of a settings class.

    Args:
        kind: its type. ``FLAG`` makes a flag, ``FILES`` the arguments of the command.
        default: ``MISSING``, it must be set.
        *flags: a short flag as well, or the long one if it is not made of the name.
        **options: more that :func:`click.option` takes.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, kw_only=True)
    ... class ProxySettings:
    ...     port: int = setting(PORT, 8080, "Port to listen on.")
    >>> ProxySettings().port
    8080
    """
    return field(default=default, metadata={"kind": kind, "help": help, "flags": flags, **options})


def settings_options(
    settings: type[Any], prefix: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command with an option for each field of its settings.

    The command gets an instance as ``settings``.

    Args:
        prefix: what the names of environment variables begin with, such as ``TIDEGAUGE_SERVE``;
            ``None``, there are neither variables nor ``--config``.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(*, config: str | None = None, **values: Any) -> None:
            given = {one.name: values.pop(one.name) for one in fields(settings)}
            command(settings=settings(**given), **values)

        decorated: Callable[..., None] = run
        for one in reversed(fields(settings)):
            decorated = _parameter(one, prefix)(decorated)
        if prefix is None:
            return decorated
        return click.option(
            "--config",
            metavar="FILE",
            envvar=f"{prefix}_CONFIG",
            type=click.Path(dir_okay=False),
            is_eager=True,
            callback=_read_config,
            help="TOML file with any of the settings below, named with _ instead of -.",
        )(decorated)

    return decorate


def _parameter(
    one: Field[Any], prefix: str | None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option or the argument of a field."""
    options = dict(one.metadata)
    kind, flags = options.pop("kind"), options.pop("flags")
    required = one.default is MISSING
    if kind is FILES:
        return click.argument(one.name, nargs=-1, required=required, type=FILES, metavar="FILE…")
    if kind is FLAG:
        options["is_flag"] = True
    else:
        options["type"] = kind
    if prefix is not None:
        options["envvar"] = f"{prefix}_{one.name.upper()}"
    if not required:
        options["default"] = _as_written(one)
    if not any(flag.startswith("--") for flag in flags):
        flags = ("--" + one.name.replace("_", "-"), *flags)
    return click.option(
        *flags,
        one.name,
        cls=_SettingOption,
        required=required,
        show_default=True,
        **options,
    )


class _SettingOption(click.Option):
    """An option whose errors name where the value comes from."""

    def resolve_envvar_value(self, ctx: click.Context) -> str | None:
        if self.type is FILE and os.environ.get(str(self.envvar)) == "":
            raise ConfigurationError(
                f"{self.envvar} is empty; set it to the path of a file, or unset it"
            )
        return super().resolve_envvar_value(ctx)

    def process_value(self, ctx: click.Context, value: Any) -> Any:
        try:
            value = super().process_value(ctx, value)
        except click.MissingParameter:
            more = "" if self.envvar is None else f", {self.envvar} or the --config file"
            raise ConfigurationError(f"{self.name} is not set; use {self.opts[0]}{more}") from None
        except click.BadParameter as error:
            raise ConfigurationError(f"{self._origin(ctx)}: {error.message}") from None
        return tuple(dict.fromkeys(value)) if self.multiple else value

    def _origin(self, ctx: click.Context) -> str:
        source = ctx.get_parameter_source(self.name or "")
        if source is ParameterSource.ENVIRONMENT:
            return str(self.envvar)
        if source is ParameterSource.DEFAULT_MAP:
            return f"{ctx.params['config']}: {self.name}"
        return self.opts[0]


def _read_config(ctx: click.Context, param: click.Parameter, path: str | None) -> str | None:
    """Make the values of the file click's defaults."""
    if path is None:
        return None
    with open(path, "rb") as file:
        try:
            content = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path} is not valid TOML: {error}") from error
    known = {one.name for one in ctx.command.params if isinstance(one, _SettingOption)}
    for name in content:
        if name not in known:
            raise ConfigurationError(
                f"{path}: unknown setting {name!r}; use one of {', '.join(sorted(known))}"
            )
    ctx.default_map = content
    return path


def _as_written(one: Field[Any]) -> Any:
    """The default of a field as a user writes it, which is what the help shows."""
    default = one.default
    if one.metadata["kind"] is SWITCH:
        return default if default is None else "on" if default else "off"
    if isinstance(default, int | float) and not isinstance(default, bool):
        return f"{default:g}" if isinstance(default, float) else str(default)
    if isinstance(default, tuple) and not one.metadata.get("multiple"):
        return ",".join(default)
    return default

"""The settings of ``serve``, ``worker`` and ``decisions``, as tests and examples give them."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

import click

from tidegauge.cli.command_settings import PORT, PORT_OR_OFF

PROGRAM = "/opt/tidegauge/bin/tidegauge"
"""Where the container file puts it."""
_CLASSES = {
    "serve": "ServeSettings",
    "worker": "WorkerCommandSettings",
    "decisions": "DecisionsSettings",
}


def options_of(command: str) -> dict[str, click.Option]:
    """The options of a command's settings, by the names of the settings."""
    found = getattr(importlib.import_module(f"tidegauge.cli.{command}"), command)
    names = {one.name for one in fields(_settings_class(command))}
    return {one.name: one for one in found.params if one.name in names}


def settings_of(command: str, *arguments: str) -> Any:
    """The settings of a command that is started with these arguments."""
    found = getattr(importlib.import_module(f"tidegauge.cli.{command}"), command)
    given = found.make_context(command, list(arguments)).params
    settings = _settings_class(command)
    return settings(**{one.name: given[one.name] for one in fields(settings)})


def given_settings(
    start: Sequence[str], arguments: Sequence[str], variables: Iterable[str] = ()
) -> tuple[str, dict[str, Any]]:
    """What a container runs: the command, and the settings that are given to it.

    Args:
        start: the program and its command.
        arguments: flags, each with its value after ``=``.
        variables: names of the environment; their values are not known here.
    """
    program, command = start
    assert program == PROGRAM
    options = options_of(command)
    names = {str(one.envvar): name for name, one in options.items()}
    flags = {one.opts[0]: name for name, one in options.items()}
    given: dict[str, Any] = {}
    for variable in variables:
        assert not variable.startswith("TIDEGAUGE_") or variable in names, variable
        if variable in names:
            given[names[variable]] = None
    for argument in arguments:
        flag, has_value, value = argument.partition("=")
        assert has_value, argument
        assert flag in flags, f"{command} has no {flag}"
        given[flags[flag]] = options[flags[flag]].type.convert(value, None, None)
    return command, given


def default_ports(command: str) -> dict[str, int]:
    """The ports that a command listens on by default, by the names of their settings."""
    return {
        name: int(str(one.default))
        for name, one in options_of(command).items()
        if one.type in (PORT, PORT_OR_OFF)
    }


def _settings_class(command: str) -> type[Any]:
    module = importlib.import_module(f"tidegauge.cli.{command}")
    found: type[Any] = getattr(module, _CLASSES[command])
    return found

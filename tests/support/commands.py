"""The commands that serve, as examples start them: whatever these say is a setting."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import Any

from tidegauge.cli.settings_table import SettingsTable

PROGRAM = "/opt/tidegauge/bin/tidegauge"
"""Where the container file puts it."""


def settings_of(command: str) -> SettingsTable:
    """The settings of ``serve``, ``worker`` or ``decisions``."""
    module = importlib.import_module(f"tidegauge.cli.{command}_settings")
    table: SettingsTable = module.SETTINGS
    return table


def told_to(
    start: Sequence[str], arguments: Sequence[str], variables: Iterable[str] = ()
) -> tuple[str, dict[str, Any]]:
    """What a container runs: the command, and what it is told of its settings.

    Args:
        start: the program and its command.
        arguments: flags, each with its value after ``=``.
        variables: names of the environment; what those hold is not known here.
    """
    program, command = start
    assert program == PROGRAM
    table = settings_of(command)
    flags = {setting.flag: setting for setting in table}
    told: dict[str, Any] = dict.fromkeys(
        setting.name for setting in table if table.variable(setting) in variables
    )
    known = {table.variable(setting) for setting in table}
    for variable in variables:
        assert not variable.startswith("TIDEGAUGE_") or variable in known, variable
    for argument in arguments:
        flag, is_given, value = argument.partition("=")
        assert is_given, argument
        assert flag in flags, f"{command} has no {flag}"
        told[flags[flag].name] = flags[flag].value(value, flag)
    return command, told


def default_port(command: str, name: str) -> int:
    """The port that a command listens on, where nobody says."""
    [port] = [setting.default for setting in settings_of(command) if setting.name == name]
    assert isinstance(port, int)
    return port

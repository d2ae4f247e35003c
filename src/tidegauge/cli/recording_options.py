"""The argument and the options that commands which read recordings have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["recording_options"]

C = TypeVar("C", bound=Callable[..., Any])


def recording_options(command: C) -> C:
    """The argument and the options of every command that reads recordings."""
    for decorate in (
        click.option("--strict", is_flag=True, help="Stop at the first fault, with exit code 2."),
        click.option(
            "--ignore-action",
            "ignore_actions",
            metavar="NAME",
            multiple=True,
            help="Leave out the steps of this action, such as think. Can be given several times.",
        ),
        click.argument(
            "files",
            nargs=-1,
            required=True,
            type=click.Path(allow_dash=True),
            metavar="FILE…",
        ),
    ):
        command = decorate(command)
    return command

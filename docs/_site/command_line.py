"""Writes what every command's ``--help`` prints into the page about the command line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from tidegauge.cli.main import cli

_PAGE: Final = "reference/command-line.md"
_WIDTH: Final = 90


def on_page_markdown(markdown: str, page: Any, **kwargs: Any) -> str:
    """Add all commands to that page."""
    return "\n".join([markdown, *help_pages()]) if page.file.src_uri == _PAGE else markdown


def help_pages() -> Iterator[str]:
    """A section for each command.

    >>> next(help_pages()).splitlines()[0]
    '## tidegauge'
    """
    with click.Context(cli, info_name="tidegauge", max_content_width=_WIDTH) as context:
        yield from _sections(context, 2)


def _sections(context: click.Context, level: int) -> Iterator[str]:
    command = context.command
    yield f"{'#' * level} {context.command_path}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None:
                with inner.make_context(
                    name, [], parent=context, resilient_parsing=True
                ) as inner_context:
                    yield from _sections(inner_context, level + 1)

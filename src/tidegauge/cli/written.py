"""Files that a command writes, each told by its path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

__all__ = ["write_files"]


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write each text to its path in the folder, which is made, and print where it is."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        click.echo(str(path))

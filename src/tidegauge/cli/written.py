"""Files that a command writes, each told by its path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from tidegauge._private_files import private

__all__ = ["write_files", "written_to"]


@contextmanager
def written_to(path: str) -> Iterator[BinaryIO]:
    """A file that is its owner's alone; an error of writing names it, as one of opening does."""
    try:
        with open(path, "wb", opener=private) as out:
            yield out
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write each text to its path in the folder, which is made, and print where it is."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        click.echo(str(path))

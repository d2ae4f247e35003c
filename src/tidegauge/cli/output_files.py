"""Files that commands write."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from tidegauge.cli.terminal import print_line
from tidegauge.errors import ConfigurationError
from tidegauge.safety.private_files import private


@contextmanager
def open_output(path: Path) -> Iterator[BinaryIO]:
    """A file that only its owner can read; errors of writing name the file, too."""
    try:
        with open(path, "wb", opener=private) as out:
            yield out
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write each text to its path below the folder, which is created, and print the path."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print_line(str(path))


def refuse_overwriting(out: Path | None, files: Sequence[str], option: str) -> None:
    """Raise an error if the output is one of the input files."""
    if out is None or not os.path.exists(out):
        return
    for file in files:
        if os.path.exists(file) and os.path.samefile(out, file):
            raise ConfigurationError(f"{option}: {out} is also an input; choose another file")

"""Secrets that stand in files of their own."""

from __future__ import annotations

from tidegauge.errors import ConfigurationError

__all__ = ["read_secret"]


def read_secret(path: str, what: str) -> str:
    """What stands in a file, without the white space around it.

    Args:
        path: of the file.
        what: it is, for the message.

    Raises:
        ConfigurationError: there is nothing in it.
        OSError: it cannot be read.
    """
    with open(path, encoding="utf-8") as file:
        told = file.read().strip()
    if not told:
        raise ConfigurationError(f"{path}: there is no {what} in it")
    return told

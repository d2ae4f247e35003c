"""Secrets: in files of their own, or in the environment."""

from __future__ import annotations

import os

from tidegauge.errors import ConfigurationError

__all__ = ["read_secret", "read_token"]


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


def read_token(path: str | None, variable: str) -> str | None:
    """The bearer token in a file, else that in a variable; ``None``, neither is set.

    A variable that is set and empty is a secret that was not filled in, and no wish to be open.

    Args:
        path: of the file, if there is one.
        variable: name of the environment variable.

    Raises:
        ConfigurationError: there is nothing in the file, or in the variable.
        OSError: the file cannot be read.
    """
    if path is not None:
        return read_secret(path, "token")
    token = os.environ.get(variable)
    if token is not None and not token.strip():
        raise ConfigurationError(f"{variable} is empty; set a token, or unset the variable")
    return None if token is None else token.strip()

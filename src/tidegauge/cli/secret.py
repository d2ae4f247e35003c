"""Secrets from files or from the environment."""

from __future__ import annotations

import os

from tidegauge.errors import ConfigurationError

__all__ = ["read_secret", "read_token"]


def read_secret(path: str, what: str) -> str:
    """Read a secret from a file, without the white space around it.

    Args:
        path: of the file.
        what: the kind of secret, for the message.

    Raises:
        ConfigurationError: the file is empty.
        OSError: the file cannot be read.
    """
    with open(path, encoding="utf-8") as file:
        secret = file.read().strip()
    if not secret:
        raise ConfigurationError(f"{path}: the file is empty; put the {what} in it")
    return secret


def read_token(path: str | None, variable: str) -> str | None:
    """The bearer token in a file, else that in a variable; ``None``, neither is set.

    A variable that is set but empty is an error: a secret was not filled in.

    Args:
        path: of the file, if there is one.
        variable: name of the environment variable.

    Raises:
        ConfigurationError: the file or the variable is empty.
        OSError: the file cannot be read.
    """
    if path is not None:
        return read_secret(path, "token")
    token = os.environ.get(variable)
    if token is not None and not token.strip():
        raise ConfigurationError(f"{variable} is empty; set a token, or unset the variable")
    return None if token is None else token.strip()

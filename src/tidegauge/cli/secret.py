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
        ConfigurationError: the file is empty, or not UTF-8.
        OSError: the file cannot be read.
    """
    try:
        with open(path, encoding="utf-8") as file:
            secret = file.read().strip()
    except UnicodeDecodeError:
        raise ConfigurationError(
            f"{path}: the file is not UTF-8; write the {what} as UTF-8 text"
        ) from None
    if not secret:
        raise ConfigurationError(f"{path}: the file is empty; put the {what} in it")
    return secret


def read_token(path: str | None, variable: str, *, sent: bool = False) -> str | None:
    """The bearer token in a file, else that in a variable; ``None``, neither is set.

    A variable that is set but empty is an error: a secret was not filled in.

    Args:
        path: of the file, if there is one.
        variable: name of the environment variable.
        sent: it will be sent in a header, which must carry it.

    Raises:
        ConfigurationError: the file or the variable is empty or not UTF-8, or a header cannot carry
            the token.
        OSError: the file cannot be read.
    """
    token = _from_variable(variable) if path is None else read_secret(path, "token")
    if sent and token is not None and not (token.isascii() and token.isprintable()):
        raise ConfigurationError(
            f"{path or variable}: the token has a character that a header cannot carry; "
            "it must be one line of printable ASCII"
        )
    return token


def _from_variable(variable: str) -> str | None:
    token = os.environ.get(variable)
    if token is None:
        return None
    if not token.strip():
        raise ConfigurationError(f"{variable} is empty; set a token, or unset the variable")
    try:
        token.encode()
    except UnicodeEncodeError:  # what Python makes of other bytes
        raise ConfigurationError(f"{variable} is not UTF-8; set a token in UTF-8") from None
    return token.strip()

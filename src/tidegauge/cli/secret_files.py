"""Files and variables that hold secrets. No error message shows what they hold."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, TypeAlias

from tidegauge.errors import ConfigurationError

KafkaProperties: TypeAlias = dict[str, str | int | float | bool]


def read_secret(path: str, what: str) -> str:
    """Read a secret of some kind from a file, without the white space around it."""
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


def read_key(path: str | None) -> bytes | None:
    """The key of digests in a file; ``None`` without a file."""
    if path is None:
        return None
    key = read_secret(path, "key").encode()
    if len(key) > blake2b.MAX_KEY_SIZE:
        raise ConfigurationError(
            f"{path}: the key has {len(key)} bytes; use at most {blake2b.MAX_KEY_SIZE}"
        )
    return key


def read_token(path: str | None, variable: str, *, sent: bool = False) -> str | None:
    """The bearer token in a file, else that in a variable; ``None``, neither is set.

    A variable that is set but empty is an error: a secret was not filled in.

    Args:
        path: of the file, if there is one.
        variable: name of the environment variable.
        sent: whether it is sent in a header, which must be able to carry it.
    """
    token = _from_variable(variable) if path is None else read_secret(path, "token")
    if sent and token is not None and not (token.isascii() and token.isprintable()):
        raise ConfigurationError(
            f"{path or variable}: the token has a character that a header cannot carry; "
            "use one line of printable ASCII"
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


def read_kafka_config(path: str) -> KafkaProperties:
    """librdkafka's properties in a TOML file: ``security.protocol``, ``sasl.username``, ..."""
    with open(path, "rb") as file:
        try:
            content = tomllib.load(file)
        except tomllib.TOMLDecodeError as error:
            # Python's message also quotes the file.
            place = str(error).rpartition("(")[2].rstrip(")")
            raise ConfigurationError(f"{path} is not valid TOML: {place}") from None
        except UnicodeDecodeError:
            raise ConfigurationError(f"{path} is not UTF-8; write it as UTF-8 text") from None
    found: KafkaProperties = {}
    for name, value in _properties(content):
        if name in ("bootstrap.servers", "metadata.broker.list"):
            raise ConfigurationError(f"{path}: remove {name}; set the brokers with --kafka")
        if not isinstance(value, str | int | float | bool):
            raise ConfigurationError(
                f"{path}: {name} has the type {type(value).__name__}; "
                "use text, a number, true or false"
            )
        found[name] = value
    return found


def _properties(content: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names with dots in them, which TOML takes for tables unless they are quoted."""
    for key, value in content.items():
        name = prefix + key
        if isinstance(value, Mapping):
            yield from _properties(value, f"{name}.")
        else:
            yield name, value

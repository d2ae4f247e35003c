"""The file of ``--kafka-config``: how to talk to the brokers, as librdkafka's properties."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from tidegauge.errors import ConfigurationError

__all__ = ["read_kafka_config"]


def read_kafka_config(path: str) -> dict[str, str | int | float | bool]:
    """The properties in a TOML file, by their names: ``security.protocol``, ``sasl.username``, ...

    What a property holds is never told: it may be a secret.

    Args:
        path: of the file.

    Raises:
        ConfigurationError: it is no TOML, a property holds a list or a date, or it names brokers.
        OSError: it cannot be read.
    """
    with open(path, "rb") as file:
        try:
            told = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"{path}: it is no TOML: {_where(error)}") from None
    found: dict[str, str | int | float | bool] = {}
    for name, value in _properties(told):
        if name in ("bootstrap.servers", "metadata.broker.list"):
            raise ConfigurationError(f"{path}: {name} is what --kafka says")
        if not isinstance(value, str | int | float | bool):
            raise ConfigurationError(
                f"{path}: {name} is to be a text, a number, true or false, "
                f"not {type(value).__name__}"
            )
        found[name] = value
    return found


def _properties(told: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names with dots in them, which TOML takes for tables unless they are quoted."""
    for key, value in told.items():
        name = prefix + key
        if isinstance(value, Mapping):
            yield from _properties(value, f"{name}.")
        else:
            yield name, value


def _where(error: ValueError) -> str:
    """Where a file is wrong; what stands there is not told."""
    _, _, place = str(error).rpartition("(")
    return place.rstrip(")") if isinstance(error, tomllib.TOMLDecodeError) else "no UTF-8"

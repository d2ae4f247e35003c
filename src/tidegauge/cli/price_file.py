"""The file of ``--prices``: what the tokens of each model cost."""

from __future__ import annotations

import math
import os
import tomllib

from tidegauge.errors import ConfigurationError
from tidegauge.policies.input_file import content_of


def read_prices(path: str | os.PathLike[str]) -> dict[str, float]:
    """$ per million tokens, by model, from a TOML file with lines such as ``"my-model" = 1.5``.

    Raises:
        ConfigurationError: the file cannot be read, or has something else than prices.
    """
    name = os.fspath(path)
    content = content_of(path, "prices", megabytes=1)
    try:
        found = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{name} is not valid TOML: {error}") from error
    for model, price in found.items():
        known = isinstance(price, int | float) and not isinstance(price, bool)
        if not known or not 0 <= price < math.inf:
            raise ConfigurationError(
                f"{name}: the price of {model!r} is {price!r}; use $ per million tokens, and put "
                'names with dots in quotes, as in "my-model-1.5" = 2'
            )
    return found

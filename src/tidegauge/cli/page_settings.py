"""Settings of the live page that commands share."""

from __future__ import annotations

import math
import tomllib
from typing import Final

from tidegauge.errors import ConfigurationError

__all__ = ["PRICES_HELP", "RUNBOOKS_HELP", "read_prices"]

PRICES_HELP: Final = (
    'TOML file with the $ per million tokens of each model, as in "my-model" = 1.5; the live page '
    "then shows what runs and loops cost in $."
)
RUNBOOKS_HELP: Final = (
    "Address that serves docs/runbooks, for links of the live page. TIDEGAUGE_RUNBOOKS can name "
    "it, too."
)


def read_prices(path: str | None) -> dict[str, float]:
    """$ per million tokens, by model, from a file.

    Raises:
        ConfigurationError: the file cannot be read, or a price is none.
    """
    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from error
    for model, price in found.items():
        valid = isinstance(price, int | float) and not isinstance(price, bool)
        if not valid or not 0 <= price < math.inf:
            raise ConfigurationError(
                f"{path}: the price of {model!r} is {price!r}; use $ per million tokens, and put "
                'names with dots in quotes, as in "my-model-1.5" = 2'
            )
    return found

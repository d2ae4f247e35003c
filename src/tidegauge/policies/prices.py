"""What tokens cost: the prices that a user gives, else a table with a date.

A price is one number for all tokens, or has its parts::

    "my-model" = 1.5
    "other-model" = { input = 3, output = 15, cache_read = 0.3, cache_write = 3.75 }
"""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from importlib.resources import files
from typing import Any, Final, NamedTuple, TypeAlias

from tidegauge.errors import ConfigurationError
from tidegauge.events import ModelUsage
from tidegauge.fields import content_of

DOLLAR: Final = 10**15
"""Dollars are added up in whole parts of this: exactly, in whatever order."""

_PER_TOKEN: Final = DOLLAR // 10**6
_DATED: Final = re.compile(r"[-@](\d{8}|\d{4}-\d\d-\d\d)\Z")
_PARTS: Final = ("input", "output", "cache_read", "cache_write")


class ModelPrice(NamedTuple):
    """$ per million tokens.

    Args:
        input: of tokens that the model reads, and of all tokens if ``output`` is ``None``.
        output: of tokens that it writes, those of its reasoning included.
        cache_read: of read tokens that came from the provider's cache; ``None``: as others.
        cache_write: of read tokens that were written to it; ``None``: as others.
    """

    input: float
    output: float | None = None
    cache_read: float | None = None
    cache_write: float | None = None

    @classmethod
    def of(cls, given: object) -> ModelPrice:
        """A price as users give it: a number, or its parts by name.

        Raises:
            ValueError: it is something else.

        >>> ModelPrice.of({"input": 3, "output": 15}).output
        15.0
        """
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            return cls(_amount(given))
        if not {"input", "output"} <= given.keys() <= set(_PARTS):
            raise ValueError("no price")
        return cls(**{name: _amount(value) for name, value in given.items()})

    def cost(self, usage: ModelUsage) -> int | None:
        """What a model call cost, in parts of :data:`DOLLAR`; ``None``, that is not known.

        >>> ModelPrice(3, 15, 0.3).cost(ModelUsage(None, 1000, 10, cache_read_tokens=900)) / DOLLAR
        0.00072
        """
        read, written = usage.input_tokens, usage.output_tokens
        if self.output is None:
            tokens = usage.total
            return None if tokens is None else tokens * _units(self.input)
        if read is None or written is None:
            return None
        cost = written * _units(self.output)
        for tokens, price in (
            (usage.cache_read_tokens, self.cache_read),
            (usage.cache_write_tokens, self.cache_write),
        ):
            if tokens is not None and price is not None:
                cost += tokens * _units(price)
                read -= tokens
        return cost + max(read, 0) * _units(self.input)


Prices: TypeAlias = Mapping[str, ModelPrice]


def read_prices(path: str | os.PathLike[str]) -> dict[str, ModelPrice]:
    """The prices in a TOML file, by model.

    Raises:
        ConfigurationError: the file cannot be read, or has something else than prices.
    """
    return _read(content_of(path, "prices", megabytes=1), os.fspath(path))


@lru_cache(maxsize=1)
def default_prices() -> Prices:
    """The table that applies if the user gives no prices; its file has its date."""
    name = "prices.toml"
    return _read(files(__package__).joinpath(name).read_bytes(), name)


def price_of(prices: Prices, *models: str | None) -> ModelPrice | None:
    """The price of the first of these names that is known, with or without a date at its end.

    >>> price_of({"some-model": ModelPrice(1)}, None, "some-model-2026-01-31")
    ModelPrice(input=1, output=None, cache_read=None, cache_write=None)
    """
    for model in models:
        if model is not None:
            found = prices.get(model) or prices.get(_DATED.sub("", model))
            if found is not None:
                return found
    return None


def flat_prices(prices: Prices) -> dict[str, float]:
    """Those that are one number, for all that knows of tokens only how many there were."""
    return {model: price.input for model, price in prices.items() if price.output is None}


def _read(content: bytes, name: str) -> dict[str, ModelPrice]:
    try:
        found = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{name} is not valid TOML: {error}") from error
    prices = {}
    for model, price in found.items():
        try:
            prices[model] = ModelPrice.of(price)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"{name}: the price of {model!r} is {price!r}; use $ per million tokens, or "
                "{ input = 3, output = 15, cache_read = 0.3, cache_write = 3.75 }, and put "
                'names with dots in quotes, as in "my-model-1.5" = 2'
            ) from error
    return prices


def _amount(given: Any) -> float:
    price = float(given)
    if isinstance(given, bool | str) or not 0 <= price < math.inf:
        raise ValueError("no price")
    return price


@lru_cache(maxsize=1_000)
def _units(price: float) -> int:
    """Of one token, from $ per million tokens."""
    return int((Decimal(repr(price)) * _PER_TOKEN).to_integral_value())

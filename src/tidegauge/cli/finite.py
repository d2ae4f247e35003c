"""Numbers on the command line: ``nan`` and ``inf`` are none of them."""

from __future__ import annotations

import math
from typing import Any

import click

__all__ = ["FiniteRange"]


class FiniteRange(click.FloatRange):
    """A range of floats without ``nan``, which is in every range of click's, and the infinities.

    >>> FiniteRange(0, 1).convert("0.5", None, None)
    0.5
    >>> FiniteRange(min=0).convert("inf", None, None)
    Traceback (most recent call last):
        ...
    click.exceptions.BadParameter: 'inf' is no finite number.
    """

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is no finite number.", param, ctx)
        return number

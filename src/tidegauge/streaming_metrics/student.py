"""Student's t: how many standard errors an interval reaches to either side."""

from __future__ import annotations

import math
from typing import Final

_NORMAL_FROM: Final = 1e7
"""Degrees of freedom from which on t differs from the normal distribution by less than 1e-6."""

_TINY: Final = 1e-300
_CLOSE: Final = 1e-15
_MAX_TERMS: Final = 1_000  # a few are needed


def student_quantile(probability: float, degrees: float) -> float:
    """The t that a variable of Student's distribution exceeds with ``1 - probability``.

    Both tails together hold I_x(degrees/2, 1/2) with x = degrees / (degrees + t**2), where I is
    the regularised incomplete beta function; x is found by halving. Welch's degrees of freedom
    are not whole numbers, so a table does not suffice.

    Args:
        probability: from 0.5 up to, and not including, 1.
        degrees: degrees of freedom, 1 or more; need not be whole.

    Raises:
        ValueError: an argument out of these ranges.

    >>> round(student_quantile(0.975, 10), 4), round(student_quantile(0.975, 1), 3)
    (2.2281, 12.706)
    """
    if not 0.5 <= probability < 1 or not degrees >= 1:
        raise ValueError("probability must be in [0.5, 1), and degrees at least 1")
    if degrees >= _NORMAL_FROM:
        from statistics import NormalDist  # takes longer to import than all the rest here

        return NormalDist().inv_cdf(probability)
    tails = 2 * (1 - probability)
    low, high = 0.0, 1.0
    while high - low > _CLOSE * high:
        x = (low + high) / 2
        if _beta(x, degrees / 2) < tails:
            low = x
        else:
            high = x
    return math.sqrt(degrees * (1 - high) / high)


def _beta(x: float, a: float) -> float:
    """I_x(a, 1/2), by the continued fraction on the side where it converges fast."""
    b = 0.5
    constant = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(constant + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(x, a, b) / a
    return 1 - front * _fraction(1 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of I_x(a, b), by Lentz's method."""
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    result = d
    for m in range(1, _MAX_TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 / _away_from_zero(1 + term * d)
            c = _away_from_zero(1 + term / c)
            result *= c * d
        if abs(c * d - 1) < _CLOSE:
            break
    return result


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY

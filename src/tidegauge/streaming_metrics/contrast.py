"""Runs in two parts: an AUV of each, their difference, and what is known of its accuracy.

The accuracy is that of Welch's t-test, with the quantiles of Student's distribution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar, Final, Generic, NamedTuple, Self, TypeVar

from tidegauge.streaming_metrics.auv import AUV
from tidegauge.streaming_metrics.metric import GroupMetric, Stateful
from tidegauge.streaming_metrics.records import FinishedRun

K = TypeVar("K", bound=str | int)
M = TypeVar("M", bound=GroupMetric)


class Split(Stateful, Generic[K, M]):
    """A group metric for each key, up to ``max_keys``; all further keys share one more.

    Args:
        make: makes the metric of a new key. Not part of :meth:`state`.
        other: the shared key beyond the cap.
        max_keys: keys distinguished.

    >>> from tidegauge.streaming_metrics.success import SuccessRate
    >>> rates = Split(SuccessRate, other="other", max_keys=2)
    >>> for model, success in [("a", True), ("b", False), ("a", False), ("c", True)]:
    ...     rates.update(model, FinishedRun(success, steps=1))
    >>> {model: rate.value for model, rate in rates.parts.items()}
    {'a': 0.5, 'b': 0.0, 'other': 1.0}
    """

    unsaved: ClassVar[frozenset[str]] = frozenset({"make"})
    __slots__ = ("_parts", "make", "max_keys", "other")

    def __init__(self, make: Callable[[], M], *, other: K, max_keys: int) -> None:
        self.make = make
        self.other = other
        self.max_keys = max_keys
        self._parts: dict[K, M] = {}

    def update(self, key: K, run: FinishedRun) -> None:
        """Take a finished run of that key."""
        self._part(key).update(run)

    def add(self, key: K, part: M) -> None:
        """Take in the runs of that key which another metric has seen."""
        self._part(key).merge(part)

    def merge(self, other: Self) -> None:
        """Add the runs of ``other``, key by key."""
        for key, part in other._parts.items():
            self.add(key, part)

    @property
    def parts(self) -> Mapping[K, M]:
        """The metric of each key that had a run."""
        return MappingProxyType(self._parts)

    def _part(self, key: K) -> M:
        parts = self._parts
        if key not in parts:
            if len(parts) - (self.other in parts) >= self.max_keys:
                key = self.other
            parts.setdefault(key, self.make())
        return parts[key]


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


class Contrast(NamedTuple):
    """One AUV minus another.

    Attributes:
        value: the difference, -1 to 1.
        standard_error: of the difference; ``None`` while either side has fewer than two runs,
            and then so are the rest.
        degrees: Welch's degrees of freedom.
        low: lower end of the confidence interval.
        high: upper end.
    """

    value: float
    standard_error: float | None = None
    degrees: float | None = None
    low: float | None = None
    high: float | None = None


def contrast(left: AUV, right: AUV, *, confidence: float = 0.95) -> Contrast | None:
    """``left`` minus ``right``, with Welch's interval: the spreads may differ.

    Args:
        left: runs of one kind.
        right: runs of the other.
        confidence: share of such intervals that hold the true difference.

    Returns:
        ``None`` while either side has no run. Where no run differs from its like, the standard
        error is 0 and the interval a point: more runs are needed to know better.

    Raises:
        ValueError: ``confidence`` is not in [0, 1).

    >>> from tidegauge.streaming_metrics.records import FinishedRun
    >>> soon, late = AUV(), AUV()
    >>> for turn in (1, 2, 3, 4):
    ...     soon.update(FinishedRun(True, steps=turn, t_max=10))
    ...     late.update(FinishedRun(True, steps=turn + 5, t_max=10))
    >>> difference = contrast(soon, late)
    >>> [round(number, 3) for number in difference]
    [0.5, 0.091, 6.0, 0.277, 0.723]
    """
    if left.value is None or right.value is None:
        return None
    value = left.value - right.value
    left_error, right_error = left.standard_error, right.standard_error
    if left_error is None or right_error is None:
        return Contrast(value)
    degrees = _degrees(left_error, left.runs, right_error, right.runs)
    error = math.hypot(left_error, right_error)
    reach = student_quantile((1 + confidence) / 2, degrees) * error
    return Contrast(value, error, degrees, value - reach, value + reach)


def _degrees(left_error: float, left_runs: int, right_error: float, right_runs: int) -> float:
    """Degrees of freedom of the difference (Welch and Satterthwaite)."""
    # As shares of the larger: fourth powers of small errors would be lost.
    largest = max(left_error, right_error)
    if not largest:
        return float(left_runs + right_runs - 2)
    left, right = (left_error / largest) ** 2, (right_error / largest) ** 2
    return (left + right) ** 2 / (left**2 / (left_runs - 1) + right**2 / (right_runs - 1))

"""The difference of two AUVs, with what is known of its accuracy."""

from __future__ import annotations

import math
from typing import NamedTuple

from tidegauge.streaming_metrics.auv import AUV
from tidegauge.streaming_metrics.student import student_quantile


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

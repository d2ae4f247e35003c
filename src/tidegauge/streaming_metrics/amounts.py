"""What a step tells of itself, put into numbers that can be added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["added", "all_failed", "amount"]

_MAX_AMOUNT: Final = 2.0**53


def all_failed(results: Sequence[tuple[object, bool | None]], calls: int) -> bool | None:
    """Whether every call of a round failed, from (result, failed) of each; ``None``, not known.

    >>> all_failed([("a", True), ("b", None)], 2) is None
    True
    """
    if calls == 1 and results:
        return results[0][1]
    errors = [failed for _, failed in results[:calls]]
    if False in errors:
        return False
    return True if errors and None not in errors and len(errors) >= calls else None


def amount(told: float | None) -> float | None:
    """What was told, if it can be added up: a negative number or NaN would spoil a counter."""
    return told if told is not None and 0 <= told <= _MAX_AMOUNT else None


def added(left: float | None, right: float | None) -> float | None:
    """The sum of what was told; ``None``, neither was."""
    if left is None or right is None:
        return right if left is None else left
    return left + right

"""How things are measured: interleaved rounds, medians, and a line with its target."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Line", "medians"]


@dataclass(frozen=True, slots=True)
class Line:
    """One measured number and what it is to stay under.

    Args:
        name: what was measured.
        value: the number.
        unit: its unit; ``x`` for a ratio.
        limit: the target; ``None``, a number to compare with, without a target.
        at_least: whether the mark is a lower bound.
        note: how to read it.
    """

    name: str
    value: float
    unit: str = "x"
    limit: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def met(self) -> bool | None:
        """Whether the mark is met; ``None`` without one."""
        if self.limit is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


def medians(
    subjects: Mapping[str, Callable[[], object]], *, rounds: int = 15, inner: int = 1
) -> dict[str, float]:
    """Median seconds of one call of each subject, taken in turns so that noise hits all alike.

    Args:
        subjects: what to call, by name.
        rounds: how often each takes its turn, after one to warm up.
        inner: what one call of a subject counts for.
    """
    times: dict[str, list[float]] = {name: [] for name in subjects}
    for number in range(rounds + 1):
        for name, subject in subjects.items():
            gc.collect()
            began = time.perf_counter()
            subject()
            if number:
                times[name].append((time.perf_counter() - began) / inner)
    return {name: statistics.median(taken) for name, taken in times.items()}

"""How agents explore, as in figures 1 and 4a of Exploration and Exploitation Errors (E&E).

Source: Exploration and Exploitation Errors Are Measurable for Language Model Agents
(arXiv 2604.13151).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tidegauge.diagnose.recorded_run import ReportedRun

PARTS: Final = 10
"""Parts of equal length into which a run is divided."""

_LEAST_GROUPS: Final = 3


def exploration_fractions(runs: Sequence[ReportedRun]) -> list[float | None] | None:
    """Share of the steps that entered a new place, in each tenth of the runs (E&E, figure 4a).

    Runs that report no places are left out; ``None`` if all are.
    """
    entered, steps = [0] * PARTS, [0] * PARTS
    for run in runs:
        if run.report.frontier is None:
            continue
        for index, new in enumerate(_new_places(run)):
            part = index * PARTS // len(run.steps)
            steps[part] += 1
            entered[part] += new
    if not any(steps):
        return None
    return [new / of if of else None for new, of in zip(entered, steps, strict=True)]


def _new_places(run: ReportedRun) -> list[bool]:
    """Of each step, whether it led to a place where the run had not been."""
    seen: set[str] = set()
    first = []
    for step in run.steps:
        first.append(step.place not in seen)
        seen.add(step.place)
    # A step has the place before it, so the next step shows where it led. Where the last one led is
    # known from the number of places.
    last = (run.report.distinct_places or 0) > len(seen)
    return [*first[1:], last] if first else []


def error_fits(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """How the success rate depends on the logarithm of an error (E&E, figure 1).

    A straight line through the agents of a task group, or their memory arms, by least squares:
    success = slope x log10(error) + intercept, and the share R2 of the variance that it explains.
    Groups without an error, or with one of 0, are left out, because they have no logarithm. At
    least three groups with different errors are needed.

    Args:
        groups: entries of groups, as in ``replay --json``.
    """
    fits = []
    for task_group in dict.fromkeys(group["task_group"] for group in groups):
        own = [group for group in groups if group["task_group"] == task_group]
        for kind in ("exploration_error", "exploitation_error"):
            points = [
                (math.log10(group[kind]), group["success_rate"])
                for group in own
                if group[kind] and group["success_rate"] is not None
            ]
            errors = [error for error, _ in points]
            if len(points) < _LEAST_GROUPS or len(set(errors)) == 1:
                continue
            rates = [rate for _, rate in points]
            line = statistics.linear_regression(errors, rates)
            flat = len(set(rates)) == 1
            fits.append(
                {
                    "task_group": task_group,
                    "error": kind.removesuffix("_error"),
                    "groups": len(points),
                    "slope": line.slope,
                    "intercept": line.intercept,
                    "r2": None if flat else statistics.correlation(errors, rates) ** 2,
                }
            )
    return fits

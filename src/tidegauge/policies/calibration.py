"""Calibration: thresholds of scores, with a bound on the successful runs that exceed them.

Split conformal prediction. The score of a run is its highest; the threshold is the k-th smallest
score of n successful runs, k = ceil((n + 1)(1 - alpha)). A new successful run from the same mix is
equally likely to fall into any of the n + 1 gaps between them, so it exceeds the threshold with a
probability of at most 1 - k / (n + 1), which is at most alpha, for any score and distribution. If k
is more than n, there are too few runs for the bound, and there is no threshold.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

from tidegauge.errors import ConfigurationError
from tidegauge.policies.rule import PolicyAction
from tidegauge.policies.scores import score_named
from tidegauge.policies.thresholds import Threshold
from tidegauge.policies.trace import RunTrace

__all__ = [
    "By",
    "CalibratedGroup",
    "calibrate",
    "conformal_rank",
    "conformal_threshold",
    "false_stop_bound",
    "least_runs",
]

By: TypeAlias = Literal["agent", "task_group"]


def conformal_rank(runs: int, alpha: float) -> int | None:
    """Which of the ``runs`` scores, from the smallest, is the threshold; ``None``, too few.

    ``alpha`` is exact, as the decimal number that is written: 0.05 is 1/20.

    >>> conformal_rank(19, 0.05), conformal_rank(18, 0.05), conformal_rank(100, 0.05)
    (19, None, 96)
    """
    rank = math.ceil((runs + 1) * (1 - _exactly(alpha)))
    return rank if rank <= runs else None


def conformal_threshold(scores: Iterable[float], alpha: float) -> float | None:
    """The score that a successful run exceeds with a probability of at most ``alpha``.

    ``None`` if there are too few runs, or if the score was measured in too few of them (it is
    ``-inf`` in the others).
    """
    ordered = sorted(scores)
    rank = conformal_rank(len(ordered), alpha)
    if rank is None or ordered[rank - 1] == -math.inf:
        return None
    return ordered[rank - 1]


def false_stop_bound(runs: int, alpha: float) -> float | None:
    """The bound on successful runs above the threshold; ``None``, there are too few runs.

    >>> false_stop_bound(19, 0.05)
    0.05
    """
    rank = conformal_rank(runs, alpha)
    return None if rank is None else float(1 - Fraction(rank, runs + 1))


def least_runs(alpha: float) -> int:
    """How many successful runs a threshold needs.

    >>> least_runs(0.05), least_runs(0.01)
    (19, 99)
    """
    share = _exactly(alpha)
    return math.ceil((1 - share) / share)


class CalibratedGroup(NamedTuple):
    """What was learned from one group of runs.

    Attributes:
        agent: its agent; ``None``, any.
        task_group: its task group; ``None``, any.
        score: which score.
        runs: number of successful runs.
        threshold: the threshold; ``None``, too few runs.
    """

    agent: str | None
    task_group: str | None
    score: str
    runs: int
    threshold: Threshold | None


def calibrate(
    traces: Iterable[RunTrace],
    *,
    score: str,
    alpha: float,
    by: Sequence[By] = ("agent", "task_group"),
    action: PolicyAction = "observe",
    calibrated: float | None = None,
) -> list[CalibratedGroup]:
    """Learn the threshold of every group from its successful runs, in the order of first runs.

    Args:
        traces: runs; those that failed, or whose success is unknown, are ignored.
        score: which score.
        alpha: share of successful runs that may exceed it, more than 0 and less than 1.
        by: the labels that distinguish groups; without any, all runs are one group.
        action: the action when a run exceeds it.
        calibrated: when, in seconds since the epoch.

    Raises:
        ConfigurationError: alpha is out of range, or the score is unknown.
    """
    _exactly(alpha)
    score_named(score)
    groups: dict[tuple[str | None, str | None], list[float]] = {}
    for trace in traces:
        agent = trace.agent if "agent" in by else None
        task_group = trace.task_group if "task_group" in by else None
        scores = groups.setdefault((agent, task_group), [])
        if trace.success:
            scores.append(trace.highest(score))
    found = []
    for (agent, task_group), scores in groups.items():
        limit = conformal_threshold(scores, alpha)
        threshold = (
            None
            if limit is None
            else Threshold(
                score,
                limit,
                action,
                agent=agent,
                task_group=task_group,
                runs=len(scores),
                alpha=alpha,
                calibrated=calibrated,
            )
        )
        found.append(CalibratedGroup(agent, task_group, score, len(scores), threshold))
    return found


def _exactly(alpha: float) -> Fraction:
    share = Fraction(str(alpha)) if math.isfinite(alpha) else Fraction(0)
    if not 0 < share < 1:
        raise ConfigurationError(f"alpha is {alpha:g}; use more than 0 and less than 1")
    return share

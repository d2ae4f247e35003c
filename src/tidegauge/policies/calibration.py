"""Calibration: a line that good runs stay below, with a promise of how many do.

Split conformal prediction. The score of a run is its highest; the line is the k-th smallest score
of n good runs, k = ceil((n + 1)(1 - alpha)). A new good run from the same mix is as likely to fall
into any of the n + 1 gaps between them, so that it crosses the line with a probability of at most
1 - k / (n + 1), which is at most alpha: whatever the score and however it is distributed. Where k
is more than n there are too few runs for that promise, and there is no line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

from tidegauge.errors import ConfigurationError
from tidegauge.policies.line import Line
from tidegauge.policies.rule import Rung
from tidegauge.policies.scores import score_named
from tidegauge.policies.trace import RunTrace

__all__ = [
    "By",
    "CalibratedGroup",
    "calibrate",
    "conformal_line",
    "conformal_rank",
    "least_runs",
    "promised",
]

By: TypeAlias = Literal["agent", "task_group"]


def conformal_rank(runs: int, alpha: float) -> int | None:
    """Which of the ``runs`` scores, from the smallest, is the line; ``None``, there are too few.

    ``alpha`` is taken as the decimal number that it is written as: 0.05 is a twentieth.

    >>> conformal_rank(19, 0.05), conformal_rank(18, 0.05), conformal_rank(100, 0.05)
    (19, None, 96)
    """
    rank = math.ceil((runs + 1) * (1 - _exactly(alpha)))
    return rank if rank <= runs else None


def conformal_line(scores: Iterable[float], alpha: float) -> float | None:
    """The score that a good run is beyond with a probability of at most ``alpha``.

    ``None`` where there are too few runs to say so, or where so few of them had the score
    measured (``-inf``) that none of it can be told.
    """
    ordered = sorted(scores)
    rank = conformal_rank(len(ordered), alpha)
    if rank is None or ordered[rank - 1] == -math.inf:
        return None
    return ordered[rank - 1]


def promised(runs: int, alpha: float) -> float | None:
    """The share of good runs that may cross, at most; ``None``, there are too few for a line.

    >>> promised(19, 0.05)
    0.05
    """
    rank = conformal_rank(runs, alpha)
    return None if rank is None else float(1 - Fraction(rank, runs + 1))


def least_runs(alpha: float) -> int:
    """How many good runs a line needs.

    >>> least_runs(0.05), least_runs(0.01)
    (19, 99)
    """
    share = _exactly(alpha)
    return math.ceil((1 - share) / share)


class CalibratedGroup(NamedTuple):
    """What was learned of one group of runs.

    Attributes:
        agent: its agent; ``None``, any.
        task_group: its task group; ``None``, any.
        score: which score.
        runs: how many good runs there are.
        line: the line; ``None``, they are too few.
    """

    agent: str | None
    task_group: str | None
    score: str
    runs: int
    line: Line | None


def calibrate(
    traces: Iterable[RunTrace],
    *,
    score: str,
    alpha: float,
    by: Sequence[By] = ("agent", "task_group"),
    rung: Rung = "observe",
    calibrated: float | None = None,
) -> list[CalibratedGroup]:
    """Learn the line of every group from its good runs, in the order of the groups' first runs.

    Args:
        traces: runs; those that did not succeed, or of which it is not known, are left out.
        score: which score.
        alpha: share of good runs that may cross, more than 0 and less than 1.
        by: what tells groups apart; nothing, all runs are one.
        rung: what is to follow when a run crosses.
        calibrated: when, in seconds since the epoch.

    Raises:
        ConfigurationError: alpha is no such share, or there is no such score.
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
        above = conformal_line(scores, alpha)
        line = (
            None
            if above is None
            else Line(
                score,
                above,
                rung,
                agent=agent,
                task_group=task_group,
                runs=len(scores),
                alpha=alpha,
                calibrated=calibrated,
            )
        )
        found.append(CalibratedGroup(agent, task_group, score, len(scores), line))
    return found


def _exactly(alpha: float) -> Fraction:
    share = Fraction(str(alpha)) if math.isfinite(alpha) else Fraction(0)
    if not 0 < share < 1:
        raise ConfigurationError(f"alpha is to be more than 0 and less than 1, not {alpha:g}")
    return share

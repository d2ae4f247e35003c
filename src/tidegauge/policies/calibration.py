"""Calibration: thresholds of scores, with a bound on the successful runs that exceed them.

The score of a run is its highest. A threshold is learned from the scores of successful runs, as a
:class:`Guarantee` asks for.

- ``marginal``, split conformal prediction: the threshold is the k-th smallest score of n runs,
  k = ceil((n + 1)(1 - alpha)). A new successful run from the same mix is equally likely to fall
  into any of the n + 1 gaps between them, so it exceeds the threshold with a probability of at most
  1 - k / (n + 1), which is at most alpha, for any score and distribution. This holds on average
  over all calibrations: a single threshold may be exceeded more often.
- ``pac``, probably approximately correct: the threshold is the smallest order statistic k with
  P(Bin(n, 1 - alpha) >= k) <= 1 - confidence. With that confidence, the threshold that was learned
  is exceeded by at most alpha of all successful runs.

If k is more than n, there are too few runs, and there is no threshold.

Two conditions, both checked here. The runs must be all those that succeeded: a policy that stops
runs hides some of them, so runs that a threshold could end are left out. And they must be
independent: attempts at one task are not, so with ``by_task`` each task has the same weight,
however many attempts it has (Lee, Barber and Willett, Distribution-free inference with hierarchical
data, arXiv 2306.06342), and for ``pac`` counts by its highest score.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final, Literal, NamedTuple, TypeAlias

from tidegauge.errors import ConfigurationError
from tidegauge.policies.rule import PolicyAction
from tidegauge.policies.shift import spread
from tidegauge.policies.thresholds import Score, Threshold, score_named
from tidegauge.policies.trace import RunTrace

By: TypeAlias = Literal["agent", "task_group"]
GuaranteeKind: TypeAlias = Literal["marginal", "pac"]

_MOST_RUNS: Final = 1 << 40
_ROUNDING: Final = 1e-9
"""Of a sum of binomial probabilities, so that one that is equal to the limit is not above it."""


@dataclass(frozen=True)
class Guarantee:
    """The bound on the share of successful runs that exceed a threshold.

    Args:
        alpha: the share, more than 0 and less than 1. It is exact, as the decimal number that is
            written: 0.05 is 1/20.
        kind: ``marginal``, on average over all calibrations; ``pac``, of this calibration, with the
            confidence.
        confidence: of ``pac``, more than 0 and less than 1.

    Raises:
        ConfigurationError: a number is out of range.

    >>> marginal, pac = Guarantee(0.05), Guarantee(0.05, "pac", confidence=0.9)
    >>> marginal.rank(18), marginal.rank(19), marginal.rank(100)
    (None, 19, 96)
    >>> pac.rank(44), pac.rank(45), pac.rank(100)
    (None, 45, 99)
    """

    alpha: float
    kind: GuaranteeKind = "marginal"
    confidence: float = 0.9
    _share: Fraction = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_share", _exactly("alpha", self.alpha))
        _exactly("confidence", self.confidence)

    def rank(self, runs: int) -> int | None:
        """Which of the scores of ``runs`` runs, from the smallest, is the threshold.

        ``None``: there are too few runs.
        """
        if self.kind == "pac":
            return self._pac_rank(runs)
        rank = math.ceil((runs + 1) * (1 - self._share))
        return rank if rank <= runs else None

    def least_runs(self) -> int:
        """How many successful runs a threshold needs.

        >>> Guarantee(0.05).least_runs(), Guarantee(0.05, "pac").least_runs()
        (19, 45)
        """
        return self._least_with(0)

    def next_runs(self, runs: int) -> int:
        """The number of successful runs from which one more of them may be above the threshold.

        >>> Guarantee(0.05).next_runs(19), Guarantee(0.05, "pac").next_runs(45)
        (39, 77)
        """
        rank = self.rank(runs)
        return self._least_with(0 if rank is None else runs - rank + 1)

    def threshold(self, tasks: Iterable[Sequence[float]]) -> float | None:
        """The threshold for the scores of successful runs, grouped by task.

        Args:
            tasks: the scores of each task's runs; where runs are independent, one run each. A score
                that was not measured is ``-inf``.

        Returns:
            The threshold; ``None`` if there are too few tasks, or if the score was measured in too
            few runs.
        """
        known = [scores for scores in tasks if scores]
        rank = self.rank(len(known))
        if rank is None:
            return None
        if self.kind == "pac":
            found = sorted(max(scores) for scores in known)[rank - 1]
        else:
            found = _weighted_quantile(known, 1 - self._share)
        return None if found == -math.inf else found

    def share_above(self, tasks: Iterable[Sequence[float]]) -> float | None:
        """The bound for these scores, at most alpha; ``None``, there are too few.

        >>> Guarantee(0.05).share_above([[1.0]] * 24)
        0.04
        """
        known = [scores for scores in tasks if scores]
        rank = self.rank(len(known))
        if rank is None:
            return None
        if self.kind == "pac" or any(len(scores) > 1 for scores in known):
            return self.alpha
        return float(1 - Fraction(rank, len(known) + 1))

    def _least_with(self, above: int) -> int:
        """The smallest number of runs that leaves so many of them above the threshold."""
        low, high = above, above + 1
        while (rank := self.rank(high)) is None or high - rank < above:
            low, high = high, 2 * high
            if high > _MOST_RUNS:
                break
        while high - low > 1:
            middle = (low + high) // 2
            rank = self.rank(middle)
            low, high = (middle, high) if rank is None or middle - rank < above else (low, middle)
        return high

    def _pac_rank(self, runs: int) -> int | None:
        """The smallest k with P(Bin(runs, 1 - alpha) >= k) <= 1 - confidence."""
        above, share = math.log(self._share), math.log1p(-float(self._share))
        most, tail = (1 - self.confidence) * (1 + _ROUNDING), 0.0
        for rank in range(runs, -1, -1):
            chosen = math.lgamma(runs + 1) - math.lgamma(rank + 1) - math.lgamma(runs - rank + 1)
            tail += math.exp(chosen + rank * share + (runs - rank) * above)
            if tail > most:
                return rank + 1 if rank < runs else None
        return None


class CalibratedGroup(NamedTuple):
    """What was learned from one group of runs.

    Attributes:
        agent: its agent; ``None``, any.
        task_group: its task group; ``None``, any.
        runs: number of successful runs that the threshold was learned from.
        tasks: number of their tasks; without ``by_task``, of the runs.
        could_be_ended: number of successful runs that are left out, because a policy could end
            them.
        threshold: the threshold; ``None``, too few runs.
        share_above: the bound on the share of successful runs above it; ``None``, too few runs.
    """

    agent: str | None
    task_group: str | None
    score: str
    runs: int
    tasks: int
    could_be_ended: int
    threshold: Threshold | None
    share_above: float | None


class _Group:
    """The successful runs of a group."""

    def __init__(self) -> None:
        self.tasks: dict[object, list[float]] = {}
        self.agents: set[str] = set()
        self.task_groups: set[str] = set()
        self.could_be_ended = 0


def calibrate(
    traces: Iterable[RunTrace],
    *,
    score: str | Score,
    guarantee: Guarantee,
    by: Sequence[By] = ("agent", "task_group"),
    by_task: bool = False,
    action: PolicyAction = "observe",
    calibrated: float | None = None,
) -> list[CalibratedGroup]:
    """Learn the threshold of every group from its successful runs, in the order of first runs.

    Args:
        traces: runs; those that failed, or whose success is unknown, are ignored, and so are those
            that a calibrated threshold could end when they were recorded.
        by: the labels that distinguish groups; without any, all runs are one group.
        by_task: whether runs of one task may be alike; a run without a task is one by itself.
        action: the action when a run exceeds it.

    Raises:
        ConfigurationError: the score is unknown.
    """
    of = score_named(score) if isinstance(score, str) else score
    groups: dict[tuple[str | None, str | None], _Group] = {}
    for trace in traces:
        agent = trace.agent if "agent" in by else None
        task_group = trace.task_group if "task_group" in by else None
        group = groups.setdefault((agent, task_group), _Group())
        if not trace.success:
            continue
        if trace.could_be_ended:
            group.could_be_ended += 1
            continue
        task = trace.task if by_task and trace.task is not None else trace
        group.tasks.setdefault(task, []).append(trace.highest(of.name))
        group.agents.add(trace.agent)
        group.task_groups.add(trace.task_group)
    return [
        _calibrated(
            group,
            Threshold(
                of.name,
                math.inf,
                action,
                agent=agent,
                task_group=task_group,
                runs=sum(map(len, group.tasks.values())),
                alpha=guarantee.alpha,
                calibrated=calibrated,
                agents=() if agent is not None else tuple(sorted(group.agents)),
                task_groups=() if task_group is not None else tuple(sorted(group.task_groups)),
                learned=of.learned,
            ),
            guarantee,
        )
        for (agent, task_group), group in groups.items()
    ]


def _calibrated(group: _Group, draft: Threshold, guarantee: Guarantee) -> CalibratedGroup:
    tasks = list(group.tasks.values())
    found = guarantee.threshold(tasks)
    return CalibratedGroup(
        draft.agent,
        draft.task_group,
        draft.score,
        draft.runs,
        len(tasks),
        group.could_be_ended,
        None
        if found is None
        else replace(
            draft,
            threshold=found,
            scores=spread([score for scores in tasks for score in scores], found),
        ),
        guarantee.share_above(tasks),
    )


def _weighted_quantile(tasks: Sequence[Sequence[float]], share: Fraction) -> float:
    """The smallest score that this share of the weights does not exceed.

    Each of n tasks, and one more whose scores are infinite, has the same weight; the runs of a task
    divide it.
    """
    unit = math.lcm(*(len(scores) for scores in tasks))
    weighted = sorted((value, unit // len(scores)) for scores in tasks for value in scores)
    needed = share * unit * (len(tasks) + 1)
    reached = 0
    for value, weight in weighted:
        reached += weight
        if reached >= needed:
            return value
    return math.inf


def _exactly(name: str, value: float) -> Fraction:
    share = Fraction(str(value)) if math.isfinite(value) else Fraction(0)
    if not 0 < share < 1:
        raise ConfigurationError(f"{name} is {value:g}; use more than 0 and less than 1")
    return share

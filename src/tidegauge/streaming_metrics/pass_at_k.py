"""pass@k: of k attempts at one task, is any solved?"""

from __future__ import annotations

import math
from typing import Final, Self

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.streaming_metrics.declaration import (
    GroupDeclaration,
    GroupView,
    Measured,
    MetricValue,
)
from tidegauge.streaming_metrics.fingerprint import content_digest
from tidegauge.streaming_metrics.metric import GroupMetric
from tidegauge.streaming_metrics.records import FinishedRun


def pass_at_k(runs: int, solved: int, k: int) -> float:
    """Chance that at least one of ``k`` runs, drawn from ``runs`` without return, is solved.

    Args:
        runs: runs of one task, at least ``k``.
        solved: how many of them were solved.
        k: attempts.

    >>> pass_at_k(5, 2, 1), pass_at_k(5, 2, 2), pass_at_k(5, 2, 4)
    (0.4, 0.7, 1.0)
    """
    return 1 - math.comb(runs - solved, k) / math.comb(runs, k)


class PassAtK(GroupMetric):
    """Mean over tasks of the chance that one of ``k`` attempts solves the task.

    The estimate is unbiased: 1 - C(n - c, k) / C(n, k) for a task with c of n runs solved, over
    the tasks with at least k runs. Runs without a task, or whose success is unknown, are
    ignored. Tasks are distinguished by the digest of their name.

    O(1) a run, O(tasks) a reading. Memory grows with the tasks, up to ``max_tasks``; runs of
    further tasks are dropped and counted in :attr:`dropped_runs`.

    Source: Chen et al., Evaluating Large Language Models Trained on Code (arXiv 2107.03374),
    section 2.1.

    Args:
        k: attempts, for :attr:`value`; :meth:`at` takes any.
        max_tasks: tasks distinguished.

    >>> passed = PassAtK(k=2)
    >>> for task, success in [("a", True), ("a", False), ("b", False), ("b", False), ("c", True)]:
    ...     passed.update(FinishedRun(success, steps=3, task=task))
    >>> passed.value, round(passed.at(1), 3)
    (0.5, 0.5)
    """

    __slots__ = ("_tasks", "dropped_runs", "k", "max_tasks")

    def __init__(self, *, k: int = 1, max_tasks: int = 10_000) -> None:
        self.k = k
        self.max_tasks = max_tasks
        self.dropped_runs = 0
        self._tasks: dict[bytes, tuple[int, int]] = {}  # runs, and how many were solved

    def update(self, step: FinishedRun) -> None:
        """Take a finished run."""
        if step.task is not None and step.success is not None:
            task = content_digest(step.task)
            if task is not None:
                self._add(task, 1, int(step.success))

    def merge(self, other: Self) -> None:
        """Add the runs of ``other``, task by task."""
        self.dropped_runs += other.dropped_runs
        if not self._tasks and len(other._tasks) <= self.max_tasks:
            self._tasks = other._tasks.copy()
            return
        for task, (runs, solved) in other._tasks.items():
            self._add(task, runs, solved)

    def at(self, k: int) -> float | None:
        """pass@k; ``None`` while no task has ``k`` runs."""
        passed = [pass_at_k(runs, solved, k) for runs, solved in self._tasks.values() if runs >= k]
        return math.fsum(passed) / len(passed) if passed else None

    def tasks(self, k: int = 1) -> int:
        """How many tasks have at least ``k`` runs."""
        return sum(runs >= k for runs, _ in self._tasks.values())

    @property
    def value(self) -> float | None:
        """pass@k for the ``k`` it was made with, 0 to 1; ``None`` while no task has k runs."""
        return self.at(self.k)

    def _add(self, task: bytes, runs: int, solved: int) -> None:
        before = self._tasks.get(task)
        if before is not None:
            self._tasks[task] = (before[0] + runs, before[1] + solved)
        elif len(self._tasks) < self.max_tasks:
            self._tasks[task] = (runs, solved)
        else:
            self.dropped_runs += runs


_ATTEMPTS: Final = (1, 2, 4, 8)
_MAX_TASKS: Final = 1_000

PASS_AT_K: Final = MetricDefinition(
    "tidegauge_pass_at_k",
    "gauge",
    "ratio",
    "Chance that one of k attempts at a task solves it: mean over this process's "
    "tasks with at least k finished runs, 0 to 1.",
    labels=(*GROUP_LABELS, "k"),
    values=tuple(map(str, _ATTEMPTS)),
)


def _passed(metric: PassAtK) -> dict[str, float]:
    """pass@k for each k that a task has enough runs for."""
    passed = {str(k): metric.at(k) for k in _ATTEMPTS}
    return {k: chance for k, chance in passed.items() if chance is not None}


def _of_group(group: GroupView) -> MetricValue:
    return {(k,): chance for k, chance in _passed(group.finished.of(PassAtK)).items()}


OF_GROUPS: Final = GroupDeclaration(
    name="pass_at_k",
    kind=PassAtK,
    make=lambda: PassAtK(max_tasks=_MAX_TASKS),
    of_group=(Measured(PASS_AT_K, _of_group),),
    document=lambda passed: {"pass_at_k": _passed(passed)},
)

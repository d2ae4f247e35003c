"""What makes an ended run one to look at: how it ended, its loops, its cost."""

from __future__ import annotations

import math
import threading
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from typing import Final

from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.streaming_metrics import RunReport

_MAX_GROUPS: Final = 200
_ENDS: Final = ("stopped", "error", "failure")
_LAST: Final = 1_000
"""Runs of a group whose costs are compared."""

_FEWEST: Final = 20
"""With fewer runs, p95 says nothing: it is the largest of them."""


class RunTroubles:
    """Finds the troubles of runs, as each ends.

    ============= ==================================================================
    stopped       a policy, or the application on its behalf, stopped it
    error         an exception ended it
    failure       it did not solve its task
    loop          it was in this trouble at any time, see
    result_streak  :func:`~tidegauge.streaming_metrics.trouble.past_troubles_of`
    failed_rounds
    stale
    cost          it took more tokens than p95 of the last 1,000 runs of its agent and
                  task group, where at least 20 have reported tokens
    ============= ==================================================================

    p95 is the exact one of these runs, by nearest rank. O(log n) comparisons a run; memory for
    1,000 numbers in each of 200 groups, of which the one unused for longest gives way.
    """

    def __init__(self) -> None:
        self._reset_after_fork()
        reset_after_fork(self)

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._costs: OrderedDict[tuple[str, str], _LastCosts] = OrderedDict()

    def of(self, report: RunReport) -> tuple[str, ...]:
        """The troubles of a run that has ended, in the order of the table above.

        Args:
            report: its numbers.
        """
        ended = (report.outcome,) if report.outcome in _ENDS else ()
        cost = ("cost",) if self._is_costly(report) else ()
        return (*ended, *report.past_troubles, *cost)

    def _is_costly(self, report: RunReport) -> bool:
        cost = report.tokens
        if cost is None or not math.isfinite(cost):
            return False
        key = (report.group.agent, report.group.task_group)
        with here.critical, self._lock:
            last = self._costs.pop(key, None) or _LastCosts()
            self._costs[key] = last
            if len(self._costs) > _MAX_GROUPS:
                self._costs.popitem(last=False)
            p95 = last.p95
            last.add(cost)
        return p95 is not None and cost > p95


class _LastCosts:
    """The costs of the last runs, in their order and by size.

    >>> costs = _LastCosts()
    >>> for cost in range(1, 101):
    ...     costs.add(cost)
    >>> costs.p95
    95
    """

    __slots__ = ("_by_size", "_in_order")

    def __init__(self) -> None:
        self._in_order: deque[float] = deque()
        self._by_size: list[float] = []

    @property
    def p95(self) -> float | None:
        """The cost that 95 % of the runs do not exceed; ``None``, they are too few."""
        count = len(self._by_size)
        return self._by_size[(95 * count - 1) // 100] if count >= _FEWEST else None

    def add(self, cost: float) -> None:
        if len(self._in_order) >= _LAST:
            del self._by_size[bisect_left(self._by_size, self._in_order.popleft())]
        self._in_order.append(cost)
        insort(self._by_size, cost)

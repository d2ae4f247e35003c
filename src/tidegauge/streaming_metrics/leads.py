"""Leads: places that a run has seen and not yet visited, and their ages.

Source: The Agent's Marathon: Probing the Limits of Endurance in Long-Horizon Tasks, section 4.4,
where a new batch of leads displaces the earlier ones from the agent's memory.
"""

from __future__ import annotations

from collections import deque

from tidegauge.streaming_metrics.metric import Stateful


class Leads(Stateful):
    """Age of the frontier: every frontier place is a lead, born with the step that revealed it.

    The leads of one step are a *batch*. A lead is *displaced* once a newer batch has come and it
    is still untouched. Ages are in steps: a lead visited by the very next step is of age 1.

    O(1) amortised; memory grows with the batches that have open leads in the frontier. The frontier
    itself, with the birth of each lead, is
    :attr:`~tidegauge.streaming_metrics.known_graph.KnownGraph.frontier`.

    >>> leads = Leads()
    >>> leads.reveal(3, birth=0)
    >>> leads.visit(0, clock=1)
    >>> leads.reveal(2, birth=1)
    >>> leads.visited_age, leads.open, leads.displaced, leads.oldest_age(clock=4)
    (1, 4, 2, 4)
    """

    __slots__ = ("_batches", "_births", "open", "visited_age")

    def __init__(self) -> None:
        self.open = 0
        # age of the lead that the last step visited; None, it visited none
        self.visited_age: int | None = None
        self._births: deque[int] = deque()  # of the batches, oldest first
        self._batches: dict[int, int] = {}  # open leads of each, by birth

    def reveal(self, count: int, birth: int) -> None:
        """One step revealed ``count`` leads at the time ``birth``, not before any earlier one."""
        if not count:
            return
        batch = self._batches.get(birth, 0) + count
        if not self._births or self._births[-1] != birth:
            self._births.append(birth)
        self._batches[birth] = batch
        self.open += count
        self._drop_used()

    def visit(self, birth: int | None, clock: int) -> None:
        """The step at the time ``clock`` visited the lead of that birth; ``None``, no lead."""
        if birth is None:
            self.visited_age = None
            return
        self._batches[birth] -= 1
        self.open -= 1
        self.visited_age = clock - birth
        self._drop_used()

    @property
    def displaced(self) -> int:
        """Open leads that are not of the newest batch."""
        return self.open - (self._batches[self._births[-1]] if self._births else 0)

    def oldest_age(self, clock: int) -> int | None:
        """Age of the oldest open lead at the time ``clock``; ``None`` when there is none."""
        return clock - self._births[0] if self.open else None

    def _drop_used(self) -> None:
        # the newest batch stays even if it has no open leads, because it displaces the others
        while len(self._births) > 1 and not self._batches[self._births[0]]:
            del self._batches[self._births.popleft()]

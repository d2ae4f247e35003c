"""Pending tasks: found, ready, and not done.

Source: Exploration and Exploitation Errors Are Measurable for Language Model Agents
(arXiv 2604.13151), section 4 and equations 3 to 5.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegauge.events import Identity, Task
from tidegauge.streaming_metrics.metric import Stateful


class PendingTasks(Stateful):
    """Tasks with prerequisites: which are discovered, ready, achieved; which one is the goal.

    A task needs all tasks of one of its alternative prerequisite sets, or nothing if it has
    none. Discovered, ready and not achieved makes it *pending*. Being at its place achieves it
    as soon as it is pending; a task without a place is achieved only when that is reported.

    O(1) amortised for each prerequisite: every alternative counts what it still lacks, and
    every lacking task lists the alternatives that wait for it.

    Args:
        goal: id of the task that is the goal; ``None``, there is none.
        max_tasks: tasks kept, discovered or achieved; later ones are dropped.
        max_requirements: prerequisites kept, of all tasks together; tasks beyond are dropped.

    >>> tasks = PendingTasks(goal="roof")
    >>> tasks.discover([Task("roof", requires=(("walls",),)), Task("walls")], "site")
    >>> sorted(tasks.pending), tasks.goal_pending
    (['walls'], False)
    >>> tasks.achieve("walls"), tasks.goal_pending
    (True, True)
    """

    __slots__ = (
        "_at",
        "_blocked",
        "_lacking",
        "_waiting",
        "achieved",
        "dropped_tasks",
        "goal",
        "goal_was_pending",
        "max_requirements",
        "max_tasks",
        "pending",
        "placeless",
        "requirements",
    )

    def __init__(
        self,
        *,
        goal: Identity | None = None,
        max_tasks: int = 10_000,
        max_requirements: int = 100_000,
    ) -> None:
        self.goal = goal
        self.max_tasks = max_tasks
        self.max_requirements = max_requirements
        self.dropped_tasks = 0
        self.requirements = 0
        # place of each pending task; None, it has none
        self.pending: dict[Identity, Identity | None] = {}
        self.placeless = 0  # pending tasks without a place
        self.goal_was_pending = False  # now, before, or for a moment only
        self.achieved: set[Identity] = set()
        # place of each task that is discovered and not ready
        self._blocked: dict[Identity, Identity | None] = {}
        self._lacking: dict[Identity, list[int]] = {}  # what each of its alternatives lacks
        self._waiting: dict[Identity, list[tuple[Identity, int]]] = {}  # (task, alternative)
        self._at: dict[Identity, dict[Identity, None]] = {}  # pending tasks of each place

    @property
    def discovered(self) -> int:
        """How many tasks are discovered and not achieved."""
        return len(self.pending) + len(self._blocked)

    @property
    def places(self) -> dict[Identity, dict[Identity, None]]:
        """Where there are pending tasks, and which."""
        return self._at

    @property
    def goal_pending(self) -> bool:
        """Whether the goal is ready to be achieved."""
        return self.goal is not None and self.goal in self.pending

    @property
    def goal_place(self) -> Identity | None:
        """Where the goal is, while it is pending; ``None``, it has no place."""
        return None if self.goal is None else self.pending.get(self.goal)

    def discover(self, tasks: Iterable[Task], place: Identity | None) -> None:
        """Tasks were found at ``place`` (``None``: nowhere in particular).

        What was first reported of a task stays; only a place that it lacked is added.
        """
        # One after the other, kept at once: that each has a hash is known before (Exploration).
        for task, requires in tasks:
            if task in self.achieved:
                continue
            if task in self.pending or task in self._blocked:
                self._locate(task, place)
                continue
            if self._full:
                self.dropped_tasks += 1
                continue
            alternatives = [set(needed) - self.achieved for needed in requires]
            if not alternatives or not all(alternatives):
                self._ready(task, place)
                continue
            size = sum(map(len, alternatives))
            if self.requirements + size > self.max_requirements:
                self.dropped_tasks += 1
                continue
            self.requirements += size
            self._blocked[task] = place
            self._lacking[task] = [len(needed) for needed in alternatives]
            for index, needed in enumerate(alternatives):
                for requirement in needed:
                    self._waiting.setdefault(requirement, []).append((task, index))

    def visit(self, place: Identity) -> int:
        """The agent is at ``place``; returns how many tasks that achieves.

        One task achieved may make another at the same place ready, which is achieved as well.
        """
        before = len(self.achieved)
        while here := self._at.get(place):
            for task in list(here):
                self.achieve(task)
        return len(self.achieved) - before

    def achieve(self, task: Identity) -> bool:
        """The task was achieved, whatever it required; returns whether that is news."""
        if task in self.achieved:
            return False
        if task in self.pending:
            self._forget_pending(task)
        elif task in self._blocked:
            del self._blocked[task], self._lacking[task]
        elif self._full:
            self.dropped_tasks += 1
            return False
        self.achieved.add(task)
        for waiting, index in self._waiting.pop(task, ()):
            self.requirements -= 1
            lacking = self._lacking.get(waiting)
            if lacking is None:
                continue
            lacking[index] -= 1
            if not lacking[index]:
                del self._lacking[waiting]
                self._ready(waiting, self._blocked.pop(waiting))
        return True

    @property
    def _full(self) -> bool:
        return self.discovered + len(self.achieved) >= self.max_tasks

    def _ready(self, task: Identity, place: Identity | None) -> None:
        self.pending[task] = place
        if task == self.goal:
            self.goal_was_pending = True
        if place is None:
            self.placeless += 1
        else:
            self._at.setdefault(place, {})[task] = None

    def _locate(self, task: Identity, place: Identity | None) -> None:
        if place is None:
            return
        if task in self._blocked:
            if self._blocked[task] is None:
                self._blocked[task] = place
        elif self.pending[task] is None:
            self.placeless -= 1
            self._ready(task, place)

    def _forget_pending(self, task: Identity) -> None:
        place = self.pending.pop(task)
        if place is None:
            self.placeless -= 1
            return
        del self._at[place][task]
        if not self._at[place]:
            del self._at[place]

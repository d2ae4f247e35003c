"""Exploration and exploitation errors: steps that no reasonable strategy would take.

Source: Exploration and Exploitation Errors Are Measurable for Language Model Agents
(arXiv 2604.13151), section 4 and appendix B.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from typing import ClassVar, Final

from tidegauge.events import Identity, Reach, Task
from tidegauge.streaming_metrics.known_graph import (
    Answer,
    Distance,
    KnownGraph,
    Question,
    Targets,
    nearer_by_distance,
)
from tidegauge.streaming_metrics.leads import Leads
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.pending_tasks import PendingTasks
from tidegauge.streaming_metrics.records import ObservedStep
from tidegauge.streaming_metrics.stale_score import StaleScore

__all__ = ["Exploration"]

_EXPLORE: Final = (1, 4)
_EXPLOIT: Final = (2, 3, 4)


class Exploration(Metric[ObservedStep]):
    """Whether each step explored or exploited when that was what the run needed.

    What is needed follows from the state before the step, of which U is the frontier (exits seen
    and not yet visited) and P the pending tasks:

    ==== ========================== ======================= ==================
    case when                       targets                 required
    ==== ========================== ======================= ==================
    0    neither                    none                    nothing
    1    U, no P                    U                       exploring
    2    the goal is in P           the goal's place        exploiting
    3    P without the goal, no U   places of P             exploiting
    4    P without the goal, and U  U and places of P       either, counts as both
    ==== ========================== ======================= ==================

    *Gain*: the step lands on a target, or some target is nearer than before over the graph known
    before the step. *Progress*: a frontier place was entered, or a task achieved. The step is an
    *error* if it is no progress and has no gain, or there is more than one target and the stale
    score rose.

    What a run doesn't tell is not held against it:

    - A step that tells no place is no move. It is judged only if it achieved something; else it
      is no error and in no denominator, and its gain is unknown.
    - A place that no exit led to counts as a frontier place, once any exits were told.
    - Tasks found by a step that tells no place have none themselves: only being told achieves
      them. While one of them is a target, a step without gain is one whose gain is unknown.
    - Before the first place is told there is no case, no gain and no error (all ``None``).

    O(1) amortised a step for each exit and task told, but for the gain: one search from both
    ends of the move, O(places + edges known) at worst and none with ``reach="anywhere"``. Memory
    grows with the known places, edges and tasks, up to the caps. Past them the frontier is too
    small by what was dropped; moves to a dropped place have no gain known and make no progress.

    Args:
        place: where the agent stands at the start; ``None``, not told.
        exits: places that can be reached from there; ``None``, not told.
        tasks: tasks found there.
        goal: id of the task that is the goal.
        reach: ``"adjacent"``, the agent moves along exits; ``"anywhere"``, any known place is
            one step away, so that only landing on a target is a gain.
        directed: whether exits lead one way only.
        distance: distance between two places, in any unit, where it is known better than the
            graph tells; it replaces the search. Not part of :meth:`state`. An ``Answer`` where
            it is asked before the step: see :meth:`question`.
        max_visited: places that one search may visit, or targets that ``distance`` is asked of;
            past it the gain is unknown.
        max_places: places known; later ones are dropped.
        max_edges: exits known, of all places together; later ones are dropped.
        max_tasks: tasks known; later ones are dropped.

    >>> run = Exploration(place="hall", exits=("kitchen", "attic"))
    >>> run.update(ObservedStep(0, place="kitchen", exits=("hall",)))
    >>> run.case, run.gain, run.progress, run.error, run.frontier
    (1, True, True, False, 1)
    >>> run.update(ObservedStep(1, place="kitchen"))
    >>> run.gain, run.error, run.exploration_error_rate, run.exploitation_error_rate
    (False, True, 0.5, 0.0)
    """

    takes: ClassVar[type] = ObservedStep
    functions: ClassVar[frozenset[str]] = frozenset({"distance"})
    __slots__ = (
        "_goal_since",
        "_goal_waited",
        "case",
        "directed",
        "distance",
        "error",
        "exits",
        "exploitation_error",
        "exploitation_errors",
        "exploitation_required",
        "exploration_error",
        "exploration_errors",
        "exploration_required",
        "gain",
        "goal",
        "graph",
        "here",
        "leads",
        "max_edges",
        "max_places",
        "max_tasks",
        "max_visited",
        "pending_tasks",
        "place",
        "progress",
        "reach",
        "stale_score",
        "steps",
        "tasks",
        "unknown_gain",
    )

    def __init__(
        self,
        *,
        place: Identity | None = None,
        exits: tuple[Identity, ...] | None = None,
        tasks: tuple[Task, ...] = (),
        goal: Identity | None = None,
        reach: Reach = "adjacent",
        directed: bool = False,
        distance: Distance | Answer | None = None,
        max_visited: int = 10_000,
        max_places: int = 50_000,
        max_edges: int = 200_000,
        max_tasks: int = 10_000,
    ) -> None:
        self.place = place
        self.exits = exits
        self.tasks = tasks
        self.goal = goal
        self.reach: Reach = reach
        self.directed = directed
        self.distance: Distance | Answer | None = distance
        self.max_visited = max_visited
        self.max_places = max_places
        self.max_edges = max_edges
        self.max_tasks = max_tasks
        self.graph = KnownGraph(
            directed=directed, max_visited=max_visited, max_places=max_places, max_edges=max_edges
        )
        self.pending_tasks = PendingTasks(goal=goal, max_tasks=max_tasks)
        self.stale_score = StaleScore(place=place)
        self.leads = Leads()
        self.steps = 0
        self.here = place  # where the agent stands; None, not told
        # of the last step; None, not measured
        self.case: int | None = None
        self.gain: bool | None = None
        self.progress = False
        self.error: bool | None = None
        self.exploration_error: bool | None = None
        self.exploitation_error: bool | None = None
        # of the run: steps that were judged, by what was required, and errors among them
        self.exploration_required = 0
        self.exploration_errors = 0
        self.exploitation_required = 0
        self.exploitation_errors = 0
        self.unknown_gain = 0  # moves that were judged without knowing their gain
        self._goal_since: int | None = None  # step at which the goal became pending
        self._goal_waited: int | None = None  # how long it had been when it was achieved
        self._arrive(place, exits, tasks)

    def update(self, step: ObservedStep) -> None:
        """Take the next observed step."""
        _look_up(step)
        place, old = step.place, self.here
        case = self._case() if self.placed else None
        gain = None
        several = False
        if case is not None and place is not None:
            groups = self._targets(case)
            gain = self._gain(place, groups)
            several = sum(map(len, groups)) > 1
        found = place is not None and old is not None and self._is_new(place)

        self.steps += 1
        achieved = self._arrive(place, step.exits, step.tasks, step.achieved)
        self.progress = found or achieved > 0
        self._follow(step, self.progress)

        error = (
            not self.progress
            and gain is not None
            and (not gain or (several and self.stale_score.rose))
            and case != 0
        )
        judged = case is not None and (place is not None or self.progress)
        self.case = case
        self.gain = gain
        self.error = None if case is None else error
        self.exploration_error = None if case is None else error and case in _EXPLORE
        self.exploitation_error = None if case is None else error and case in _EXPLOIT
        if not judged:
            return
        self.unknown_gain += gain is None and place is not None
        self.exploration_required += case in _EXPLORE
        self.exploration_errors += bool(self.exploration_error)
        self.exploitation_required += case in _EXPLOIT
        self.exploitation_errors += bool(self.exploitation_error)

    def question(self, place: Identity) -> Question | None:
        """What a distance is to be asked of a move to that place, if it is the next step.

        Costs O(targets), at most ``max_visited`` of them.

        Returns:
            ``None`` when the gain is known without it, or cannot be known.
        """
        if not self.placed:
            return None
        groups = self._targets(self._case())
        if any(place in group for group in groups) or not any(groups):
            return None
        limit = self.max_visited
        targets = list(islice(chain.from_iterable(groups), limit + 1))
        return Question(self.here, place, self.steps, targets, limit)

    @property
    def value(self) -> float | None:
        """Exploration error: the rate that goes with success."""
        return self.exploration_error_rate

    @property
    def exploration_error_rate(self) -> float | None:
        """Errors / steps, over steps that required exploring.

        0 when only exploiting was required; ``None`` when nothing was, so that nothing is known.
        """
        return self._rate(self.exploration_errors, self.exploration_required)

    @property
    def exploitation_error_rate(self) -> float | None:
        """Errors / steps, over steps that required exploiting.

        0 when only exploring was required; ``None`` when nothing was, so that nothing is known.
        """
        return self._rate(self.exploitation_errors, self.exploitation_required)

    @property
    def placed(self) -> bool:
        """Whether any place was told."""
        return self.here is not None

    @property
    def frontier(self) -> int | None:
        """How many places were seen and not yet visited; ``None`` while no place was told."""
        return len(self.graph.frontier) if self.placed else None

    @property
    def pending(self) -> int | None:
        """How many tasks are pending; ``None`` while neither place nor task was told."""
        tasks = self.pending_tasks
        told = self.placed or tasks.discovered or tasks.achieved
        return len(tasks.pending) if told else None

    @property
    def stale(self) -> int | None:
        """Stale score now; while no place was told, over states."""
        return self.stale_score.current

    @property
    def stale_max(self) -> int | None:
        """Highest stale score so far."""
        return self.stale_score.maximum

    @property
    def tasks_never_closed(self) -> bool:
        """Whether tasks were found and none was ever achieved: pending can only have risen."""
        tasks = self.pending_tasks
        return self.placed and tasks.discovered > 0 and not tasks.achieved

    @property
    def goal_pending_age(self) -> int | None:
        """Steps since the goal became pending, up to its achievement; ``None``, it did not."""
        if self._goal_waited is not None or self._goal_since is None:
            return self._goal_waited
        return self.steps - self._goal_since

    @property
    def oldest_lead_age(self) -> int | None:
        """Steps since the oldest frontier place was revealed; ``None``, the frontier is empty."""
        return self.leads.oldest_age(self.steps)

    @property
    def unexplored(self) -> Iterable[Identity]:
        """The frontier, oldest first."""
        return self.graph.frontier

    @property
    def ready(self) -> Iterable[Identity]:
        """The pending tasks, by name."""
        return self.pending_tasks.pending

    def _rate(self, errors: int, required: int) -> float | None:
        if not self.exploration_required and not self.exploitation_required:
            return None
        return errors / required if required else 0.0

    def _case(self) -> int:
        tasks = self.pending_tasks
        if tasks.goal_pending:
            return 2
        if not tasks.pending:
            return 1 if self.graph.frontier else 0
        return 4 if self.graph.frontier else 3

    def _targets(self, case: int) -> list[Targets]:
        """The targets as groups that share no place: pending tasks are at observed ones."""
        if case == 2:
            goal = self.pending_tasks.goal_place
            return [] if goal is None else [{goal: None}]
        groups: list[Targets] = []
        if case in _EXPLORE:
            groups.append(self.graph.frontier)
        if case in _EXPLOIT:
            groups.append(self.pending_tasks.places)
        return groups

    def _gain(self, new: Identity, groups: list[Targets]) -> bool | None:
        old = self.here
        if any(new in group for group in groups):
            return True
        if any(groups) and (self._is_dropped(old) or self._is_dropped(new)):
            return None
        nearer: bool | None = False
        if isinstance(self.distance, Answer):
            nearer = self.distance.of(old, new, self.steps) if any(groups) else False
        elif self.distance is not None:
            limit = self.max_visited
            nearer = nearer_by_distance(self.distance, old, new, *groups, limit=limit)
        elif self.reach == "adjacent" and any(groups):
            nearer = self.graph.nearer(old, new, *groups)
        return None if nearer is False and self._has_placeless_target() else nearer

    def _has_placeless_target(self) -> bool:
        tasks = self.pending_tasks
        return tasks.goal_place is None if tasks.goal_pending else tasks.placeless > 0

    def _is_new(self, place: Identity) -> bool:
        graph = self.graph
        if place in graph.frontier:
            return True
        return graph.mapped and place not in graph.observed and not graph.full

    def _is_dropped(self, place: Identity | None) -> bool:
        graph = self.graph
        return graph.full and place not in graph.observed and place not in graph.frontier

    def _arrive(
        self,
        place: Identity | None,
        exits: tuple[Identity, ...] | None,
        found: Iterable[Task],
        told: Iterable[Identity] = (),
    ) -> int:
        """Bring graph, leads and tasks up to date; returns how many tasks were achieved."""
        clock = self.steps
        birth = None
        if place is not None:
            birth = self.graph.frontier.get(place)
            self.leads.reveal(self.graph.observe(place, exits, clock), clock)
            if self.here is not None:
                self.graph.walk(self.here, place)
            self.here = place
        self.leads.visit(birth, clock)
        tasks = self.pending_tasks
        tasks.discover(found, place)
        achieved = sum([tasks.achieve(task) for task in told])
        if self.here is not None:
            achieved += tasks.visit(self.here)
        if tasks.goal_was_pending:
            if self._goal_since is None:
                self._goal_since = clock
            if self._goal_waited is None and not tasks.goal_pending:
                self._goal_waited = clock - self._goal_since
        return achieved

    def _follow(self, step: ObservedStep, progress: bool) -> None:
        stale = self.stale_score
        if step.place is not None and not stale.placed:
            stale.update(step)  # from here on, places
            return
        place = step.state if step.place is None and not self.placed else step.place
        if place is None:
            stale.stay(progress=progress)
        else:
            stale.move(place, progress=progress)


def _look_up(step: ObservedStep) -> None:
    """Raise here what the step's names raise when they are looked up, with nothing kept yet.

    They are the user's, and are given to graph, leads, tasks and stale score one after the other.
    What remains is a name that has a hash and cannot be compared with an earlier one of that hash.
    """
    names = {step.place, *(step.exits or ()), *step.achieved}
    for task, requires in step.tasks:
        names.update((task,), *requires)

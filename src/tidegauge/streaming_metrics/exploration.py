"""Exploration and exploitation errors: steps that no reasonable strategy takes.

Source: Exploration and Exploitation Errors Are Measurable for Language Model Agents
(arXiv 2604.13151), section 4 and appendix B.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, islice
from typing import ClassVar, Final

from tidegauge.catalog import GROUP_LABELS, MetricDefinition
from tidegauge.events import Identity, Reach, Task
from tidegauge.streaming_metrics.buckets import Buckets
from tidegauge.streaming_metrics.declaration import (
    Attribute,
    Declaration,
    GroupView,
    Measured,
    MetricValue,
    RunView,
    Signal,
    Sum,
    nothing,
    zero,
)
from tidegauge.streaming_metrics.known_graph import (
    Distance,
    DistanceAnswer,
    DistanceQuestion,
    KnownGraph,
    Targets,
    nearer_by_distance,
)
from tidegauge.streaming_metrics.leads import Leads
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.pending_tasks import PendingTasks
from tidegauge.streaming_metrics.records import ObservedStep
from tidegauge.streaming_metrics.stale_score import StaleScore

_EXPLORE: Final = (1, 4)
_EXPLOIT: Final = (2, 3, 4)


class Exploration(Metric[ObservedStep]):
    """Whether each step explored or exploited when that was what the run needed.

    The state before the step determines what is needed. U is the frontier (exits seen and not yet
    visited), P the pending tasks:

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
    before the step. *Progress*: a frontier place was entered, or a task achieved. A step without
    progress is an *error* if it has no gain, or if there is more than one target and the stale
    score rose.

    Missing reports do not count as errors:

    - A step that reports no place is not a move. It counts only if it achieved something.
      Otherwise it is neither an error nor part of a denominator, and its gain is unknown.
    - A place that no exit led to counts as a frontier place, once any exits were reported.
    - Tasks found by a step that reports no place have no place: they are achieved only by a
      report. While one of them is a target, the gain of a step is true or unknown, never false.
    - Before the first place is reported, case, gain and error are ``None``.

    O(1) amortised for each reported exit and task, except for the gain: one search from both ends
    of the move, O(places + edges known) at worst, none with ``reach="anywhere"``. Memory grows with
    the known places, edges and tasks, up to the caps. Beyond them, the frontier lacks what was
    dropped; the gain of a move to a dropped place is unknown, and it is no progress.

    Args:
        place: where the agent is at the start; ``None``, not reported.
        exits: places that can be reached from there; ``None``, not reported.
        tasks: tasks found there.
        goal: id of the task that is the goal.
        reach: ``"adjacent"``, the agent moves along exits; ``"anywhere"``, any known place is
            one step away, so that only landing on a target is a gain.
        directed: whether exits lead one way only.
        distance: distance between two places, in any unit, if it is known better than the graph
            shows; it replaces the search. Not part of :meth:`state`. A ``DistanceAnswer`` if it is
            computed before the step: see :meth:`question`.
        max_visited: limit of the places that one search visits, or of the targets whose
            ``distance`` is computed; beyond it the gain is unknown.
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
    unsaved: ClassVar[frozenset[str]] = frozenset({"distance"})
    holds: ClassVar[tuple[type, ...]] = (Task,)
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
        distance: Distance | DistanceAnswer | None = None,
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
        self.distance: Distance | DistanceAnswer | None = distance
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
        self.here = place  # where the agent is; None, not reported
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

    def question(self, place: Identity) -> DistanceQuestion | None:
        """The question for a distance function about a move to that place as the next step.

        O(targets), at most ``max_visited`` of them.

        Returns:
            ``None`` if the gain is known without it, or cannot be known.
        """
        if not self.placed:
            return None
        groups = self._targets(self._case())
        if any(place in group for group in groups) or not any(groups):
            return None
        limit = self.max_visited
        targets = list(islice(chain.from_iterable(groups), limit + 1))
        return DistanceQuestion(self.here, place, self.steps, targets, limit)

    @property
    def value(self) -> float | None:
        """The exploration error, the rate that correlates with success."""
        return self.exploration_error_rate

    @property
    def exploration_error_rate(self) -> float | None:
        """Errors / steps, over steps that required exploring.

        0 if only exploiting was required; ``None`` if neither was.
        """
        return self._rate(self.exploration_errors, self.exploration_required)

    @property
    def exploitation_error_rate(self) -> float | None:
        """Errors / steps, over steps that required exploiting.

        0 if only exploring was required; ``None`` if neither was.
        """
        return self._rate(self.exploitation_errors, self.exploitation_required)

    @property
    def placed(self) -> bool:
        """Whether any place was reported."""
        return self.here is not None

    @property
    def frontier(self) -> int | None:
        """Number of places seen and not yet visited; ``None`` until a place is reported."""
        return len(self.graph.frontier) if self.placed else None

    @property
    def pending(self) -> int | None:
        """Number of pending tasks; ``None`` until a place or task is reported."""
        tasks = self.pending_tasks
        known = self.placed or tasks.discovered or tasks.achieved
        return len(tasks.pending) if known else None

    @property
    def stale(self) -> int | None:
        """Stale score now; over states until a place is reported."""
        return self.stale_score.current

    @property
    def stale_max(self) -> int | None:
        """Highest stale score so far."""
        return self.stale_score.maximum

    @property
    def tasks_never_closed(self) -> bool:
        """Whether tasks were found and none was achieved, so that pending tasks only increased."""
        tasks = self.pending_tasks
        return self.placed and tasks.discovered > 0 and not tasks.achieved

    @property
    def goal_pending_age(self) -> int | None:
        """Steps since the goal became pending, until it is achieved; ``None``, never pending."""
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
        """The targets as disjoint groups of places: pending tasks are at observed places."""
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
        if isinstance(self.distance, DistanceAnswer):
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
        reported: Iterable[Identity] = (),
    ) -> int:
        """Update graph, leads and tasks. Returns the number of tasks that were achieved."""
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
        achieved = sum([tasks.achieve(task) for task in reported])
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
        if step.place is not None:
            stale.move(step.place, progress, step.changed)
        elif self.placed:
            stale.stay(progress)
        else:
            stale.update(step, progress)


def _look_up(step: ObservedStep) -> None:
    """Hash all names of the step, so that one that cannot be hashed raises before any update.

    Engines pass plain names. Direct users may not, and graph, leads, tasks and stale score are
    updated one after the other. A name that raises only when it is compared still raises later.
    """
    names = {step.place, *(step.exits or ()), *step.achieved}
    for task, requires in step.tasks:
        names.update((task,), *requires)


BEHAVIOR_ERRORS: Final = MetricDefinition(
    "tidegauge_behavior_errors_total",
    "counter",
    "steps",
    "Steps without progress that came no nearer to what was needed, or moved in "
    "circles. Divided by tidegauge_behavior_required_steps_total of the same kind, "
    "the error.",
    labels=(*GROUP_LABELS, "kind"),
    values=("exploration", "exploitation"),
)
BEHAVIOR_REQUIRED_STEPS: Final = MetricDefinition(
    "tidegauge_behavior_required_steps_total",
    "counter",
    "steps",
    "Steps that required looking for something new (exploration) or doing what was "
    "ready (exploitation); where either would do, both.",
    labels=(*GROUP_LABELS, "kind"),
    values=("exploration", "exploitation"),
)
FRONTIER_PLACES: Final = MetricDefinition(
    "tidegauge_frontier_places",
    "gauge",
    "places",
    "Places that active runs have seen and not visited, added up.",
)
PENDING_TASKS: Final = MetricDefinition(
    "tidegauge_pending_tasks",
    "gauge",
    "tasks",
    "Tasks of active runs that are ready and not achieved, added up.",
)
DISPLACED_LEADS: Final = MetricDefinition(
    "tidegauge_displaced_leads_total",
    "counter",
    "leads",
    "Places that finished runs saw, never visited, and forgot for newer ones.",
)
LEAD_AGE: Final = MetricDefinition(
    "tidegauge_lead_age_steps",
    "histogram",
    "steps",
    "Steps between seeing a place and visiting it.",
)
RUN_FRONTIER_PLACES: Final = MetricDefinition(
    "tidegauge_run_frontier_places",
    "gauge",
    "places",
    "Places the run has seen and not visited. Only for the most troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)
RUN_PENDING_TASKS: Final = MetricDefinition(
    "tidegauge_run_pending_tasks",
    "gauge",
    "tasks",
    "Tasks of the run that are ready and not achieved. Only for the most troubled active runs.",
    labels=(*GROUP_LABELS, "run"),
)
RUN_PLACE: Final = MetricDefinition(
    "tidegauge_run_place",
    "gauge",
    "1",
    "Always 1; the label is the run's place, as a keyed digest unless contents are "
    "captured. Only for the most troubled active runs.",
    labels=(*GROUP_LABELS, "run", "place"),
)

_LEAD_AGE_BOUNDS: Final = (1.0, 2.0, 3.0, 5.0, 8.0, 10.0, 15.0, 20.0, 30.0, 50.0, 100.0, 200.0)
_NOT_ASKED: Final = DistanceAnswer(None, None, -1, nearer=None)


def _made(run: RunView) -> Exploration:
    started = run.started
    exploration = Exploration(
        place=started.place,
        exits=started.exits,
        tasks=started.tasks,
        goal=started.goal,
        reach=started.reach,
        directed=run.settings.directed,
        distance=_NOT_ASKED if run.settings.asks_distance else None,
    )
    exploration.stale_score = run.of(StaleScore)  # shared: it continues from the states so far
    return exploration


def _observed(run: RunView, exploration: Exploration, step: ObservedStep) -> None:
    if run.settings.asks_distance:
        # Computed before the lock was taken.
        asked = step.nearer
        exploration.distance = asked if isinstance(asked, DistanceAnswer) else _NOT_ASKED
    exploration.update(step)
    age = exploration.leads.visited_age
    if age is not None:
        totals = run.totals
        if totals.lead_ages is None:
            totals.lead_ages = Buckets(_LEAD_AGE_BOUNDS)
        totals.lead_ages.observe(age)


_OF_PLACES: Final = (
    "place",
    "exploration_required",
    "exploration_errors",
    "exploration_error",
    "exploitation_required",
    "exploitation_errors",
    "exploitation_error",
    "oldest_lead_age",
    "displaced_leads",
)


def _report(run: RunView, exploration: Exploration) -> dict[str, object]:
    report: dict[str, object] = {
        "frontier": exploration.frontier,
        "pending": exploration.pending,
        "tasks_never_closed": exploration.tasks_never_closed,
        "goal_pending_age": exploration.goal_pending_age,
    }
    if exploration.placed:
        report.update(
            place=exploration.here,
            exploration_required=exploration.exploration_required,
            exploration_errors=exploration.exploration_errors,
            exploration_error=exploration.exploration_error_rate,
            exploitation_required=exploration.exploitation_required,
            exploitation_errors=exploration.exploitation_errors,
            exploitation_error=exploration.exploitation_error_rate,
            oldest_lead_age=exploration.oldest_lead_age,
            displaced_leads=exploration.leads.displaced,
        )
    return report


def _ended(run: RunView, exploration: Exploration) -> dict[str, object]:
    displaced = exploration.leads.displaced if exploration.placed else None
    run.totals.displaced_leads = displaced or 0
    return {
        "frontier": exploration.frontier,
        "pending": exploration.pending,
        "displaced_leads": displaced,
    }


def _by_behavior(group: GroupView, exploration: int, exploitation: int) -> MetricValue:
    if not group.placed:
        return None
    return {("exploration",): exploration, ("exploitation",): exploitation}


def _sum(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


DECLARATION: Final = Declaration(
    name="exploration",
    kind=Exploration,
    make=_made,
    observed=_observed,
    brought_by=("place", "tasks", "achieved"),
    brought_by_start=lambda started, settings: (
        started.place is not None or bool(started.tasks or started.exits)
    ),
    feeds=StaleScore,
    sums=(
        Sum("exploration_required", zero, "exploration_required"),
        Sum("exploration_errors", zero, "exploration_errors"),
        Sum("exploitation_required", zero, "exploitation_required"),
        Sum("exploitation_errors", zero, "exploitation_errors"),
        Sum("displaced_leads", zero),  # of runs that ended
        # Made with the first lead followed up: most runs report no places.
        Sum("lead_ages", nothing),
    ),
    absent={
        **dict.fromkeys(_OF_PLACES),
        "frontier": None,
        "pending": None,
        "tasks_never_closed": False,
        "goal_pending_age": None,
    },
    report=_report,
    document=lambda report: {
        "frontier": report.frontier,
        "pending": report.pending,
        "required": {
            "exploration": report.exploration_required,
            "exploitation": report.exploitation_required,
        },
        "errors": {
            "exploration": report.exploration_errors,
            "exploitation": report.exploitation_errors,
        },
        "exploration_error": report.exploration_error,
        "exploitation_error": report.exploitation_error,
    },
    ended=_ended,
    signals=(
        Signal(
            name="oldest_lead_age",
            read=Attribute(Exploration, "oldest_lead_age"),
            help="steps since a place was seen that is not visited yet",
            message=lambda now, at: (
                f"a place was seen {now.oldest_lead_age} steps ago and not visited yet"
            ),
        ),
    ),
    details={
        "frontier": Attribute(Exploration, "frontier"),
        "pending": Attribute(Exploration, "pending"),
        "case": Attribute(Exploration, "case"),
    },
    of_group=(
        Measured(
            BEHAVIOR_ERRORS,
            lambda group: _by_behavior(
                group, group.totals.exploration_errors, group.totals.exploitation_errors
            ),
        ),
        Measured(
            BEHAVIOR_REQUIRED_STEPS,
            lambda group: _by_behavior(
                group, group.totals.exploration_required, group.totals.exploitation_required
            ),
        ),
        Measured(FRONTIER_PLACES, lambda group: _sum([run.frontier for run in group.active])),
        Measured(PENDING_TASKS, lambda group: _sum([run.pending for run in group.active])),
        Measured(
            DISPLACED_LEADS, lambda group: group.totals.displaced_leads if group.placed else None
        ),
        Measured(LEAD_AGE, lambda group: group.totals.lead_ages),
    ),
    of_run=(
        Measured(RUN_FRONTIER_PLACES, lambda run: run.frontier),
        Measured(RUN_PENDING_TASKS, lambda run: run.pending),
    ),
)

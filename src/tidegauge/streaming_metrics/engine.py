"""The engine: holds the active runs, bounded and expiring, and adds up those that end."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from tidegauge._canonical import Reading
from tidegauge._critical import here, interrupted, reset_after_fork, run_deferred
from tidegauge._guard import guarded, internal_errors
from tidegauge.events import (
    Identity,
    Outcome,
    RunEnded,
    RunStarted,
    Signals,
    Step,
    ToolDeclaration,
)
from tidegauge.streaming_metrics.chronicle import Chronicle
from tidegauge.streaming_metrics.digested import DigestedOutcome, DigestedStep, Digester
from tidegauge.streaming_metrics.fingerprint import Normaliser
from tidegauge.streaming_metrics.group import Group
from tidegauge.streaming_metrics.known_graph import Answer, Distance, Question
from tidegauge.streaming_metrics.limits import OTHER, BoundedNames
from tidegauge.streaming_metrics.moving import run_started
from tidegauge.streaming_metrics.run_report import GroupKey, RunReport
from tidegauge.streaming_metrics.run_state import RunState
from tidegauge.streaming_metrics.snapshot import GroupSnapshot, Snapshot
from tidegauge.streaming_metrics.totals import Totals

__all__ = ["Engine", "Held", "Then"]

T = TypeVar("T")
Then: TypeAlias = Callable[[RunState, Signals, float | None], T]
"""What follows from the signals of a run now."""

_MEMORY_ARMS: Final = 10


class Held(NamedTuple):
    """What an engine holds at one moment, for readers who need less than a snapshot.

    Attributes:
        groups: sums over the runs that ended. Nobody changes them.
        runs: the active runs, least recently seen first; each is read with its lock held.
        stale_at: stale score from which a run counts as stale.
        onset_at: length at which a result streak or failed rounds count as an onset.
    """

    groups: list[Group]
    runs: list[RunState]
    stale_at: int
    onset_at: int


class Engine:
    """Runs keyed by id, each with its own lock; groups that readers take without one.

    A step is digested first, without any lock: only there is code of the user's run. It then takes
    the engine's lock for two dictionary accesses and its own run's lock once, for its update and
    what follows from it; a snapshot takes each run's lock in turn, never all of them. A child
    process that is forked begins with an empty engine.

    Args:
        max_runs: active runs held; one more evicts the run idle for longest.
        idle_seconds: a run without an event for so long is ended as unknown.
        max_groups: (agent, task group) pairs told apart; later ones are ``other``.
        max_actions: action names told apart in counters; later ones are ``other``.
        t_max: turns within which success counts, for runs that don't say.
        t_max_by_group: the same by task group.
        stale_at: stale score from which a run counts as stale.
        onset_at: length at which a result streak or failed rounds count as an onset.
        max_period: longest cycle that can be seen, in steps.
        max_distinct: distinct outcomes and (action, outcome) pairs a run remembers.
        normaliser: applied to texts before they are digested; ``None`` compares exactly.
        directed: whether exits lead one way only.
        distance: distance between two places, where it is known better than the exits tell;
            takes the place of the search for gain.
        declarations: what is declared of tools, by their names.
        repetition: whether runs measure how much their actions are alike, which reads the words
            of every call.
        clock: seconds; ``None`` for recorded runs, which bring their own times or have none.
        open_unknown_runs: whether a step of an unknown run opens it, or is dropped and counted.
        on_finished: told of each run that ended, outside of all locks.
        chronicle: keeps the last steps of runs and what happens in them; left out, nobody does.

    >>> from tidegauge.events import Call, CallResult
    >>> engine = Engine()
    >>> engine.run_started(RunStarted(run="r1", agent="browser"))
    >>> for _ in range(3):
    ...     signals = engine.step_issued(Step(run="r1", calls=(Call("click", {"id": 7}),)))
    ...     _ = engine.step_observed(Outcome(run="r1", results=(CallResult("nothing"),)))
    >>> signals.loop_repeats
    1
    """

    def __init__(
        self,
        *,
        max_runs: int = 10_000,
        idle_seconds: float = 3_600.0,
        max_groups: int = 200,
        max_actions: int = 50,
        t_max: int | None = None,
        t_max_by_group: Mapping[str, int] | None = None,
        stale_at: int = 5,
        onset_at: int = 3,
        max_period: int = 10_000,
        max_distinct: int = 10_000,
        normaliser: Normaliser | None = None,
        directed: bool = False,
        distance: Distance | None = None,
        declarations: Mapping[str, ToolDeclaration] | None = None,
        repetition: bool = False,
        clock: Callable[[], float] | None = time.monotonic,
        open_unknown_runs: bool = False,
        on_finished: Callable[[RunReport], None] | None = None,
        chronicle: Chronicle | None = None,
    ) -> None:
        self._max_runs = max_runs
        self._idle_seconds = idle_seconds
        self._t_max = t_max
        self._t_max_by_group = dict(t_max_by_group or {})
        self._stale_at = stale_at
        self._onset_at = onset_at
        self._max_period = max_period
        self._max_distinct = max_distinct
        self.digester = Digester(
            normaliser,
            declarations,
            words=repetition,
            contents=chronicle is not None and chronicle.contents,
        )
        self._directed = directed
        self._distance = distance
        self._repetition = repetition
        self._clock = clock
        self._open_unknown_runs = open_unknown_runs
        self._on_finished = on_finished
        self._chronicle = chronicle
        self._max_groups = max_groups
        self._max_actions = max_actions
        self._begin()
        reset_after_fork(self)

    def _begin(self) -> None:
        # Re-entrant for readers: a signal handler may take a snapshot in the middle of a step.
        self._lock = threading.RLock()  # of _runs, _groups and the counters
        self._ending = threading.RLock()  # one run is added to its group at a time
        self._runs: OrderedDict[str, RunState] = OrderedDict()  # least recently seen first
        self._groups: dict[GroupKey, Group] = {}
        self._pairs = BoundedNames[tuple[str, str]](limit=self._max_groups, other=(OTHER, OTHER))
        self._arms = BoundedNames[str](limit=_MEMORY_ARMS, other=OTHER)
        self._actions = BoundedNames[str](limit=self._max_actions, other=OTHER)
        self._evicted_runs = 0
        self._dropped_events = 0

    def _reset_after_fork(self) -> None:
        """The runs of the parent are not the child's, whose counters start at 0."""
        self._begin()

    def run_started(self, event: RunStarted) -> None:
        """Open a run. One that is open under the same id is ended as unknown."""
        now = self._now()
        self._expire(now)
        event = self.digester.run(event)
        if event.run in self._runs:
            self._end(RunEnded(run=event.run, reason="started again"))
        self._open(event, now)

    def step_issued(self, event: Step) -> Signals | None:
        """Take an issued action; ``None`` when its run is not open."""
        return self.issue(self.digester.step(event), _signals)

    def step_observed(self, event: Outcome) -> Signals | None:
        """Take an outcome; ``None`` when its run is not open or no step waits for it."""
        return self.observe(self.digest_outcome(event), _signals)

    def digest_outcome(self, event: Outcome, reading: Reading | None = None) -> DigestedOutcome:
        """An outcome as :meth:`observe` takes it; runs code of the user's, so no lock may be held.

        Args:
            event: the outcome.
            reading: remembers what was read of it, for whoever reads it again.
        """
        outcome = self.digester.outcome(event, reading)
        if self._distance is None or outcome.place is None:
            return outcome
        question = self._question(outcome.run, outcome.place)
        if question is None:
            return outcome
        return outcome._replace(nearer=_asked(self._distance, question))

    def _question(self, run_id: str, place: Identity) -> Question | None:
        run = self._runs.get(run_id)
        if run is None:
            return None
        with here.critical, run.lock:
            return None if run.exploration is None else run.exploration.question(place)

    def issue(self, step: DigestedStep, then: Then[T]) -> T | None:
        """Take an issued action that was digested.

        Args:
            step: the action.
            then: asked what follows, with the run's lock held, so that nothing of the run comes
                between; must only compute.

        Returns:
            What ``then`` gives; ``None`` when the run is not open.
        """
        clock = self._clock
        now = None if clock is None else clock()
        if self._open_unknown_runs and step.run not in self._runs:
            self._open(self.digester.run(RunStarted(run=step.run)), now)
        run = None
        try:
            with here.critical:
                run = self._find(step.run, now)
                if run is not None:
                    with run.lock:
                        # One that another thread is ending has been added to its group as it was.
                        if not run.finished:
                            return then(run, run.issue(step, now), now)
        finally:
            if run is not None and run.faults:
                _record_faults(run)
        self._drop()
        return None

    def observe(self, outcome: DigestedOutcome, then: Then[T]) -> T | None:
        """Take an outcome that was digested; the arguments are those of :meth:`issue`.

        Returns:
            What ``then`` gives; ``None`` when the run is not open or no step waits for it.
        """
        clock = self._clock
        now = None if clock is None else clock()
        run = None
        try:
            with here.critical:
                run = self._find(outcome.run, now)
                if run is not None:
                    with run.lock:
                        signals = None if run.finished else run.observe(outcome, now)
                        if signals is not None:
                            return then(run, signals, now)
        finally:
            if run is not None and run.faults:
                _record_faults(run)
        self._drop()
        return None

    def intervened(self, run: str, action: str, reason: str, step: int) -> None:
        """Count an intervention (``would_stop``, ``nudge``, ``block`` or ``stop``) in a run."""
        with here.critical:
            state = self._find(run, self._now())
            if state is not None:
                with state.lock:
                    if not state.finished:
                        state.intervened(action, reason, step)

    def run_ended(self, event: RunEnded) -> RunReport | None:
        """Close a run and add it to its group; ``None`` when it is not open."""
        report = self._end(self.digester.end(event))
        if report is None:
            self._drop()
        return report

    def release(self, run: str) -> dict[str, Any] | None:
        """Let an active run go to another engine: its state, as plain data that JSON can carry.

        What was counted of it here stays counted. ``None`` when it is not open.
        """
        return self._detach(run, RunState.state)

    def discard(self, run: str) -> None:
        """Let an active run go as :meth:`release` does, without its state.

        For a run that another engine measures from its steps.
        """
        self._detach(run, lambda _: None)

    def _detach(self, run: str, read: Callable[[RunState], T]) -> T | None:
        """Hold a run no longer, and give what is read of it with its lock held."""
        with here.critical, self._ending:
            found = self._runs.get(run)
            if found is None:
                return None
            with found.lock:
                state = read(found)
                found.finished = True  # what another thread still reports is dropped and counted
                group = self._groups.get(found.group, _EMPTY).with_moved(out=found.counted)
            with self._lock:
                self._runs.pop(run, None)
                self._groups[found.group] = group
        return state

    def adopt(self, state: Mapping[str, Any]) -> bool:
        """Hold a run that another engine released; it goes on as if it had stayed there.

        Whatever was counted of it there is not counted here, so that the counters of both add up.
        ``False`` when a run of that id is open here already: it stays as it is.

        Raises:
            ValueError: the state is of another version, or not of that form.
        """
        started = run_started(state)
        now = self._now()
        self._expire(now)
        run = self._made(started, now)
        run.load(state)
        return self._take_in(run)

    def carry(self, event: RunStarted) -> bool:
        """Open a run to go through its past once more: until :meth:`carried` nothing of it counts.

        For a run whose steps another engine has counted. It is here as if it had been adopted.
        ``False`` when a run of that id is open here already: it stays as it is.
        """
        run = self._made(event, self._now())
        run.carried = run.totals  # one and the same: what they differ by is nothing
        return self._take_in(run)

    def carried(self, run: str) -> None:
        """The past of a run that is carried ends here: what follows counts."""
        found = self._runs.get(run)
        if found is not None:
            with here.critical, found.lock:
                if found.carried is found.totals:
                    found.carried = Totals()
                    found.carried.add(found.totals)

    def get(self, run: str) -> RunState | None:
        """The state of an active run; read it with its lock held."""
        return self._runs.get(run)

    def snapshot(self) -> Snapshot:
        """Every group and every active run now."""
        self._catch_up()
        with here.critical, self._lock:
            groups = dict(self._groups)
            runs = list(self._runs.values())
            evicted, dropped = self._evicted_runs, self._dropped_events
        views: dict[GroupKey, GroupSnapshot] = {}
        for key, group in groups.items():
            views[key] = view = GroupSnapshot(key, group, stale_at=self._stale_at)
            view.totals.add(group.totals)
        for run in runs:
            found = views.get(run.group)
            if found is None:
                found = views[run.group] = GroupSnapshot(run.group, _EMPTY, stale_at=self._stale_at)
            with here.critical, run.lock:
                found.totals.add(run.counted)
                found.active.append(run.report())
        return Snapshot(list(views.values()), evicted, dropped)

    def held(self) -> Held:
        """What is held now, unread."""
        self._catch_up()
        with here.critical, self._lock:
            groups, runs = list(self._groups.values()), list(self._runs.values())
        return Held(groups, runs, self._stale_at, self._onset_at)

    def _catch_up(self) -> None:
        """What waited to be counted counts, and what is idle ends, before anything is read."""
        if not interrupted():
            run_deferred()
            self._expire(self._now())

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock()

    def _take_in(self, run: RunState) -> bool:
        """Hold a run that was counted elsewhere, if none of its id is held."""
        with here.critical, self._ending, self._lock:
            if run.started.run in self._runs:
                return False
            self._runs[run.started.run] = run
            self._groups[run.group] = self._groups.get(run.group, _EMPTY).with_moved()
        self._make_room()
        return True

    def _find(self, run_id: str, now: float | None) -> RunState | None:
        """An open run, which is alive; called inside a critical section."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is not None:
                self._runs.move_to_end(run_id)
                if now is not None:
                    run.last_seen = now
        return run

    def _open(self, event: RunStarted, now: float | None) -> RunState:
        run = self._made(event, now)
        with here.critical, self._lock:
            # Two threads may open the same run: both feed the one that came first.
            run = self._runs.setdefault(event.run, run)
        self._make_room()
        return run

    def _make_room(self) -> None:
        with here.critical, self._lock:
            surplus = list(islice(self._runs, max(len(self._runs) - self._max_runs, 0)))
        for oldest in surplus:
            self._evict(oldest, "too many runs")

    def _made(self, event: RunStarted, now: float | None) -> RunState:
        agent, task_group = self._pairs.admit((event.agent, event.task_group))
        memory = self._arms.admit(event.memory) if event.memory is not None else ""
        t_max = event.t_max or self._t_max_by_group.get(event.task_group, self._t_max)
        run = RunState(
            event,
            group=GroupKey(agent, task_group, memory),
            t_max=t_max,
            actions=self._actions,
            onset_at=self._onset_at,
            max_period=self._max_period,
            max_distinct=self._max_distinct,
            directed=self._directed,
            distance=self._distance,
            task=self.digester.text(event.task),
            repetition=self._repetition,
            trail=None if self._chronicle is None else self._chronicle.trail(event),
        )
        run.last_seen = 0.0 if now is None else now
        return run

    def _end(self, event: RunEnded) -> RunReport | None:
        with here.critical, self._ending:
            run = self._runs.get(event.run)
            if run is None:
                return None
            with run.lock:
                finished = run.end(event)
                report = run.report()
                group = self._groups.get(run.group, _EMPTY).with_run(finished, run.counted)
            with self._lock:
                # In one step: a reader finds the run among the active or in its group, once. No
                # call between, so that no exception of a signal handler finds it in neither.
                if event.run in self._runs:
                    del self._runs[event.run]
                self._groups[run.group] = group
        self._tell(report)
        if self._chronicle is not None and run.trail is not None:
            self._chronicle.run_ended(report, run.trail)
        return report

    @guarded("engine.on_finished", default=None)
    def _tell(self, report: RunReport) -> None:
        # A fault of the listener is none of the run that happened to make room.
        if self._on_finished is not None:
            self._on_finished(report)

    def _expire(self, now: float | None) -> None:
        while now is not None:
            with here.critical, self._lock:
                run_id, run = next(iter(self._runs.items()), ("", None))
            if run is None or now - run.last_seen <= self._idle_seconds:
                return
            self._evict(run_id, "idle")

    def _evict(self, run_id: str, reason: str) -> None:
        if self._end(RunEnded(run=run_id, reason=reason)) is not None:
            with here.critical, self._lock:
                self._evicted_runs += 1

    def _drop(self) -> None:
        with here.critical, self._lock:
            self._dropped_events += 1


_EMPTY: Final = Group()


@guarded("distance", default=None, interrupting="run")
def _asked(distance: Distance, question: Question) -> Answer | None:
    return question.answered(distance)


def _signals(run: RunState, signals: Signals, now: float | None) -> Signals:
    return signals


def _record_faults(run: RunState) -> None:
    """Record what failed while the run's lock was held; no lock is held now."""
    faults, run.faults = run.faults, []
    for where, error in faults:
        internal_errors.record(where, error)
    if internal_errors.reraise:
        raise faults[0][1]

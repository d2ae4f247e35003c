"""The engine: holds a bounded number of active runs, and adds up those that end."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, Literal, NamedTuple

from tidegauge.events import (
    GO_ON,
    Decision,
    Identity,
    Outcome,
    RunEnded,
    RunStarted,
    Signals,
    Step,
    ToolDeclaration,
)
from tidegauge.safety.critical import here, interrupted, reset_after_fork, run_deferred
from tidegauge.safety.guard import arrived_from_outside, guarded, internal_errors
from tidegauge.streaming_metrics.declaration import RunSettings
from tidegauge.streaming_metrics.digested import (
    DigestedAnswer,
    DigestedOutcome,
    DigestedStep,
    Digester,
    Nearer,
)
from tidegauge.streaming_metrics.exploration import Exploration
from tidegauge.streaming_metrics.fingerprint import Normaliser
from tidegauge.streaming_metrics.known_graph import Distance, DistanceAnswer, DistanceQuestion
from tidegauge.streaming_metrics.limits import OTHER, BoundedNames
from tidegauge.streaming_metrics.normalise import volatile
from tidegauge.streaming_metrics.records import FinishedRun
from tidegauge.streaming_metrics.run import Decider, MeasuredRun
from tidegauge.streaming_metrics.snapshot import Group, GroupKey, GroupSnapshot, RunReport, Snapshot
from tidegauge.streaming_metrics.step_history import EventLog, StepHistory
from tidegauge.streaming_metrics.totals import Totals

_MEMORY_ARMS: Final = 10
_MAX_PENDING: Final = 64


class Held(NamedTuple):
    """What an engine holds at one moment, for readers that need less than a snapshot.

    Attributes:
        groups: sums over the runs that ended; they are never modified.
        runs: the active runs, least recently seen first; read each with its lock held.
    """

    groups: list[Group]
    runs: list[MeasuredRun]


class Engine:
    """Runs by id, each with its own lock, and groups, which are read without a lock.

    A step is first digested without any lock: only this runs user code. Then the run's lock is held
    once for the update and the decision, and no lock that runs share. A snapshot takes the lock of
    one run at a time. A forked child process starts with an empty engine.

    Args:
        max_runs: active runs held; one more evicts the run idle for longest.
        idle_seconds: a run without an event for so long is ended as unknown.
        max_groups: (agent, task group) pairs distinguished; later ones are ``other``.
        max_actions: action names distinguished in counters; later ones are ``other``.
        t_max: turns within which success counts, for runs that set none.
        t_max_by_group: the same by task group.
        stale_at: stale score from which a run counts as stale.
        onset_at: length at which a result streak or failed rounds count as an onset.
        max_period: longest cycle that is detected, in steps.
        max_distinct: distinct results and (action, result) pairs that a run remembers.
        normaliser: applied to texts before they are digested; by default, known noise is left out;
            ``None`` compares exactly.
        directed: whether exits lead one way only.
        distance: distance between two places, if it is known better than from the exits;
            replaces the search for gain.
        declarations: what is declared of tools, by their names.
        detect_polls: whether calls that wait, and looks at what another call has started, are taken
            for polls, see :mod:`~tidegauge.streaming_metrics.polls`; ``None``, as the start of the
            run says.
        repetition: whether runs measure the similarity of their actions, which reads the words
            of every call.
        features: whether runs have the features of learned scores, which reads the texts of every
            step, and measures repetition.
        token_rate: whether runs measure how many tokens they spend in a minute.
        loop_code: how loops are read: as in TIDE's code for texts, or for graphical interfaces.
        clock: returns seconds; ``None`` for recorded runs, which have recorded times or none.
        open_unknown_runs: whether a step of an unknown run opens it, or is dropped and counted.
        on_finished: called with the report of each run that ended, without any lock.
        event_log: keeps the last steps of runs and their events; ``None``, they are not kept.

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
        normaliser: Normaliser | Literal["volatile"] | None = "volatile",
        directed: bool = False,
        distance: Distance | None = None,
        declarations: Mapping[str, ToolDeclaration] | None = None,
        detect_polls: bool | None = None,
        repetition: bool = True,
        features: bool = False,
        token_rate: bool = False,
        loop_code: Literal["text", "gui"] = "text",
        clock: Callable[[], float] | None = time.monotonic,
        open_unknown_runs: bool = False,
        on_finished: Callable[[RunReport], None] | None = None,
        event_log: EventLog | None = None,
    ) -> None:
        self._max_runs = max_runs
        self._idle_seconds = idle_seconds
        self._t_max = t_max
        self._t_max_by_group = dict(t_max_by_group or {})
        self.stale_at = stale_at
        self._settings = RunSettings(
            onset_at=onset_at,
            stale_at=stale_at,
            max_period=max_period,
            max_distinct=max_distinct,
            directed=directed,
            detect_polls=detect_polls,
            repetition=repetition or features,
            features=features,
            token_rate=token_rate,
            loop_code=loop_code,
            asks_distance=distance is not None,
        )
        self.digester = Digester(
            volatile() if normaliser == "volatile" else normaliser,
            declarations,
            words=repetition or features,
            clues=features,
            contents=event_log is not None and event_log.contents,
            polls=detect_polls is True,
            nearer=None if distance is None else self._nearer(distance),
        )
        self._clock = clock
        self._open_unknown_runs = open_unknown_runs
        self._on_finished = on_finished
        self._event_log = event_log
        self._max_groups = max_groups
        self._max_actions = max_actions
        self._begin()
        reset_after_fork(self)

    def _begin(self) -> None:
        # Re-entrant for readers: a signal handler may take a snapshot in the middle of a step.
        self._lock = threading.RLock()  # of _groups, the counters, and runs that come and go
        self._ending = threading.RLock()  # one run is added to its group at a time
        self._runs: OrderedDict[str, MeasuredRun] = OrderedDict()  # least recently seen first
        self._groups: dict[GroupKey, Group] = {}  # replaced, never modified
        self._pending: list[_Change] = []  # not added to the groups yet
        self._unreported: dict[str, _Unreported] = {}  # ends that not all have learnt of
        self._pairs = BoundedNames[tuple[str, str]](limit=self._max_groups, other=(OTHER, OTHER))
        self._arms = BoundedNames[str](limit=_MEMORY_ARMS, other=OTHER)
        self._actions = BoundedNames[str](limit=self._max_actions, other=OTHER)
        self._started = time.time()
        self._evicted_runs = 0
        self._dropped_events = 0

    def _reset_after_fork(self) -> None:
        """The child process has no runs of its parent, and its counters start at 0."""
        self._begin()

    @property
    def unused(self) -> bool:
        """Whether no event has come, in this process."""
        return not (self._runs or self._pending or self._groups or self._dropped_events)

    def run_started(self, event: RunStarted) -> None:
        """Open a run. An open run with the same id is ended as unknown."""
        now = self._now()
        self._expire(now)
        event = self.digester.run(event)
        if event.run in self._runs:
            self._end(RunEnded(run=event.run, reason="started again"))
        self._open(event, now)

    def step_issued(self, event: Step) -> Signals | None:
        """Take an issued action; ``None`` if its run is not open."""
        return _all(self.issue(self.digester.step(event), full=True))

    def step_observed(self, event: Outcome) -> Signals | None:
        """Take a result; ``None`` if its run is not open or no step waits for it."""
        return _all(self.observe(self.digester.outcome(event), full=True))

    def _nearer(self, distance: Distance) -> Nearer:
        def nearer(run: str, place: Identity) -> DistanceAnswer | None:
            question = self._question(run, place)
            return None if question is None else _asked(distance, question)

        return nearer

    def _question(self, run_id: str, place: Identity) -> DistanceQuestion | None:
        """What is asked about a move of a run; ``None``, nothing is."""
        run = self._runs.get(run_id)
        if run is None:
            return None
        with here.critical, run.lock:
            exploration = run.find(Exploration)
            return None if exploration is None else exploration.question(place)

    def issue(
        self, step: DigestedStep, decider: Decider | None = None, *, full: bool = False
    ) -> Decision:
        """Take a digested action, and ask the policy.

        Both happen with the run's lock held, so that no other step of the run comes between.

        Args:
            step: the action.
            decider: the policy to ask.
            full: whether the decision has all signals even if the run continues.

        Returns:
            The decision; without signals if the run is not open.
        """
        clock = self._clock
        now = None if clock is None else clock()
        if self._open_unknown_runs and step.run not in self._runs:
            self._open(self.digester.run(RunStarted(run=step.run)), now)
        runs = self._runs
        run = runs.get(step.run)
        decision = None
        if run is not None:
            try:
                runs.move_to_end(step.run)  # as _seen
            except KeyError as error:
                if arrived_from_outside(error):
                    raise  # else it ended meanwhile, and takes nothing any more
            try:
                with here.critical, run.lock:
                    decision = run.issue(step, now, decider, full)
            finally:
                if run.faults:
                    _record_faults(run)
        if decision is None:
            self._drop()
            return GO_ON
        return decision

    def observe(
        self, outcome: DigestedOutcome, decider: Decider | None = None, *, full: bool = False
    ) -> Decision:
        """Take a digested result; the arguments are those of :meth:`issue`.

        Returns:
            The decision; without signals if the run is not open or no step waits for the result.
        """
        clock = self._clock
        now = None if clock is None else clock()
        runs = self._runs
        run = runs.get(outcome.run)
        decision = None
        if run is not None:
            try:
                runs.move_to_end(outcome.run)  # as _seen
            except KeyError as error:
                if arrived_from_outside(error):
                    raise  # else it ended meanwhile, and takes nothing any more
            try:
                with here.critical, run.lock:
                    decision = run.observe(outcome, now, decider, full)
            finally:
                if run.faults:
                    _record_faults(run)
        if decision is None:
            self._drop()
            return GO_ON
        return decision

    def answered(
        self, answer: DigestedAnswer, decider: Decider | None = None, *, full: bool = False
    ) -> Decision:
        """Take a digested answer without a call; the arguments are those of :meth:`issue`.

        Returns:
            The decision; without signals if the run is not open.
        """
        now, run = self._now(), self._seen(answer.run)
        decision = None
        if run is not None:
            try:
                with here.critical, run.lock:
                    decision = run.answer(answer, now, decider, full)
            finally:
                if run.faults:
                    _record_faults(run)
        if decision is None:
            self._drop()
            return GO_ON
        return decision

    def _seen(self, run_id: str) -> MeasuredRun | None:
        """An active run, which has an event now.

        Without the lock: each of the two accesses is atomic, because ids are plain strings.
        """
        runs = self._runs
        try:
            runs.move_to_end(run_id)
            return runs[run_id]
        except KeyError as error:
            if arrived_from_outside(error):
                raise
            return None

    def intervened(self, run: str, action: str, reason: str, step: int) -> None:
        """Count an intervention (``would_stop``, ``nudge``, ``block`` or ``stop``) in a run."""
        with here.critical:
            found = self._runs.get(run)
            if found is not None:
                with found.lock:
                    if not found.finished:
                        found.intervene(action, reason, step)

    def refused(self, run: str, calls: int) -> None:
        """Count calls that were not run: the policy blocked them, or has stopped their run."""
        now, found = self._now(), self._seen(run)
        if found is None:
            self._drop()
            return
        with here.critical, found.lock:
            if now is not None:
                found.last_seen = now
            if not found.finished:
                found.totals.refused_calls += calls

    def chanted(self, run: str, share: float, decider: Decider | None = None) -> Decision:
        """Take how much of a model's answer repeats itself; see ``MeasuredRun.chanted``."""
        now, found, decision = self._now(), self._seen(run), None
        if found is None:
            self._drop()
        else:
            try:
                with here.critical, found.lock:
                    decision = found.chanted(share, now, decider)
            finally:
                if found.faults:
                    _record_faults(found)
        return decision or GO_ON

    def run_ended(self, event: RunEnded) -> RunReport | None:
        """Close a run and add it to its group; ``None`` if it is not open."""
        if event.refused_calls:
            self.refused(event.run, event.refused_calls)
        report = self._end(self.digester.end(event))
        if report is None:
            self._drop()
        return report

    def detach(self, run: str) -> None:
        """Remove an active run, because another engine measures it from now on.

        What was counted here stays counted.
        """
        with here.critical, self._ending:
            found = self._runs.get(run)
            if found is None:
                return
            with found.lock:
                found.close()  # later steps are dropped and counted
                change = [_Change(found.group, None, found.counted, moved_out=1)]
            with self._lock:
                if run in self._runs:
                    del self._runs[run]
                self._pending += change

    def restore(self, event: RunStarted) -> bool:
        """Open a run whose past steps another engine has counted.

        Steps until :meth:`restored` are not counted here. ``False`` if a run with that id is
        already open here; that run does not change.
        """
        run = self._made(event, self._now())
        run.baseline = run.totals  # the same object: nothing counts yet
        change = [_Change(run.group, None, None, moved_in=1)]
        with here.critical, self._ending, self._lock:
            if event.run in self._runs:
                return False
            self._runs[event.run] = run
            self._pending += change
        self._make_room()
        return True

    def restored(self, run: str) -> None:
        """End the restoration of a run: its next steps are counted."""
        found = self._runs.get(run)
        if found is not None:
            with here.critical, found.lock:
                if found.baseline is found.totals:
                    found.restore_ended()

    def get(self, run: str) -> MeasuredRun | None:
        """An active run; read it with its lock held."""
        return self._runs.get(run)

    def held_bytes(self, run: str) -> int:
        """Bytes of memory that an active run takes, about; 0, it is not active."""
        found = self._runs.get(run)
        return 0 if found is None else found.held_bytes

    def snapshot(self) -> Snapshot:
        """Every group and every active run now."""
        self._catch_up()
        with here.critical, self._ending:  # no run ends meanwhile
            faults = self._add_up()
            with self._lock:
                groups = self._groups
                runs = list(self._runs.values())
                evicted, dropped = self._evicted_runs, self._dropped_events
        _record(faults)
        views: dict[GroupKey, GroupSnapshot] = {}
        for key, group in groups.items():
            views[key] = view = GroupSnapshot(key, group, stale_at=self.stale_at)
            view.totals.add(group.totals)
        for run in runs:
            found = views.get(run.group)
            if found is None:
                found = views[run.group] = GroupSnapshot(run.group, _EMPTY, stale_at=self.stale_at)
            with here.critical, run.lock:
                found.totals.add(run.counted)
                found.active.append(run.report())
            if run.faults:
                _record_faults(run)
        beyond_limit = {
            "action": self._actions.refused,
            "group": self._pairs.refused,
            "memory": self._arms.refused,
        }
        return Snapshot(list(views.values()), self._started, evicted, dropped, beyond_limit)

    def held(self) -> Held:
        """The groups and active runs, without reading them."""
        self._catch_up()
        with here.critical, self._ending:
            faults = self._add_up()
            with self._lock:
                groups, runs = list(self._groups.values()), list(self._runs.values())
        _record(faults)
        return Held(groups, runs)

    def _add_up(self) -> list[tuple[str, Exception]]:
        """Add the pending changes to the groups. Call it with :attr:`_ending` held.

        They are added to copies, so that readers need no lock, and so that an exception of a signal
        handler changes nothing. Many runs share one copy.

        Returns:
            Errors, to be recorded when no lock is held: their runs are in no group.
        """
        faults: list[tuple[str, Exception]] = []
        with self._lock:
            pending = list(self._pending)
        adding = pending
        changed: dict[GroupKey, Group] = {}
        while adding:
            try:
                for change in adding:
                    group = changed.get(change.group)
                    if group is None:
                        group = changed[change.group] = self._groups.get(
                            change.group, _EMPTY
                        ).copy()
                    change.add_to(group)
                break
            except Exception as error:
                if arrived_from_outside(error):
                    raise
                # The copies are half changed: begin again without that run.
                faults.append(("engine.groups", error))
                adding = [one for one in adding if one is not change]
                changed = {}
        if pending:
            with self._lock:
                groups, rest = {**self._groups, **changed}, self._pending[len(pending) :]
                self._groups, self._pending = groups, rest
        return faults

    def _catch_up(self) -> None:
        """Run deferred calls and end idle runs, before anything is read."""
        if not interrupted():
            run_deferred()
            self._expire(self._now())

    def _now(self) -> float | None:
        return None if self._clock is None else self._clock()

    def _open(self, event: RunStarted, now: float | None) -> MeasuredRun:
        run = self._made(event, now)
        with here.critical, self._lock:
            # Two threads may open the same run: both use the first one.
            run = self._runs.setdefault(event.run, run)
        self._make_room()
        return run

    def _make_room(self) -> None:
        while True:
            with here.critical, self._lock:  # no other run comes or goes
                oldest = self._oldest() if len(self._runs) > self._max_runs else None
            if oldest is None:
                return
            self._evict(oldest, "too many runs")

    def _made(self, event: RunStarted, now: float | None) -> MeasuredRun:
        agent, task_group = self._pairs.admit((event.agent, event.task_group))
        memory = self._arms.admit(event.memory) if event.memory is not None else ""
        t_max = event.t_max or self._t_max_by_group.get(event.task_group, self._t_max)
        run = MeasuredRun(
            event,
            group=GroupKey(agent, task_group, memory),
            settings=self._settings,
            t_max=t_max,
            actions=self._actions,
            task=self.digester.text(event.task),
            history=None if self._event_log is None else self._event_log.history(event),
        )
        if run.detects_polls:
            self.digester.polls = True  # from here on: where no run needs it, no step pays for it
        run.last_seen = 0.0 if now is None else now
        return run

    def _end(self, event: RunEnded) -> RunReport | None:
        faults: list[tuple[str, Exception]] = []
        left = None
        if self._unreported:
            left = self._unreported.get(event.run)
            self._report_left()
        with here.critical, self._ending:
            run = self._runs.get(event.run)
            if run is None:
                return None if left is None else left.report
            with run.lock:
                finished = run.end(event)
                report = run.report()
                change = [_Change(run.group, finished, run.counted)]
            unreported = _Unreported(threading.get_ident(), report, run.history)
            with self._lock:
                # In one step: a reader finds the run either among the active ones or in its group.
                # No call between, so that an exception of a signal handler cannot lose it.
                if event.run in self._runs:
                    del self._runs[event.run]
                self._pending += change
                self._unreported[event.run] = unreported
                self._evicted_runs += event.evicted
            if len(self._pending) >= _MAX_PENDING:
                faults = self._add_up()
        read, run.faults = run.faults, []
        _record([*read, *faults])
        self._report(event.run, unreported)
        return report

    def _report(self, run: str, ended: _Unreported) -> None:
        """Report an end to those who listen; a second time, what was left is reported."""
        self._report_end(ended.report)
        if self._event_log is not None and ended.history is not None:
            self._event_log.run_ended(ended.report, ended.history)
        self._unreported.pop(run, None)

    def _report_left(self) -> None:
        """Report the ends in whose reports an exception has arrived, in this thread."""
        me = threading.get_ident()
        for run, ended in list(self._unreported.items()):
            if ended.thread == me:
                self._report(run, ended)

    @guarded("engine.on_finished", default=None)
    def _report_end(self, report: RunReport) -> None:
        # Guarded: a run may end because another one starts, which must not see the error.
        if self._on_finished is not None:
            self._on_finished(report)

    def _expire(self, now: float | None) -> None:
        while now is not None:
            oldest = self._oldest()
            if oldest is None or now - oldest.last_seen <= self._idle_seconds:
                return
            self._evict(oldest, "idle")

    def _oldest(self) -> MeasuredRun | None:
        """The run that is idle for longest; ``None``, no run is active."""
        while True:
            try:
                return next(iter(self._runs.values()), None)
            except RuntimeError as error:
                if arrived_from_outside(error):
                    raise
                # Meanwhile, a step in another thread has moved its run to the end.

    def _evict(self, run: MeasuredRun, reason: str) -> None:
        self._end(RunEnded(run=run.started.run, reason=reason, evicted=True))

    def _drop(self) -> None:
        with here.critical, self._lock:
            self._dropped_events += 1


_EMPTY: Final = Group()


class _Unreported(NamedTuple):
    """An end that is being reported, by a thread."""

    thread: int
    report: RunReport
    history: StepHistory | None


class _Change(NamedTuple):
    """A change of a group: a run that ended, was attached or detached."""

    group: GroupKey
    finished: FinishedRun | None
    counted: Totals | None
    moved_in: int = 0
    moved_out: int = 0

    def add_to(self, group: Group) -> None:
        group.moved_in += self.moved_in
        group.moved_out += self.moved_out
        if self.finished is not None and self.counted is not None:
            group.add_run(self.finished, self.counted)
        elif self.counted is not None:
            group.totals.add(self.counted)


@guarded("distance", default=None, interrupting="run")
def _asked(distance: Distance, question: DistanceQuestion) -> DistanceAnswer | None:
    return question.answered(distance)


def _all(decision: Decision) -> Signals | None:
    return decision.signals if isinstance(decision.signals, Signals) else None


def _record_faults(run: MeasuredRun) -> None:
    """Record what failed while the run's lock was held; no lock is held now."""
    faults, run.faults = run.faults, []
    _record(faults)


def _record(faults: list[tuple[str, Exception]]) -> None:
    for where, error in faults:
        internal_errors.record(where, error)
    if faults and internal_errors.reraise:
        raise faults[0][1]

"""The live step sink: feeds the engine, asks the policy, reports to observers."""

from __future__ import annotations

import math
import threading
import time
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tidegauge.errors import CallBlocked, RunStopped
from tidegauge.events import (
    GO_ON,
    Answer,
    Decision,
    ModelUsage,
    Outcome,
    PolicyInForce,
    RunEnded,
    RunObserver,
    RunStarted,
    RunSummary,
    Step,
)
from tidegauge.policies import Crossings, LiveLimits, LivePolicy, Policy, RunPolicy
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.safety.guard import arrived_from_outside, guarded
from tidegauge.streaming_metrics import Engine, RunReport
from tidegauge.streaming_metrics.run import MeasuredRun
from tidegauge.values import ValueCache

if TYPE_CHECKING:
    from tidegauge.recordings import RunLines

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
        """The troubles of a run that has ended, in the order of the table above."""
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


_REPORTED: Final = [name for name in RunSummary._fields if name != "troubles"]
_EVENTS: Final = [
    name for name in vars(RunObserver) if name.startswith(("run_", "step_", "answered"))
]


class EngineSink:
    """The live :class:`~tidegauge.events.StepSink`: feeds the engine, asks the policy, and
    reports to observers what the engine has taken.

    The recording alone gets the steps of a run in the engine's order: its lock is held around
    both. If there is an observer, the engine must call :meth:`run_finished` for every run
    that ends: evicted runs end without an event.

    Args:
        counts_nudges: whether a nudge counts when it is decided; else :meth:`nudged` counts it.
        clock: gives budgets and breakers the time in seconds since the epoch.

    Attributes:
        crossings: counts the runs that exceeded the policy's calibrated thresholds.
        limits: the budgets and breakers; ``None``, there are none.
    """

    def __init__(
        self,
        engine: Engine,
        policy: Policy,
        *,
        counts_nudges: bool = True,
        recording: RunLines | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.engine = engine
        self.policy = policy
        self.crossings = Crossings(policy.thresholds)
        self._live = live = LivePolicy(policy, counts_nudges=counts_nudges)
        limited = bool(policy.budgets or policy.breakers)
        self.limits = LiveLimits(policy, live, clock) if limited else None
        self._troubles = RunTroubles()
        self._recording = recording
        self._observed = False  # whether there is an observer, which most processes have not
        self._observing: dict[str, tuple[Callable[..., object], ...]] = dict.fromkeys(_EVENTS, ())
        self._ending: dict[str, RunEnded] = {}
        if recording is not None:
            self.observe(recording)

    def observe(self, observer: RunObserver) -> None:
        """Report to it all that comes from now on."""
        for event in _EVENTS:
            if getattr(type(observer), event) is not getattr(RunObserver, event):
                self._observing[event] += (_harmless(observer.name, getattr(observer, event)),)
        self._observed = True

    def _report(self, event: str, *args: object) -> None:
        for observe in self._observing[event]:
            observe(*args)

    def run_started(self, event: RunStarted) -> None:
        """A run began."""
        # With no lock of an observer held: this may end other runs, which takes their locks.
        self.engine.run_started(event)
        if self.limits is not None:
            self.limit(event.run)
        run = self.engine.get(event.run) if self._observed else None
        if run is not None:
            self._report("run_started", replace(run.started, task=event.task, t_max=run.t_max))
            if self.engine.get(event.run) is not run:  # it was evicted before it was known
                self._report("run_ended", RunEnded(run=event.run))

    def step_issued(self, event: Step) -> Decision:
        """An action was issued."""
        try:
            engine = self.engine
            decider = self._live if self.limits is None else self.limits.step(event)
            if (recording := self._recording) is None:
                decision = engine.issue(engine.digester.step(event), decider)
            else:
                cache = ValueCache()  # digest and line read the values once
                step = engine.digester.step(event, cache)
                line = recording.step_line(event, step, cache)
                with here.critical, recording.locked(step.run):
                    decision = engine.issue(step, decider, full=True)  # for lines without words
                    recording.issued(step, line, decision)
            if self._observed and decision.signals is not None:
                for observe in self._observing["step_issued"]:
                    observe(event, decision)
            return decision
        except Exception as error:
            self._switch_off(event.run, error)
            raise

    def step_observed(self, event: Outcome) -> Decision:
        """A result was observed."""
        try:
            engine = self.engine
            if self.limits is not None:
                self.limits.observe(engine.get(event.run), event)
            if (recording := self._recording) is None:
                decision = engine.observe(engine.digester.outcome(event), self._live)
            else:
                cache = ValueCache()
                outcome = engine.digester.outcome(event, cache)
                lines = recording.result_lines(event, outcome, cache)
                with here.critical, recording.locked(outcome.run):
                    outcome = recording.timed(outcome)
                    decision = engine.observe(outcome, self._live, full=True)
                    recording.observed(outcome, lines, decision)
            if self._observed and decision.signals is not None:
                for observe in self._observing["step_observed"]:
                    observe(event, decision)
            return decision
        except Exception as error:
            self._switch_off(event.run, error)
            raise

    def answered(self, event: Answer) -> Decision:
        """The model answered without a call."""
        try:
            engine = self.engine
            if (recording := self._recording) is None:
                decision = engine.answered(engine.digester.answer(event), self._live)
            else:
                answer = engine.digester.answer(event)
                line = recording.answer_line(event, answer)
                with here.critical, recording.locked(answer.run):
                    decision = engine.answered(answer, self._live)
                    recording.wrote_answer(answer.run, line, decision)
            if self._observed and decision.signals is not None:
                self._report("answered", event, decision)
            return decision
        except Exception as error:
            self._switch_off(event.run, error)
            raise

    def model_called(self, run_id: str, usage: ModelUsage | None) -> Decision:
        """A model call of a run has ended, or is about to begin. Only budgets ask for that."""
        run = self.engine.get(run_id)
        if run is None or self.limits is None:
            return GO_ON
        try:
            return self.limits.model_called(run, usage) or GO_ON
        except Exception as error:
            self._switch_off(run_id, error)
            raise

    def limit(self, run_id: str) -> None:
        """Budgets count for a run that began, or continues."""
        run = self.engine.get(run_id)
        if run is not None and self.limits is not None:
            parent = run.started.parent
            self.limits.begin(run, None if parent is None else self.engine.get(parent))

    def run_waits(self, run_id: str, waits: bool) -> None:
        """A run waits for a person, or no more: that is no part of how long it works."""
        run = self.engine.get(run_id)
        if not waits:
            self.limit(run_id)
        elif run is not None and self.limits is not None:
            self.limits.pause(run)

    def chanted(self, run: str, share: float, over: bool = False) -> Decision:
        """So much of a model's answer repeats itself; 0, another answer begins.

        Args:
            over: whether the run is over: the policy is not asked.
        """
        try:
            return self.engine.chanted(run, share, None if over else self._live)
        except Exception as error:
            self._switch_off(run, error)
            raise

    def standing(self, run_id: str) -> Decision | None:
        """The stop of a run that continues here, if one was decided before it waited."""
        run = self.engine.get(run_id)
        if run is None:
            return None
        with here.critical, run.lock:
            return self._live.standing(run)

    def nudged(self, run: str, nudge: Decision) -> None:
        """Count a nudge that was delivered."""
        step = 0 if nudge.signals is None else nudge.signals.step
        self.engine.intervened(run, nudge.action, nudge.reason or "", step)

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        """A run ended."""
        run = self.engine.get(event.run)
        if not self._observed:
            report = self.engine.run_ended(event)
        else:
            event = replace(self.engine.digester.end(event), policy=self._policy_in_force(run))
            self._ending[event.run] = event
            try:
                report = self.engine.run_ended(event)
            finally:
                self._ending.pop(event.run, None)
        if report is None:
            return None
        if run is not None and self.policy.thresholds:
            state = _state(run)
            if state is not None:
                self.crossings.run_ended(
                    *(report.agent, report.task_group, report.outcome),
                    exceeded=state.exceeded,
                    highest=state.highest,
                )
        summary = RunSummary(
            **{name: getattr(report, name) for name in _REPORTED},
            troubles=self._troubles.of(report),
        )
        return summary._replace(loop_steps=None) if "loops" in report.lost else summary

    def run_finished(self, report: RunReport) -> None:
        """A run was ended in the engine, by its adapter or to make room."""
        if self._observed:
            ended = replace(
                self._ending.get(report.run) or RunEnded(run=report.run),
                success=report.success,
                outcome=report.outcome,
                agent_name=report.agent_name,
                refused_calls=report.refused_calls,
            )
            self._report("run_ended", ended)

    def run_restored(self, run: MeasuredRun) -> None:
        """A run that waited continues here."""
        self.limit(run.started.run)
        event = replace(run.started, task=None, t_max=run.t_max)
        self._report("run_restored", event, run.steps, run.completed_steps)

    def run_detached(self, run: str) -> None:
        """A run that waits may continue elsewhere."""
        self._report("run_detached", run)

    def _policy_in_force(self, run: MeasuredRun | None) -> PolicyInForce | None:
        """The thresholds that apply to an open run; ``None``, there are none."""
        if run is None or not self.policy.thresholds:
            return None
        state = _state(run)
        return None if state is None else self.policy.in_force(run.started, state.exceeded)

    def _switch_off(self, run_id: str, error: Exception) -> None:
        """After an internal error, the policy makes no more decisions on the run."""
        run = self.engine.get(run_id)
        if run is not None and not arrived_from_outside(error):
            run.unguarded = True


def _harmless(name: str, observe: Callable[..., object]) -> Callable[..., object]:
    """The method of an observer, of which nothing reaches the agent."""

    @guarded(name, default=None)
    def report(*args: object) -> None:
        try:
            observe(*args)
        except (RunStopped, CallBlocked) as stop:  # of an agent in the observer: not of this one
            raise RuntimeError("an observer was stopped") from stop

    return report


@guarded("policy", default=None, interrupting="run")
def _state(run: MeasuredRun) -> RunPolicy | None:
    """The policy's state for a run; ``None`` if it cannot be read."""
    return run.policy_state(RunPolicy)

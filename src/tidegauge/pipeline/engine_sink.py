"""The live step sink: feeds the engine, asks the policy."""

from __future__ import annotations

import math
import threading
from bisect import bisect_left, insort
from collections import OrderedDict, deque
from typing import Final

from tidegauge.events import (
    Decision,
    Outcome,
    PolicyInForce,
    RunEnded,
    RunStarted,
    RunSummary,
    Step,
)
from tidegauge.policies import Crossings, LivePolicy, Policy, RunPolicy
from tidegauge.safety.critical import here, reset_after_fork
from tidegauge.safety.guard import arrived_from_outside, guarded
from tidegauge.streaming_metrics import Engine, RunReport
from tidegauge.streaming_metrics.digested import DigestedOutcome, DigestedStep
from tidegauge.streaming_metrics.run import MeasuredRun
from tidegauge.values import ValueCache

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


_REPORTED: Final = [name for name in RunSummary._fields if name != "troubles"]


class EngineSink:
    """The live :class:`~tidegauge.events.StepSink`: feeds the engine and asks the policy.

    Args:
        engine: takes the steps.
        policy: decides.
        all_signals: whether every decision has all signals, even if the run continues.
        counts_nudges: whether a nudge counts when it is decided; else :meth:`nudged` counts it.

    Attributes:
        crossings: counts the runs that exceeded the policy's calibrated thresholds.
    """

    def __init__(
        self,
        engine: Engine,
        policy: Policy,
        *,
        all_signals: bool = False,
        counts_nudges: bool = True,
    ) -> None:
        self.engine = engine
        self.policy = policy
        self.crossings = Crossings(policy.thresholds)
        self._live = LivePolicy(policy, counts_nudges=counts_nudges)
        self._troubles = RunTroubles()
        self.all_signals = all_signals

    def run_started(self, event: RunStarted) -> None:
        """A run began."""
        self.engine.run_started(event)

    def step_issued(self, event: Step) -> Decision:
        """An action was issued."""
        try:
            engine = self.engine
            return engine.issue(engine.digester.step(event), self._live, full=self.all_signals)
        except Exception as error:
            self._switch_off(event.run, error)
            raise

    def step_observed(self, event: Outcome) -> Decision:
        """A result was observed."""
        try:
            engine = self.engine
            return engine.observe(engine.digest_outcome(event), self._live, full=self.all_signals)
        except Exception as error:
            self._switch_off(event.run, error)
            raise

    def digest_step(self, event: Step, cache: ValueCache | None = None) -> DigestedStep:
        """The digested action. May run user code: call it without a lock.

        Args:
            event: the action.
            cache: keeps what is read from it, for the next reader.
        """
        try:
            return self.engine.digester.step(event, cache)
        except Exception as error:
            self._switch_off(event.run, error)
            raise

    def digest_outcome(self, event: Outcome, cache: ValueCache | None = None) -> DigestedOutcome:
        """The digested result; as :meth:`digest_step`."""
        try:
            return self.engine.digest_outcome(event, cache)
        except Exception as error:
            self._switch_off(event.run, error)
            raise

    def issue(self, step: DigestedStep) -> Decision:
        """Take a digested action, and ask the policy."""
        try:
            return self.engine.issue(step, self._live, full=self.all_signals)
        except Exception as error:
            self._switch_off(step.run, error)
            raise

    def observe(self, outcome: DigestedOutcome) -> Decision:
        """Take a digested result, and ask the policy."""
        try:
            return self.engine.observe(outcome, self._live, full=self.all_signals)
        except Exception as error:
            self._switch_off(outcome.run, error)
            raise

    def nudged(self, run: str, nudge: Decision) -> None:
        """Count a nudge that was delivered."""
        step = 0 if nudge.signals is None else nudge.signals.step
        self.engine.intervened(run, nudge.action, nudge.reason or "", step)

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        """A run ended."""
        run = self.engine.get(event.run)
        report = self.engine.run_ended(event)
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

    def policy_in_force(self, run_id: str) -> PolicyInForce | None:
        """The thresholds that apply to an open run; ``None``, there are none."""
        run = self.engine.get(run_id)
        if run is None or not self.policy.thresholds:
            return None
        state = _state(run)
        return None if state is None else self.policy.in_force(run.started, state.exceeded)

    def _switch_off(self, run_id: str, error: Exception) -> None:
        """After an internal error, the policy makes no more decisions on the run."""
        run = self.engine.get(run_id)
        if run is not None and not arrived_from_outside(error):
            run.unguarded = True


@guarded("policy", default=None, interrupting="run")
def _state(run: MeasuredRun) -> RunPolicy | None:
    """The policy's state for a run; ``None`` if it cannot be read."""
    return run.policy_state(RunPolicy)

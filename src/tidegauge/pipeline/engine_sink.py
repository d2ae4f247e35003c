"""The live step sink: feeds the engine, asks the policy."""

from __future__ import annotations

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
from tidegauge.pipeline.run_troubles import RunTroubles
from tidegauge.policies import Crossings, LivePolicy, Policy, RunPolicy
from tidegauge.safety.guard import arrived_from_outside, guarded
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.digested import DigestedOutcome, DigestedStep
from tidegauge.streaming_metrics.run import MeasuredRun
from tidegauge.values import ValueCache

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

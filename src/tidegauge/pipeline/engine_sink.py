"""The live step sink: feeds the engine, asks the policy."""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge._canonical import Reading
from tidegauge._guard import arrived_from_outside
from tidegauge.events import (
    GO_ON,
    Decision,
    Outcome,
    RunEnded,
    RunStarted,
    RunSummary,
    Signals,
    Step,
)
from tidegauge.policies import Crossings, Line, Policy, Rule, advise
from tidegauge.streaming_metrics import Engine
from tidegauge.streaming_metrics.digested import DigestedOutcome, DigestedStep
from tidegauge.streaming_metrics.run_state import RunState

__all__ = ["EngineSink"]


class EngineSink:
    """The live :class:`~tidegauge.events.StepSink`: feeds the engine and asks the policy.

    Args:
        engine: takes the steps.
        policy: decides.

    Attributes:
        crossings: what became of the runs that the policy has calibrated lines for.
    """

    def __init__(self, engine: Engine, policy: Policy) -> None:
        self.engine = engine
        self.policy = policy
        self.crossings = Crossings(policy.lines)

    def run_started(self, event: RunStarted) -> None:
        """A run began."""
        self.engine.run_started(event)

    def step_issued(self, event: Step) -> Decision:
        """An action was issued."""
        engine = self.engine
        then = self._decide_blockable if event.blockable else self._decide
        try:
            return engine.issue(engine.digester.step(event), then) or GO_ON
        except Exception:
            self._watch_only(event.run)
            raise

    def step_observed(self, event: Outcome) -> Decision:
        """An outcome was observed."""
        engine = self.engine
        try:
            return engine.observe(engine.digest_outcome(event), self._decide) or GO_ON
        except Exception:
            self._watch_only(event.run)
            raise

    def digest_step(self, event: Step, reading: Reading) -> DigestedStep:
        """What is compared of an action; may run code of the user's, so no lock may be held.

        Args:
            event: the action.
            reading: remembers what was read of it.
        """
        try:
            return self.engine.digester.step(event, reading)
        except Exception:
            self._watch_only(event.run)
            raise

    def digest_outcome(self, event: Outcome, reading: Reading) -> DigestedOutcome:
        """What is compared of an outcome; as :meth:`digest_step`."""
        try:
            return self.engine.digest_outcome(event, reading)
        except Exception:
            self._watch_only(event.run)
            raise

    def issue(self, step: DigestedStep) -> Decision:
        """Take an action that was digested, and ask the policy."""
        then = self._decide_blockable if step.blockable else self._decide
        try:
            decision = self.engine.issue(step, then)
        except Exception:
            self._watch_only(step.run)
            raise
        return GO_ON if decision is None else decision

    def observe(self, outcome: DigestedOutcome) -> Decision:
        """Take an outcome that was digested, and ask the policy."""
        try:
            decision = self.engine.observe(outcome, self._decide)
        except Exception:
            self._watch_only(outcome.run)
            raise
        return GO_ON if decision is None else decision

    def run_ended(self, event: RunEnded) -> RunSummary | None:
        """A run ended."""
        run = self.engine.get(event.run)
        report = self.engine.run_ended(event)
        if report is None:
            return None
        if run is not None and self.policy.lines:
            started = run.started
            self.crossings.run_ended(started.agent, started.task_group, report.outcome, run.crossed)
        return RunSummary(report.steps, report.outcome, report.loop_ratio, report.stale_score_max)

    def _decide_blockable(self, run: RunState, signals: Signals, now: float | None) -> Decision:
        return self._decide(run, signals, now, blockable=True)

    def _decide(
        self, run: RunState, signals: Signals, now: float | None, *, blockable: bool = False
    ) -> Decision:
        """Ask the policy; called with the run's lock held."""
        if run.watch_only:
            return Decision("go_on", None, None, signals)
        try:
            return self._ask(run, signals, now, blockable)
        except Exception as error:
            run.watch_only = True  # after an internal error, the run gets no more decisions
            if arrived_from_outside(error):
                raise
            run.faults.append(("policy", error))
            return Decision(signals=signals)

    def _ask(self, run: RunState, signals: Signals, now: float | None, blockable: bool) -> Decision:
        policy = self.policy
        if run.stopped is not None:
            step, reason = run.stopped
            return Decision("stop", reason, f"the run was stopped at step {step}", signals)
        crossed = policy.crossed(signals)
        for line, _ in crossed:
            run.crossed.setdefault(line.score, signals.step)
        decision = policy.decide(signals, blockable=blockable, crossed=crossed)
        if decision.nudge or run.nudged:
            holding = policy.nudges(signals, crossed)
            decision = self._nudge(decision, signals, run, holding)
        if not decision.stop:
            for reason in policy.would_stop(signals, crossed):
                if ("would_stop", reason) not in run.totals.interventions:
                    run.intervened("would_stop", reason, signals.step)
        if decision.action == "go_on":
            return Decision("go_on", None, None, signals)
        run.intervened(decision.action, decision.reason or "", signals.step)
        if decision.block:
            run.observe(DigestedOutcome(signals.run, (), signals.step, blocked=True), now)
        outlook = run.outlook()
        advice = advise(decision.message or "", outlook, blocked=decision.block)
        return decision._replace(advice=advice, outlook=outlook)

    def _nudge(
        self, decision: Decision, signals: Signals, run: RunState, holds: Sequence[Rule | Line]
    ) -> Decision:
        """A nudge is due when its rule is reached, and again when the signal grew by as much."""
        holding = {rule.name: rule for rule in holds}
        due: Rule | Line | None = None
        for signal in [known for known in run.nudged if known not in holding]:
            del run.nudged[signal]  # it has cleared
        if not decision.nudge:  # a higher rung decides: what is due stays due
            return decision
        for name, rule in holding.items():
            value, last = rule.value(signals) or 0.0, run.nudged.get(name)
            if last is None or value >= last + rule.again > last:
                due = due or rule
                run.nudged[name] = value
        if due is None:
            return Decision(signals=signals)
        return Decision("nudge", due.name, due.message(signals), signals)

    def _watch_only(self, run_id: str) -> None:
        """After a fault of ours nothing is decided in that run any more."""
        run = self.engine.get(run_id)
        if run is not None:
            run.watch_only = True

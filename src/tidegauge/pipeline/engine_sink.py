"""The live step sink: feeds the engine, asks the policy."""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge._guard import guarded
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
        try:
            signals = self.engine.step_issued(event)
        except Exception:
            self._watch_only(event.run)
            raise
        return self._decide(signals, event.blockable)

    def step_observed(self, event: Outcome) -> Decision:
        """An outcome was observed."""
        try:
            signals = self.engine.step_observed(event)
        except Exception:
            self._watch_only(event.run)
            raise
        return self._decide(signals)

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

    def _decide(self, signals: Signals | None, blockable: bool = False) -> Decision:
        if signals is None:
            return GO_ON
        decision = self._ask(signals, blockable)
        if decision is None:
            self._watch_only(signals.run)
            decision = Decision(signals=signals)
        return decision

    @guarded("policy", default=None)
    def _ask(self, signals: Signals, blockable: bool) -> Decision:
        engine, policy = self.engine, self.policy
        run = engine.get(signals.run)
        if run is None or run.watch_only:
            return Decision("go_on", None, None, signals)
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
                    engine.intervened(signals.run, "would_stop", reason, signals.step)
        if decision.action == "go_on":
            return Decision("go_on", None, None, signals)
        engine.intervened(signals.run, decision.action, decision.reason or "", signals.step)
        if decision.block:
            engine.step_observed(Outcome(signals.run, (), signals.step, blocked=True))
        outlook = engine.outlook(signals.run)
        advice = advise(decision.message or "", outlook, blocked=decision.block)
        return decision._replace(advice=advice, outlook=outlook)

    def _nudge(
        self, decision: Decision, signals: Signals, run: RunState, holds: Sequence[Rule | Line]
    ) -> Decision:
        """A nudge is due when its rule is reached, and again when the signal grew by as much."""
        holding = {rule.name: rule for rule in holds}
        due: Rule | Line | None = None
        with run.lock:
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

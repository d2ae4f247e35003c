"""A policy on live runs: its state for each run, its decisions, and its advice to the model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

from tidegauge.events import Decision, Identity, RunStarted, Signals, Situation
from tidegauge.policies.budget import Count, Spender
from tidegauge.policies.policy import Policy
from tidegauge.policies.rule import PolicyAction, Rule
from tidegauge.policies.thresholds import Threshold
from tidegauge.streaming_metrics.interventions import Interventions
from tidegauge.streaming_metrics.live_signals import LiveSignals
from tidegauge.streaming_metrics.metric import Stateful
from tidegauge.streaming_metrics.run import MeasuredRun

_MAX_NAME: Final = 100
_BLOCKED: Final = "This call was not run"
_WAIT: Final = "If you wait for something, wait longer between looks."
_GO_ON: Final = "Do something that you have not tried, or finish and say what is missing."


class RunPolicy(Stateful):
    """The state of a policy for one run.

    Attributes:
        exceeded: scores that exceeded their threshold, each with the step at which it first did.
        highest: the highest value of each score that has a threshold.
        nudged: the value of each signal at its last nudge, while it holds.
        warned: of what budgets have informed the model.
        spent: see :class:`~tidegauge.policies.budget.Spender`, as the rest.
    """

    version: ClassVar[int] = 2
    unsaved: ClassVar[frozenset[str]] = frozenset({"policy", "around"})
    __slots__ = (
        "around",
        "began",
        "counted",
        "exceeded",
        "highest",
        "nudged",
        "policy",
        "spent",
        "warned",
        "worked",
    )

    def __init__(self) -> None:
        self.policy: Policy | None = None  # the one for this run, chosen at its first step
        self.exceeded: dict[str, int] = {}
        self.highest: dict[str, float] = {}
        self.nudged: dict[str, float] = {}
        self.warned: tuple[str, ...] = ()
        self.spent: dict[str, Count] = {}
        self.around: tuple[RunStarted, Spender] | None = None
        self.began: float | None = None
        self.worked = 0.0
        self.counted = 0


class LivePolicy:
    """Decides on runs of an engine. Called with the run's lock held; it only computes.

    Args:
        counts_nudges: whether a nudge counts when it is decided. Where agents run, it counts when
            it is delivered; see ``RecordedRun.nudged``.

    Attributes:
        counts_nudges: whether it does.
    """

    def __init__(self, policy: Policy, *, counts_nudges: bool = True) -> None:
        self._policy = policy
        self._observing = policy.observing()  # for runs that nothing can be done about
        self.counts_nudges = counts_nudges
        self._has_thresholds = bool(policy.thresholds)

    def decide(self, run: MeasuredRun, moment: int, blockable: bool, /) -> Decision | None:
        """The decision on the run; ``None``, it continues.

        Args:
            run: the run.
            moment: 0, a step was issued; 1, its result was observed; 2, the model answers.
            blockable: whether the issued call can still be answered without being run.
        """
        state: Any = run.policy
        if state is None:
            state = run.policy_state(RunPolicy)
        policy = state.policy
        if policy is None:
            observing = run.started.observe_only
            policy = self._observing if observing else self._policy.of_run(run.started.run)
            state.policy = policy
        if Interventions in run.metrics:
            standing = self.standing(run)
            if standing is not None:
                return standing
        exceeded: Sequence[tuple[Threshold, PolicyAction]] = ()
        if self._has_thresholds:
            signals = LiveSignals(run)
            values = policy.thresholds.values(signals)
            highest = state.highest
            for threshold, now in values:
                if now > highest.get(threshold.score, -math.inf):
                    highest[threshold.score] = now
            exceeded = policy.thresholds.exceeded(signals, values)
        skipping = run.skipping
        if skipping:
            policy = policy.of_skipped
        if not exceeded and (skipping or not state.nudged):
            # Most steps return here: no signal has reached the threshold of its rule.
            bars = policy.bars_of_all
            metrics = run.metrics
            for kind, name, read, bound, falls, key in (
                policy.bars_of(run) if bars is None else bars[moment]
            ):
                if kind is None:
                    value = read(run)
                else:
                    metric = metrics.get(kind)
                    value = None if metric is None else getattr(metric, name)
                if value is None or (value > bound if falls else value < bound):
                    continue
                if key not in run.totals.interventions:
                    break
            else:
                return None
        return self._decided(policy, run, state, exceeded, blockable)

    def standing(self, run: MeasuredRun) -> Decision | None:
        """The stop of a run that was decided before: it is final. ``None``, there was none."""
        interventions = run.find(Interventions)
        if interventions is None or interventions.stopped is None:
            return None
        step, reason = interventions.stopped
        message = "the run was stopped" + (f" at step {step}" if step >= 0 else "")
        return Decision("stop", reason, message, run.signals())

    def _decided(
        self,
        policy: Policy,
        run: MeasuredRun,
        state: RunPolicy,
        exceeded: Sequence[tuple[Threshold, PolicyAction]],
        blockable: bool,
    ) -> Decision | None:
        signals = run.signals()
        for threshold, _ in exceeded:
            state.exceeded.setdefault(threshold.score, signals.step)
        decision = policy.decide(signals, blockable=blockable, exceeded=exceeded)
        if decision.nudge or (state.nudged and not run.skipping):
            holding = policy.nudges(signals, exceeded)
            decision = _due(decision, signals, state, holding)
        if not decision.stop:
            for reason in policy.would_stop(signals, exceeded):
                if ("would_stop", reason) not in run.totals.interventions:
                    run.intervene("would_stop", reason, signals.step)
        if decision.action == "go_on":
            return None
        if self.counts_nudges or not decision.nudge:
            run.intervene(decision.action, decision.reason or "", signals.step)
        situation = run.situation()
        advice = advise(decision.message or "", situation, blocked=decision.block)
        return decision._replace(advice=advice, situation=situation)


def _due(
    decision: Decision, signals: Signals, state: RunPolicy, holds: Sequence[Rule | Threshold]
) -> Decision:
    """A nudge is due when its rule holds, and again when the signal has grown by the threshold."""
    holding = {rule.name: rule for rule in holds}
    due: Rule | Threshold | None = None
    for signal in [known for known in state.nudged if known not in holding]:
        del state.nudged[signal]  # it has cleared
    if not decision.nudge:  # a stronger action decides: nudges stay due
        return decision
    for name, rule in holding.items():
        value, last = rule.value(signals) or 0.0, state.nudged.get(name)
        if last is None or value >= last + rule.again > last:
            due = due or rule
            state.nudged[name] = value
    if due is None:
        return Decision(signals=signals)
    return Decision("nudge", due.name, due.message(signals), signals)


def advise(happened: str, situation: Situation, *, blocked: bool = False) -> str:
    """A message to the model: what repeats, and what it has not tried.

    The list of open places and tasks helped models most in Exploration and Exploitation Errors Are
    Measurable for Language Model Agents (arXiv 2604.13151), section 6.

    Args:
        happened: what repeats and since when, in the words of the rule.
        situation: places not visited and tasks that are ready.
        blocked: whether the message replaces the result of a call. It then claims nothing of what
            that result would have been: the call may wait for something.

    >>> situation = Situation(unexplored=("cellar", "attic"), repeated=("look", "wait"))
    >>> print(advise("2 steps, repeated twice, since step 2", situation))
    You make no progress: 2 steps, repeated twice, since step 2 (look, wait).
    Not visited yet: cellar, attic.
    Do something that you have not tried, or finish and say what is missing.
    """
    steps = f" ({_listed(situation.repeated)})" if situation.repeated else ""
    if blocked:
        they = "it" if len(situation.repeated) == 1 else "they"
        same = f"; you saw the same each time {they} ran" if situation.repeated else ""
        lines = [f"{_BLOCKED}: {happened}{steps}{same}.", _WAIT]
    else:
        lines = [f"You make no progress: {happened}{steps}."]
    if situation.unexplored:
        lines.append(f"Not visited yet: {_listed(situation.unexplored)}.")
    if situation.pending:
        lines.append(f"Ready to be done: {_listed(situation.pending)}.")
    lines.append(_GO_ON)
    return "\n".join(lines)


def _listed(names: Iterable[Identity]) -> str:
    return ", ".join(_shortened(str(name)) for name in names)


def _shortened(name: str) -> str:
    return name if len(name) <= _MAX_NAME else name[: _MAX_NAME - 1] + "…"

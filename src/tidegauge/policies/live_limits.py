"""Budgets and breakers on live runs: their decisions, and a policy's, are one decision."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from tidegauge.catalog import MODEL_COST, MODEL_TOKENS, MetricDefinition
from tidegauge.events import Decision, ModelUsage, Outcome, RunStarted, Step
from tidegauge.policies.breaker import BREAKER, LiveBreakers
from tidegauge.policies.budget import LiveBudgets, UsedBudget, amounts_of
from tidegauge.policies.live_policy import LivePolicy, RunPolicy
from tidegauge.policies.policy import Policy
from tidegauge.policies.prices import DOLLAR, price_of
from tidegauge.safety.critical import here
from tidegauge.safety.guard import log
from tidegauge.streaming_metrics.interventions import Interventions
from tidegauge.streaming_metrics.run import MeasuredRun

_MAX_WARNED: Final = 100
_MAX_DOLLARS: Final = 10**9
_TOKENS: Final = ("input", "output", "cache_read", "cache_write", "reasoning")
_NO_PRICE: Final = (
    "tidegauge: a budget in $ does not count the calls of %s, because %s; "
    "give its price with prices={...}, or --prices FILE"
)


class LiveLimits:
    """Asks budgets and breakers, and the policy, before every call and after every model call.

    Args:
        policy: has the budgets, the breakers and the prices.
        live: decides by the policy's rules and thresholds.
        clock: gives the time in seconds since the epoch.

    Attributes:
        budgets: what was spent.
    """

    def __init__(self, policy: Policy, live: LivePolicy, clock: Callable[[], float]) -> None:
        self.budgets = LiveBudgets(policy.budgets)
        self._breakers = LiveBreakers(policy.breakers) if policy.breakers else None
        self._policy = policy
        self._live = live
        self._clock = clock
        self._in_dollars = "usd" in self.budgets.kinds
        self._warned: set[str] = set()

    def begin(self, run: MeasuredRun, around: MeasuredRun | None) -> None:
        """A run began, or continues after it has waited. Call it without a lock."""
        outer = None
        if around is not None and around is not run:
            with here.critical, around.lock:
                outer = (around.started, around.policy_state(RunPolicy))
        with here.critical, run.lock:
            state = run.policy_state(RunPolicy)
            state.around = outer
            if state.began is None:
                state.began = self._clock()

    def pause(self, run: MeasuredRun) -> None:
        """A run waits for a person."""
        with here.critical, run.lock:
            state = run.policy_state(RunPolicy)
            if state.began is not None:
                state.worked += max(self._clock() - state.began, 0.0)
                state.began = None

    def step(self, event: Step) -> _AskedStep:
        """What decides on a step that is issued."""
        return _AskedStep(self, event)

    def model_called(self, run: MeasuredRun, usage: ModelUsage | None) -> Decision | None:
        """The decision on a run; ``None``, it continues.

        Args:
            run: the run.
            usage: what a model call has used; ``None``, one is about to begin.
        """
        amounts: dict[str, int] = {}
        if usage is not None:
            amounts = self._amounts(usage, run.started)  # logs: without the lock
        with here.critical, run.lock:
            state = run.policy_state(RunPolicy)
            now = self._now(state, usage)
            found = self.budgets.asked(run.started, state, now, amounts=amounts)
            if not found or run.finished or run.unguarded or _is_stopped(run):
                return None
            verdict = self._severest(run, state, found, _refusing(run, False))
            return None if verdict is None else self._given(run, state, verdict)

    def decide(
        self, run: MeasuredRun, moment: int, blockable: bool, event: Step
    ) -> Decision | None:
        """The decision on a step that is issued; see :class:`LivePolicy`."""
        live, started = self._live, run.started
        if _is_stopped(run):
            return live.decide(run, moment, blockable)
        state = run.policy_state(RunPolicy)
        now = self._now(state)
        names = [call.action for call in event.calls]
        refusing = _refusing(run, blockable)
        found = self.budgets.asked(started, state, now, names=names, refusing=refusing)
        verdict = self._severest(run, state, found, refusing) if found else None
        action = verdict.budget.action if verdict is not None and verdict.over else "nudge"
        if verdict is not None and action == "stop":
            return self._given(run, state, verdict)
        refusal, step = None, (started.run, run.latest.step)
        if action != "block" and self._breakers is not None:
            refusal = self._breakers.refusal(step, names, now, blocks="block" in refusing)
        decision = live.decide(run, moment, blockable)
        refused = decision is not None and decision.action in ("stop", "block")
        if action != "block" and (refused or refusal is not None):
            self.budgets.give_back(started, state, names, now)
            if refused and self._breakers is not None:
                self._breakers.give_back(step, now)
        if refused or (verdict is None and refusal is None):
            return decision
        if refusal is not None:
            advice = f"This call was not run: {refusal}. Do something else meanwhile."
            return self._counted(run, Decision("block", BREAKER, refusal, run.signals(), advice))
        if verdict is not None and (decision is None or action == "block"):
            return self._given(run, state, verdict)
        return decision

    def observe(self, run: MeasuredRun | None, event: Outcome) -> None:
        """Calls have ended."""
        if self._breakers is not None and run is not None:
            index = run.steps - 1 if event.step is None else event.step
            self._breakers.observe((event.run, index), event.results, self._clock())

    def metrics(self) -> Mapping[MetricDefinition, Mapping[tuple[str, ...], float]]:
        """What was spent, and which breakers are open."""
        spent = dict(self.budgets.spent)
        found: dict[MetricDefinition, Mapping[tuple[str, ...], float]] = {
            MODEL_TOKENS: {
                (name,): float(spent[f"{name}_tokens"])
                for name in _TOKENS
                if f"{name}_tokens" in spent
            },
        }
        if "usd" in spent:
            found[MODEL_COST] = {(): spent["usd"] / DOLLAR}
        return {**found, **(self._breakers.metrics() if self._breakers is not None else {})}

    def _now(self, state: RunPolicy, usage: ModelUsage | None = None) -> float:
        now = self._clock()
        if state.began is None:
            state.began = now
        if usage is None or usage.ended is None:
            return now
        # The times of spans: their clock, and not that of who receives them.
        if usage.began is not None and usage.began < state.began:
            state.began = usage.began
        return usage.ended

    def _amounts(self, usage: ModelUsage, run: RunStarted) -> dict[str, int]:
        cost = None
        if usage.usd is not None and 0 <= usage.usd < _MAX_DOLLARS:
            cost = round(usage.usd * DOLLAR)
        if cost is None and self._in_dollars:
            price = price_of(self._policy.prices, usage.model, usage.asked, run.model)
            cost = None if price is None else price.cost(usage)
            if cost is None:
                why = "its price is not known"
                if price is not None:
                    why = "its tokens are not reported"
                    if usage.total is not None:
                        why = "its tokens are reported together, and have several prices"
                self._warn(usage.model or usage.asked or run.model or "a model", why)
        return amounts_of(usage, cost)

    def _warn(self, model: str, why: str) -> None:
        if model not in self._warned and len(self._warned) < _MAX_WARNED:
            self._warned.add(model)
            log(logging.WARNING, _NO_PRICE, model, why)

    def _severest(
        self,
        run: MeasuredRun,
        state: RunPolicy,
        found: Sequence[UsedBudget],
        refusing: Collection[str],
    ) -> UsedBudget | None:
        """What to act on: the severest, and of nudges one that was not given yet."""
        chosen = None
        for verdict in found:
            action = verdict.budget.action
            if action == "observe" or run.started.observe_only:
                if verdict.over:
                    run.intervene("would_stop", verdict.budget.reason, max(run.latest.step, 0))
            elif chosen is not None:
                continue
            elif verdict.over and action != "nudge":
                chosen = verdict if action in refusing else None
            elif verdict.name not in state.warned:
                chosen = verdict
        return chosen

    def _given(self, run: MeasuredRun, state: RunPolicy, verdict: UsedBudget) -> Decision:
        action = verdict.budget.action if verdict.over else "nudge"
        if action == "nudge":
            state.warned = (*state.warned, verdict.name)
        advice = verdict.advice(blocked=action == "block")
        reason, signals = verdict.budget.reason, run.signals()
        kind: Any = action
        return self._counted(run, Decision(kind, reason, verdict.message, signals, advice))

    def _counted(self, run: MeasuredRun, decision: Decision) -> Decision:
        if self._live.counts_nudges or not decision.nudge:
            run.intervene(decision.action, decision.reason or "", max(run.latest.step, 0))
        return decision._replace(situation=run.situation())


class _AskedStep:
    """Decides on one step, of which budgets and breakers know the tools."""

    __slots__ = ("_event", "_limits")

    def __init__(self, limits: LiveLimits, event: Step) -> None:
        self._limits = limits
        self._event = event

    def decide(self, run: MeasuredRun, moment: int, blockable: bool, /) -> Decision | None:
        return self._limits.decide(run, moment, blockable, self._event)


def _refusing(run: MeasuredRun, blockable: bool) -> Collection[str]:
    """The actions that can keep the run from calling a tool."""
    if run.started.observe_only:
        return ()
    return ("stop", "block") if blockable else ("stop",)


def _is_stopped(run: MeasuredRun) -> bool:
    return Interventions in run.metrics and run.of(Interventions).stopped is not None

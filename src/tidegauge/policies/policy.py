"""A policy: actions on a run's signals, by rules that people set and thresholds learned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

import xxhash

from tidegauge.errors import ConfigurationError
from tidegauge.events import GO_ON, Decision, PolicyInForce, RunStarted, Signals
from tidegauge.policies.rule import ACTIONS, DEFAULT_RULES, AnySignals, PolicyAction, Rule
from tidegauge.policies.thresholds import Threshold, Thresholds
from tidegauge.streaming_metrics.declaration import Attribute
from tidegauge.streaming_metrics.registry import SIGNALS
from tidegauge.streaming_metrics.run import MeasuredRun

_Bar: TypeAlias = tuple[
    type | None, str, Callable[[MeasuredRun], float | None], float, bool, tuple[str, str]
]
"""A rule on the step path: the metric and its attribute that are its signal, if it is one, the
reader of its signal, the threshold, whether it holds at or below the threshold, and its
intervention if that is counted only once."""

Exceeded: TypeAlias = Sequence[tuple[Threshold, PolicyAction]]
"""Thresholds that a run exceeds, each with its action for that run."""

_BOTH: Final = 2
_MOMENTS: Final = (("issued", "both"), ("observed", "both"), ("issued", "observed", "both"))
"""The signals that can change: when a step is issued, when it is observed, and all, which are
those to look at when the model answers."""


class _Held(NamedTuple):
    """The rules that apply to a step, by action."""

    stopping: tuple[Rule, ...] = ()
    blocking: tuple[Rule, ...] = ()
    nudging: tuple[Rule, ...] = ()
    observing: tuple[Rule, ...] = ()
    bars: tuple[tuple[_Bar, ...], ...] = ((), (), ())


class Policy:
    """Rules and thresholds, checked twice per step; of those that hold, the severest decides.

    The rules for a tool or an agent replace the general ones for their signal, even if these are
    stricter. At a step that only waits or thinks, only rules hold that count such steps, too.

    Args:
        rules: at most one for each signal, action, agent and tool.
        thresholds: at most one for each score, agent and task group. The most specific applies.
        holdout: share of the runs, from 0 to 1, in which thresholds are only observed, so that
            their false-stop bound can be checked. A run's id decides.

    Attributes:
        rules: the rules.
        thresholds: the thresholds.

    Raises:
        ConfigurationError: two rules for one signal, action, agent and tool, two thresholds for one
            score, agent and task group, or a holdout out of range.

    >>> policy = Policy([Rule("loop_repeats", 2, "nudge"), Rule("loop_repeats", 4, "stop")])
    >>> signals = Signals("r1", 5, 6, b"", b"", loop_period=2, loop_repeats=2, loop_first_step=2)
    >>> decision = policy.decide(signals)
    >>> decision.action, decision.message
    ('nudge', '2 steps, repeated twice, since step 2')
    >>> policy.decide(signals._replace(loop_repeats=4)).stop
    True
    """

    def __init__(
        self,
        rules: Iterable[Rule] = DEFAULT_RULES,
        *,
        thresholds: Iterable[Threshold] = (),
        holdout: float = 0.0,
    ) -> None:
        self.rules = tuple(rules)
        self.thresholds = Thresholds(thresholds, holdout=holdout)
        self._has_thresholds = bool(self.thresholds)  # read twice at every step
        by_place: dict[tuple[str | None, str | None], dict[str, list[Rule]]] = {}
        for rule in self.rules:
            own = by_place.setdefault((rule.agent, rule.tool), {}).setdefault(rule.signal, [])
            if any(rule.action == other.action for other in own):
                raise ConfigurationError(
                    "two rules have the same signal, action, agent and tool; remove one"
                )
            own.append(rule)
        agents = {agent for agent, _ in by_place if agent is not None}
        tools = {tool for _, tool in by_place if tool is not None}
        self._tools = frozenset(tools)
        self._held = {
            (agent, tool): _held(
                {
                    **by_place.get((None, None), {}),
                    **by_place.get((agent, None), {}),
                    **by_place.get((None, tool), {}),
                    **by_place.get((agent, tool), {}),
                }
            )
            for agent in (*agents, None)
            for tool in (*tools, None)
        }
        self._general = self._held[None, None]
        self._is_general = len(self._held) == 1
        self.bars_of_all = self._general.bars if self._is_general else None
        self._of_share: dict[tuple[Rule, ...], Policy] = {}  # at most as many as there are shares

    def observing(self) -> Policy:
        """The same policy without interventions: it only counts what would have been stopped.

        >>> Policy([Rule("steps", 9, "stop"), Rule("steps", 5, "nudge")]).observing().rules
        (Rule(signal='steps', threshold=9, action='observe', agent=None, tool=None, share=1.0),)
        """
        return Policy(
            _observed(self.rules),
            thresholds=[replace(threshold, action="observe") for threshold in self.thresholds],
        )

    def of_run(self, run: str) -> Policy:
        """The policy for one run: rules that act in a share of the runs act or observe."""
        outside = [rule for rule in self.rules if not rule.acts_in(run)]
        if not outside:
            return self
        acting = [rule for rule in self.rules if rule not in outside]
        key = tuple(acting)
        found = self._of_share.get(key)
        if found is None:
            found = self._of_share[key] = Policy(
                (*acting, *_observed(outside)),
                thresholds=self.thresholds,
                holdout=self.thresholds.holdout,
            )
        return found

    @cached_property
    def of_skipped(self) -> Policy:
        """The policy for steps that only wait or think: the rules whose signals count them."""
        return Policy([rule for rule in self.rules if SIGNALS[rule.signal].of_skipped])

    @cached_property
    def version(self) -> str:
        """The same for policies with the same rules, thresholds and holdout.

        >>> Policy([Rule("steps", 9)]).version == Policy([Rule("steps", 9)]).version
        True
        """
        parts = (self.rules, tuple(self.thresholds), self.thresholds.holdout)
        return xxhash.xxh3_64_hexdigest(repr(parts).encode("utf-8", "surrogatepass"))

    def in_force(self, run: RunStarted, exceeded: Iterable[str]) -> PolicyInForce | None:
        """What the thresholds could do in a run; ``None`` if none applies to it."""
        applying = self.thresholds.of(run.agent, run.task_group)
        if not applying:
            return None
        held_out = self.thresholds.holds_out(run.run)
        acts = any(one.acts_on(run.agent, run.task_group) for one in applying)
        return PolicyInForce(
            self.version, acts and not held_out and not run.observe_only, held_out, tuple(exceeded)
        )

    @property
    def actions(self) -> frozenset[PolicyAction]:
        """The actions that it can decide on."""
        return frozenset(one.action for one in (*self.rules, *self.thresholds))

    @property
    def signals(self) -> frozenset[str]:
        """The signals that its rules read."""
        return frozenset(rule.signal for rule in self.rules)

    @property
    def reads_words(self) -> bool:
        """Whether a rule or a threshold depends on the words of actions."""
        read = any(SIGNALS[rule.signal].reads_words for rule in self.rules)
        return read or self.thresholds.reads_words

    @property
    def reads_features(self) -> bool:
        """Whether a threshold depends on the features of runs."""
        return self.thresholds.reads_features

    def exceeded(self, signals: AnySignals) -> Exceeded:
        """The thresholds that the run exceeds now, each with its action for that run."""
        return self.thresholds.exceeded(signals) if self._has_thresholds else ()

    def decide(
        self, signals: Signals, *, blockable: bool = False, exceeded: Exceeded | None = None
    ) -> Decision:
        """The decision on the next step.

        Args:
            blockable: whether the issued call can still be answered without being run.
            exceeded: the result of :meth:`exceeded`, if it is known.
        """
        held = self._held_to(signals)
        if exceeded is None:
            exceeded = self.exceeded(signals)
        for rule in _holding(held.stopping, signals) if held.stopping else ():
            return Decision("stop", rule.signal, rule.message(signals), signals)
        for threshold, action in exceeded:
            if action == "stop":
                return Decision("stop", threshold.score, threshold.message(signals), signals)
        if blockable and held.blocking:
            for rule in _holding(held.blocking, signals):
                return Decision("block", rule.signal, rule.message(signals), signals)
        for rule in _holding(held.nudging, signals) if held.nudging else ():
            return Decision("nudge", rule.signal, rule.message(signals), signals)
        for threshold, action in exceeded:
            if action == "nudge":
                return Decision("nudge", threshold.score, threshold.message(signals), signals)
        return GO_ON

    def nudges(self, signals: Signals, exceeded: Exceeded | None = None) -> list[Rule | Threshold]:
        """The rules and thresholds with the action nudge that hold."""
        if exceeded is None:
            exceeded = self.exceeded(signals)
        held = self._held_to(signals).nudging
        found: list[Rule | Threshold] = list(_holding(held, signals)) if held else []
        if exceeded:
            found += [threshold for threshold, action in exceeded if action == "nudge"]
        return found

    def would_stop(self, signals: Signals, exceeded: Exceeded | None = None) -> list[str]:
        """The signals and scores with the action observe that have reached their thresholds."""
        if exceeded is None:
            exceeded = self.exceeded(signals)
        held = self._held_to(signals).observing
        found: list[str] = [rule.signal for rule in _holding(held, signals)] if held else []
        if exceeded:
            found += [threshold.score for threshold, action in exceeded if action == "observe"]
        return found

    def bars_of(self, run: MeasuredRun) -> tuple[_Bar, ...]:
        """The comparisons that show whether a rule can hold for a run.

        Where the rules are for single agents or tools, one can start to hold with an unchanged
        signal. Otherwise :attr:`bars_of_all` has them by moment, without the signals that cannot
        have changed then.
        """
        return self._held_by(run.started.agent, run.latest.tool).bars[_BOTH]

    def _held_to(self, signals: Signals) -> _Held:
        return self._general if self._is_general else self._held_by(signals.agent, signals.tool)

    def _held_by(self, agent: str, tool: str) -> _Held:
        known = tool if tool in self._tools else None
        found = self._held.get((agent, known))
        return self._held[None, known] if found is None else found


def _observed(rules: Iterable[Rule]) -> list[Rule]:
    """The same rules, observed; of several for one signal, agent and tool, the severest."""
    severest: dict[tuple[str, str | None, str | None], Rule] = {}
    for rule in sorted(rules, key=lambda rule: ACTIONS.index(rule.action)):
        severest[rule.signal, rule.agent, rule.tool] = replace(rule, action="observe", share=1.0)
    return list(severest.values())


def _holding(rules: tuple[Rule, ...], signals: Signals) -> Iterator[Rule]:
    for rule in rules:
        value, bound = rule.value(signals), rule.bound
        if value is None or (value > bound if SIGNALS[rule.signal].falls else value < bound):
            continue
        yield rule


def _held(rules: Mapping[str, list[Rule]]) -> _Held:
    def with_action(action: PolicyAction) -> tuple[Rule, ...]:
        return tuple(rule for rule in chain.from_iterable(rules.values()) if rule.action == action)

    return _Held(
        with_action("stop"),
        with_action("block"),
        with_action("nudge"),
        with_action("observe"),
        tuple(
            tuple(
                _bar(rule)
                for rule in chain.from_iterable(rules.values())
                if SIGNALS[rule.signal].moment in moments
            )
            for moments in _MOMENTS
        ),
    )


def _bar(rule: Rule) -> _Bar:
    signal = SIGNALS[rule.signal]
    observes = "would_stop" if rule.action == "observe" else ""
    read = signal.read
    kind, name = (read.kind, read.name) if isinstance(read, Attribute) else (None, "")
    return kind, name, read, rule.bound, signal.falls, (observes, rule.signal)

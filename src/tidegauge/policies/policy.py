"""A policy: what follows from a run's signals, by rules that people set and lines learned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from tidegauge.errors import ConfigurationError
from tidegauge.events import GO_ON, Decision, Signals
from tidegauge.policies.line import Line
from tidegauge.policies.lines import Lines
from tidegauge.policies.rule import (
    DEFAULT_RULES,
    FALLING,
    OF_LOOPS,
    OF_THE_LAST_STEP,
    RUNGS,
    Rule,
    Rung,
)

__all__ = ["Policy"]

_Bar: TypeAlias = tuple[int, float, Rule]
"""A rule on the step path: where its signal stands, and the value from which it holds."""


Crossed: TypeAlias = Sequence[tuple[Line, Rung]]
"""Lines that a run is beyond, each with what follows in that run."""


class _Held(NamedTuple):
    """The rules that one step is held to, by what follows from them."""

    stopping: tuple[_Bar, ...] = ()
    blocking: tuple[_Bar, ...] = ()
    nudging: tuple[_Bar, ...] = ()
    observing: tuple[_Bar, ...] = ()


class Policy:
    """Rules, asked at both moments of every step; of those that hold, the highest rung decides.

    The rules for a tool or an agent take the place of the general ones for their signal,
    whichever are stricter. Where only excused steps repeat (a declared poller that
    waits, calls that change something), no rule holds that goes by sameness.

    Args:
        rules: at most one for each signal, rung, agent and tool.
        lines: at most one for each score, agent and task group: the one that names most of what
            a run tells of itself holds.
        holdout: share of the runs, from 0 to 1, in which lines are only observed, so that what
            they promise can still be seen to hold. A run's id decides.

    Attributes:
        rules: the rules.
        lines: the lines.

    Raises:
        ConfigurationError: two rules for one signal, rung, agent and tool, two lines for one
            score, agent and task group, or a holdout that is no share.

    >>> policy = Policy([Rule("loop_repeats", 2, "nudge"), Rule("loop_repeats", 4, "stop")])
    >>> signals = Signals("r1", 5, 6, b"", b"", loop_period=2, loop_repeats=2, loop_first_step=2)
    >>> decision = policy.decide(signals)
    >>> decision.action, decision.message
    ('nudge', 'the same 2 steps repeated twice, since step 2')
    >>> policy.decide(signals._replace(loop_repeats=4)).stop
    True
    """

    def __init__(
        self,
        rules: Iterable[Rule] = DEFAULT_RULES,
        *,
        lines: Iterable[Line] = (),
        holdout: float = 0.0,
    ) -> None:
        self.rules = tuple(rules)
        self.lines = Lines(lines, holdout=holdout)
        self._has_lines = bool(self.lines)  # asked at both moments of every step
        by_place: dict[tuple[str | None, str | None], dict[str, list[Rule]]] = {}
        for rule in self.rules:
            own = by_place.setdefault((rule.agent, rule.tool), {}).setdefault(rule.signal, [])
            if any(rule.rung == other.rung for other in own):
                raise ConfigurationError(
                    "a policy takes one rule for each signal, rung, agent and tool"
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

    def observing(self) -> Policy:
        """The same where nobody can step in: it only counts what would have been stopped.

        >>> Policy([Rule("steps", 9, "stop"), Rule("steps", 5, "nudge")]).observing().rules
        (Rule(signal='steps', threshold=9, rung='observe', agent=None, tool=None),)
        """
        highest: dict[tuple[str, str | None, str | None], Rule] = {}
        for rule in sorted(self.rules, key=lambda rule: RUNGS.index(rule.rung)):
            highest[rule.signal, rule.agent, rule.tool] = replace(rule, rung="observe")
        return Policy(
            highest.values(), lines=[replace(line, rung="observe") for line in self.lines]
        )

    def crossed(self, signals: Signals) -> Crossed:
        """The lines that the run is beyond now, each with what follows in that run."""
        return self.lines.crossed(signals) if self._has_lines else ()

    def decide(
        self, signals: Signals, *, blockable: bool = False, crossed: Crossed | None = None
    ) -> Decision:
        """What is to happen next.

        Args:
            signals: what is known.
            blockable: whether a call was issued that can still be answered in place of being run.
            crossed: what :meth:`crossed` gives, where it is known already.
        """
        held = self._held_to(signals)
        if crossed is None:
            crossed = self.crossed(signals)
        for rule in _holding(held.stopping, signals) if held.stopping else ():
            return Decision("stop", rule.signal, rule.message(signals), signals)
        for line, rung in crossed:
            if rung == "stop":
                return Decision("stop", line.score, line.message(signals), signals)
        if blockable and held.blocking:
            for rule in _holding(held.blocking, signals):
                return Decision("block", rule.signal, rule.message(signals), signals)
        for rule in _holding(held.nudging, signals) if held.nudging else ():
            return Decision("nudge", rule.signal, rule.message(signals), signals)
        for line, rung in crossed:
            if rung == "nudge":
                return Decision("nudge", line.score, line.message(signals), signals)
        return GO_ON

    def nudges(self, signals: Signals, crossed: Crossed | None = None) -> list[Rule | Line]:
        """The rules and lines to nudge that hold."""
        if crossed is None:
            crossed = self.crossed(signals)
        held = self._held_to(signals).nudging
        found: list[Rule | Line] = list(_holding(held, signals)) if held else []
        if crossed:
            found += [line for line, rung in crossed if rung == "nudge"]
        return found

    def would_stop(self, signals: Signals, crossed: Crossed | None = None) -> list[str]:
        """The observed signals that have reached their lines."""
        if crossed is None:
            crossed = self.crossed(signals)
        held = self._held_to(signals).observing
        found: list[str] = [rule.signal for rule in _holding(held, signals)] if held else []
        if crossed:
            found += [line.score for line, rung in crossed if rung == "observe"]
        return found

    def _held_to(self, signals: Signals) -> _Held:
        if self._is_general:
            return self._general
        tool = signals.tool if signals.tool in self._tools else None
        found = self._held.get((signals.agent, tool))
        return self._held[None, tool] if found is None else found


def _holding(bars: tuple[_Bar, ...], signals: Signals) -> Iterator[Rule]:
    for index, least, rule in bars:
        value: Any = signals[index]
        if value is None or (value < least if rule.signal != FALLING else value > least):
            continue
        if not signals.excused_steps or not _excused(rule.signal, signals):
            yield rule


def _excused(signal: str, signals: Signals) -> bool:
    """Whether what the signal goes by are steps that prove nothing by being the same."""
    excused = signals.excused_steps
    if signal in OF_LOOPS:
        return excused >= signals.loop_period
    if signal == "result_streak":
        return excused >= (signals.result_streak or 0)
    return signal in OF_THE_LAST_STEP


def _held(rules: Mapping[str, list[Rule]]) -> _Held:
    def with_rung(rung: Rung) -> tuple[_Bar, ...]:
        return tuple(
            (
                Signals._fields.index(rule.signal),
                # A run may take that many steps: it is the next one that is too many.
                rule.threshold + (rule.signal == "steps"),
                rule,
            )
            for rule in chain.from_iterable(rules.values())
            if rule.rung == rung
        )

    return _Held(with_rung("stop"), with_rung("block"), with_rung("nudge"), with_rung("observe"))

"""A policy: rules that say at which value of which signal what follows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from tidegauge.errors import ConfigurationError
from tidegauge.events import GO_ON, Decision, Signals

__all__ = ["DEFAULT_RULES", "Policy", "Rule", "SignalName", "parse_rules"]

SignalName: TypeAlias = Literal[
    "loop_repeats",
    "loop_cost_steps",
    "loop_cost_tokens",
    "loop_cost_seconds",
    "result_streak",
    "failed_rounds",
    "recurrence",
    "stale_score",
    "stale_rises",
    "novelty",
    "oldest_lead_age",
    "steps",
    "tokens",
]
Rung: TypeAlias = Literal["observe", "nudge", "block", "stop"]

_SIGNALS: Final[tuple[str, ...]] = get_args(SignalName)
_RUNGS: Final[tuple[str, ...]] = get_args(Rung)
_OF_LOOPS: Final = ("loop_repeats", "loop_cost_steps", "loop_cost_tokens", "loop_cost_seconds")
_OF_THE_LAST_STEP: Final = ("recurrence", "stale_score", "stale_rises", "novelty")
_FALLING: Final = "novelty"


@dataclass(frozen=True, slots=True)
class Rule:
    """One line: a signal, the value from which it holds, and what follows.

    ================= ==========================================================================
    signal            holds when
    ================= ==========================================================================
    loop_repeats      a cycle was repeated so often after its first round
    loop_cost_steps,  a loop has cost so much since its onset
    loop_cost_tokens,
    loop_cost_seconds
    result_streak     so many steps in a row had one outcome, whatever the arguments
    failed_rounds     so many rounds in a row failed as a whole (LORE ends a run at the third)
    recurrence        the last action had brought the same so often before, near or far
    stale_score       the run goes over its own tracks so much since its last progress
    stale_rises       the stale score rose at so many steps since then
    novelty           of the last 12 outcomes at most this share was new to the run
    oldest_lead_age   a place seen was left unvisited for so many steps
    steps             the run has taken so many; the next one is too many
    tokens            it has spent so many
    ================= ==========================================================================

    What follows is a rung of the ladder: ``observe`` counts what would have been stopped;
    ``nudge`` tells the model; ``block`` answers the repeated call instead of running it; ``stop``
    ends the run. A rung is left when its signal clears.

    Args:
        signal: one of those above.
        threshold: the value from which the rule holds.
        rung: what follows.
        agent: the agent whose runs it is for; ``None``, all.
        tool: the tool whose steps it is for; ``None``, all. Of the rules for one signal those
            for the tool hold, else those for the agent, else the general ones.

    Raises:
        ConfigurationError: unknown signal or rung, a threshold that cannot work, or a rung that
            the signal cannot have.
    """

    signal: SignalName
    threshold: float
    rung: Rung = "observe"
    agent: str | None = None
    tool: str | None = None

    def __post_init__(self) -> None:
        if self.signal not in _SIGNALS:
            raise ConfigurationError(
                f"unknown signal {self.signal!r}: choose from {', '.join(_SIGNALS)}"
            )
        if self.rung not in _RUNGS:
            raise ConfigurationError(f"unknown rung {self.rung!r}: choose {', '.join(_RUNGS)}")
        self._check_threshold()
        if self.rung == "block" and self.signal not in _OF_LOOPS:
            raise ConfigurationError(
                f"{self.signal} tells of no repeated call that could be blocked: "
                f"nudge or stop, or block at {_OF_LOOPS[0]}"
            )

    def _check_threshold(self) -> None:
        threshold = self.threshold
        if isinstance(threshold, bool) or not isinstance(threshold, int | float):
            raise ConfigurationError(f"the threshold of {self.signal} is to be a number")
        if self.signal == _FALLING:
            if not 0 <= threshold < 1:
                raise ConfigurationError(f"the threshold of {self.signal} is to be from 0 up to 1")
        elif self.signal == "loop_cost_seconds":
            if not threshold > 0:
                raise ConfigurationError(f"the threshold of {self.signal} is to be more than 0")
        elif threshold != int(threshold):
            raise ConfigurationError(f"the threshold of {self.signal} is to be a whole number")
        elif threshold < 1:
            raise ConfigurationError(f"the threshold of {self.signal} is to be at least 1")

    def message(self, signals: Signals) -> str:
        """What happened, in a sentence for logs and people."""
        match self.signal:
            case "loop_repeats":
                return _loop(signals)
            case "loop_cost_steps":
                return f"{_loop(signals)}: {signals.loop_cost_steps} steps"
            case "loop_cost_tokens":
                return f"{_loop(signals)}: {signals.loop_cost_tokens:,.0f} tokens"
            case "loop_cost_seconds":
                return f"{_loop(signals)}: {signals.loop_cost_seconds:,.1f} seconds"
            case "result_streak":
                return f"{signals.result_streak} steps in a row with the same outcome"
            case "failed_rounds":
                return f"{signals.failed_rounds} rounds in a row failed"
            case "recurrence":
                return f"an action has brought the same {_times(signals.recurrence or 0)} before"
            case "stale_score":
                return f"known ground again and again, stale score {signals.stale_score}"
            case "stale_rises":
                return f"the stale score rose {_times(signals.stale_rises)} without progress"
            case "novelty":
                return f"of the last outcomes {signals.novelty:.0%} were new"
            case "oldest_lead_age":
                return f"a place was seen {signals.oldest_lead_age} steps ago and not visited yet"
            case "steps":
                return f"more than {self.threshold:.0f} steps"
            case "tokens":
                return f"{signals.tokens:,.0f} tokens were spent"


DEFAULT_RULES: Final = (
    Rule("loop_repeats", 3),
    Rule("result_streak", 5),
    Rule("failed_rounds", 3),
)
"""What is counted as "would have stopped" unless told otherwise. Nothing is stopped."""


_Line: TypeAlias = tuple[int, float, Rule]
"""A rule on the step path: where its signal stands, and the value from which it holds."""


class _Lines(NamedTuple):
    """The rules that one step is held to, by what follows from them."""

    stopping: tuple[_Line, ...] = ()
    blocking: tuple[_Line, ...] = ()
    nudging: tuple[_Line, ...] = ()
    observing: tuple[_Line, ...] = ()


class Policy:
    """Rules, asked at both moments of every step; of those that hold, the highest rung decides.

    The rules for a tool or an agent take the place of the general ones for their signal,
    whichever are stricter. Where only excused steps repeat (a declared poller that
    waits, calls that change something), no rule holds that goes by sameness.

    Args:
        rules: the lines; at most one for each signal, rung, agent and tool.

    Raises:
        ConfigurationError: two rules for one signal, rung, agent and tool.

    >>> policy = Policy([Rule("loop_repeats", 2, "nudge"), Rule("loop_repeats", 4, "stop")])
    >>> signals = Signals("r1", 5, 6, b"", b"", loop_period=2, loop_repeats=2, loop_first_step=2)
    >>> decision = policy.decide(signals)
    >>> decision.action, decision.message
    ('nudge', 'the same 2 steps repeated twice, since step 2')
    >>> policy.decide(signals._replace(loop_repeats=4)).stop
    True
    """

    def __init__(self, rules: Iterable[Rule] = DEFAULT_RULES) -> None:
        self.rules = tuple(rules)
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
        self._lines = {
            (agent, tool): _lines(
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
        self._general = self._lines[None, None]
        self._is_general = len(self._lines) == 1

    def decide(self, signals: Signals, *, blockable: bool = False) -> Decision:
        """What is to happen next.

        Args:
            signals: what is known.
            blockable: whether a call was issued that can still be answered in place of being run.
        """
        lines = self._held_to(signals)
        for rule in _holding(lines.stopping, signals) if lines.stopping else ():
            return Decision("stop", rule.signal, rule.message(signals), signals)
        if blockable and lines.blocking:
            for rule in _holding(lines.blocking, signals):
                return Decision("block", rule.signal, rule.message(signals), signals)
        for rule in _holding(lines.nudging, signals) if lines.nudging else ():
            return Decision("nudge", rule.signal, rule.message(signals), signals)
        return GO_ON

    def nudges(self, signals: Signals) -> list[Rule]:
        """The rules to nudge that hold."""
        lines = self._held_to(signals).nudging
        return list(_holding(lines, signals)) if lines else []

    def would_stop(self, signals: Signals) -> list[str]:
        """The observed signals that have reached their lines."""
        lines = self._held_to(signals).observing
        return [rule.signal for rule in _holding(lines, signals)] if lines else []

    def _held_to(self, signals: Signals) -> _Lines:
        if self._is_general:
            return self._general
        tool = signals.tool if signals.tool in self._tools else None
        found = self._lines.get((signals.agent, tool))
        return self._lines[None, tool] if found is None else found


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Rules from a line such as ``loop_repeats=2:nudge,loop_repeats=4``; the rung left out, stop.

    Raises:
        ConfigurationError: the line is not of that form.

    >>> parse_rules("loop_repeats=2:nudge, steps=30")[1]
    Rule(signal='steps', threshold=30, rung='stop', agent=None, tool=None)
    """
    rules = []
    for part in text.split(","):
        name, equals, told = part.partition("=")
        number, _, rung = (piece.strip() for piece in told.partition(":"))
        if not equals or not number.replace(".", "", 1).isdecimal():
            raise ConfigurationError(
                f"a policy is SIGNAL=NUMBER[:RUNG][,SIGNAL=NUMBER[:RUNG]], not {text!r}; "
                f"signals: {', '.join(_SIGNALS)}; rungs: {', '.join(_RUNGS)}"
            )
        threshold = int(number) if number.isdecimal() else float(number)
        rules.append(Rule(name.strip(), threshold, rung or "stop"))  # type: ignore[arg-type]
    return tuple(rules)


def _holding(lines: tuple[_Line, ...], signals: Signals) -> Iterator[Rule]:
    for index, least, rule in lines:
        value: Any = signals[index]
        if value is None or (value < least if rule.signal != _FALLING else value > least):
            continue
        if not signals.excused_steps or not _excused(rule.signal, signals):
            yield rule


def _excused(signal: str, signals: Signals) -> bool:
    """Whether what the signal goes by are steps that prove nothing by being the same."""
    excused = signals.excused_steps
    if signal in _OF_LOOPS:
        return excused >= signals.loop_period
    if signal == "result_streak":
        return excused >= (signals.result_streak or 0)
    return signal in _OF_THE_LAST_STEP


def _lines(rules: Mapping[str, list[Rule]]) -> _Lines:
    def with_rung(rung: Rung) -> tuple[_Line, ...]:
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

    return _Lines(with_rung("stop"), with_rung("block"), with_rung("nudge"), with_rung("observe"))


def _loop(signals: Signals) -> str:
    period = signals.loop_period
    cycle = "the same step" if period == 1 else f"the same {period} steps"
    return f"{cycle} repeated {_times(signals.loop_repeats)}, since step {signals.loop_first_step}"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")

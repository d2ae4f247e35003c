"""A policy: rules that say at which value of which signal a run is stopped, or would be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from tidegauge.errors import ConfigurationError
from tidegauge.events import GO_ON, Decision, Signals

__all__ = ["DEFAULT_RULES", "Policy", "Rule", "SignalName", "parse_rules"]

SignalName: TypeAlias = Literal["loop_repeats", "result_streak", "failed_rounds", "steps"]
Rung: TypeAlias = Literal["observe", "stop"]
_SIGNALS: Final[tuple[str, ...]] = get_args(SignalName)


@dataclass(frozen=True, slots=True)
class Rule:
    """One line: a signal, the value from which it holds, and what follows.

    Args:
        signal: ``loop_repeats``, complete repetitions of a cycle after its first round;
            ``result_streak``, steps in a row with one outcome; ``failed_rounds``, rounds in a row
            that failed as a whole (LORE ends a run at the third); ``steps``, how many a run may
            take: the next one is stopped.
        threshold: the value from which the rule holds; at least 1.
        rung: ``observe`` counts what would have been stopped; ``stop`` stops.
        agent: the agent whose runs it is for, where it takes the place of the rule for all
            agents; ``None``, those without a rule of their own.

    Raises:
        ConfigurationError: unknown signal or rung, or a threshold below 1.
    """

    signal: SignalName
    threshold: int
    rung: Rung = "observe"
    agent: str | None = None

    def __post_init__(self) -> None:
        if self.signal not in _SIGNALS:
            raise ConfigurationError(
                f"unknown signal {self.signal!r}: choose from {', '.join(_SIGNALS)}"
            )
        if isinstance(self.threshold, bool) or not isinstance(self.threshold, int):
            raise ConfigurationError(f"the threshold of {self.signal} is to be a whole number")
        if self.threshold < 1:
            raise ConfigurationError(f"the threshold of {self.signal} is to be at least 1")
        if self.rung not in get_args(Rung):
            raise ConfigurationError(f"unknown rung {self.rung!r}: choose observe or stop")

    def message(self, signals: Signals) -> str:
        """What happened, in a sentence for logs and people."""
        match self.signal:
            case "loop_repeats":
                cycle = (
                    "the same step"
                    if signals.loop_period == 1
                    else f"the same {signals.loop_period} steps"
                )
                times = _times(signals.loop_repeats)
                return f"{cycle} repeated {times}, since step {signals.loop_first_step}"
            case "result_streak":
                return f"{signals.result_streak} steps in a row with the same outcome"
            case "failed_rounds":
                return f"{signals.failed_rounds} rounds in a row failed"
            case "steps":
                return f"more than {self.threshold} steps"


DEFAULT_RULES: Final = (
    Rule("loop_repeats", 3),
    Rule("result_streak", 5),
    Rule("failed_rounds", 3),
)
"""What is counted as "would have stopped" unless told otherwise. Nothing is stopped."""


_Line: TypeAlias = tuple[int, int, Rule]
"""A rule on the step path: where its signal stands, and the value from which it holds."""


class _Lines(NamedTuple):
    """The rules that one run is held to, by what follows from them."""

    stopping: tuple[_Line, ...]
    observing: tuple[_Line, ...]


class Policy:
    """Rules, asked at both moments of every step; a rule that stops wins over one that observes.

    A rule with an agent is for the runs of that agent only, and takes there the place of the
    general rule for its signal, whichever of the two is stricter.

    Args:
        rules: the lines; at most one for each signal and agent.

    Raises:
        ConfigurationError: two rules for one signal and agent.

    >>> policy = Policy([Rule("loop_repeats", 2, "stop"), Rule("loop_repeats", 9, agent="poller")])
    >>> signals = Signals("r1", 5, 6, b"", b"", loop_period=2, loop_repeats=2, loop_first_step=2)
    >>> policy.decide(signals).message
    'the same 2 steps repeated twice, since step 2'
    >>> policy.decide(signals._replace(agent="poller")).stop
    False
    """

    def __init__(self, rules: Iterable[Rule] = DEFAULT_RULES) -> None:
        self.rules = tuple(rules)
        general: dict[str, Rule] = {}
        by_agent: dict[str, dict[str, Rule]] = {}
        for rule in self.rules:
            own = general if rule.agent is None else by_agent.setdefault(rule.agent, {})
            if rule.signal in own:
                raise ConfigurationError("a policy takes one rule for each signal and agent")
            own[rule.signal] = rule
        self._general = _lines(general)
        self._by_agent = {agent: _lines({**general, **own}) for agent, own in by_agent.items()}

    def decide(self, signals: Signals) -> Decision:
        """What is to happen next."""
        for index, least, rule in self._held_to(signals).stopping:
            value: Any = signals[index]
            if value is not None and value >= least:
                return Decision("stop", rule.signal, rule.message(signals), signals)
        return GO_ON

    def would_stop(self, signals: Signals) -> list[str]:
        """The observed signals that have reached their lines."""
        reached: list[str] = []
        for index, least, rule in self._held_to(signals).observing:
            value: Any = signals[index]
            if value is not None and value >= least:
                reached.append(rule.signal)
        return reached

    def _held_to(self, signals: Signals) -> _Lines:
        return self._by_agent.get(signals.agent, self._general)


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Rules from a line such as ``loop_repeats=3,failed_rounds=3``; each of them stops.

    Raises:
        ConfigurationError: the line is not of that form.

    >>> parse_rules("loop_repeats=2, steps=30")[1]
    Rule(signal='steps', threshold=30, rung='stop', agent=None)
    """
    rules = []
    for part in text.split(","):
        name, equals, number = part.partition("=")
        if not equals or not number.strip().isdecimal():
            raise ConfigurationError(
                f"a policy is SIGNAL=NUMBER[,SIGNAL=NUMBER], not {text!r}; "
                f"signals: {', '.join(_SIGNALS)}"
            )
        rules.append(Rule(name.strip(), int(number), "stop"))  # type: ignore[arg-type]
    return tuple(rules)


def _lines(rules: Mapping[str, Rule]) -> _Lines:
    def with_rung(rung: Rung) -> tuple[_Line, ...]:
        return tuple(
            (
                Signals._fields.index(rule.signal),
                # A run may take that many steps: it is the next one that is too many.
                rule.threshold + (rule.signal == "steps"),
                rule,
            )
            for rule in rules.values()
            if rule.rung == rung
        )

    return _Lines(with_rung("stop"), with_rung("observe"))


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")

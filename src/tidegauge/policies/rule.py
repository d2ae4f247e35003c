"""Rules: the action of a policy when a signal reaches its threshold; the preset; rules as text."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

import xxhash

from tidegauge.errors import ConfigurationError
from tidegauge.events import Signals
from tidegauge.settings import shown
from tidegauge.streaming_metrics.live_signals import LiveSignals
from tidegauge.streaming_metrics.registry import SIGNALS

PolicyAction: TypeAlias = Literal["observe", "nudge", "block", "stop"]
Guard: TypeAlias = Literal["watch", "stuck"]

AnySignals: TypeAlias = Signals | LiveSignals
"""Signals of one moment, or those of a live run, read one by one."""

ACTIONS: Final[tuple[str, ...]] = get_args(PolicyAction)


@dataclass(frozen=True, slots=True)
class Rule:
    """A signal, its threshold and an action.

    Args:
        signal: one of :data:`~tidegauge.streaming_metrics.registry.SIGNALS`, each with its help.
        threshold: the value from which the rule holds.
        action: ``observe`` counts what would have been stopped; ``nudge`` advises the model;
            ``block`` answers the repeated call instead of running it; ``stop`` ends the run. Nudges
            and blocks end when the signal clears.
        agent: the agent whose runs the rule applies to; ``None``, all.
        tool: the tool whose steps the rule applies to; ``None``, all. Of the rules for one signal,
            those for the tool apply, else those for the agent, else the general ones.
        share: share of the runs in which it acts; in the others it is observed. A run's id decides.

    Raises:
        ConfigurationError: an unknown signal or action, an invalid threshold, or an action that the
            signal does not support.
    """

    signal: str
    threshold: float
    action: PolicyAction = "observe"
    agent: str | None = None
    tool: str | None = None
    share: float = 1.0

    def __post_init__(self) -> None:
        if self.signal not in SIGNALS:
            raise ConfigurationError(
                f"unknown signal {self.signal!r}; use one of {', '.join(sorted(SIGNALS))}"
            )
        if self.action not in ACTIONS:
            raise ConfigurationError(
                f"unknown action {self.action!r}; use one of {', '.join(ACTIONS)}"
            )
        self._check_threshold()
        if isinstance(self.share, bool) or not 0 <= self.share <= 1:
            raise ConfigurationError(f"the share of runs is {shown(self.share)}; use 0 to 1")
        if self.action == "block" and not SIGNALS[self.signal].blocks:
            blocking = ", ".join(name for name, one in SIGNALS.items() if one.blocks)
            raise ConfigurationError(
                f"{self.signal} cannot block, because it names no repeated call; "
                f"use nudge or stop, or block on one of {blocking}"
            )

    def _check_threshold(self) -> None:
        threshold = self.threshold
        if isinstance(threshold, bool) or not isinstance(threshold, int | float):
            raise ConfigurationError(f"the threshold of {self.signal} must be a number")
        kind = SIGNALS[self.signal].threshold
        if not -math.inf < threshold < math.inf:
            use = "a finite number"
        elif kind == "share" and not 0 <= threshold < 1:
            use = "0 or more, but less than 1"
        elif kind == "positive" and not threshold > 0:
            use = "more than 0"
        elif kind == "whole" and threshold != int(threshold):
            use = "a whole number"
        elif kind == "whole" and threshold < 1:
            use = "at least 1"
        else:
            return
        raise ConfigurationError(f"the threshold of {self.signal} is {shown(threshold)}; use {use}")

    @property
    def name(self) -> str:
        """The signal, as the reason of a decision."""
        return self.signal

    @property
    def again(self) -> float:
        """By how much its signal must grow before the model is nudged again."""
        return self.threshold

    @property
    def bound(self) -> float:
        """The value of the signal from which the rule holds."""
        # A run may take as many steps as the threshold; the next step exceeds it.
        return self.threshold + (self.signal == "steps")

    def acts_in(self, run: str) -> bool:
        """Whether it acts in this run; else it is observed there."""
        return self.share >= 1 or is_drawn(run, self.share)

    def value(self, signals: AnySignals) -> float | None:
        """The signal now; ``None``, not measured."""
        value: float | None = getattr(signals, self.signal)
        return value

    def message(self, signals: Signals) -> str:
        """What happened, in a sentence for logs and people."""
        return SIGNALS[self.signal].message(signals, self.threshold)


def guard_rules(guard: Guard, share: float = 1.0) -> tuple[Rule, ...]:
    """The rules of the preset: when a run is stuck, by evidence (``docs/stop-rules-measured.md``).

    Args:
        guard: ``stuck`` stops such runs, ``watch`` counts what it would have stopped. Both count
            creative retries of one failure, whose results only say that they failed, and calls
            whose results differ only in numbers that mean nothing, and 20 calls of one step
            that others of it make.
        share: share of the runs that it stops.

    >>> for rule in guard_rules("stuck"):
    ...     print(rule.signal, rule.threshold, rule.action)
    loop_evidence 1 stop
    turn_loop_evidence 1 stop
    stuck_streak 5 stop
    failed_rounds 7 stop
    result_streak 8 observe
    near_streak 5 observe
    duplicate_calls 20 observe
    """
    action: PolicyAction = "stop" if guard == "stuck" else "observe"
    stopping = [Rule(name, at, action, share=share) for name, at in _STUCK.items()]
    return (*stopping, *[Rule(name, at) for name, at in _WARNING.items()])


def with_guard(rules: Iterable[Rule], guard: Guard, share: float = 1.0) -> tuple[Rule, ...]:
    """These rules, and those of the preset for signals that they do not decide on.

    >>> [rule.signal for rule in with_guard([Rule("failed_rounds", 3, "stop")], "stuck")]
    ['failed_rounds', 'loop_evidence', 'turn_loop_evidence', 'stuck_streak', 'result_streak', \
'near_streak', 'duplicate_calls']
    """
    given = tuple(rules)
    decided = {
        rule.signal
        for rule in given
        if rule.agent is rule.tool is None and rule.action in ("stop", "observe")
    }
    preset = guard_rules(guard, share)
    return (*given, *[rule for rule in preset if rule.signal not in decided])


_STUCK: Final = {
    "loop_evidence": 1,
    "turn_loop_evidence": 1,
    "stuck_streak": 5,
    "failed_rounds": 7,
}

_WARNING: Final = {"result_streak": 8, "near_streak": 5, "duplicate_calls": 20}
"""What the preset only counts."""

DEFAULT_RULES: Final = guard_rules("watch")
"""The default rules: they only count what the preset would have stopped."""

_PARTS: Final = 1 << 32


def is_drawn(run: str, share: float) -> bool:
    """Whether a run is among this share of all runs; its id decides.

    >>> sum(is_drawn(f"run-{n}", 0.25) for n in range(1000))
    238
    """
    return xxhash.xxh3_64_intdigest(run.encode("utf-8", "surrogatepass")) % _PARTS < share * _PARTS


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Rules from text such as ``loop_repeats=2:nudge,loop_repeats=4``; the default action is stop.

    Raises:
        ConfigurationError: the text does not have this form.

    >>> parse_rules("loop_repeats=2:nudge, steps=30")[1]
    Rule(signal='steps', threshold=30, action='stop', agent=None, tool=None, share=1.0)
    """
    rules = []
    for part in text.split(","):
        name, equals, value = part.partition("=")
        number, _, action = (piece.strip() for piece in value.partition(":"))
        if not equals or not number.replace(".", "", 1).isdecimal():
            raise ConfigurationError(
                f"{text!r} is not a list of rules; "
                "use SIGNAL=NUMBER[:ACTION][,SIGNAL=NUMBER[:ACTION]]; "
                f"signals: {', '.join(sorted(SIGNALS))}; actions: {', '.join(ACTIONS)}"
            )
        threshold = int(number) if number.isdecimal() else float(number)
        rules.append(Rule(name.strip(), threshold, action or "stop"))  # type: ignore[arg-type]
    return tuple(rules)

"""A rule: at which value of which signal what follows."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from tidegauge.errors import ConfigurationError
from tidegauge.events import Signals

__all__ = [
    "DEFAULT_RULES",
    "FALLING",
    "OF_LOOPS",
    "OF_THE_LAST_STEP",
    "RUNGS",
    "Rule",
    "Rung",
    "SignalName",
    "parse_rules",
]

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
RUNGS: Final[tuple[str, ...]] = get_args(Rung)
OF_LOOPS: Final = ("loop_repeats", "loop_cost_steps", "loop_cost_tokens", "loop_cost_seconds")
OF_THE_LAST_STEP: Final = ("recurrence", "stale_score", "stale_rises", "novelty")
FALLING: Final = "novelty"


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
        if self.rung not in RUNGS:
            raise ConfigurationError(f"unknown rung {self.rung!r}: choose {', '.join(RUNGS)}")
        self._check_threshold()
        if self.rung == "block" and self.signal not in OF_LOOPS:
            raise ConfigurationError(
                f"{self.signal} tells of no repeated call that could be blocked: "
                f"nudge or stop, or block at {OF_LOOPS[0]}"
            )

    def _check_threshold(self) -> None:
        threshold = self.threshold
        if isinstance(threshold, bool) or not isinstance(threshold, int | float):
            raise ConfigurationError(f"the threshold of {self.signal} is to be a number")
        if not -math.inf < threshold < math.inf:
            raise ConfigurationError(f"the threshold of {self.signal} cannot be {threshold}")
        if self.signal == FALLING:
            if not 0 <= threshold < 1:
                raise ConfigurationError(f"the threshold of {self.signal} is to be from 0 up to 1")
        elif self.signal == "loop_cost_seconds":
            if not threshold > 0:
                raise ConfigurationError(f"the threshold of {self.signal} is to be more than 0")
        elif threshold != int(threshold):
            raise ConfigurationError(f"the threshold of {self.signal} is to be a whole number")
        elif threshold < 1:
            raise ConfigurationError(f"the threshold of {self.signal} is to be at least 1")

    @property
    def name(self) -> str:
        """What decides: the signal."""
        return self.signal

    @property
    def again(self) -> float:
        """By how much its signal is to have grown before the model is nudged again."""
        return self.threshold

    def value(self, signals: Signals) -> float | None:
        """The signal now; ``None``, not measured."""
        value: float | None = getattr(signals, self.signal)
        return value

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
                f"signals: {', '.join(_SIGNALS)}; rungs: {', '.join(RUNGS)}"
            )
        threshold = int(number) if number.isdecimal() else float(number)
        rules.append(Rule(name.strip(), threshold, rung or "stop"))  # type: ignore[arg-type]
    return tuple(rules)


def _loop(signals: Signals) -> str:
    period = signals.loop_period
    cycle = "the same step" if period == 1 else f"the same {period} steps"
    return f"{cycle} repeated {_times(signals.loop_repeats)}, since step {signals.loop_first_step}"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")

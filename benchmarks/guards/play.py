"""Plays agents under a guard: where does it stop them?"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from benchmarks.guards.agents import Agent, Declared, Turn

__all__ = ["Declarations", "Guarded", "Guards", "Verdict", "played", "ran_before_stop"]

Declarations: TypeAlias = Mapping[str, Declared]


class Guarded(Protocol):
    """A run under a guard. Both answer whether the run is stopped."""

    def issue(self, number: int, turn: Turn) -> bool:
        """The calls of a turn are about to run."""

    def observe(self, number: int, turn: Turn) -> bool:
        """Their results arrived."""

    def close(self) -> None:
        """The run is over."""


Guards: TypeAlias = Callable[[Declarations], Guarded]
"""Begins a run, with what is declared of its tools."""


class Verdict(NamedTuple):
    """What a guard did to an agent.

    Attributes:
        agent: its name.
        ran: turns that ran before the stop; ``None``, it was not stopped.
        late: those of them that its loop has; ``None``, there is no loop, or it was not caught.
    """

    agent: str
    ran: int | None
    late: int | None

    @property
    def caught(self) -> bool:
        """Whether an endless agent was stopped, and not before its loop began."""
        return self.late is not None


def ran_before_stop(guarded: Guarded, turns: Iterable[Turn]) -> int | None:
    """How many turns ran before the guard stopped the run; ``None``, it did not. Closes it."""
    try:
        return _ran(guarded, turns)
    finally:
        guarded.close()


def _ran(guarded: Guarded, turns: Iterable[Turn]) -> int | None:
    waiting: deque[tuple[int, Turn]] = deque()
    for number, turn in enumerate(turns):
        if guarded.issue(number, turn):
            return number
        waiting.append((number, turn))
        while waiting and number - waiting[0][0] >= waiting[0][1].late:
            if guarded.observe(*waiting.popleft()):
                return number + 1
    return None


_NOTHING: Final[Declarations] = {}


def played(guards: Guards, agents: Sequence[Agent], *, declared: bool = False) -> list[Verdict]:
    """What a guard does to each agent.

    Args:
        guards: begins a run under the guard.
        agents: the agents.
        declared: whether the guard knows what developers can declare.
    """
    found = []
    for agent in agents:
        ran = ran_before_stop(guards(agent.declared if declared else _NOTHING), agent.turns())
        looped = None if ran is None or agent.began is None else ran - agent.began
        found.append(Verdict(agent.name, ran, looped if looped and looped > 0 else None))
    return found

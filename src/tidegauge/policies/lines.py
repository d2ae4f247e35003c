"""The lines of a policy: which of them hold for a run, and what follows where one is crossed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, TypeAlias

import xxhash

from tidegauge.errors import ConfigurationError
from tidegauge.events import Signals
from tidegauge.policies.line import Line
from tidegauge.policies.rule import Rung

__all__ = ["Lines"]

_Place: TypeAlias = tuple[str | None, str | None]
"""The agent and the task group of a line."""

_PARTS: Final = 1 << 32
_MAX_KEPT: Final = 1_000


class Lines:
    """Lines by the runs they are for. Of those for one score, the most particular holds.

    Args:
        lines: at most one for each score, agent and task group.
        holdout: share of the runs, from 0 to 1, in which every line is only observed.

    Raises:
        ConfigurationError: two lines for one score, agent and task group, or no such share.

    >>> lines = Lines([Line("steps", 30), Line("steps", 12, agent="browser")])
    >>> [line.above for line in lines.of("browser", "shopping")]
    [12]
    """

    def __init__(self, lines: Iterable[Line] = (), *, holdout: float = 0.0) -> None:
        if not 0 <= holdout <= 1:
            raise ConfigurationError(f"holdout is to be from 0 to 1, not {holdout:g}")
        self.holdout = holdout
        self._by_place: dict[_Place, dict[str, Line]] = {}
        self._of = lru_cache(_MAX_KEPT)(self._found)  # asked for at both moments of every step
        for line in lines:
            own = self._by_place.setdefault((line.agent, line.task_group), {})
            if own.setdefault(line.score, line) is not line:
                raise ConfigurationError(
                    "a policy takes one line for each score, agent and task group"
                )

    def __iter__(self) -> Iterator[Line]:
        return (line for own in self._by_place.values() for line in own.values())

    def __bool__(self) -> bool:
        return bool(self._by_place)

    @property
    def reads_words(self) -> bool:
        """Whether one of the scores goes by the words of actions."""
        return any(line.reads_words for line in self)

    def of(self, agent: str, task_group: str) -> tuple[Line, ...]:
        """The lines that hold for the runs of an agent in a task group."""
        return self._of(agent, task_group)

    def _found(self, agent: str, task_group: str) -> tuple[Line, ...]:
        found: dict[str, Line] = {}
        for place in ((None, None), (None, task_group), (agent, None), (agent, task_group)):
            found.update(self._by_place.get(place, {}))
        return tuple(found.values())

    def crossed(self, signals: Signals) -> list[tuple[Line, Rung]]:
        """The lines that a run is beyond, each with what follows in that run."""
        found = [
            line for line in self.of(signals.agent, signals.task_group) if line.crossed(signals)
        ]
        if not found:
            return []
        watched = self._is_held_out(signals.run)
        return [(line, "observe" if watched else line.rung) for line in found]

    def _is_held_out(self, run: str) -> bool:
        drawn = xxhash.xxh3_64_intdigest(run.encode("utf-8", "surrogatepass")) % _PARTS
        return drawn < self.holdout * _PARTS

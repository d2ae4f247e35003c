"""Polling allowance: which steps only wait, or only think, and so prove no standstill.

A call count is not evidence. A declared poller repeats itself because that is its task. Within its
allowance its steps are *skipped*: for every signal, it is as if they had not been there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final

from tidegauge.events import ToolDeclaration
from tidegauge.streaming_metrics.declaration import Declaration
from tidegauge.streaming_metrics.evicting_dict import EvictingDict
from tidegauge.streaming_metrics.metric import Stateful

__all__ = ["DECLARATION", "POLL_STEPS", "PollingAllowance"]

POLL_STEPS: Final = 60
"""Steps that a poller may wait when nothing else was declared, and that may only think."""

_MAX_RESULTS: Final = 256


class PollingAllowance(Stateful):
    """Says of each step whether it is skipped.

    A step is skipped when each of its calls is one of a poller that has waited for no longer than
    its allowance, or one that only thinks. A result that is new for the poller restarts the
    allowance, and so does any other call. After :data:`POLL_STEPS` consecutive steps that only
    think, further ones are steps like any other: so many thoughts prepare nothing.

    O(1) a step. Memory: the last 256 results of pollers.

    >>> allowance = PollingAllowance()
    >>> for _ in range(4):
    ...     print(allowance.skips([ToolDeclaration(poll=2)], None))
    ...     allowance.observe(b"job", b"running")
    True
    True
    True
    False
    """

    version: ClassVar[int] = 3
    __slots__ = ("_seen", "_since", "_thoughts", "_waited", "skipped")

    def __init__(self) -> None:
        self.skipped = 0  # steps so far
        self._waited = 0
        self._thoughts = 0  # consecutive steps that only think
        self._since: float | None = None
        self._seen: EvictingDict[bytes, None] = EvictingDict()  # digests of a poller and its result

    def skips(self, declared: Sequence[ToolDeclaration | None], now: float | None) -> bool:
        """Take an issued step.

        Args:
            declared: what is declared of the tool of each of its calls; ``None``, nothing.
            now: seconds; ``None``, not known: then an allowance in time is never used up.
        """
        polls = [one.poll for one in declared if one is not None and one.poll]
        others = [one for one in declared if one is None or not (one.poll or one.thinks)]
        self._thoughts = 0 if polls or others else self._thoughts + 1
        if polls:
            self._waited += 1
            if self._since is None:
                self._since = now
        elif others:
            self._restart()
        skips = not others and self._thoughts <= POLL_STEPS
        skips = skips and not [poll for poll in polls if not self._within(poll, now)]
        self.skipped += skips
        return skips

    def observe(self, action: bytes, outcome: bytes | None) -> None:
        """Take the result of a poller: one that it did not have before restarts the allowance."""
        if outcome is None:
            return
        seen, key = self._seen, action + outcome
        if key not in seen:
            self._restart()
            if len(seen) >= _MAX_RESULTS:
                seen.evict()
            seen[key] = None
        else:
            seen.renew(key, None)

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue from what :meth:`state` gave, on another clock: a wait in time starts again."""
        super().load(state)
        self._since = None

    def _within(self, poll: bool | int | timedelta, now: float | None) -> bool:
        if isinstance(poll, timedelta):
            since = self._since
            return now is None or since is None or now - since <= poll.total_seconds()
        return self._waited <= (POLL_STEPS if poll is True else poll)

    def _restart(self) -> None:
        self._waited = 0
        self._since = None


DECLARATION: Final = Declaration(
    name="polling_allowance",
    kind=PollingAllowance,
    brought_by=("declared",),
    absent={"skipped_steps": 0},
    report=lambda run, allowance: {"skipped_steps": allowance.skipped},
    document=lambda report: {"skipped_steps": report.skipped_steps},
)
"""A run asks it before its metrics take a step."""

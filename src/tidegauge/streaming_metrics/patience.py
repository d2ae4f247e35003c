"""Patience: how many of the last steps prove no standstill by being the same.

A call count is no evidence. A declared poller repeats itself because that is its task, and a call
that changes something may give the same answer each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from tidegauge.events import ToolDeclaration
from tidegauge.streaming_metrics.metric import Stateful

__all__ = ["POLL_STEPS", "Patience"]

POLL_STEPS: Final = 60
"""Steps that a poller may wait when nothing else was declared."""


class Patience(Stateful):
    """Counts the steps at the end of a run that are *excused*.

    A round is excused when each of its calls is: one of a poller while it has waited for no longer
    than its patience, or one of a tool that changes something, unless it turns out to have failed.
    An outcome that the same action has not brought before starts the waiting anew.

    O(1) a step, and nothing that grows.

    >>> patience = Patience()
    >>> for _ in range(3):
    ...     patience.issue([ToolDeclaration(poll=2)], None)
    ...     patience.observe(new=False, failed=False)
    ...     print(patience.excused)
    1
    2
    0
    """

    __slots__ = ("_mutating", "_since", "_waited", "excused")

    def __init__(self) -> None:
        self.excused = 0
        self._waited = 0
        self._since: float | None = None
        self._mutating = False

    def issue(self, declared: Sequence[ToolDeclaration | None], now: float | None) -> None:
        """Take an issued round: what is declared of the tool of each of its calls.

        Args:
            declared: one for each call; ``None``, nothing.
            now: seconds; ``None``, not known: then a patience in time is never used up.
        """
        polls = [one.poll for one in declared if one is not None and one.poll]
        self._mutating = any(one is not None and one.mutates for one in declared)
        if polls:
            self._waited += 1
            if self._since is None:
                self._since = now
        known = all(one is not None and (one.poll or one.mutates) for one in declared)
        if known and all(self._within(poll, now) for poll in polls):
            self.excused += 1
        else:
            self.excused = 0
        if not polls:
            self._restart()

    def observe(self, *, new: bool, failed: bool | None) -> None:
        """Take the round's outcome: whether the same action had brought it before, and failed."""
        if failed and self._mutating:
            self.excused = 0
        if new:
            self._restart()

    def restart_clock(self) -> None:
        """Forget since when it waits: the run is watched by another clock from now on."""
        self._since = None

    def _within(self, poll: bool | int | timedelta, now: float | None) -> bool:
        if isinstance(poll, timedelta):
            since = self._since
            return now is None or since is None or now - since <= poll.total_seconds()
        return self._waited <= (POLL_STEPS if poll is True else poll)

    def _restart(self) -> None:
        self._waited = 0
        self._since = None

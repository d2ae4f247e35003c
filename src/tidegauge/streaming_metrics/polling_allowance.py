"""Polling allowance: how many of the last steps prove no standstill by being the same.

A call count is not evidence. A declared poller repeats itself because that is its task, and a call
that changes something may give the same answer each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Final

from tidegauge.events import ToolDeclaration
from tidegauge.streaming_metrics.declaration import Declaration, RunView
from tidegauge.streaming_metrics.metric import Stateful
from tidegauge.streaming_metrics.records import IssuedStep, ObservedStep
from tidegauge.streaming_metrics.recurrence import Recurrence

__all__ = ["DECLARATION", "POLL_STEPS", "PollingAllowance", "exempt_steps"]

POLL_STEPS: Final = 60
"""Steps that a poller may wait when nothing else was declared."""


class PollingAllowance(Stateful):
    """Counts the steps at the end of a run that are *exempt*.

    A round is exempt when each of its calls is: one of a poller while it has waited for no longer
    than its allowance, or one of a tool that changes something, unless it turns out to have failed.
    A result that is new for the action restarts the allowance.

    O(1) a step, and nothing that grows.

    >>> allowance = PollingAllowance()
    >>> for _ in range(3):
    ...     allowance.issue([ToolDeclaration(poll=2)], None)
    ...     allowance.observe(new=False, failed=False)
    ...     print(allowance.exempt)
    1
    2
    0
    """

    version: ClassVar[int] = 2
    __slots__ = ("_since", "_waited", "exempt", "mutating")

    def __init__(self) -> None:
        self.exempt = 0
        self._waited = 0
        self._since: float | None = None
        self.mutating = False  # whether the last round has a call that changes something

    def issue(self, declared: Sequence[ToolDeclaration | None], now: float | None) -> None:
        """Take an issued round: what is declared of the tool of each of its calls.

        Args:
            declared: one for each call; ``None``, nothing.
            now: seconds; ``None``, not known: then an allowance in time is never used up.
        """
        polls = [one.poll for one in declared if one is not None and one.poll]
        self.mutating = any(one is not None and one.mutates for one in declared)
        if polls:
            self._waited += 1
            if self._since is None:
                self._since = now
        known = all(one is not None and (one.poll or one.mutates) for one in declared)
        if known and all(self._within(poll, now) for poll in polls):
            self.exempt += 1
        else:
            self.exempt = 0
        if not polls:
            self._restart()

    def observe(self, *, new: bool, failed: bool | None) -> None:
        """Take the round's result: whether the same action had it before, and whether it failed."""
        if failed and self.mutating:
            self.exempt = 0
        if new:
            self._restart()

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


def exempt_steps(run: RunView) -> int:
    """How many of the last steps of a run are exempt."""
    allowance = run.find(PollingAllowance)
    return 0 if allowance is None else allowance.exempt


def _issued(run: RunView, allowance: PollingAllowance, step: IssuedStep) -> None:
    # Once one tool is declared the calls of others count, too: they end its waiting.
    allowance.issue(step.declared or [None] * step.calls, step.time)


def _observed(run: RunView, allowance: PollingAllowance, step: ObservedStep) -> None:
    allowance.observe(new=run.of(Recurrence).current == 0, failed=step.failed)


DECLARATION: Final = Declaration(
    name="polling_allowance",
    kind=PollingAllowance,
    issued=_issued,
    observed=_observed,
    brought_by=("declared",),
    absent={"exempt_steps": 0},
    report=lambda run, allowance: {"exempt_steps": allowance.exempt},
    details={"exempt_steps": exempt_steps},
)

"""The last steps of a run, as a page shows them: names, digests and numbers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from tidegauge.streaming_metrics.records import ObservedStep

MAX_STEPS: Final = 40
"""How many of the last steps of a run are kept."""

Report: TypeAlias = Callable[["StepHistory", str, int, str], int]
"""Takes what happens; gives back the number of the log event."""


class HistoryStep(NamedTuple):
    """One step as it is shown.

    Attributes:
        step: its index.
        tool: name of its tool; of a round of several, their names joined by ``+``.
        action: digest of the action.
        looped: whether it is part of a loop, from the first repeated step on.
        observed: whether its outcome is there.
        outcome: digest of what came back; ``None``, not given.
        failed: whether every call of it failed; ``None``, not known.
        tokens: tokens spent on it; ``None``, not reported.
        seconds: how long it took; ``None``, not reported.
        stale_score: S after it; ``None``, not measured.
        intervention: what was decided at it; ``None``, to go on.
        arguments: the beginning of its arguments; ``None``, contents are not captured.
        result: the beginning of its results; ``None`` likewise.
    """

    step: int
    tool: str
    action: bytes
    looped: bool = False
    observed: bool = False
    outcome: bytes | None = None
    failed: bool | None = None
    tokens: float | None = None
    seconds: float | None = None
    stale_score: int | None = None
    intervention: str | None = None
    arguments: str | None = None
    result: str | None = None


_STREAKS: Final = ("result_streak", "failed_rounds")
_LOOPED, _OBSERVED, _STALE_SCORE, _INTERVENTION, _ARGUMENTS, _RESULT = 3, 4, 9, 10, 11, 12
_OF_THE_OUTCOME: Final = slice(_OBSERVED, _STALE_SCORE + 1)


class StepHistory:
    """Keeps the last :data:`MAX_STEPS` steps of one run. Called with the run's lock held.

    It is on the step path, so a step is a plain list until it is read, in the order of
    :class:`HistoryStep`'s fields. O(1) amortised a step.

    Args:
        number: distinguishes the run from all others of this process, also those of the same id.
        started: when it was opened, in seconds since the epoch.
        report: takes what happens in the run: this history, what happened, at which step, why.
        clock: seconds since the epoch.

    Attributes:
        onset: number of the log event that its last loop set in with.
        stuck: step and time at which the last streak of equal results set in, and of failed rounds.
        calm: last step after which the stale score was 0, and its time; -1 and the start, none.

    >>> history = StepHistory(1, started=0.0)
    >>> history.issued(0, b"digest", "look", (), None)
    >>> history.observed(ObservedStep(0, seconds=0.5), 2, None)
    >>> [(step.tool, step.seconds, step.stale_score) for step in history.steps()]
    [('look', 0.5, 2)]
    """

    __slots__ = ("_clock", "_report", "_rows", "calm", "number", "onset", "started", "stuck")

    def __init__(
        self,
        number: int,
        *,
        started: float,
        report: Report | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.number = number
        self.started = started
        self.onset = 0
        self.stuck: dict[str, tuple[int, float]] = {}
        self.calm = (-1, started)
        self._clock = clock
        self._report = report
        self._rows: dict[int, list[Any]] = {}  # by step, in order

    def issued(
        self, t: int, action: bytes, tool: str, looped: Sequence[int], shown: str | None
    ) -> None:
        """A step was issued.

        Args:
            t: its index.
            action: digest of the action.
            tool: name of its tool.
            looped: the steps that turn out to be part of a loop with it.
            shown: the beginning of its arguments; ``None``, contents are not shown.
        """
        row = [t, tool, action, False, False, None, None, None, None, None, None, None, None]
        rows = self._rows
        rows[t] = row
        if len(rows) > MAX_STEPS:
            del rows[next(iter(rows))]
        for step in looped:
            earlier = rows.get(step)
            if earlier is not None:
                earlier[_LOOPED] = True
        row[_ARGUMENTS] = shown

    def observed(self, step: ObservedStep, stale_score: int | None, shown: str | None) -> None:
        """The result of a step was observed; one that is no longer kept is ignored.

        Args:
            step: the step.
            stale_score: S after it.
            shown: the beginning of its results; ``None``, contents are not shown.
        """
        if not stale_score:
            self.calm = (step.t, self._clock())
        row = self._rows.get(step.t)
        if row is None:
            return
        row[_OF_THE_OUTCOME] = (
            True,
            step.outcome,
            step.failed,
            step.tokens,
            step.seconds,
            stale_score,
        )
        row[_RESULT] = shown

    def intervened(self, action: str, reason: str, t: int) -> None:
        """A policy intervened at a step, or would have."""
        row = self._rows.get(t)
        if row is not None and (action != "would_stop" or row[_INTERVENTION] is None):
            row[_INTERVENTION] = action
        self.report(action, t, reason)

    def report(self, what: str, t: int, why: str) -> None:
        """Report something that happened to the log."""
        if self._report is not None:
            number = self._report(self, what, t, why)
            if what == "loop":
                self.onset = number
            elif what in _STREAKS:
                self.stuck[what] = (t, self._clock())

    def steps(self) -> list[HistoryStep]:
        """The last steps, in order."""
        return [HistoryStep(*row) for row in self._rows.values()]

    def stale_scores(self) -> list[int | None]:
        """The stale score after each of the last steps whose outcome is there."""
        return [row[_STALE_SCORE] for row in self._rows.values() if row[_OBSERVED]]

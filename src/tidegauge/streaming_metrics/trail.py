"""The last steps of a run, for whoever looks on: names, digests and numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from tidegauge.events import ABSENT, CallResult, Step
from tidegauge.streaming_metrics.fingerprint import canonical_start
from tidegauge.streaming_metrics.loops import Loops
from tidegauge.streaming_metrics.records import ObservedStep

__all__ = ["MAX_CONTENT", "MAX_STEPS", "Trail", "TrailStep"]

MAX_STEPS: Final = 40
"""How many of the last steps of a run are kept."""

MAX_CONTENT: Final = 400
"""How many characters of a step's arguments and of its results are kept, where they are."""

Tell: TypeAlias = Callable[["Trail", str, int, str], int]
"""Told of what happens; answers with the number of the happening."""


class TrailStep(NamedTuple):
    """One step as it is shown.

    Attributes:
        step: its index.
        tool: name of its tool; of a round of several, their names joined by ``+``.
        action: digest of the action.
        looped: whether it is a loop step.
        observed: whether its outcome is there.
        outcome: digest of what came back; ``None``, not given.
        failed: whether every call of it failed; ``None``, not known.
        tokens: tokens spent on it; ``None``, not told.
        seconds: how long it took; ``None``, not told.
        stale_score: S after it; ``None``, not measured.
        intervention: what was decided at it; ``None``, to go on.
        arguments: the beginning of its arguments; ``None``, contents were not asked for.
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


_LOOPED, _OBSERVED, _STALE_SCORE, _INTERVENTION, _ARGUMENTS, _RESULT = 3, 4, 9, 10, 11, 12
_OF_THE_OUTCOME: Final = slice(_OBSERVED, _STALE_SCORE + 1)


class Trail:
    """Keeps the last :data:`MAX_STEPS` steps of one run. Called with the run's lock held.

    It is on the step path, so a step is a plain list in a ring, in the order of
    :class:`TrailStep`'s fields, until somebody reads it. O(1) amortised a step.

    Args:
        number: tells the run from every other one of this process, also from one of the same id.
        started: when it was opened, in seconds since the epoch.
        tell: told of what happens in the run: this trail, what happened, at which step, and why.
        contents: keep the beginnings of arguments and results as well.

    >>> trail = Trail(1, started=0.0)
    >>> trail.issued(0, b"digest", "look", Loops(), Step("r1", ()))
    >>> trail.observed(ObservedStep(0, seconds=0.5), 2, ())
    >>> [(step.tool, step.seconds, step.stale_score) for step in trail.steps()]
    [('look', 0.5, 2)]
    """

    __slots__ = ("_contents", "_ring", "_tell", "number", "onset", "started")

    def __init__(
        self, number: int, *, started: float, tell: Tell | None = None, contents: bool = False
    ) -> None:
        self.number = number
        self.started = started
        self.onset = 0  # number of the happening that its last loop set in with
        self._tell = tell
        self._contents = contents
        self._ring: list[list[Any]] = []

    def issued(self, t: int, action: bytes, tool: str, loops: Loops, step: Step) -> None:
        """A step was issued, and ``loops`` knows of it."""
        row = [t, tool, action, False, False, None, None, None, None, None, None, None, None]
        ring = self._ring
        if t < MAX_STEPS:
            ring.append(row)
        else:
            ring[t % MAX_STEPS] = row
        if loops.settled:  # that many steps turn out to have been loop steps
            for back in range(min(loops.settled, len(ring))):
                ring[(t - back) % MAX_STEPS][_LOOPED] = True
        if self._contents:
            row[_ARGUMENTS] = _beginning([call.arguments for call in step.calls])

    def observed(
        self, step: ObservedStep, stale_score: int | None, results: Sequence[CallResult]
    ) -> None:
        """The outcome of a step was observed; one that is no longer kept is left out."""
        row = self._row(step.t)
        if row is not None:
            row[_OF_THE_OUTCOME] = (
                True,
                step.outcome,
                step.failed,
                step.tokens,
                step.seconds,
                stale_score,
            )
            if self._contents:
                row[_RESULT] = _beginning(
                    [result.outcome for result in results if result.outcome is not ABSENT]
                )

    def intervened(self, action: str, reason: str, t: int) -> None:
        """A policy stepped in at a step, or would have."""
        row = self._row(t)
        if row is not None and (action != "would_stop" or row[_INTERVENTION] is None):
            row[_INTERVENTION] = action
        self.happened(action, t, reason)

    def happened(self, what: str, t: int, why: str) -> None:
        """Something to be told to all who look on."""
        if self._tell is not None:
            number = self._tell(self, what, t, why)
            if what == "cycle":
                self.onset = number

    def steps(self) -> list[TrailStep]:
        """The last steps, in order."""
        return [TrailStep(*row) for row in self._in_order()]

    def stale_scores(self) -> list[int | None]:
        """The stale score after each of the last steps whose outcome is there."""
        return [row[_STALE_SCORE] for row in self._in_order() if row[_OBSERVED]]

    def _in_order(self) -> list[list[Any]]:
        ring = self._ring
        if len(ring) < MAX_STEPS:
            return ring.copy()
        oldest = min(row[0] for row in ring) % MAX_STEPS
        return ring[oldest:] + ring[:oldest]

    def _row(self, t: int) -> list[Any] | None:
        at = t % MAX_STEPS
        row = self._ring[at] if at < len(self._ring) else None
        return row if row is not None and row[0] == t else None


def _beginning(values: Sequence[object]) -> str:
    """What the values say, one after the other, cut."""
    shown = []
    for value in values:
        # The bytes of a character that is cut in two are left out.
        data = canonical_start(value, 4 * MAX_CONTENT)
        shown.append(data.decode("utf-8", "ignore"))
    text = ", ".join(shown)
    return text if len(text) <= MAX_CONTENT else text[: MAX_CONTENT - 1] + "…"

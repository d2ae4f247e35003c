"""What loops cost: steps, tokens and seconds."""

from __future__ import annotations

from typing import ClassVar

from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import ObservedStep

__all__ = ["LoopCost"]


class LoopCost(Metric[ObservedStep]):
    """Tokens and seconds of all loop steps, and of the current loop since its onset.

    The first two add up over loops: they are what the run would have cost less without its
    loop steps. The ``onset_`` numbers are what stopping at the onset would have saved so far:
    those of the step at which the first repetition was complete, whose action would not have
    been run, and of all steps since, as long as the loop lasts. O(1) time and memory.

    Source: loop steps as in TIDE 3.2; the costs are ours.

    >>> cost = LoopCost()
    >>> for t, (matched, settled) in enumerate([(0, 0), (1, 1), (1, 1)]):
    ...     first_step = 1 if settled else -1
    ...     cost.update(ObservedStep(t, tokens=100, loop_matched=matched, loop_settled=settled,
    ...                              loop_first_step=first_step))
    >>> cost.value, cost.onset_steps
    (200, 2)
    """

    takes: ClassVar[type] = ObservedStep
    __slots__ = (
        "_open_seconds",
        "_open_tokens",
        "first_step",
        "onset_seconds",
        "onset_steps",
        "onset_tokens",
        "seconds",
        "tokens",
    )

    def __init__(self) -> None:
        self.tokens: float | None = None
        self.seconds: float | None = None
        self.onset_steps = 0
        self.onset_tokens: float | None = None
        self.onset_seconds: float | None = None
        self.first_step = -1  # of the loop that the onset's numbers belong to; -1, none
        self._open_tokens: float | None = None  # of steps that may still become loop steps
        self._open_seconds: float | None = None

    def update(self, step: ObservedStep) -> None:
        """Take the next observed step; steps come in their order."""
        matched, first_step = step.loop_matched, step.loop_first_step
        if matched <= 1:
            self._open_tokens = self._open_seconds = None
        tokens, seconds = step.tokens, step.seconds
        if matched > 0:
            self._open_tokens = _plus(self._open_tokens, tokens)
            self._open_seconds = _plus(self._open_seconds, seconds)
        if step.loop_settled:
            self.tokens = _plus(self.tokens, self._open_tokens)
            self.seconds = _plus(self.seconds, self._open_seconds)
            self._open_tokens = self._open_seconds = None
        if first_step != self.first_step:
            self.first_step = first_step
            self.onset_steps = 0
            self.onset_tokens = self.onset_seconds = None
        if first_step >= 0:
            self.onset_steps += 1
            self.onset_tokens = _plus(self.onset_tokens, tokens)
            self.onset_seconds = _plus(self.onset_seconds, seconds)

    @property
    def value(self) -> float | None:
        """Tokens of all loop steps; ``None`` while none of them told its tokens."""
        return self.tokens


def _plus(total: float | None, amount: float | None) -> float | None:
    return total if amount is None else (total or 0) + amount

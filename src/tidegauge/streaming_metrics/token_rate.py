"""Token rate: how many tokens the run has spent in the last minute."""

from __future__ import annotations

from collections import deque
from typing import ClassVar, Final

from tidegauge.streaming_metrics.declaration import Attribute, Declaration, Signal
from tidegauge.streaming_metrics.metric import Metric
from tidegauge.streaming_metrics.records import IssuedStep

_SECONDS: Final = 60


class TokenRate(Metric[IssuedStep]):
    """Tokens of the choices of the last 60 seconds, to a second. O(1) time; memory for 61 numbers.

    Runs have it where a rule reads it.

    >>> rate = TokenRate()
    >>> for t, (when, tokens) in enumerate([(0.0, 100), (30.0, 50), (59.0, 1), (61.0, 2)]):
    ...     step = IssuedStep(t, b"", b"", time=when, choice_tokens=tokens)
    ...     rate.update(step)
    >>> rate.value
    53
    """

    takes: ClassVar[type] = IssuedStep
    __slots__ = ("_recent", "_said", "current")

    def __init__(self) -> None:
        self._recent: deque[tuple[int, float]] = deque()  # seconds with their tokens
        self._said = 0.0
        self.current: float | None = None

    def update(self, step: IssuedStep) -> None:
        """Take the next issued step."""
        tokens = step.choice_tokens
        if self._said:
            if tokens is not None:
                tokens -= self._said  # those of answers before it, part of its cost, have counted
            self._said = 0.0
        self._spend(step.time, tokens)

    def answer(self, when: float | None, tokens: float) -> None:
        """Take the tokens of an answer without a call."""
        self._said += tokens
        self._spend(when, tokens)

    def _spend(self, when: float | None, tokens: float | None) -> None:
        recent = self._recent
        if when is None:
            return
        now = int(when)
        if tokens is not None:
            if recent and recent[-1][0] >= now:
                tokens += recent.pop()[1]
            recent.append((now, tokens))
        while recent and recent[0][0] <= now - _SECONDS:
            recent.popleft()
        if tokens is not None or self.current is not None:
            self.current = sum([one for _, one in recent])

    @property
    def value(self) -> float | None:
        """The tokens; ``None``, none were reported, or no times are known."""
        return self.current


DECLARATION: Final = Declaration(
    name="token_rate",
    kind=TokenRate,
    issued=True,
    takes_skipped=True,
    brought_by_start=lambda started, settings: settings.token_rate,
    signals=(
        Signal(
            name="tokens_per_minute",
            read=Attribute(TokenRate, "current"),
            help="tokens that the run has spent in the last minute",
            message=lambda now, at: f"{now.tokens_per_minute:,.0f} tokens were spent in a minute",
            score=False,
            moment="both",
            of_skipped=True,
        ),
    ),
)

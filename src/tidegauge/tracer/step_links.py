"""Links from the span of a repeated step to that of the step that it repeats.

A step of a loop with period p repeats the step p before. So the spans of the last steps are
remembered, as many as the longest period that is linked.
"""

from __future__ import annotations

from typing import Final

from opentelemetry.trace import Link, SpanContext

from tidegauge.events import Signals, StepSignals
from tidegauge.tracer import conventions as names

_MAX_PERIOD: Final = 64
_MAX_CALLS: Final = 16


class StepLinks:
    """The spans of the last 64 steps of a run, 16 calls of each, and the links to them."""

    __slots__ = ("_steps",)

    def __init__(self) -> None:
        self._steps: dict[int, tuple[int, list[tuple[str, SpanContext]]]] = {}

    def started(self, signals: Signals | StepSignals, name: str, span: SpanContext) -> None:
        """The span of a call was opened."""
        step = signals.step
        place = step % _MAX_PERIOD
        known = self._steps.get(place)
        if known is None or known[0] != step:
            self._steps[place] = (step, [(name, span)])
        elif len(known[1]) < _MAX_CALLS:
            known[1].append((name, span))

    def link(self, signals: Signals | StepSignals, name: str) -> Link | None:
        """The link of a call that is about to start; ``None``, its step repeats none that is known.

        In a round of several calls, the n-th call of a tool repeats the n-th one of before.
        """
        earlier = getattr(signals, "repeats_step", -1)
        if earlier < 0:
            return None
        same = self._calls(earlier, name)
        if not same:
            return None
        number = 0 if signals.loop_period == _MAX_PERIOD else len(self._calls(signals.step, name))
        return Link(same[min(number, len(same) - 1)], {names.STEP_INDEX: earlier})

    def _calls(self, step: int, name: str) -> list[SpanContext]:
        known = self._steps.get(step % _MAX_PERIOD)
        if known is None or known[0] != step:
            return []
        return [span for tool, span in known[1] if tool == name]

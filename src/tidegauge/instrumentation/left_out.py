"""Steps that are left out of a recording: those whose action only thinks."""

from __future__ import annotations

from collections.abc import Container

from tidegauge.events import ABSENT
from tidegauge.instrumentation.step_events import RecordedStep

__all__ = ["LeaveOut"]


class LeaveOut:
    """Takes given actions out of recorded steps.

    A thought changes nothing in the world, but what it brings back (``OK.``, or nothing) is often
    recorded as the state of the next step, and would make every such state look the same. A step
    that is left out therefore takes its outcome with it: where the next step tells no state, or
    that very outcome as its state, its state is what was seen before the thought. Any other state
    stays as it was told.

    A call that is left out of a round leaves the round's other calls where they are; what else the
    step told (tokens, progress, places) goes with a step only when all of its calls do.

    Args:
        actions: names of the actions to leave out.
    """

    def __init__(self, actions: Container[str]) -> None:
        self._actions = actions
        self._before: dict[str, tuple[object, object]] = {}  # by run: (state, outcome) left out

    def __call__(self, step: RecordedStep) -> RecordedStep | None:
        """What remains of the step; ``None``, nothing."""
        issued, observed = step
        state = self._state(issued.run, issued.state)
        kept = [n for n, call in enumerate(issued.calls) if call.action not in self._actions]
        if not kept and issued.calls:
            outcome = observed.results[0].outcome if len(observed.results) == 1 else ABSENT
            self._before[issued.run] = (state, outcome)
            return None
        self._before.pop(issued.run, None)
        if len(kept) < len(issued.calls):
            observed = observed._replace(results=tuple([observed.results[n] for n in kept]))
            issued = issued._replace(calls=tuple([issued.calls[n] for n in kept]))
        if state is not issued.state:
            issued = issued._replace(state=state)
        return RecordedStep(issued, observed)

    def forget(self, run: str) -> None:
        """The run ended, or starts anew."""
        self._before.pop(run, None)

    def _state(self, run: str, told: object) -> object:
        """What the agent saw in the world before this step."""
        if run not in self._before:
            return told
        state, outcome = self._before[run]
        return state if told is ABSENT or told == outcome else told

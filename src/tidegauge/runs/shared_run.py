"""A run that an adapter opened, for the code inside it that reports steps itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest

from tidegauge.events import GO_ON, CallResult, Decision, Outcome, Step
from tidegauge.runs.open_run import OpenRun, Returned
from tidegauge.runs.recorder import RecordedRun
from tidegauge.runs.task_attempts import Attempts
from tidegauge.runs.turn_calls import Turn
from tidegauge.runs.turns import TurnTracker
from tidegauge.values.safe_reading import is_a


class SharedRun(OpenRun):
    """A run of an adapter, as the code inside it sees it.

    Its steps go through the adapter's tracker of turns. Calls that the model chose, and that this
    code runs, are the chosen calls and no other steps. The adapter opens and ends the run.

    Args:
        recorded: the run.
        turns: its turns.
        stop: raises the deliberate stop, in the adapter's form and only where it may; it is given
            the number of calls that this refuses.
        attempts: finds those of the task that the caller is in; ``None``, it is in none.

    Attributes:
        stop_seen: whether this code was given a decision to stop, and may end the run.
    """

    _shares = True

    def __init__(
        self,
        recorded: RecordedRun,
        turns: TurnTracker,
        stop: Callable[[int], None],
        attempts: Callable[[], Attempts | None] = lambda: None,
    ) -> None:
        super().__init__(recorded.event)
        self._recorded = recorded
        self._tracker = turns
        self._stop = stop
        self._attempts = attempts
        self.stop_seen = False

    @property
    def decision(self) -> Decision:
        """As that of every run; code that reads a stop may end the run."""
        decision = super().decision
        self.stop_seen = self.stop_seen or decision.stop
        return decision

    def start(self) -> None:
        """The adapter has opened the run."""

    def end(self, error: BaseException | None) -> None:
        """The adapter ends the run."""

    def release(self) -> None:
        """The run has ended: close the spans of calls that have not."""
        recorded, self._recorded = self._recorded, None
        self.closed = True
        if recorded is not None:
            self._decision = recorded.decision
            for turn in self._turns:
                self._end_tools(recorded, turn, [])

    def _issue(
        self, recorded: RecordedRun, step: Step, call_ids: Sequence[str | None]
    ) -> tuple[Decision, Turn]:
        ids = zip_longest(step.calls, call_ids[: len(step.calls)])
        calls = self._tracker.take(step, [call_id for _, call_id in ids], self._attempts())
        turn = Turn([])  # these calls stay those of their own turn, of which they may be a part
        turn.calls = calls
        if calls:
            turn.decision, turn.step = calls[0].turn.decision, calls[0].turn.step
        decision = turn.decision or GO_ON
        self.stop_seen = self.stop_seen or decision.stop
        return decision, turn

    def _observe(
        self,
        recorded: RecordedRun,
        turn: Turn | None,
        outcome: Outcome,
        ends: Sequence[Returned],
    ) -> Decision:
        if turn is None:
            return recorded.observe(outcome)
        decision = GO_ON
        for call, result, end in zip_longest(
            turn.calls, outcome.results[: len(turn.calls)], ends[: len(turn.calls)]
        ):
            raised = end is not None and is_a(end[1], BaseException)
            chosen = call.turn.reported is None  # it may be tried again
            decision = self._tracker.end(
                call, result or CallResult(), raised=raised and chosen, outcome=outcome
            )
        return decision

    def _enforce(self, recorded: RecordedRun, calls: int = 0) -> None:
        self._stop(calls)

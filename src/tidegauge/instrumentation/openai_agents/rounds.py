"""The rounds of one run: from the calls that the model chose to what they brought back.

All tool calls of one model response are one step, hand-offs among them. It is issued when the
response is there, which is before any of its tools runs; it is observed when all of them have
ended. The SDK runs every call of a response before it asks the model again, in order, and its
spans tell no call ids: a tool that begins is the first call of its name that has not begun.

Where nobody told the response (a model without spans, and no hooks; a run that goes on after an
approval), the tools of one turn are taken together, and reported when the turn is over.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from opentelemetry.trace import INVALID_SPAN, Span

from tidegauge._critical import here
from tidegauge.events import ABSENT, Call, CallResult, Decision, Outcome, Signals, Step
from tidegauge.instrumentation.recorder import RecordedRun
from tidegauge.instrumentation.told import ChosenCall

__all__ = ["Round", "Rounds", "ToolCall"]

_MAX_CALLS: Final = 1_000


class ToolCall:
    """One call of a round. ``result`` is ``None`` until it has ended.

    Attributes:
        told: what a hook was told that it brought back.
    """

    __slots__ = ("arguments", "begun", "id", "name", "result", "round", "span", "told")

    def __init__(
        self, of: Round, name: str, arguments: object = ABSENT, call_id: str | None = None
    ) -> None:
        self.round = of
        self.name = name
        self.arguments = arguments  # absent: not told yet
        self.id = call_id
        self.begun = False
        self.result: CallResult | None = None
        self.told: object = ABSENT
        self.span: Span = INVALID_SPAN


class Round:
    """The calls of one step.

    Attributes:
        step: its index; ``None``, not reported.
        decision: what was decided when it was issued.
        spent: tokens spent on choosing it.
        tokens: spent by its tools.
    """

    __slots__ = ("calls", "decision", "spent", "step", "tokens")

    def __init__(self, chosen: Sequence[ChosenCall] = ()) -> None:
        self.calls = [ToolCall(self, call.name, call.arguments, call.id) for call in chosen]
        self.step: int | None = None
        self.decision: Decision | None = None
        self.spent: int | None = None
        self.tokens: int | None = None

    @property
    def signals(self) -> Signals | None:
        """What was known when it was issued."""
        return self.decision.signals if self.decision is not None else None

    @property
    def blocked(self) -> bool:
        """Whether its calls are to be answered, and not to be run."""
        return self.decision is not None and self.decision.block

    @property
    def ended(self) -> bool:
        """Whether all calls have ended."""
        return all(call.result is not None for call in self.calls)


class Rounds:
    """Reports one run's rounds. Its lock is never held while something is reported.

    Args:
        recorded: takes the steps.
    """

    def __init__(self, recorded: RecordedRun) -> None:
        self._recorded = recorded
        self._lock = threading.Lock()
        self._tokens: int | None = None  # spent since the last step
        self._chosen: Round | None = None  # issued, and not observed
        self._unchosen: Round | None = None  # of calls that nobody chose, not issued

    def add_tokens(self, tokens: int | None, tool: ToolCall | None) -> None:
        """Count a model call's tokens: towards the next step, or the one of the tool it ran in."""
        if tokens is None:
            return
        with here.critical, self._lock:
            if tool is None:
                self._tokens = (self._tokens or 0) + tokens
            else:
                tool.round.tokens = (tool.round.tokens or 0) + tokens

    def issue(self, chosen: Sequence[ChosenCall], *, blockable: bool = False) -> None:
        """The model chose these calls; none of them runs yet.

        Args:
            chosen: the calls.
            blockable: whether every one of them can be answered without being run.
        """
        with here.critical, self._lock:
            before = self._take()
            made = self._chosen = Round(chosen)
            made.spent, self._tokens = self._tokens, None
        self._report(*before)
        self._issue(made, blockable=blockable)

    def begin(self, name: str | None = None) -> ToolCall:
        """A tool is about to run, or, without a name, a hand-off."""
        with here.critical, self._lock:
            call = self._next(name)
            if call is None:
                if self._unchosen is None:
                    self._unchosen = Round()
                call = ToolCall(self._unchosen, name or "handoff")
                if len(self._unchosen.calls) < _MAX_CALLS:
                    self._unchosen.calls.append(call)
            call.begun = True
            return call

    def end(self, call: ToolCall, result: CallResult, arguments: object = ABSENT) -> None:
        """A call has ended.

        Args:
            call: what :meth:`begin` gave.
            result: what it brought back.
            arguments: its arguments, where they were not known before.
        """
        with here.critical, self._lock:
            call.result = result
            if call.arguments is ABSENT:
                call.arguments = arguments
            if call.round is not self._chosen or not call.round.ended:
                return
            before = self._take()
        self._report(*before)

    def turn(self) -> None:
        """The model is about to choose again: what was chosen before is settled."""
        if self._chosen is not None or self._unchosen is not None:
            with here.critical, self._lock:
                before = self._take()
            self._report(*before)

    def _next(self, name: str | None) -> ToolCall | None:
        calls = self._chosen.calls if self._chosen is not None else []
        fresh = [call for call in calls if not call.begun]
        return next((call for call in fresh if call.name == name), fresh[0] if fresh else None)

    def _take(self) -> tuple[Round | None, Round | None]:
        """The rounds that are over: the one that was chosen, and the calls that nothing chose."""
        chosen, self._chosen = self._chosen, None
        unchosen, self._unchosen = self._unchosen, None
        if unchosen is not None:
            unchosen.spent, self._tokens = self._tokens, None
        return chosen, unchosen

    def _report(self, chosen: Round | None, unchosen: Round | None) -> None:
        """Report rounds that are over; no lock is held."""
        if chosen is not None:
            self._observe(chosen)
        # Without their arguments, calls would all look the same: then there is no step.
        if unchosen is not None and all(call.arguments is not ABSENT for call in unchosen.calls):
            self._issue(unchosen)
            self._observe(unchosen)

    def _issue(self, made: Round, *, blockable: bool = False) -> None:
        recorded = self._recorded
        calls = tuple([Call(call.name, call.arguments) for call in made.calls])
        steps = recorded.steps
        decision = recorded.issue(Step(recorded.id, calls, tokens=made.spent, blockable=blockable))
        made.decision = decision
        if decision.signals is not None:
            made.step = decision.signals.step
        elif recorded.steps > steps:
            made.step = steps

    def _observe(self, one: Round) -> None:
        if one.step is None or one.blocked:
            return
        results = tuple([call.result or CallResult() for call in one.calls])
        self._recorded.observe(Outcome(self._recorded.id, results, one.step, tokens=one.tokens))

"""The rounds of one run: from the calls that the model chose to what they brought back.

All tool calls of one model message are one step. It is issued when the message is there, which is
before any of them runs; it is observed when all of them have ended. A tool that runs without
having been chosen by a model is a round of its own.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from opentelemetry.trace import INVALID_SPAN, Span

from tidegauge._critical import here
from tidegauge.events import ABSENT, Call, CallResult, Decision, Outcome, Signals, Step
from tidegauge.instrumentation.langchain.parsing import tool_answers, tool_result
from tidegauge.instrumentation.recorder import RecordedRun
from tidegauge.instrumentation.told import ChosenCall
from tidegauge.instrumentation.values import same_value

__all__ = ["Round", "Rounds", "ToolCall"]

_MAX_WAITING: Final = 1_000


class ToolCall:
    """One call of a round. ``result`` is ``None`` until it has ended."""

    __slots__ = ("arguments", "begun", "key", "name", "raised", "result", "round", "span")

    def __init__(self, of: Round, name: str, arguments: object, key: str) -> None:
        self.round = of
        self.name = name
        self.arguments = arguments
        self.key = key  # the model's id of the call, or one made up
        self.begun = False
        self.result: CallResult | None = None
        self.raised = False
        self.span: Span = INVALID_SPAN


class Round:
    """The calls of one step.

    Attributes:
        calls: in the order in which they were chosen.
        place: the execution of a graph's node in which they were; ``None``, in no graph.
        step: its index; ``None`` when nothing is to be observed: it could not be reported, or is
            blocked.
        signals: what was known when it was issued.
        decision: to block it; ``None``, its calls are run.
        spent: tokens spent on choosing it.
        tokens: spent inside its tools.
    """

    __slots__ = ("calls", "decision", "place", "signals", "spent", "step", "tokens")

    def __init__(self, chosen: Sequence[ChosenCall], number: int, place: object = None) -> None:
        self.calls = [
            ToolCall(self, call.name, call.arguments, call.id or f"{number}.{position}")
            for position, call in enumerate(chosen)
        ]
        self.place = place
        self.step: int | None = None
        self.signals: Signals | None = None
        self.decision: Decision | None = None
        self.spent: int | None = None
        self.tokens: int | None = None

    @property
    def ended(self) -> bool:
        """Whether all calls have ended."""
        for call in self.calls:  # noqa: SIM110 -- asked at every step: no generator for one call
            if call.result is None:
                return False
        return True

    @property
    def begun(self) -> bool:
        """Whether a call was run."""
        return any(call.begun for call in self.calls)

    @property
    def raised(self) -> bool:
        """Whether a call raised an exception, and so may be tried again before the next turn."""
        for call in self.calls:  # noqa: SIM110 -- as above
            if call.raised:
                return True
        return False


class Rounds:
    """Reports one run's rounds. Parallel tools end in threads of their own, hence the lock, which
    is never held while something is reported.

    At most 1,000 calls are waited for; of more, the oldest are given up: their steps stay
    unobserved. Of blocked calls the last 1,000 are known.

    Args:
        recorded: takes the steps.
    """

    def __init__(self, recorded: RecordedRun) -> None:
        self._recorded = recorded
        self._lock = threading.Lock()
        self._tokens: int | None = None  # spent since the last step
        self._waiting: OrderedDict[str, ToolCall] = OrderedDict()  # by their keys
        self._blocked: OrderedDict[str, ToolCall] = OrderedDict()  # by their keys
        self._last: Round | None = None
        self._raised: list[Round] = []  # ended, but a call that raised may be tried again

    def add_tokens(self, tokens: int | None, tool: ToolCall | None) -> None:
        """Count a model call's tokens: towards the next step, or the one of the tool it ran in."""
        if tokens is None:
            return
        with here.critical, self._lock:
            if tool is None:
                self._tokens = (self._tokens or 0) + tokens
            else:
                tool.round.tokens = (tool.round.tokens or 0) + tokens

    def issue(
        self,
        chosen: Sequence[ChosenCall],
        *,
        entropy: float | None = None,
        place: object = None,
        blockable: bool = False,
    ) -> None:
        """The model chose these calls; none of them runs yet.

        A model that is asked again before any of its calls was run, in the same execution of the
        same node, was retried (its answer was refused by middleware or a parser): when it chooses
        the same again, that is the same step.

        Args:
            chosen: the calls.
            entropy: of the model's answer, in nats per token.
            place: the execution of a graph's node in which it chose; ``None``, in no graph.
            blockable: whether :meth:`blocked` is asked before they are run, and those that are
                blocked are answered.
        """
        with here.critical, self._lock:
            if place is not None and self._chosen_again(chosen, place):
                return
            made, settled = self._make(chosen, place)
        self._report(made, settled, entropy=entropy, blockable=blockable)

    def blocked(self, call_id: str) -> Decision | None:
        """Why a chosen call must be answered and not run; ``None``, it is run.

        The calls of a round are one action: all of them are blocked, or none. A blocked call is
        waited for no more, and its answer is no outcome.

        Args:
            call_id: the model's id of the call.
        """
        call = self._blocked.get(call_id)
        return None if call is None else call.round.decision

    def begin(self, name: str, arguments: object, call_id: str | None) -> ToolCall:
        """A tool is about to run: the chosen call that it is, or a round of its own.

        A call that raised and is begun again (retried by middleware or ``with_retry``) stays the
        same call: the agent chose once.
        """
        with here.critical, self._lock:
            call = self._chosen(name, arguments, call_id)
            if call is not None:
                call.begun = True
                if call.result is not None:
                    call.result, call.raised = None, False
                    if call.round in self._raised:
                        self._raised.remove(call.round)
                return call
            made, settled = self._make((ChosenCall(name, arguments, call_id),), None)
            made.calls[0].begun = True
        self._report(made, settled)
        return made.calls[0]

    def end(self, call: ToolCall, result: CallResult, *, raised: bool = False) -> None:
        """A call has ended.

        Args:
            call: what :meth:`begin` gave.
            result: what it brought back.
            raised: it raised an exception.
        """
        with here.critical, self._lock:
            call.result, call.raised = result, raised
            if not call.round.ended:
                return
            if call.round.raised:
                self._raised.append(call.round)
                return
            self._close(call.round)
        self._observe(call.round)

    def turn(self, messages: object = ()) -> None:
        """The model is about to choose again: what was chosen before is settled.

        Calls that never became a tool's run (unknown tools, calls refused by middleware) are
        taken from their answers at the end of ``messages``.
        """
        if not self._waiting and not self._raised:
            return
        answers = [(one.tool_call_id, tool_result(one)) for one in tool_answers(messages)]
        with here.critical, self._lock:
            settled = self._settle()
            for call_id, result in answers:
                call = self._waiting.get(call_id)
                if call is not None and call.result is None:
                    call.result = result
                    if call.round.ended:
                        self._close(call.round)
                        settled.append(call.round)
        for one in settled:
            self._observe(one)

    def _make(self, chosen: Sequence[ChosenCall], place: object) -> tuple[Round, list[Round]]:
        """A round to be reported, and those that must be observed before it."""
        settled = self._settle() if self._raised else []
        made = self._last = Round(chosen, self._recorded.steps, place)
        made.spent, self._tokens = self._tokens, None
        return made, settled

    def _report(
        self,
        made: Round,
        settled: list[Round],
        *,
        entropy: float | None = None,
        blockable: bool = False,
    ) -> None:
        for one in settled:
            self._observe(one)
        recorded = self._recorded
        steps = recorded.steps
        calls = tuple([Call(call.name, call.arguments) for call in made.calls])
        decision = recorded.issue(
            Step(recorded.id, calls, ABSENT, made.spent, entropy, blockable=blockable)
        )
        with here.critical, self._lock:
            if decision.block:
                made.signals, made.decision = decision.signals, decision
            elif decision.signals is not None:
                made.signals = decision.signals
                made.step = decision.signals.step
            elif recorded.steps > steps:
                made.step = steps
            self._expect(made)

    def _expect(self, made: Round) -> None:
        """Its calls may run now; what has their keys of an earlier round is forgotten."""
        waiting, blocked = self._waiting, self._blocked
        for call in made.calls:
            waiting[call.key] = call
        while len(waiting) > _MAX_WAITING:
            waiting.popitem(last=False)
        if made.decision is None and not blocked:
            return
        for call in made.calls:
            blocked.pop(call.key, None)
            if made.decision is not None:
                blocked[call.key] = waiting.pop(call.key)
        while len(blocked) > _MAX_WAITING:
            blocked.popitem(last=False)

    def _chosen_again(self, chosen: Sequence[ChosenCall], place: object) -> bool:
        """Whether this is the last round once more; its calls have new keys then."""
        last = self._last
        if last is None or last.place != place or last.begun or len(last.calls) != len(chosen):
            return False
        pairs = list(zip(last.calls, chosen, strict=True))
        for call, again in pairs:
            if call.name != again.name or not same_value(call.arguments, again.arguments):
                return False
        for call, again in pairs:
            self._waiting.pop(call.key, None)
            self._blocked.pop(call.key, None)
            call.key = again.id or call.key
        self._expect(last)
        return True

    def _chosen(self, name: str, arguments: object, call_id: str | None) -> ToolCall | None:
        if call_id is not None:
            # A call that is run although it is blocked is no step of its own.
            return self._waiting.get(call_id) or self._blocked.get(call_id)
        # Called by hand with the arguments alone: the call that was chosen with them, else the
        # first of that name that has not begun.
        named = [call for call in self._waiting.values() if call.name == name]
        same = [call for call in named if same_value(call.arguments, arguments)]
        fresh = [call for call in (*same, *named) if not call.begun]
        return fresh[0] if fresh else same[0] if same else None

    def _settle(self) -> list[Round]:
        raised, self._raised = self._raised, []
        for one in raised:
            self._close(one)
        return raised

    def _close(self, one: Round) -> None:
        for call in one.calls:
            if self._waiting.get(call.key) is call:
                del self._waiting[call.key]

    def _observe(self, one: Round) -> None:
        if one.step is not None:
            results = tuple([call.result or CallResult() for call in one.calls])
            self._recorded.observe(Outcome(self._recorded.id, results, one.step, tokens=one.tokens))

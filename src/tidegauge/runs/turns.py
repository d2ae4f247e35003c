"""The turns of one run: the calls that the model chose, and their results.

Every adapter (callbacks, hooks, spans, decorators) parses what its framework reports and hands it
to a :class:`TurnTracker`, which reports steps and their results.

A **turn** is all tool calls that one answer of the model chose. It is one step of the run.

- *Issued*: when the answer is known, before any of its calls runs. A call that no answer chose is a
  turn by itself. It is issued when it begins if its arguments are known. Otherwise it waits, with
  the other such calls of the same turn, until the model is asked again. Calls that an adapter knows
  to run beside one another are one turn, which is issued when the adapter says that it is over.
- *Observed*: when the last of its calls has ended. A call that raised may be tried again until the
  model is asked again; until then its turn stays open. A blocked turn is not observed.
- *Joined*: a call that begins is found by the model's id of it. Without an id, or if other calls of
  its answer have the same one, it is found by its name and arguments, then by its name. If a
  framework gives only names, it is the first call that has not begun. Calls that never begin take
  their results from the answers that the model is shown.
- *Without calls*: an answer that chose no call is a turn, and no step. It is reported when the
  model is asked again.
- *By hand*: code inside the run may report calls itself, with all that a step can have. Calls that
  the model chose, and that did not begin yet, are those; other ones are a turn by themselves.
- *Grouped*: calls that begin side by side, as the nodes of a superstep do, are one turn. It is
  issued and observed when the next group begins, or the model is asked again.
- *Late or repeated*: a turn is observed once. Results that come later are ignored. If the model is
  asked again in the same node before any call has a result, and chooses the same, that is the same
  turn.
- *Made again*: a task that is tried again makes its turns again; they are the same turns (see
  ``attempts``). One of them that failed stays open until it is made again, or another turn is.
- *Bounded*: a tracker waits for at most 1,000 calls and knows at most 1,000 blocked ones. Beyond
  that it drops the oldest turns: their steps stay unobserved.

Calls may end in several threads, so a lock protects the turns. It is not held during a report,
because reports run user code: extractors, keys and normalisers.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from tidegauge.events import (
    ABSENT,
    GO_ON,
    Answer,
    Call,
    CallResult,
    Decision,
    Outcome,
    Step,
    StepSignals,
    made,
)
from tidegauge.runs.call_groups import NO_ORDER, CallGroup, Order
from tidegauge.runs.recorder import RecordedRun
from tidegauge.runs.task_attempts import Attempts, FirstTurns
from tidegauge.runs.turn_calls import (
    ChosenCall,
    OpenTurns,
    Turn,
    TurnCall,
    same_call,
    with_id,
)
from tidegauge.safety.critical import here
from tidegauge.values.safe_reading import same_value, text_digest

MAX_SAID: Final = 64
"""Answers without a call that are kept until the model is asked again."""


class TurnTracker:
    """Tracks one run's turns and reports them, by the rules in the module's docstring.

    Args:
        recorded: takes the steps.
        sequential: whether the framework runs all calls of a turn before it asks the model again:
            a turn that is still open then is over, and its missing results stay unknown.

    Attributes:
        done: digest of the actions of all steps, in order; ``None``, not wanted.
    """

    def __init__(self, recorded: RecordedRun, *, sequential: bool = False) -> None:
        self._recorded = recorded
        self._sequential = sequential
        self._lock = threading.Lock()
        self._tokens: int | None = None  # since the last step
        self._said: list[Answer] = []  # answers without a call since the model was last asked
        self._open = OpenTurns()
        self._blocked = OpenTurns()
        self._by_id: dict[str, TurnCall] = {}  # calls of open and blocked turns
        self._last: Turn | None = None
        self._loose: CallGroup | None = None  # calls that no answer chose, not issued yet
        self._paused: float | None = None
        self.done: str | None = None

    def add_tokens(self, tokens: int | None, call: TurnCall | None = None) -> None:
        """Add a model call's tokens: to the next step, or to the step whose tool made the call."""
        if tokens is None:
            return
        with here.critical, self._lock:
            if call is None:
                self._tokens = (self._tokens or 0) + tokens
            else:
                call.turn.tokens = (call.turn.tokens or 0) + tokens

    def say(
        self,
        text: object = ABSENT,
        *,
        shown: object = ABSENT,
        messages: int | None = None,
        tokens: int | None = None,
    ) -> None:
        """The model answered and chose no call.

        It is reported when the model is asked again: the answer that ends a run is no turn of it.

        Args:
            text: what it said.
            shown: the last message that it was shown; absent, not known.
            messages: how many it was shown; ``None``, not known.
        """
        with here.critical, self._lock:
            if len(self._said) < MAX_SAID:
                self._said.append(Answer(self._recorded.id, text, shown, messages, tokens))
            elif tokens is not None:
                self._tokens = (self._tokens or 0) + tokens

    def choose(
        self,
        chosen: Sequence[ChosenCall],
        *,
        tokens: int | None = None,
        entropy: float | None = None,
        node: object = None,
        blockable: bool = False,
        attempts: Attempts | FirstTurns | None = None,
    ) -> None:
        """The model chose these calls; none of them runs yet.

        Args:
            node: the execution of a graph's node in which it chose; ``None``, no graph.
        """
        first: FirstTurns | None = None
        if isinstance(attempts, list):
            first, attempts = attempts, None
        with here.critical, self._lock:
            if tokens is not None:
                self._tokens = (self._tokens or 0) + tokens
            last = self._last
            same_node = last is not None and node is not None and last.node == node
            if last is not None and same_node and self._is_retry(last, chosen):
                if attempts is not None and attempts.again:
                    attempts.take(self, last)
                return
            if attempts is not None and attempts.again and self._make_again(attempts, chosen):
                return
            over: list[Turn] = []
            if self._open.turns or self._sequential or self._loose is not None:
                over = self._take_over()
            turn = Turn([TurnCall(*call) for call in chosen], node)
            turn.spent, self._tokens = self._tokens, None
            self._last = turn
            self._wait_for(turn)
            if first is not None:
                first.append((self, turn))
            elif attempts is not None:
                attempts.made(self, turn)
        if over:
            self._report(over)
        if self._said:
            self._report_said()
        self._issue(turn, entropy, blockable=blockable)

    def blocked(self, call_id: str) -> Decision | None:
        """The decision to block a chosen call; ``None``, the call may run.

        The calls of a turn are one action: all of them are blocked, or none.
        """
        call = self._by_id.get(call_id)
        return call.turn.decision if call is not None and call.turn.blocked else None

    def begin(
        self,
        name: str,
        arguments: object = ABSENT,
        call_id: str | None = None,
        attempts: Attempts | None = None,
    ) -> TurnCall:
        """A tool is about to run. Returns its chosen call, or a new call if no answer chose it.

        A retry is the same call, because the agent chose only once. A blocked call that runs anyway
        is not a step.
        """
        if call_id is not None:
            call = self.begin_chosen(call_id)
            if call is not None:
                return call
        with here.critical, self._lock:
            call = self._find(name, arguments, call_id)
            if attempts is not None and attempts.again:
                if call is not None:
                    attempts.take(self, call.turn)
                elif arguments is not ABSENT:
                    again = self._make_again(attempts, [ChosenCall(name, arguments, call_id)])
                    call = again[0] if again else None
            if call is not None:
                call.begun = True
                call.result, call.raised = None, False
                return call
            call = TurnCall(name, arguments, call_id)
            call.begun = True
            if arguments is ABSENT:
                if self._loose is None:
                    self._loose = CallGroup()
                self._loose.add(call)
                return call
            over = self._take_over()
            turn = Turn([call])
            self._add(turn, attempts)
        self._report(over)
        self._issue(turn)
        return call

    def begin_chosen(self, call_id: str) -> TurnCall | None:
        """A chosen call begins that no other has the id of, as nearly always: no lock is needed.

        Returns:
            ``None``, if it may be another one: see :meth:`begin`.
        """
        call = self._by_id.get(call_id)
        if call is None or call.result is not None or call.turn.same_ids:
            return None
        call.begun = True
        return call

    def begin_foreign(self, name: str, arguments: object, call_id: str) -> TurnCall:
        """As :meth:`begin`; a call that is not known here was chosen in another run.

        It counts there: here it is no step.
        """
        if call_id in self._by_id:
            return self.begin(name, arguments, call_id)
        # A graph that is resumed in another process, or from a checkpoint that the user chose, runs
        # calls first that a model chose before: it is not asked again for them.
        call = TurnCall(name, arguments, call_id)
        Turn([call]).observed = True
        return call

    def take(
        self, step: Step, call_ids: Sequence[str | None], attempts: Attempts | None = None
    ) -> list[TurnCall]:
        """Code inside the run is about to run calls, and reports them itself.

        Returns:
            The calls: chosen ones if the model chose all of them, else those of a new turn.
        """
        with here.critical, self._lock:
            taken: list[TurnCall] = []
            for call, call_id in zip(step.calls, call_ids, strict=False):
                chosen = self._find_chosen(call, call_id)
                if chosen is None:
                    break
                chosen.begun = True
                taken.append(chosen)
            if taken and len(taken) == len(step.calls):
                for one in taken:
                    one.result, one.raised = None, False
                    if attempts is not None:
                        attempts.take(self, one.turn)
                return taken
            for one in taken:
                one.begun = one.result is not None
            if attempts is not None and attempts.again:
                ids = zip(step.calls, call_ids, strict=False)
                calls = [ChosenCall(call.action, call.arguments, one) for call, one in ids]
                again = self._make_again(attempts, calls)
                if again is not None:
                    for one in again:
                        one.begun = True
                    return again
            over = self._take_ended()
            turn = Turn([TurnCall(call.action, call.arguments) for call in step.calls])
            for one in turn.calls:
                one.begun = True
            turn.reported = step
            self._add(turn, attempts)
        self._report(over)
        self._issue(turn)
        return turn.calls

    def gather(
        self,
        name: str,
        key: str,
        group: object = None,
        arguments: object = None,
        order: Order = NO_ORDER,
    ) -> TurnCall:
        """A call begins that is one step with the other calls of its group.

        Args:
            key: the same if it is tried again.
            group: anything that distinguishes it from the groups before and after; ``None``: it
                belongs to the calls that have begun and not ended, if there are any.
        """
        over: list[Turn] = []
        with here.critical, self._lock:
            loose = self._loose
            if loose is not None and loose.calls:
                call = loose.begin_again(name, arguments, key)
                if call is not None:
                    return call
                if loose.key != group or (group is None and loose.ended):
                    over = self._take_over()
            loose = self._loose
            if loose is None or not loose.calls:
                loose = self._loose = CallGroup(group)
            call = loose.begin(name, arguments, key, order)
        self._report(over)
        return call

    def issue_group(self, *, blockable: bool = False) -> None:
        """Issue the calls that were gathered so far; calls that begin later are another group.

        For adapters that ask whether gathered calls may run. A group of which no call is asked
        about is issued when it is over.
        """
        with here.critical, self._lock:
            group = self._loose
            if group is None or not group.calls:
                return
            group.sort()
            group.loose, self._loose = False, None
            self._add(group)
        self._issue(group, blockable=blockable)

    def withdraw(self, call: TurnCall) -> None:
        """A gathered call was interrupted: it begins again, or never."""
        with here.critical, self._lock:
            if call.turn is self._loose:
                call.turn.calls = [one for one in call.turn.calls if one is not call]

    def awaits(self, name: str, arguments: object, call_id: str | None) -> bool:
        """Whether a call that is about to run was chosen in an open turn."""
        with here.critical, self._lock:
            call = self._find(name, arguments, call_id)
            return call is not None and (call_id is not None or call.raised or not call.begun)

    def join(
        self, group: CallGroup, name: str, key: str | None, arguments: object, order: Order
    ) -> TurnCall:
        """A call begins that runs beside others, in a group that the adapter holds.

        Args:
            key: the same if it is tried again after it raised or was interrupted; ``None``, that is
                not known.
            arguments: its arguments; ``ABSENT``, not known before it ends.
        """
        with here.critical, self._lock:
            call = group.begin_again(name, arguments, key) if key else None
            return call or group.begin(name, arguments, key, order)

    def report_group(self, group: CallGroup, attempts: Attempts | None = None) -> None:
        """All calls of a group that the adapter holds are over: report them as a step."""
        with here.critical, self._lock:
            if group.observed:
                return
            group.observed = True
            group.sort()
            if attempts is not None:
                calls = [(call.name, call.arguments) for call in group.calls]
                if attempts.find(self, calls) is not None:
                    return
                attempts.made(self, group)
            group.spent, self._tokens = self._tokens, None
        self._report([group])

    def end(
        self,
        call: TurnCall,
        result: CallResult,
        *,
        raised: bool = False,
        arguments: object = ABSENT,
        outcome: Outcome | None = None,
    ) -> Decision:
        """A call has ended.

        Args:
            arguments: its arguments, if they were not known before.
            outcome: what else code inside the run reported of it.

        Returns:
            The decision, if its turn is observed now.
        """
        turn = call.turn
        with here.critical, self._lock:
            call.result, call.raised = result, raised
            if call.arguments is ABSENT:
                call.arguments = arguments
            if outcome is not None:
                turn.outcome = outcome
            if turn.loose and isinstance(turn, CallGroup):
                turn.measure()
            if turn.loose or (turn.observed and turn not in self._open):
                return GO_ON
            for one in turn.calls:
                if one.result is None or one.raised:
                    return GO_ON
            made_again = turn.observed
            self._close(turn)
        if made_again:
            return GO_ON
        return self._observe(turn)

    def pause(self, *, stored: bool = False) -> None:
        """The run waits for a person: that is no part of how long its steps take.

        Args:
            stored: whether it may continue in another process, which does not know what its model
                has said: that is reported now, though it may be its last answer.
        """
        if stored and self._said:
            self._report_said()
        self._paused = time.monotonic()

    def resume(self) -> None:
        """The run waits no more."""
        if self._paused is not None:
            waited, self._paused = time.monotonic() - self._paused, None
            for turn in self._open:
                turn.waited += waited

    def next_turn(
        self, answers: Iterable[tuple[str, CallResult]] = (), *, ends: bool = False
    ) -> list[TurnCall]:
        """The model is about to choose again, or the run ends: the turns before are over.

        Args:
            answers: (id of a call, its result) in the model's messages: results of calls that never
                began, because their tool is unknown or another party refused them.

        Returns:
            Those calls.
        """
        blocked = self._sequential and self._blocked.turns
        if not self._open.turns and not blocked and self._loose is None:
            if self._said and not ends:
                self._report_said()
            return []
        shown = list(answers)  # reads user objects: without the lock
        unrun: list[TurnCall] = []
        same: dict[str, list[TurnCall]] = {}  # calls of one answer with equal ids, not answered yet
        with here.critical, self._lock:
            over = self._take_over(hold=not ends)
            for call_id, result in shown:
                call = self._by_id.get(call_id)
                if call is not None and call.turn.same_ids:
                    # The place among the answers says then which call it is.
                    others = same.setdefault(call_id, with_id(call))
                    call = others.pop() if others else None  # the answers come last first
                if call is not None and call.result is None and call.turn in self._open:
                    call.result = result
                    if not call.begun:
                        unrun.append(call)
                    if call.turn.ended:
                        if not call.turn.observed:  # else it was made again
                            over.append(call.turn)
                        self._close(call.turn)
        self._report(over)
        if self._said and not ends:
            self._report_said()
        return unrun

    @property
    def run(self) -> str:
        """The id of its run."""
        return self._recorded.id

    def find(self, step: int | None) -> Turn | None:
        """The open turn whose step has this index."""
        return None if step is None else self._open.find(step)

    def state(self) -> dict[str, Any]:
        """The turns that wait, as plain data without contents: see :meth:`load`."""
        with here.critical, self._lock:
            waiting = [turn for turn in self._open if not turn.observed]
            turns = [turn for turn in (*waiting, *self._blocked) if turn is not self._loose]
            spent = [one.tokens for one in self._said if one.tokens is not None]
            tokens = sum(spent, self._tokens or 0) if spent else self._tokens
            return {"tokens": tokens, "turns": [_saved_turn(turn) for turn in turns]}

    def load(self, state: Mapping[str, Any]) -> None:
        """Wait for the turns of a state.

        Their calls have neither arguments nor results. Blocked calls are not blocked any more; if
        they run, they are no steps.

        Raises:
            KeyError, TypeError, ValueError: the state has another form.
        """
        turns = [_loaded_turn(data, self._recorded.id) for data in state["turns"]]
        with here.critical, self._lock:
            self._tokens = state["tokens"]
            for turn in turns:
                self._wait_for(turn)

    def _report_said(self) -> None:
        with here.critical, self._lock:
            said, self._said = self._said, []
        for answer in said:
            self._recorded.answered(answer)

    def _add(self, turn: Turn, attempts: Attempts | None = None) -> None:
        """Open a turn, and wait for its calls."""
        turn.spent, self._tokens = self._tokens, None
        self._last = turn
        self._wait_for(turn)
        if attempts is not None:
            attempts.made(self, turn)

    def _make_again(self, attempts: Attempts, calls: Sequence[ChosenCall]) -> list[TurnCall] | None:
        """The calls of an earlier attempt that are about to be made again, if they are such.

        If the result of their turn was reported, it stays what it was.
        """
        again = attempts.find(self, [call[:2] for call in calls])
        if not again:
            return None
        turn = again[0].turn
        self._forget(turn)
        for call, chosen in zip(again, calls, strict=True):
            call.id, call.arguments = chosen.id, chosen.arguments
            call.begun, call.result, call.raised = False, None, False
        self._last = turn
        self._wait_for(turn)
        if self.done is not None:
            self._note_done(turn)
        return again

    def _note_done(self, turn: Turn) -> None:
        signals = turn.signals
        if signals is not None:
            self.done = text_digest(f"{self.done}{signals.action_digest.hex()}")

    def _wait_for(self, turn: Turn) -> None:
        by_id = self._by_id
        for call in turn.calls:
            if call.id is not None:
                # Some servers give the calls of one answer the same id, or an empty one; some
                # begin to count at zero in each answer.
                before = by_id.get(call.id)
                if before is not None and before is not call and before.turn is turn:
                    turn.same_ids = True
                elif before is not None and len(before.turn.calls) == 1:
                    self._open.remove(before.turn)  # the model reuses its ids
                by_id[call.id] = call
        decision = turn.decision
        blocked = decision is not None and decision.action == "block"
        held = self._blocked if blocked else self._open
        for dropped in held.add(turn):
            self._forget(dropped)

    def _close(self, turn: Turn) -> None:
        """Close a turn: its result is reported now, or never."""
        turn.observed, turn.held = True, False
        self._open.remove(turn)
        by_id = self._by_id
        for call in turn.calls:  # as _forget
            if call.id is not None and by_id.get(call.id) is call:
                del by_id[call.id]

    def _forget(self, turn: Turn) -> None:
        for call in turn.calls:
            if call.id is not None and self._by_id.get(call.id) is call:
                del self._by_id[call.id]

    def _take_over(self, *, hold: bool = False) -> list[Turn]:
        """Close the turns that are over when the model is asked again. Returns them in order.

        Args:
            hold: whether those stay open that the next attempt of a task may make again.
        """
        over = self._take_ended(hold=hold)
        if self._sequential:
            for turn in self._blocked:
                self._blocked.remove(turn)
                self._forget(turn)
        if self._loose is not None:
            over.append(self._take_loose(self._loose))
        return over

    def _take_ended(self, *, hold: bool = False) -> list[Turn]:
        over: list[Turn] = []
        if self._open.turns:
            for turn in self._open:
                if (self._sequential or turn.ended) and not (hold and turn.held):
                    if not turn.observed:  # else it was made again
                        over.append(turn)
                    self._close(turn)
        return over

    def _take_loose(self, loose: CallGroup) -> Turn:
        loose.observed = True
        loose.sort()
        loose.spent, self._tokens, self._loose = self._tokens, None, None
        return loose

    def _find(self, name: str, arguments: object, call_id: str | None) -> TurnCall | None:
        """The chosen call that is about to run."""
        if call_id is not None:
            known = self._by_id.get(call_id)
            if known is None or not known.turn.same_ids:
                return known
            return same_call(with_id(known), name, arguments) or known
        held = [*self._open, *self._blocked] if arguments is ABSENT else list(self._open)
        calls = [call for turn in held for call in turn.calls if self._is_current(call)]
        if arguments is ABSENT:
            named = [call for call in calls if call.name == name]
            return next((call for call in (*named, *calls) if not call.begun), None)
        return same_call(calls, name, arguments)

    def _find_chosen(self, call: Call, call_id: str | None) -> TurnCall | None:
        """The chosen call that code inside the run is about to run, or to run again."""
        if call_id is not None:
            known = self._by_id.get(call_id)
            if known is not None and known.turn.same_ids:
                known = same_call(with_id(known), call.action, call.arguments) or known
            return None if known is None or (known.begun and not known.raised) else known
        chosen = [one for turn in self._open if turn.reported is None for one in turn.calls]
        named = [one for one in chosen if one.name == call.action and self._is_current(one)]
        same = [one for one in named if same_value(one.arguments, call.arguments)]
        waiting = (one for one in same if one.raised or not one.begun)
        return next(waiting, None) or next((one for one in named if not one.begun), None)

    def _is_current(self, call: TurnCall) -> bool:
        """Whether no later call has taken its id."""
        if call.id is None:
            return True
        known = self._by_id.get(call.id)
        return known is call or (known is not None and known.turn is call.turn)

    def _is_retry(self, last: Turn, chosen: Sequence[ChosenCall]) -> bool:
        """Whether the model chose the calls of the last turn again; then they get the new ids.

        The model is asked again in the same execution of a node if middleware or a parser rejected
        its answer. If it was shown results of its calls, they were run, and it chose again.
        """
        if len(last.calls) != len(chosen):
            return False
        pairs = list(zip(last.calls, chosen, strict=True))
        for call, again in pairs:
            if call.begun or call.result is not None or call.name != again.name:
                return False
            if not same_value(call.arguments, again.arguments):
                return False
        self._forget(last)
        for call, again in pairs:
            call.id = again.id or call.id
        self._wait_for(last)
        return True

    def _report(self, over: Sequence[Turn]) -> None:
        """Report turns that are over; call it without the lock."""
        for turn in over:
            if turn.loose:
                if not turn.calls or any(call.arguments is ABSENT for call in turn.calls):
                    continue  # without arguments, all calls would be equal
                self._issue(turn)
            self._observe(turn)

    def _issue(self, turn: Turn, entropy: float | None = None, *, blockable: bool = False) -> None:
        recorded = self._recorded
        issued = turn.reported
        if issued is None:
            calls = tuple([made(Call, (call.name, call.arguments, None)) for call in turn.calls])
            run = recorded.event.run
            fields = (run, calls, ABSENT, turn.spent, entropy, (), (), None, blockable, None)
            issued = made(Step, fields)
        elif issued.tokens is None:
            issued = issued._replace(tokens=turn.spent)
        turn.issued = time.monotonic()
        decision, step = recorded.issue(issued)
        turn.decision = decision
        if self.done is not None:
            self._note_done(turn)
        if decision.action != "block":
            turn.step = step
            return
        with here.critical, self._lock:
            turn.observed = True
            if self._open.remove(turn):
                self._wait_for(turn)

    def _observe(self, turn: Turn) -> Decision:
        if turn.step is None:
            return GO_ON
        results = tuple([call.result or CallResult() for call in turn.calls])
        recorded = self._recorded
        run, step, tokens, seconds = recorded.event.run, turn.step, turn.tokens, turn.seconds
        if turn.waited and seconds is None:
            seconds = max(0.0, time.monotonic() - turn.issued - turn.waited)
        if turn.outcome is None:
            fields = (run, results, step, None, None, (), (), None, tokens, seconds, None, False)
            decision = recorded.observe(made(Outcome, fields))
            turn.seen = decision.signals
            return decision
        given = turn.outcome.tokens
        spent = tokens if given is None else given + (tokens or 0)
        outcome = turn.outcome._replace(run=run, results=results, step=step, tokens=spent)
        return recorded.observe(outcome)


def _saved_turn(turn: Turn) -> dict[str, Any]:
    signals = turn.signals
    return {
        "step": turn.step,
        "tokens": turn.tokens,
        "calls": [(call.name, call.id) for call in turn.calls],
        "digests": signals and (signals.action_digest.hex(), signals.state_digest.hex()),
    }


def _loaded_turn(data: Mapping[str, Any], run: str) -> Turn:
    turn = Turn([TurnCall(name, call_id=call_id) for name, call_id in data["calls"]])
    turn.step, turn.tokens = data["step"], data["tokens"]
    if data["digests"] and turn.step is not None:
        action, state = map(bytes.fromhex, data["digests"])
        turn.decision = Decision(signals=StepSignals(run, turn.step, action, state))
    return turn

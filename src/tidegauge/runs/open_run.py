"""A run of decorators and context managers, and the current run of the caller.

Here the agent itself reports which calls are a step, and to which step a result belongs. So there
is nothing to join: a :class:`~tidegauge.runs.turns.Turn` is held only for its spans, or
because it is blocked.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from types import TracebackType
from typing import Any, Final, Protocol, TypeAlias, cast

from opentelemetry import context as otel_context

from tidegauge.errors import CallBlocked, RunStopped
from tidegauge.events import (
    ABSENT,
    GO_ON,
    Answer,
    CallResult,
    Decision,
    ModelUsage,
    Outcome,
    RunStarted,
    Signals,
    Step,
    StepSignals,
    made,
)
from tidegauge.runs.current import get_recorder
from tidegauge.runs.recorder import RecordedRun
from tidegauge.runs.task_attempts import Attempts
from tidegauge.runs.turn_calls import OpenTurns, Turn, TurnCall
from tidegauge.runs.turns import TurnTracker
from tidegauge.safety.critical import (
    AT_ONCE,
    _deferred,
    defer,
    defer_if_unused,
    here,
    interrupted,
    reset_after_fork,
    run_deferred,
)
from tidegauge.safety.guard import guarded, internal_errors, passes
from tidegauge.tracer import CallFailure, Failed, RequestLabels
from tidegauge.values import class_name, exact_text, failure_text
from tidegauge.values.safe_reading import count, is_a, truth, whole

Failure: TypeAlias = bool | BaseException | None
"""Whether a call failed (``None``, not known), or the exception with which it did."""

Returned: TypeAlias = tuple[object, Failure]
"""The result of one call, and whether it failed."""


class CurrentRun:
    """The current run of the caller, and the current call if the caller is inside a tool.

    Attributes:
        run: the run.
        call: the call; ``None``, the caller is not in a tool.
        around: the current run when this one was opened, if it was not over. It is always older,
            so that there are no cycles, in whatever context a generator continues.
        order: greater than that of every one that was made before.
    """

    __slots__ = ("around", "call", "order", "run")

    def __init__(
        self,
        run: OpenRun,
        call: Ending | None = None,
        around: CurrentRun | None = None,
        order: int | None = None,
    ) -> None:
        self.run = run
        self.call = call
        self.around = find_current_run() if around is None and order is None else around
        self.order = next_order() if order is None else order

    @property
    def in_tool(self) -> bool:
        """Whether the caller is inside a tool of the run."""
        return self.call is not None

    def forget(self) -> None:
        """Release enclosing runs that are over: contexts may keep this object for long."""
        self.around = _not_over(self.around)


class Ending(Protocol):
    """A call of a tool, which ends."""

    @property
    def ended(self) -> bool:
        """Whether it has ended."""

    @property
    def turn(self) -> Turn | None:
        """Its step; ``None``, it has none."""


current_run: ContextVar[CurrentRun | None] = ContextVar("tidegauge_current_run", default=None)


next_order: Final[Callable[[], int]] = itertools.count(1).__next__
"""Numbers what becomes current: of two, the later one is inside the other."""

_finders: list[tuple[ContextVar[Any], Callable[[], CurrentRun | None]]] = []


def add_finder(within: ContextVar[Any], finder: Callable[[], CurrentRun | None]) -> None:
    """Ask an adapter, too, which of its runs the caller is in."""
    _finders.append((within, finder))


def find_current_run() -> CurrentRun | None:
    """The current run of the caller: the innermost one.

    Runs and calls that are over are skipped: an exception of a signal handler may have prevented
    their removal.
    """
    if _deferred:  # among them may be the end of a run that is still current
        run_deferred(AT_ONCE)
    found = current_run.get()
    if found is not None and (
        found.run.closed or ((call := found.call) is not None and call.ended)
    ):
        found = _not_over(found)
    for within, finder in _finders:
        other = None if within.get(None) is None else finder()
        if other is not None and (found is None or found.order < other.order):
            found = other
    return found


def _not_over(current: CurrentRun | None) -> CurrentRun | None:
    while current is not None:
        call = current.call
        if not current.run.closed and (call is None or not call.ended):
            return current
        current = current.around
    return None


internal_errors.overflows.update({"current.enter": 0, "current.leave": 0})

_UNDONE: Final = (ValueError, RuntimeError, LookupError)
"""What the reset of a context variable raises in another context, or if it is already undone."""


class Current:
    """Makes a run the current one, and a span the current span, while a body runs.

    While a body pauses (a generator that yields), its consumer's context is unchanged. What the
    body itself has made current is restored when it continues.

    Args:
        run: becomes the current run.
        context: becomes OpenTelemetry's current context; ``None`` leaves it unchanged.
    """

    __slots__ = ("_before", "_context", "_context_token", "_entered", "_made", "_run", "_run_token")

    def __init__(self, run: CurrentRun, context: otel_context.Context | None) -> None:
        self._run: CurrentRun | None = run
        self._made = run
        self._entered = False
        self._before: CurrentRun | None = None
        self._context = context
        self._run_token: Token[CurrentRun | None] | None = None
        self._context_token: Token[otel_context.Context] | None = None

    def __enter__(self) -> None:
        try:
            if here.__dict__["critical"]._is_owned() and not here.apart:
                return  # nothing may be set in the context that is interrupted: see run_apart
            self._before = current_run.get()
            self._entered = True
            with here.critical:  # a collection that comes now must set nothing
                self._run_token = current_run.set(self._run)
                if self._context is not None:
                    self._context_token = otel_context.attach(self._context)
        except RecursionError:  # the stack is full: there may be room for the body
            internal_errors.overflows["current.enter"] += 1
        except Exception as error:
            if passes("current.enter", error):
                raise

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        if not self._entered:
            return
        try:
            self._run = current_run.get()
            with here.critical:
                # A block that is left in another context than it was entered in (a generator that
                # is closed early) has nothing to undo: the other context no longer exists.
                token: Token[Any] | None = self._context_token
                if token is not None:
                    self._context = otel_context.get_current()
                    try:  # noqa: SIM105 -- on the step path
                        token.var.reset(token)
                    except _UNDONE:
                        pass
                token = self._run_token
                if token is not None:
                    try:  # noqa: SIM105 -- as above
                        token.var.reset(token)
                    except _UNDONE:
                        pass
                elif self._run is self._made:  # an exception arrived when it had just been set
                    current_run.set(self._before)
            self._run_token = self._context_token = self._before = None
            self._entered = False
        except RecursionError:
            internal_errors.overflows["current.leave"] += 1
        except Exception as fault:
            if passes("current.leave", fault):
                raise

    def forget(self) -> None:
        """The body will not continue: release what is over."""
        self._made.forget()


class _Abandoned(BaseException):
    """Nothing is left that could end the run."""


_ABANDONED: Final = _Abandoned()


class OpenRun:
    """One run from its start to its end, current while its body runs.

    All methods are thread-safe. Steps are ignored before :meth:`start`, after :meth:`end`, and if
    the run could not be opened.

    Args:
        event: what is known of the run.
        request: whose request it serves.

    Attributes:
        closed: whether it has ended, or belongs to the parent process of a fork.
    """

    _shares = False
    """Whether an adapter has the run, and joins what is reported here to its turns."""

    def __init__(self, event: RunStarted, request: RequestLabels | None = None) -> None:
        self.event = event
        self._request = request
        self.success: bool | None = None
        self.reason: str | None = None
        self._recorded: RecordedRun | None = None
        self.closed = False
        self._decision: Decision = GO_ON  # the last one, kept when it is closed
        self._current: Current | None = None
        self._ending: tuple[RecordedRun, BaseException | None] | None = None
        self._watched: Callable[[], object] | None = None
        self._lock = threading.Lock()  # of the turns
        self._turns = OpenTurns()  # with open spans, or blocked: nothing to observe
        self._last: Turn | None = None
        self._spent: float | None = None  # tokens of model calls since the last step

    def finish(self, success: bool | None, reason: str | None) -> None:
        """Set how the run ends."""
        self.reason, self.success = reason, None
        self.success = truth(success)

    def answered(self, answer: object) -> None:
        """The run gave this answer: its span has it, if contents are captured."""
        if self._recorded is not None:
            if is_a(answer, str):
                self._recorded.read_answer(exact_text(answer), over=True)
            self._recorded.spans.answered(answer)

    @property
    def id(self) -> str:
        """The run's id."""
        return self.event.run

    @property
    def recorded(self) -> RecordedRun | None:
        """The recorded run that takes reports; ``None`` while the run is not open."""
        return self._recorded

    @property
    def decision(self) -> Decision:
        """The last decision other than ``go_on``; a stop is final."""
        recorded = self._recorded
        return self._decision if recorded is None else recorded.decision

    @guarded("run.open", default=None)
    def start(self) -> None:
        """Open the run. :meth:`enter` makes it the current one."""
        recorded = get_recorder().make_run(self.event)
        recorded.request = self._request
        self._recorded = recorded  # before it is open: an exception may arrive while it opens
        recorded.start()
        reset_after_fork(self)
        self.event = recorded.event
        spans = recorded.spans
        context = spans.context if spans.owns_span else None
        self._current = Current(CurrentRun(self), context)

    def _reset_after_fork(self) -> None:
        # A run of the parent process does not continue in the child.
        self._recorded, self.closed = None, True
        self._ending = None
        self._lock = threading.Lock()

    def watch(self, scope: object) -> None:
        """End the run if what must end it is freed without having done so.

        Where an exception of a signal handler arrives at the wrong moment, nothing else ends it.

        Args:
            scope: its ``with`` block, or its call; the run must not refer to it.
        """
        self._watched = defer_if_unused(scope, partial(self._end, _ABANDONED))

    def enter(self) -> None:
        """The body starts or continues: make the run current, even if it could not be opened."""
        if self._current is None:
            self._current = Current(CurrentRun(self), None)
        self._current.__enter__()

    def leave(self) -> None:
        """The run's body pauses or ends: the run is no longer the current one."""
        if self._current is not None:
            self._current.__exit__()

    def issue(
        self, step: Step, call_ids: Sequence[str | None] = (None,), *, enforce: bool = True
    ) -> tuple[Decision, Turn | None]:
        """Report an issued step. Returns the decision, and the turn to pass to :meth:`observe`.

        Raises:
            RunStopped: the policy stops the run; the calls must not be run.
        """
        recorded = self._recorded
        if recorded is None:
            return GO_ON, None
        if self._spent is not None or (recorded.counts_usage and step.tokens is not None):
            step = self._with_spent(recorded, step)
        if enforce and recorded.decision.action == "stop":
            self._enforce(recorded, len(step.calls))  # what is refused after a stop is no step
        if self._shares:
            decision, turn = cast("SharedRun", self)._issue(recorded, step, call_ids)
        else:
            decision, index = recorded.issue(step)
            turn = Turn([])
            turn.decision, turn.step = decision, index
        self._last = turn
        if enforce and recorded.decision.action == "stop":
            self._enforce(recorded, len(step.calls))
        if decision.action == "block":
            recorded.refused(len(step.calls))
        if turn.calls or decision.action == "block" or recorded.spans.calls_wanted:
            self._hold(recorded, turn, step, call_ids, decision)
        return decision, turn

    def observe(
        self,
        returned: Sequence[Returned],
        outcome: Outcome,
        turn: Turn | None = None,
        *,
        enforce: bool = True,
        ended: int | None = None,
    ) -> Decision:
        """Report the results of the calls of a step.

        Args:
            turn: the step's turn; ``None`` takes the index in the outcome, else the last step.
            ended: when the calls ended, in nanoseconds since the epoch; ``None``, now.

        Raises:
            RunStopped: the policy stops the run.
        """
        recorded = self._recorded
        if turn is None:
            turn = self._last if outcome.step is None else self._turns.find(outcome.step)
        if recorded is None:
            return GO_ON
        if turn is not None:
            before = turn.decision
            if before is not None and before.action == "block":
                return GO_ON
        ends: list[Returned] = []
        results: list[CallResult] = []
        for result, error in returned:
            if result is ABSENT and is_a(error, BaseException):
                # The text of an exception is the result, if there is no other result.
                result = failure_text(cast("BaseException", error))  # noqa: PLW2901
            ends.append((result, error))
            failed = False if error is False else truth(error)
            results.append(made(CallResult, (result, failed)))
        spans = turn if turn is not None and turn.calls else None
        if spans is not None and ended is None:
            ended = time.time_ns()
        decision = GO_ON
        try:
            index = outcome.step if turn is None else turn.step
            if index is None or index < 0:  # no step, or it could not be reported
                return GO_ON
            if outcome.tokens is not None and recorded.counts_usage:
                recorded.spend(ModelUsage(count(whole(outcome.tokens))))
            # Faster than _replace().
            fields = (outcome.run, tuple(results), index) + outcome[3:]  # noqa: RUF005
            if self._shares:
                shared = cast("SharedRun", self)
                decision = shared._observe(recorded, turn, made(Outcome, fields), ends)
            else:
                decision = recorded.observe(made(Outcome, fields))
        finally:
            if spans is not None:
                with here.critical, self._lock:
                    held = self._turns.remove(spans)
                if held:
                    end_spans(recorded, spans, ends, ended, decision.signals)
        if enforce and recorded.decision.action == "stop":
            self._enforce(recorded)
        return decision

    def answer(self, event: Answer) -> Decision:
        """Report an answer without a call.

        Raises:
            RunStopped: the policy stops the run.
        """
        recorded = self._recorded
        if recorded is None:
            return GO_ON
        decision = recorded.answered(event)
        if recorded.decision.action == "stop":
            self._enforce(recorded)
        return decision

    def _enforce(self, recorded: RecordedRun, calls: int = 0) -> None:
        recorded.enforce(calls=calls)

    def spend(self, usage: ModelUsage) -> Decision:
        """Report what a model call has used: budgets count it, and the next step has its tokens.

        Raises:
            RunStopped: a budget stops the run.
        """
        recorded, tokens = self._recorded, usage.total
        if recorded is None:
            return GO_ON
        if tokens is not None:
            with here.critical, self._lock:
                self._spent = (self._spent or 0) + tokens
        decision = recorded.spend(usage)
        if recorded.decision.action == "stop":
            self._enforce(recorded)
        return decision

    def _with_spent(self, recorded: RecordedRun, step: Step) -> Step:
        """A step with the tokens of the model calls before it; those that it names count now."""
        with here.critical, self._lock:
            spent, self._spent = self._spent, None
        given = step.tokens
        if given is not None:
            recorded.spend(ModelUsage(count(whole(given))))
        return step._replace(tokens=given if spent is None else spent + (given or 0))

    def abandon(self, turn: Turn) -> None:
        """The calls of a step were cancelled: close their spans without results."""
        if self._recorded is not None:
            self._end_tools(self._recorded, turn, [])

    def end(self, error: BaseException | None) -> None:
        """Close the run, with the exception that ended it; a second call does nothing.

        If its generator is closed, the garbage collector may have called this at any moment: the
        end is then reported with the next ordinary call.
        """
        if type(error) is GeneratorExit and not interrupted():
            defer(partial(self._end, error))
        else:
            self._end(error)

    @guarded("run.close", default=None)
    def _end(self, error: BaseException | None) -> None:
        if self._current is not None:
            self._current.forget()
        if self.event.task is not None:  # a copied context may keep this object for long
            self.event = replace(self.event, task=None)
        if self._recorded is not None:  # nothing that can be interrupted comes between these
            self._ending = self._recorded, error
            self._recorded = None
        self._current, self.closed = None, True
        if self._ending is not None:  # an exception may have arrived while it was reported
            try:
                self._report_end(*self._ending)
            except BaseException:
                # The traceback of the error may hold what is watched: it would never be freed.
                self._ending = self._ending[0], _ABANDONED
                raise
            self._ending = None
        if self._watched is not None:
            self._watched()

    @guarded("run.close", default=None)
    def _report_end(self, recorded: RecordedRun, error: BaseException | None) -> None:
        self._decision = recorded.decision
        for turn in self._turns:
            self._end_tools(recorded, turn, [])
        deliberate = _deliberate(error)
        if isinstance(deliberate, RunStopped):
            recorded.end(outcome="stopped", reason=deliberate.reason)
        elif deliberate is not None:  # CallBlocked, which the agent did not catch
            recorded.end(outcome="stopped", reason=recorded.decision.reason)
        elif error is None or not is_a(error, Exception):  # None, or cancelled, interrupted
            success = self.success if error is None else None
            recorded.end(success=success, reason=self.reason)
        else:
            recorded.end(
                success=self.success, outcome="error", reason=class_name(type(error)), error=error
            )

    def _hold(
        self,
        recorded: RecordedRun,
        turn: Turn,
        step: Step,
        call_ids: Sequence[str | None],
        decision: Decision,
    ) -> None:
        """Hold a turn until its calls have ended, with their spans unless they are blocked."""
        if not turn.calls:
            for number, call in enumerate(step.calls):
                call_id = call_ids[number] if number < len(call_ids) else None
                turn.calls.append(TurnCall(call.action, call.arguments, call_id))
        if decision.action != "block":
            for held in turn.calls:
                held.span = recorded.spans.start_tool(
                    held.name, held.id, decision.signals, held.arguments
                )
        with here.critical, self._lock:
            dropped = self._turns.add(turn)
        for one in dropped:
            end_spans(recorded, one, [])

    def _end_tools(
        self,
        recorded: RecordedRun,
        turn: Turn,
        returned: Sequence[Returned],
        ended: int | None = None,
        signals: Signals | StepSignals | None = None,
    ) -> None:
        with here.critical, self._lock:
            held = self._turns.remove(turn)
        if held:
            end_spans(recorded, turn, returned, ended, signals)


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


def end_spans(
    recorded: RecordedRun,
    turn: Turn,
    returned: Sequence[Returned],
    ended: int | None = None,
    signals: Signals | StepSignals | None = None,
) -> None:
    """Close the spans of a turn's calls, with what they returned."""
    decision = turn.decision
    if decision is not None and decision.action == "block":
        return
    for number, call in enumerate(turn.calls):
        result, error = returned[number] if number < len(returned) else (ABSENT, None)
        failure: Failed = None
        if error is True:
            failure = CallFailure("tool_error", result)
        elif error is not None and error is not False and is_a(error, BaseException):
            failure = error
        recorded.spans.end_tool(call.span, result, failure, ended, signals=signals)


def _deliberate(error: BaseException | None) -> RunStopped | CallBlocked | None:
    """The exception by which a policy ended the run, also inside an exception group."""
    waiting = [error]
    while waiting:
        found = waiting.pop()
        if is_a(found, (RunStopped, CallBlocked)):
            return cast("RunStopped | CallBlocked", found)
        if is_a(found, BaseExceptionGroup):
            waiting.extend(reversed(_inside(found)))
    return None


_inside: Final = BaseExceptionGroup.__dict__["exceptions"].__get__
"""Reads the exceptions of a group, even if a subclass overrides the attribute."""

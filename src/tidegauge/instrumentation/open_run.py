"""A run as decorators and context managers hold it: its steps, with a span for each call."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias, cast

from opentelemetry.trace import INVALID_SPAN, Span

from tidegauge._canonical import class_name
from tidegauge._critical import defer, here, interrupted, reset_after_fork
from tidegauge._guard import arrived_from_outside, guarded
from tidegauge.errors import CallBlocked, RunStopped
from tidegauge.events import ABSENT, GO_ON, CallResult, Decision, Outcome, RunStarted, Step
from tidegauge.instrumentation.current import Current, CurrentRun, get_recorder
from tidegauge.instrumentation.recorder import RecordedRun
from tidegauge.instrumentation.values import failure_text, is_a, truth

__all__ = ["Failure", "OpenRun", "Told"]

Failure: TypeAlias = bool | BaseException | None
"""Whether a call failed (``None``, not known), or the exception with which it did."""

Told: TypeAlias = tuple[object, Failure]
"""What one call brought back, and whether it failed."""

_MAX_OPEN_STEPS: Final = 1_000


class OpenRun:
    """One run from its start to its end, current while its body runs.

    Every method is safe to call from several threads. Before :meth:`start`, after :meth:`end` and
    where the run could not be opened, steps are taken by nobody.

    Args:
        event: what is known of the run.

    Attributes:
        closed: whether it has ended, or is one of the process that this one was forked from.
    """

    def __init__(self, event: RunStarted) -> None:
        self.event = event
        self.success: bool | None = None
        self.reason: str | None = None
        self._recorded: RecordedRun | None = None
        self.closed = False
        self._decision: Decision = GO_ON  # once it is closed
        self._current: Current | None = None
        self._lock = threading.Lock()  # of the two collections below
        self._tools: OrderedDict[int, list[Span]] = OrderedDict()
        self._blocked: OrderedDict[int, None] = OrderedDict()  # steps not run: nothing to observe
        self._last_step = -1
        self._faults = 0

    @property
    def id(self) -> str:
        """The run's id."""
        return self.event.run

    @property
    def recorded(self) -> RecordedRun | None:
        """What the run is reported to; ``None`` while it is not open."""
        return self._recorded

    @property
    def decision(self) -> Decision:
        """The last decision that was not to go on; one to stop stays."""
        recorded = self._recorded
        return self._decision if recorded is None else recorded.decision

    @guarded("run.open", default=None)
    def start(self) -> None:
        """Open the run; it is not the current one yet."""
        recorded = self._recorded = get_recorder().start_run(self.event)
        reset_after_fork(self)
        self.event = recorded.event
        context = recorded.context if recorded.span.is_recording() else None
        self._current = Current(CurrentRun(self), context)

    def _reset_after_fork(self) -> None:
        # The run of the parent is not one of the child's.
        self._recorded, self.closed = None, True
        self._lock = threading.Lock()

    def enter(self) -> None:
        """Continue the run's body: the run is the current one, even if it could not be opened."""
        if self._current is None:
            self._current = Current(CurrentRun(self), None)
        self._current.__enter__()

    def leave(self) -> None:
        """The run's body pauses, or is done: the run is no longer the current one."""
        if self._current is not None:
            self._current.__exit__()

    def issue(
        self, step: Step, call_ids: Sequence[str | None] = (None,), *, enforce: bool = True
    ) -> tuple[Decision, int]:
        """Report an issued step; its index is what it is observed by.

        Args:
            step: the step.
            call_ids: the model's ids of its calls.
            enforce: whether a stop is raised here; else it is at the next step.

        Raises:
            RunStopped: the policy stops the run; the calls are not to be run.
        """
        recorded = self._recorded
        if recorded is None:
            return GO_ON, -1
        issued = recorded.steps
        decision = recorded.issue(step)
        if decision.signals is not None:
            index = decision.signals.step
        elif recorded.steps > issued:
            index = issued
        else:  # a fault of ours: the step has its spans and no index
            self._faults += 1
            index = -self._faults
        self._last_step = index
        if enforce and recorded.decision.stop:
            recorded.enforce()
        if decision.block:
            with here.critical, self._lock:
                self._blocked[index] = None
                if len(self._blocked) > _MAX_OPEN_STEPS:
                    self._blocked.popitem(last=False)
        elif recorded.calls_wanted:
            self._start_tools(recorded, index, step, call_ids, decision)
        return decision, index

    def observe(
        self,
        returned: Sequence[Told],
        outcome: Outcome,
        *,
        enforce: bool = True,
        ended: int | None = None,
    ) -> Decision:
        """Report what the calls of a step brought back.

        Args:
            returned: results and errors, one for each call, in their order.
            outcome: everything else; without a step's index it is of the step issued last.
            enforce: whether a stop is raised here; else it is at the next step.
            ended: when the calls ended, in nanoseconds since the epoch; ``None``, now.

        Raises:
            RunStopped: the policy stops the run.
        """
        recorded = self._recorded
        index = self._last_step if outcome.step is None else outcome.step
        if recorded is None or index in self._blocked:
            return GO_ON
        ends: list[Told] = []
        for one in returned:
            result, error = _as_outcome(*one)
            ends.append((result, error))
        if self._tools:
            self._end_tools(recorded, index, ends, ended)
        if index < 0:
            return GO_ON
        results: list[CallResult] = []
        for result, error in ends:
            failed = _failed(error)
            results.append(CallResult(result, failed))
        # All other fields as they are, and sooner than _replace() does it.
        decision = recorded.observe(Outcome(outcome.run, tuple(results), index, *outcome[3:]))
        if enforce and recorded.decision.stop:
            recorded.enforce()
        return decision

    def abandon(self, index: int) -> None:
        """The step's calls were cancelled: nobody will know what they would have brought."""
        if self._recorded is not None:
            self._end_tools(self._recorded, index, [])

    def tool_span(self, index: int) -> Span:
        """The open span of a step's first call; an invalid one when there is none."""
        spans = self._tools.get(index)
        return spans[0] if spans else INVALID_SPAN

    def end(self, error: BaseException | None) -> None:
        """Close the run, with the exception that ended it; a second call does nothing.

        A run that ends because its generator is closed may be ended by the collector, in the
        middle of anything: that is reported with the next ordinary call.
        """
        if type(error) is GeneratorExit and not interrupted():
            defer(partial(self._end, error))
        else:
            self._end(error)

    @guarded("run.close", default=None)
    def _end(self, error: BaseException | None) -> None:
        if self._current is not None:
            self._current.forget()
        if self.event.task is not None:  # a context that was copied may keep the run for long
            self.event = replace(self.event, task=None)
        recorded, self._recorded = self._recorded, None
        self._current, self.closed = None, True
        if recorded is None:
            return
        try:
            self._report_end(recorded, error)
        except BaseException as arrived:
            if arrived_from_outside(arrived):
                defer(partial(self._report_end, recorded, error))
            raise

    @guarded("run.close", default=None)
    def _report_end(self, recorded: RecordedRun, error: BaseException | None) -> None:
        self._decision = recorded.decision
        for index in list(self._tools):
            self._end_tools(recorded, index, [])
        deliberate = _deliberate(error)
        if isinstance(deliberate, RunStopped):
            recorded.end(outcome="stopped", reason=deliberate.reason)
        elif deliberate is not None:  # a blocked call that the agent has not taken for an answer
            recorded.end(outcome="stopped", reason=recorded.decision.reason)
        elif error is None or not is_a(error, Exception):  # None, or cancelled, interrupted
            success = self.success if error is None else None
            recorded.end(success=success, reason=self.reason)
        else:
            recorded.end(
                success=self.success, outcome="error", reason=class_name(type(error)), error=error
            )

    def _start_tools(
        self,
        recorded: RecordedRun,
        index: int,
        step: Step,
        call_ids: Sequence[str | None],
        decision: Decision,
    ) -> None:
        spans = [
            recorded.start_tool(
                call.action, call_id=call_id, signals=decision.signals, arguments=call.arguments
            )
            for call, call_id in zip(step.calls, call_ids, strict=False)
        ]
        with here.critical, self._lock:
            self._tools[index] = spans
            surplus = next(iter(self._tools)) if len(self._tools) > _MAX_OPEN_STEPS else None
        if surplus is not None:
            self._end_tools(recorded, surplus, [])

    def _end_tools(
        self, recorded: RecordedRun, index: int, returned: Sequence[Told], ended: int | None = None
    ) -> None:
        with here.critical, self._lock:
            spans = self._tools.pop(index, ())
        for number, span in enumerate(spans):
            result, error = returned[number] if number < len(returned) else (ABSENT, None)
            failure: BaseException | str | None = None
            if is_a(error, BaseException):
                failure = cast("BaseException", error)
            elif error is True:
                failure = "tool_error"
            recorded.end_tool(span, result=result, error=failure, ended=ended)


def _as_outcome(outcome: object, error: Failure) -> Told:
    """An exception without an outcome is the outcome, by what it says."""
    if outcome is ABSENT and is_a(error, BaseException):
        return failure_text(cast("BaseException", error)), error
    return outcome, error


def _deliberate(error: BaseException | None) -> RunStopped | CallBlocked | None:
    """The exception by which a policy ended the run: itself, or in a task group's exception."""
    waiting = [error]
    while waiting:
        found = waiting.pop()
        if is_a(found, (RunStopped, CallBlocked)):
            return cast("RunStopped | CallBlocked", found)
        if is_a(found, BaseExceptionGroup):
            waiting.extend(reversed(_inside(found)))
    return None


_inside: Final = BaseExceptionGroup.__dict__["exceptions"].__get__
"""The exceptions of a group, whatever its class makes of the name."""


def _failed(error: Failure) -> bool | None:
    return truth(error)

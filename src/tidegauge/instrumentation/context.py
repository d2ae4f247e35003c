"""A run as a context manager: for agents that report their own steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextvars import Token
from types import TracebackType
from typing import Final, Self, TypeAlias

from opentelemetry import context as otel_context
from opentelemetry.trace import INVALID_SPAN, Span

from tidegauge._guard import guarded
from tidegauge.errors import RunStopped
from tidegauge.events import (
    ABSENT,
    GO_ON,
    Call,
    CallResult,
    Decision,
    Identity,
    Outcome,
    Reach,
    RunStarted,
    Step,
    Task,
)
from tidegauge.instrumentation.current import (
    CurrentRun,
    current_run,
    get_recorder,
    undo,
)
from tidegauge.instrumentation.recorder import RecordedRun, new_run_id

__all__ = ["Run", "run"]

Failure: TypeAlias = bool | BaseException | None
"""Whether a call failed (``None``, not known), or the exception with which it did."""

_MAX_OPEN_STEPS: Final = 1_000


class Run:
    """One run, from ``with tidegauge.run(...) as run:`` to its end.

    Report every step twice: :meth:`act` before the action is run, :meth:`observe` when its
    result is there. Both raise :class:`~tidegauge.RunStopped` when the policy stops the run and
    return the decision otherwise; nothing else of ours is ever raised.

    >>> import tidegauge
    >>> with tidegauge.run(agent="counter", task="count to two") as run:
    ...     for number in (1, 2):
    ...         _ = run.act("say", {"number": number})
    ...         _ = run.observe(f"said {number}")
    ...     run.finish(success=True)
    """

    def __init__(self, event: RunStarted) -> None:
        self._event = event
        self._recorded: RecordedRun | None = None
        self._tools: dict[int, list[Span]] = {}
        self._last_step = -1
        self._faults = 0
        self._success: bool | None = None
        self._reason: str | None = None
        self._run_token: Token[CurrentRun | None] | None = None
        self._span_token: Token[otel_context.Context] | None = None

    @property
    def id(self) -> str:
        """The run's id."""
        return self._event.run

    @property
    def trace_id(self) -> str | None:
        """Trace of the run, when spans are recorded."""
        return self._recorded.event.trace_id if self._recorded else None

    @guarded("run.act", default=GO_ON)
    def act(
        self,
        action: str,
        arguments: object = None,
        *,
        state: object = ABSENT,
        tokens: float | None = None,
        entropy: float | None = None,
        uses: Iterable[Identity] = (),
        mentions: Iterable[Identity] = (),
        call_id: str | None = None,
    ) -> Decision:
        """Report one issued call, before it is run.

        Args:
            action: the tool's name.
            arguments: its arguments: anything JSON has a form for.
            state: what the agent saw before it chose; left out, the previous outcome.
            tokens: tokens spent on choosing.
            entropy: entropy of the choice, nats per token.
            uses: entities that the action uses.
            mentions: entities that occur in the state.
            call_id: the model's id of the call.

        Raises:
            RunStopped: the policy stops the run; the action is not to be run.
        """
        step = Step(
            self.id,
            (Call(action, arguments),),
            state,
            tokens,
            entropy,
            tuple(uses),
            tuple(mentions),
        )
        return self._act(step, (call_id,))[0]

    @guarded("run.act", default=GO_ON)
    def act_round(
        self,
        calls: Iterable[tuple[str, object]],
        *,
        state: object = ABSENT,
        tokens: float | None = None,
        entropy: float | None = None,
        uses: Iterable[Identity] = (),
        mentions: Iterable[Identity] = (),
        call_ids: Iterable[str | None] = (),
    ) -> Decision:
        """Report several calls chosen in one turn: one action, whatever their order.

        Args:
            calls: (tool's name, arguments) of each call; the rest is as for :meth:`act`.

        Raises:
            RunStopped: the policy stops the run; none of the calls is to be run.
        """
        step = Step(
            self.id,
            tuple([Call(*call) for call in calls]),
            state,
            tokens,
            entropy,
            tuple(uses),
            tuple(mentions),
        )
        return self._act(step, (*call_ids, *[None] * len(step.calls)))[0]

    def observe(
        self,
        outcome: object = ABSENT,
        *,
        error: Failure = False,
        step: int | None = None,
        place: Identity | None = None,
        exits: Iterable[Identity] | None = None,
        tasks: Iterable[Task] = (),
        achieved: Iterable[Identity] = (),
        progress: float | None = None,
        tokens: float | None = None,
        seconds: float | None = None,
    ) -> Decision:
        """Report what a call brought back.

        Args:
            outcome: the result, or what the agent was told of the failure.
            error: whether it failed (``None``, not known), or the exception itself.
            step: index of the step, when several wait; left out, the last one.
            place: where the agent stands now.
            exits: places that can be reached from there.
            tasks: tasks found there.
            achieved: tasks that the step achieved.
            progress: how much of the task is done, 0 to 1.
            tokens: tokens spent on the step beyond those of the choice.
            seconds: how long it took; left out, the time since :meth:`act`.

        Raises:
            RunStopped: the policy stops the run.
        """
        return self.observe_round(
            [(outcome, error)],
            step=step,
            place=place,
            exits=exits,
            tasks=tasks,
            achieved=achieved,
            progress=progress,
            tokens=tokens,
            seconds=seconds,
        )

    @guarded("run.observe", default=GO_ON)
    def observe_round(
        self,
        results: Iterable[tuple[object, Failure]],
        *,
        step: int | None = None,
        place: Identity | None = None,
        exits: Iterable[Identity] | None = None,
        tasks: Iterable[Task] = (),
        achieved: Iterable[Identity] = (),
        progress: float | None = None,
        tokens: float | None = None,
        seconds: float | None = None,
    ) -> Decision:
        """Report what the calls of a round brought back, in the order of :meth:`act_round`.

        Args:
            results: (outcome, error) of each call; the rest is as for :meth:`observe`.

        Raises:
            RunStopped: the policy stops the run.
        """
        recorded = self._recorded
        if recorded is None:
            return GO_ON
        told = [_told(outcome, error) for outcome, error in results]
        index = self._last_step if step is None else step
        if self._tools:
            self._end_tools(recorded, index, told)
        if index < 0:
            return GO_ON
        decision = recorded.observe(
            Outcome(
                self.id,
                tuple([CallResult(outcome, _failed(error)) for outcome, error in told]),
                index,
                place,
                None if exits is None else tuple(exits),
                tuple(tasks),
                tuple(achieved),
                progress,
                tokens,
                seconds,
            )
        )
        if recorded.decision.stop:
            recorded.enforce()
        return decision

    def finish(self, *, success: bool | None = None, reason: str | None = None) -> None:
        """Say how the run ended; it is reported when the ``with`` block is left."""
        self._success = success
        self._reason = reason

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close(error)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._close(error)

    @guarded("run.open", default=None)
    def _open(self) -> None:
        self._recorded = get_recorder().start_run(self._event)
        self._run_token = current_run.set(CurrentRun(self, in_tool=False))
        if self._recorded.context is not None and self._recorded.span.is_recording():
            self._span_token = otel_context.attach(self._recorded.context)

    @guarded("run.close", default=None)
    def _close(self, error: BaseException | None) -> None:
        recorded, self._recorded = self._recorded, None
        undo(self._span_token)
        undo(self._run_token)
        self._span_token = self._run_token = None
        if recorded is None:
            return
        for index in list(self._tools):
            self._end_tools(recorded, index, [])
        if isinstance(error, RunStopped):
            recorded.end(outcome="stopped", reason=error.reason)
        elif error is None or not isinstance(error, Exception):  # None, or cancelled, interrupted
            success = self._success if error is None else None
            recorded.end(success=success, reason=self._reason)
        else:
            recorded.end(
                success=self._success, outcome="error", reason=type(error).__name__, error=error
            )

    def tool_span(self, step: int) -> Span:
        """The open span of a step's only call; an invalid one when there is none."""
        spans = self._tools.get(step)
        return spans[0] if spans else INVALID_SPAN

    def issue_call(self, action: str, arguments: object) -> int:
        """As :meth:`act` of one call; gives the step's index, to observe it by.

        Raises:
            RunStopped: the policy stops the run; the action is not to be run.
        """
        return self._act(Step(self.id, (Call(action, arguments),)), (None,))[1]

    def abandon(self, step: int) -> None:
        """The step's calls were cancelled: nobody will know what they would have brought."""
        if self._recorded is not None:
            self._end_tools(self._recorded, step, [])

    def _act(self, step: Step, call_ids: Sequence[str | None]) -> tuple[Decision, int]:
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
        if recorded.decision.stop:
            recorded.enforce()
        if recorded.span.is_recording():
            self._tools[index] = [
                recorded.start_tool(
                    call.action, call_id=call_id, signals=decision.signals, arguments=call.arguments
                )
                for call, call_id in zip(step.calls, call_ids, strict=False)
            ]
            if len(self._tools) > _MAX_OPEN_STEPS:
                self._end_tools(recorded, next(iter(self._tools)), [])
        return decision, index

    def _end_tools(
        self, recorded: RecordedRun, index: int, results: Sequence[tuple[object, Failure]]
    ) -> None:
        for number, span in enumerate(self._tools.pop(index, ())):
            outcome, error = results[number] if number < len(results) else (None, None)
            told = error if isinstance(error, BaseException) else "tool_error" if error else None
            recorded.end_tool(span, result=outcome, error=told)


def run(
    *,
    agent: str = "",
    task: str | None = None,
    task_group: str = "",
    t_max: int | None = None,
    model: str | None = None,
    memory: str | None = None,
    operations: int | None = None,
    height: int | None = None,
    place: Identity | None = None,
    exits: Iterable[Identity] | None = None,
    tasks: Iterable[Task] = (),
    goal: Identity | None = None,
    reach: Reach = "adjacent",
    conversation: str | None = None,
    run_id: str | None = None,
) -> Run:
    """Open a run: one attempt of one agent at one task. Use it in a ``with`` statement.

    Args:
        agent: name of the agent; a label of its metrics.
        task: the task, as text or id: what the agent sees first.
        task_group: family of tasks whose runs are compared; a label of its metrics.
        t_max: turns within which a solved task counts towards AUV.
        model: name of the model that decides.
        memory: arm of a memory experiment, such as ``"on"`` and ``"off"``.
        operations: how many operations the task needs.
        height: height of the task's dependency tree.
        place: where the agent stands at the start.
        exits: places that can be reached from there.
        tasks: tasks found there.
        goal: id of the task that is the goal.
        reach: whether it moves to neighbouring places only, or to any place it knows.
        conversation: id of the conversation or thread that the run belongs to.
        run_id: the run's id; left out, a new one.
    """
    outer = current_run.get()
    return Run(
        RunStarted(
            run=run_id or new_run_id(),
            agent=agent,
            task=task,
            task_group=task_group,
            t_max=t_max,
            model=model,
            memory=memory,
            operations=operations,
            height=height,
            place=place,
            exits=None if exits is None else tuple(exits),
            tasks=tuple(tasks),
            goal=goal,
            reach=reach,
            parent=outer.run.id if outer else None,
            conversation=conversation,
        )
    )


def _told(outcome: object, error: Failure) -> tuple[object, Failure]:
    """An exception without an outcome is the outcome, by what it says."""
    if outcome is ABSENT and isinstance(error, BaseException):
        return f"{type(error).__name__}: {error}", error
    return outcome, error


def _failed(error: Failure) -> bool | None:
    return True if isinstance(error, BaseException) else error

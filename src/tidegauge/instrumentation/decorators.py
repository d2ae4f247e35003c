"""``@tidegauge.agent`` and ``@tidegauge.tool``, on functions of every kind."""

from __future__ import annotations

import functools
import inspect
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, Final, ParamSpec, TypeAlias, TypeVar, cast, overload

from opentelemetry import trace

from tidegauge.errors import CallBlocked, ConfigurationError
from tidegauge.events import ABSENT, Call, Decision, Outcome, Step, ToolDeclaration, made
from tidegauge.runs.bodies import Begin, CallScope, Replacement, wrap
from tidegauge.runs.context import run
from tidegauge.runs.open_run import (
    Current,
    CurrentRun,
    OpenRun,
    Returned,
    find_current_run,
    next_order,
)
from tidegauge.runs.turn_calls import Turn
from tidegauge.safety.critical import defer, here
from tidegauge.safety.guard import guarded, internal_errors, passes
from tidegauge.values.safe_reading import is_a

P = ParamSpec("P")
R = TypeVar("R")
Success: TypeAlias = Callable[[Any], bool | None]
OnBlock: TypeAlias = Callable[[Decision], Any]

_new: Final[Callable[[type[CurrentRun]], CurrentRun]] = object.__new__
_OWN: Final = ""
"""Placeholder for the name of a method's own object."""

internal_errors.overflows.setdefault("tool.issue", 0)


@overload
def agent(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def agent(
    *,
    name: str | None = None,
    task_group: str = "",
    t_max: int | None = None,
    model: str | None = None,
    memory: str | None = None,
    success: Success | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def agent(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    task_group: str = "",
    t_max: int | None = None,
    model: str | None = None,
    memory: str | None = None,
    success: Success | None = None,
) -> Any:
    """Make every call of a function a run.

    The task is the call's first argument that is text. The run ends when the function returns; an
    exception makes its outcome ``error``. A generator's run begins with its first item and ends
    when it is exhausted or closed; it is the current run only while the generator's body runs.

    Args:
        function: the agent: sync, async, a generator or an async generator.
        name: its name; left out, the function's.
        task_group: family of tasks whose runs are compared.
        t_max: turns within which a solved task counts towards AUV.
        model: name of the model that decides.
        memory: arm of a memory experiment.
        success: takes the returned value (of a generator that returns nothing, the list of its
            items) and says whether the task was solved; left out, that is not known, and the run
            counts in no success rate.

    Raises:
        ConfigurationError: a class is decorated (decorate its methods), or a non-function (a
            property, a ``partialmethod``).

    >>> import tidegauge
    >>> @tidegauge.agent(success=lambda answer: answer == 4)
    ... def solve(task):
    ...     return add(*map(int, task.split("+")))
    >>> @tidegauge.tool
    ... def add(left, right):
    ...     return left + right
    >>> solve("2+2")
    4
    """

    def decorate(function: Any) -> Any:
        label = name or _name_of(function)

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallScope | None:
            try:
                opened = run(
                    agent=label,
                    task=_first_text(args, kwargs),
                    task_group=task_group,
                    t_max=t_max,
                    model=model,
                    memory=memory,
                )
                return _AgentCall(opened._open, success)
            except RecursionError:  # the stack is full: there may be room for the agent
                internal_errors.overflows["run.open"] += 1
                return None

        return _decorated(function, begin)

    return decorate if function is None else decorate(function)


@overload
def tool(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    poll: bool | int | timedelta = False,
    key: Callable[[Any], object] | None = None,
    mutates: bool = False,
    on_block: OnBlock | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str | None = None,
    poll: bool | int | timedelta = False,
    key: Callable[[Any], object] | None = None,
    mutates: bool = False,
    on_block: OnBlock | None = None,
) -> Any:
    """Make every call of a function inside a run a step of that run.

    Outside of a run, and inside another tool, the function is called normally. An exception is
    a failed result and propagates to the caller. A generator's result is what it returns, else
    the list of its items; its step begins with its first item.

    ``poll``, ``key`` and ``mutates`` declare what is known of the tool beforehand: see
    :class:`~tidegauge.ToolDeclaration`.

    Args:
        function: the tool: sync, async, a generator or an async generator.
        name: its name; left out, the function's.
        poll: whether it waits for something to change, and how long it may: ``True``, a number
            of steps or a ``timedelta``.
        key: takes the call's arguments, a dictionary by name, and gives what is compared in
            their place.
        mutates: whether a call that succeeds has changed something.
        on_block: takes the decision and returns the answer to a call that the policy
            blocks, which is not run; left out, :class:`~tidegauge.CallBlocked` is raised.

    Raises:
        ConfigurationError: a class is decorated (decorate its methods), or a non-function (a
            property, a ``partialmethod``).

    >>> import tidegauge
    >>> @tidegauge.tool(poll=True, key=lambda arguments: arguments["job"])
    ... def state_of(job, request_id):
    ...     return "running"
    >>> with tidegauge.run(agent="waiter"):
    ...     state_of("build", request_id=7)
    'running'
    """
    declared = None
    if poll or key is not None or mutates:
        declared = ToolDeclaration(poll=poll, key=key, mutates=mutates)

    def decorate(function: Any) -> Any:
        label = name or _name_of(function)
        names = _parameter_names(function)

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallScope | Replacement | None:
            try:
                current = find_current_run()
                if current is None or current.call is not None:
                    return None
                if kwargs or len(args) > len(names):
                    arguments = _arguments(names, args, kwargs)
                else:
                    arguments = dict(zip(names, args, strict=False))
                    arguments.pop(_OWN, None)
                call = made(Call, (label, arguments, declared))
                if here.__dict__["critical"]._is_owned():
                    return _InterruptingCall(current, call)
                opened = current.run
                fields = (opened.event.run, (call,), ABSENT, None, None, (), (), None, True, None)
                decision, turn = opened.issue(made(Step, fields))
                if decision.action != "block":
                    return _ToolCall(current, turn)
            except RecursionError:  # the stack is full: there may be room for the tool
                internal_errors.overflows["tool.issue"] += 1
                return None
            except Exception as fault:
                if passes("tool.issue", fault):
                    raise
                return None
            if on_block is not None:
                return Replacement(on_block(decision))
            raise CallBlocked(label, advice=decision.advice or decision.message or "")

        return _decorated(function, begin)

    return decorate if function is None else decorate(function)


def _first_text(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    for value in (*args, *kwargs.values()):
        if is_a(value, str):
            return cast("str", value)
    return None


def _decorated(function: Any, begin: Begin) -> Any:
    if isinstance(function, staticmethod | classmethod):
        return type(function)(_decorated(function.__func__, begin))
    if inspect.isclass(function):
        raise ConfigurationError(f"{function.__name__} is a class; decorate its methods instead")
    if not callable(function):
        kind = type(function).__name__
        raise ConfigurationError(f"{kind} is not a function; decorate the function inside it")
    return wrap(function, begin)


def _name_of(function: Any) -> str:
    """A function's own name; of a partial, its function's; of a callable object, its class's."""
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__name__", type(function).__name__))


def _parameter_names(function: Any) -> tuple[str, ...]:
    """The names of the parameters that may be given by position; a method's own object has none."""
    of_class = isinstance(function, classmethod)
    if isinstance(function, staticmethod | classmethod):
        function = function.__func__
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [parameter.name for parameter in parameters if parameter.kind in positional]
    if names and (of_class or (names[0] in ("self", "cls") and _is_defined_in_class(function))):
        names[0] = _OWN
    return tuple(names)


def _is_defined_in_class(function: Any) -> bool:
    around = str(getattr(function, "__qualname__", "")).rpartition(".")[0]
    return bool(around) and not around.endswith("<locals>") and not inspect.ismethod(function)


@guarded("tool.arguments", default=None, interrupting="run")
def _arguments(names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call's arguments by name; a method's own object is none of them."""
    arguments = dict(zip(names, args, strict=False))
    arguments.pop(_OWN, None)
    if len(args) > len(names):
        arguments["*"] = args[len(names) :]
    if not kwargs:
        return arguments
    if arguments.keys().isdisjoint(kwargs):
        arguments.update(kwargs)
    else:  # one that can be given by position alone, and another of its name
        arguments["**"] = dict(kwargs)
    return arguments


class _AgentCall:
    """One call of an agent as a run."""

    __slots__ = ("__weakref__", "_begun", "_run", "_success")

    def __init__(self, opened: OpenRun, success: Success | None) -> None:
        self._run = opened
        self._success = success
        self._begun = False

    def __enter__(self) -> None:
        if not self._begun:
            self._begun = True
            self._run.watch(self)
            self._run.start()
        self._run.enter()

    def __exit__(self, *raised: object) -> None:
        self._run.leave()

    def end(self, result: object = ABSENT, error: BaseException | None = None) -> None:
        if error is None and result is not ABSENT:
            self._report_success(result)
            self._run.answered(result)
        self._run.end(error)

    end_quietly = end

    @guarded("agent.finish", default=None, interrupting="run")
    def _report_success(self, answer: object) -> None:
        if self._success is not None:
            self._run.success = self._success(answer)


class _ToolCall(Current):
    """One call of a tool as a step that was issued: observed when it ends."""

    __slots__ = ("_began", "_opened", "ended", "turn")

    def __init__(self, around: CurrentRun, turn: Turn | None) -> None:
        context = None
        if turn is not None and turn.calls and turn.calls[0].span.is_recording():
            context = trace.set_span_in_context(turn.calls[0].span)
        # As the __init__ of both classes, in one call of the many of a step.
        current = _new(CurrentRun)
        current.run, current.call, current.around = around.run, self, around
        current.order = next_order()
        self._run = self._made = current
        self._context, self._entered = context, False
        self._run_token = self._context_token = self._before = None
        self._opened = around.run
        self.turn = turn
        self._began = time.monotonic()
        self.ended = False

    def end(self, result: object = ABSENT, error: BaseException | None = None) -> None:
        """Report what the call returned.

        A generator that is closed may be closed by the collector, in the middle of anything: that
        is reported with the next ordinary call.

        Raises:
            RunStopped: the policy stops the run.
        """
        before, self.ended = self.ended, True
        if before:
            return
        if type(error) is GeneratorExit:
            self._end_later(result, error)
        else:
            self._end(result, error, True)

    def end_quietly(self, result: object = ABSENT, error: BaseException | None = None) -> None:
        """The same where no exception can be raised; a stop is raised at the next step."""
        before, self.ended = self.ended, True
        if before:
            return
        if type(error) is GeneratorExit:
            self._end_later(result, error)
        else:
            self._end(result, error, False)

    def _end_later(self, result: object, error: BaseException) -> None:
        seconds, now = time.monotonic() - self._began, time.time_ns()
        defer(partial(self._end, result, error, False, seconds, now))

    @guarded("tool.end", default=None)
    def _end(
        self,
        result: object,
        error: BaseException | None,
        enforce: bool,
        seconds: float | None = None,
        ended: int | None = None,
    ) -> None:
        opened, turn = self._opened, self.turn
        if turn is None:  # the run was not open
            return
        report: list[Returned]
        if error is None:
            report = [(result, None if result is ABSENT else False)]
        elif is_a(error, Exception):
            report = [(ABSENT, error)]
        elif is_a(error, GeneratorExit) and result is not ABSENT:
            report = [(result, False)]  # its consumer had enough
        else:  # cancelled, interrupted
            opened.abandon(turn)
            return
        run = opened.event.run
        fields = (run, (), None, None, None, (), (), None, None, seconds, None, False)
        outcome = made(Outcome, fields)
        opened.observe(report, outcome, turn, enforce=enforce, ended=ended)


class _InterruptingCall(Current):
    """A call of a tool by a finaliser or a signal handler that interrupts a critical section.

    It is a step as a whole, reported with the next ordinary call: nothing can be decided now.
    """

    __slots__ = ("_began", "_call", "_opened", "ended")
    turn = None

    def __init__(self, around: CurrentRun, call: Call) -> None:
        super().__init__(CurrentRun(around.run, self, around), None)
        self._opened = around.run
        self._call = call
        self._began = time.monotonic()
        self.ended = False

    def end(self, result: object = ABSENT, error: BaseException | None = None) -> None:
        """Report the call and what it returned, later."""
        self.ended = True
        seconds = time.monotonic() - self._began
        defer(partial(_report_call, self._opened, self._call, result, error, seconds))

    end_quietly = end


@guarded("tool.end", default=None)
def _report_call(
    opened: OpenRun, call: Call, result: object, error: BaseException | None, seconds: float
) -> None:
    _, turn = opened.issue(Step(opened.id, (call,)), enforce=False)
    failure = error if is_a(error, Exception) else None if result is ABSENT else False
    opened.observe(
        [(result, failure)], Outcome(opened.id, (), seconds=seconds), turn, enforce=False
    )

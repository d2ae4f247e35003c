"""``@tidegauge.agent`` and ``@tidegauge.tool``, on sync and async functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextvars import Token
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, cast, overload

from opentelemetry import context as otel_context
from opentelemetry import trace

from tidegauge._guard import guarded
from tidegauge.errors import ConfigurationError
from tidegauge.instrumentation.context import Run, run
from tidegauge.instrumentation.current import CurrentRun, current_run, undo

__all__ = ["agent", "tool"]

P = ParamSpec("P")
R = TypeVar("R")
Success = Callable[[Any], bool | None]


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

    The task is the call's first argument that is text. The run ends when the function returns;
    an exception makes its outcome ``error``.

    Args:
        function: the agent, sync or async.
        name: its name; left out, the function's.
        task_group: family of tasks whose runs are compared.
        t_max: turns within which a solved task counts towards AUV.
        model: name of the model that decides.
        memory: arm of a memory experiment.
        success: tells from the returned value whether the task was solved; left out, nobody
            knows, and the run counts in no success rate.

    Raises:
        ConfigurationError: the function is a generator; use ``with tidegauge.run(...)`` inside.

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

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        _refuse_generators(function, "agent")
        label = name or _name_of(function)

        def open_run(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Run:
            texts = (value for value in (*args, *kwargs.values()) if isinstance(value, str))
            return run(
                agent=label,
                task=next(texts, None),
                task_group=task_group,
                t_max=t_max,
                model=model,
                memory=memory,
            )

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def async_wrapper(*args: P.args, **kwargs: P.kwargs) -> Any:
                with open_run(args, kwargs) as opened:
                    answer = await function(*args, **kwargs)
                    _finish(opened, success, answer)
                return answer

            return cast("Callable[P, R]", async_wrapper)

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            with open_run(args, kwargs) as opened:
                answer = function(*args, **kwargs)
                _finish(opened, success, answer)
            return answer

        return wrapper

    return decorate if function is None else decorate(function)


@overload
def tool(function: Callable[P, R], /) -> Callable[P, R]: ...
@overload
def tool(*, name: str | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def tool(function: Callable[P, R] | None = None, /, *, name: str | None = None) -> Any:
    """Make every call of a function inside a run a step of that run.

    Outside of a run, and inside another tool, the function is called as it is. An exception is
    a failed outcome and goes on to the caller.

    Args:
        function: the tool, sync or async.
        name: its name; left out, the function's.

    Raises:
        ConfigurationError: the function is a generator.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        _refuse_generators(function, "tool")
        label = name or _name_of(function)
        names = _parameter_names(function)

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def async_wrapper(*args: P.args, **kwargs: P.kwargs) -> Any:
                current = current_run.get()
                if current is None or current.in_tool:
                    return await function(*args, **kwargs)
                with _ToolCall(current.run, label, _arguments(names, args, kwargs)) as call:
                    call.result = result = await function(*args, **kwargs)
                return result

            return cast("Callable[P, R]", async_wrapper)

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            current = current_run.get()
            if current is None or current.in_tool:
                return function(*args, **kwargs)
            with _ToolCall(current.run, label, _arguments(names, args, kwargs)) as call:
                call.result = result = function(*args, **kwargs)
            return result

        return wrapper

    return decorate if function is None else decorate(function)


def _refuse_generators(function: Callable[..., Any], kind: str) -> None:
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(
            f"@tidegauge.{kind} takes no generator function ({_name_of(function)}): "
            "open a run inside it with `with tidegauge.run(...)`"
        )


def _name_of(function: Callable[..., Any]) -> str:
    """A function's own name; a callable object goes by its class."""
    return str(getattr(function, "__name__", type(function).__name__))


def _parameter_names(function: Callable[..., Any]) -> tuple[str, ...]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(parameter.name for parameter in parameters if parameter.kind in positional)


@guarded("tool.arguments", default=None)
def _arguments(names: tuple[str, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call's arguments by name; a method's own object is none of them."""
    arguments = dict(zip(names, args, strict=False))
    if names and names[0] in ("self", "cls"):
        arguments.pop(names[0], None)
    if len(args) > len(names):
        arguments["*"] = args[len(names) :]
    arguments.update(kwargs)
    return arguments


@guarded("agent.finish", default=None)
def _finish(opened: Run, success: Success | None, answer: object) -> None:
    if success is not None:
        opened.finish(success=success(answer))


class _ToolCall:
    """One call of a tool as a step: issued before it, observed after it.

    Raises:
        RunStopped: the policy stops the run, before the tool is called or after it.
    """

    __slots__ = ("_run", "_run_token", "_span_token", "_step", "result")

    def __init__(self, opened: Run, name: str, arguments: object) -> None:
        self.result: object = None
        self._run = opened
        self._step = opened.issue_call(name, arguments)
        self._run_token: Token[CurrentRun | None] | None = None
        self._span_token: Token[otel_context.Context] | None = None

    def __enter__(self) -> Self:
        self._run_token = current_run.set(CurrentRun(self._run, in_tool=True))
        self._make_current()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        undo(self._span_token)
        undo(self._run_token)
        if error is None:
            self._run.observe(self.result, step=self._step)
        elif isinstance(error, Exception):
            self._run.observe(error=error, step=self._step)
        else:
            self._run.abandon(self._step)

    @guarded("tool.make_current", default=None)
    def _make_current(self) -> None:
        """Let the spans that the tool opens hang on its own."""
        span = self._run.tool_span(self._step)
        if span.is_recording():
            self._span_token = otel_context.attach(trace.set_span_in_context(span))

"""Which recorder is in use, and which run the caller is in."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import ContextVar, Token, copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar

from opentelemetry import context as otel_context

from tidegauge._critical import here, interrupted
from tidegauge._guard import guarded
from tidegauge.instrumentation.recorder import Recorder

if TYPE_CHECKING:
    from tidegauge.instrumentation.open_run import OpenRun

__all__ = [
    "Current",
    "CurrentRun",
    "current_run",
    "find_current_run",
    "get_recorder",
    "propagate",
    "set_recorder",
    "set_recorder_factory",
]

P = ParamSpec("P")
R = TypeVar("R")


class CurrentRun:
    """The run that the caller is in, and the call of one of its tools, if it is inside one.

    Attributes:
        run: the run.
        call: the call; ``None``, the caller is in no tool.
        around: where it was opened, if that was not over by then. What is around was there before:
            they form no cycle, in whichever context a generator goes on.
    """

    __slots__ = ("around", "call", "run")

    def __init__(self, run: OpenRun, call: Ending | None = None) -> None:
        self.run = run
        self.call = call
        self.around = find_current_run()

    @property
    def in_tool(self) -> bool:
        """Whether the caller is inside a tool of the run."""
        return self.call is not None

    def forget(self) -> None:
        """Keep nothing of what is over: contexts and tasks may keep this one for long."""
        self.around = _not_over(self.around)


class Ending(Protocol):
    """Something that ends."""

    ended: bool


current_run: ContextVar[CurrentRun | None] = ContextVar("tidegauge_current_run", default=None)


def find_current_run() -> CurrentRun | None:
    """Where the caller is.

    What is over and still current is passed over: an exception of a signal handler may have
    arrived before it was taken away.
    """
    return _not_over(current_run.get())


def _not_over(current: CurrentRun | None) -> CurrentRun | None:
    while current is not None:
        call = current.call
        if not current.run.closed and (call is None or not call.ended):
            return current
        current = current.around
    return None


class Current:
    """Makes a run the current one, and a span the current span, while a body runs.

    A body that pauses (a generator that yields) leaves nothing behind in its consumer's context;
    what it has made current itself meanwhile is there again when it goes on.

    Args:
        run: becomes the current one.
        context: becomes OpenTelemetry's current context; ``None``, that stays as it is.
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

    @guarded("current.enter", default=None, interrupting="run")
    def __enter__(self) -> None:
        if interrupted() and not here.apart:
            return  # nothing may be set in the context that is interrupted: see run_apart
        self._before = current_run.get()
        self._entered = True
        with here.critical:  # a collection that comes now must set nothing
            self._run_token = current_run.set(self._run)
            if self._context is not None:
                self._context_token = otel_context.attach(self._context)

    @guarded("current.leave", default=None, interrupting="run")
    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        traceback: TracebackType | None = None,
    ) -> None:
        if not self._entered:
            return
        self._run = current_run.get()
        with here.critical:
            if self._context_token is not None:
                self._context = otel_context.get_current()
                _undo(self._context_token)
            if self._run_token is not None:
                _undo(self._run_token)
            elif self._run is self._made:  # an exception arrived when it had just been set
                current_run.set(self._before)
        self._run_token = self._context_token = self._before = None
        self._entered = False

    def forget(self) -> None:
        """It is over for good."""
        self._made.forget()


def propagate(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function that is called in another thread belong to the run it is handed over in.

    Python's threads begin with an empty context, so that a tool called there belongs to no run.
    The function returned here runs, wherever and however often it is called, in a copy of the
    context of this moment. ``asyncio.to_thread`` and asyncio's tasks do that by themselves.

    >>> from concurrent.futures import ThreadPoolExecutor
    >>> import tidegauge
    >>> @tidegauge.tool
    ... def double(number):
    ...     return 2 * number
    >>> with tidegauge.run(agent="doubler"), ThreadPoolExecutor() as executor:
    ...     list(executor.map(tidegauge.propagate(double), [1, 2, 3]))
    [2, 4, 6]
    """
    context = copy_context()

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        # One context cannot be entered twice at a time: each call has a copy of its own.
        return context.copy().run(function, *args, **kwargs)

    return wrapper


def _undo(token: Token[Any]) -> None:
    """Undo the ``set`` of a context variable, OpenTelemetry's current context among them.

    A block left in another context than it was entered in (a generator closed early) has nothing
    to undo: that context is gone, and with it what was set there.
    """
    try:  # noqa: SIM105 -- on the step path
        token.var.reset(token)
    except (ValueError, RuntimeError, LookupError):  # it was undone before
        pass


_recorder: Recorder | None = None
_factory: Callable[[], Recorder] | None = None


def set_recorder(recorder: Recorder | None) -> None:
    """Use this recorder from now on; runs that are open keep theirs."""
    global _recorder  # noqa: PLW0603 -- the one process-wide setting, changed by configure() alone
    _recorder = recorder


def set_recorder_factory(factory: Callable[[], Recorder]) -> None:
    """What makes a recorder, and sets it, when a run is opened before anything was configured."""
    global _factory  # noqa: PLW0603 -- set once, when the package is imported
    _factory = factory


def get_recorder() -> Recorder:
    """The recorder in use; made with the defaults when nothing was configured."""
    recorder = _recorder
    if recorder is None:
        assert _factory is not None, "tidegauge.pipeline sets the factory"  # noqa: S101
        recorder = _factory()
    return recorder

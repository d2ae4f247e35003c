"""The one place where tidegauge's own faults are swallowed.

A fault of the tracer must never become a fault of the agent. Whatever is called from user code
is wrapped by :func:`guarded`: an exception inside is logged once per place and minute, counted
under that place's name, and replaced by a default.

Three kinds of exceptions pass through:

- what is raised on purpose, for a policy (:class:`~tidegauge.errors.RunStopped`,
  :class:`~tidegauge.errors.CallBlocked`);
- what is not an ``Exception`` (a keyboard interrupt, a cancellation);
- what arrived from outside while our code happened to run: see :func:`arrived_from_outside`.

A guarded function that is entered in the middle of a critical section was started by the
interpreter (a finaliser, a signal handler); it is put off and its default is returned: see
:mod:`tidegauge._critical`.

In tests a swallowed fault would hide a defect: :func:`tidegauge.testing.raise_internal_errors`
makes the guard raise instead. It is a switch, and not the mere presence of pytest, because users
run their agents under pytest too.
"""

from __future__ import annotations

import dis
import functools
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FrameType, TracebackType
from typing import Any, Final, Literal, ParamSpec, TypeVar

from tidegauge._critical import (
    AT_ONCE,
    _deferred,
    defer,
    dropped_calls,
    here,
    interrupted,
    reset_after_fork,
    run_deferred,
)
from tidegauge.errors import CallBlocked, RunStopped

__all__ = [
    "InternalErrors",
    "arrived_from_outside",
    "guarded",
    "internal_errors",
    "swallowed",
]

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")

_logger = logging.getLogger("tidegauge")
_QUIET_SECONDS = 60.0

_RAISE_NOTHING: Final = frozenset({"RESUME", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "NOP"})
"""Instructions that can raise only what was set asynchronously."""


class InternalErrors:
    """Counts our own faults by the place where they were swallowed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._logged: dict[str, float] = {}
        self.reraise = False
        reset_after_fork(self)

    def record(self, where: str, error: BaseException) -> None:
        """Count one fault; log it unless this place was logged within the last minute."""
        if interrupted():  # what was interrupted may hold the lock
            defer(functools.partial(self.record, where, error))
            return
        now = time.monotonic()
        with here.critical, self._lock:
            self._counts[where] = self._counts.get(where, 0) + 1
            last = self._logged.get(where)
            quiet = last is not None and now - last < _QUIET_SECONDS
            if not quiet:
                self._logged[where] = now
        if not quiet:
            _logger.error(
                "tidegauge: internal error in %s; the agent continues",
                where,
                exc_info=_shown(error),
            )

    def counts(self) -> Mapping[str, int]:
        """How many faults were swallowed, by place."""
        if _deferred and not interrupted():
            run_deferred()
        counts, dropped = dict(self._counts), dropped_calls()
        return {**counts, "deferred": dropped} if dropped else counts

    def clear(self) -> None:
        """Forget all counts (for tests)."""
        self._reset_after_fork()

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._counts = {}
        self._logged = {}


def _shown(error: BaseException) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """An exception as it is logged, without running code of its class: it may be the user's."""
    kind = type(error)
    args = BaseException.__dict__["args"].__get__(error)
    plain = kind.__str__ in _PLAIN_STR and all(type(one) in (str, int, float) for one in args)
    shown = type(kind.__name__, (Exception,), {"__module__": kind.__module__})
    text = str(error) if plain else "(its text is not shown: it could run code)"
    return shown, shown(text), error.__traceback__


_PLAIN_STR: Final = frozenset(
    kind.__str__
    for kind in (BaseException, OSError, KeyError, ImportError, UnicodeEncodeError, SyntaxError)
)

internal_errors = InternalErrors()
"""The counts of this process."""


def guarded(
    where: str,
    *,
    default: D,
    on_fault: Callable[P, object] | None = None,
    interrupting: Literal["defer", "skip", "run"] = "defer",
) -> Callable[[Callable[P, R]], Callable[P, R | D]]:
    """Decorate a hook so that no fault of ours leaves it.

    Args:
        where: name under which a fault is counted.
        default: what the hook returns when it failed, or was not run now.
        on_fault: called with the hook's arguments when it failed; must not raise.
        interrupting: what to do in the middle of a critical section: ``"defer"`` runs the hook
            with the next ordinary call; ``"skip"`` does not run it (it asks for something);
            ``"run"`` runs it (it takes no lock, or re-entrant ones and only reads).

    >>> @guarded("doctest", default=0)
    ... def hook(value: int) -> int:
    ...     return 10 // value
    >>> hook(5)
    2
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R | D]:
        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | D:
            if interrupting != "run":
                if here.critical._is_owned():
                    if interrupting == "defer":
                        defer(functools.partial(wrapper, *args, **kwargs))
                    return default
                if _deferred:
                    run_deferred(AT_ONCE)
            try:
                return function(*args, **kwargs)
            except (RunStopped, CallBlocked):
                raise
            except Exception as error:
                if arrived_from_outside(error):
                    raise
                internal_errors.record(where, error)
                if on_fault is not None:
                    on_fault(*args, **kwargs)
                if internal_errors.reraise:
                    raise
                return default

        return wrapper

    return decorate


class swallowed:  # noqa: N801 -- a context manager that reads as a word, as contextlib's do
    """Swallows and records internal errors inside a critical section, where no hook is called.

    Args:
        where: name under which a fault is counted.
    """

    __slots__ = ("_where",)

    def __init__(self, where: str) -> None:
        self._where = where

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if not isinstance(error, Exception) or isinstance(error, RunStopped | CallBlocked):
            return False
        if arrived_from_outside(error):
            return False
        internal_errors.record(self._where, error)
        return not internal_errors.reraise


def arrived_from_outside(error: BaseException) -> bool:
    """Whether an exception arrived while our code ran, and was not raised by it.

    A signal handler written in Python is called with the frame that it interrupts. So if the
    traceback leads from a frame into one that was given this very frame as an argument, or into
    the code of a handler that is registered now, a handler raised it. An exception that another
    thread has set (``PyThreadState_SetAsyncExc``) surfaces at any instruction: it is recognised
    where that instruction can raise nothing itself (the start of a function, the end of a loop).
    """
    at = error.__traceback__
    before: FrameType | None = None
    handlers: set[CodeType] | None = None
    last = at
    while at is not None:
        frame = at.tb_frame
        if before is not None:
            if handlers is None:
                handlers = set(_handlers())
            if frame.f_code in handlers or _was_given(frame, before):
                return True
        before, last, at = frame, at, at.tb_next
    if last is None:
        return False
    code, offset = last.tb_frame.f_code.co_code, last.tb_lasti
    return 0 <= offset < len(code) and dis.opname[code[offset]] in _RAISE_NOTHING


def _was_given(frame: FrameType, interrupted_frame: FrameType) -> bool:
    """Whether a frame was called with another as an argument, as signal handlers are."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    found = frame.f_locals
    if any(found.get(name) is interrupted_frame for name in code.co_varnames[:count]):
        return True
    if not code.co_flags & 0x04:  # no *args
        return False
    rest = found.get(code.co_varnames[count])
    return type(rest) is tuple and any(one is interrupted_frame for one in rest)


def _handlers() -> Iterator[CodeType]:
    """The code of the signal handlers that are registered."""
    for number in signal.valid_signals():
        handler: Any = signal.getsignal(number)
        while type(handler) is functools.partial:
            handler = handler.func
        handler = getattr(handler, "__func__", handler)
        code = getattr(handler, "__code__", None) if callable(handler) else None
        if type(code) is CodeType:
            yield code

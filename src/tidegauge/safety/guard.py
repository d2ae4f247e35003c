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
:mod:`tidegauge.safety.critical`.

In tests a swallowed fault would hide a defect: :func:`tidegauge.testing.raise_internal_errors`
makes the guard raise instead. It is a switch, and not the mere presence of pytest, because users
run their agents under pytest too.
"""

from __future__ import annotations

import dis
import functools
import inspect
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import ExtensionFileLoader
from types import CodeType, FrameType, TracebackType
from typing import Any, Final, Literal, ParamSpec, TypeVar

from tidegauge.errors import CallBlocked, RunStopped
from tidegauge.safety.critical import (
    AT_ONCE,
    _deferred,
    defer,
    dropped_calls,
    here,
    interrupted,
    reset_after_fork,
    run_deferred,
)

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")

_logger = logging.getLogger("tidegauge")
_QUIET_SECONDS = 60.0

_RAISE_NOTHING: Final = frozenset({"RESUME", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "NOP"})
"""Instructions that raise nothing and call nothing: what comes there was set asynchronously."""
_RAISE: Final = frozenset({"RAISE_VARARGS", "RERAISE"})
"""Instructions that raise what they are given."""
_LIBRARIES: Final = sys.stdlib_module_names | {
    *("tidegauge", "opentelemetry", "prometheus_client", "google", "grpc", "confluent_kafka"),
    *("numpy", "scipy", "pandas", "pyarrow", "orjson", "xxhash"),
}
"""The packages whose code runs as part of ours, and whose exceptions our code may meet."""
_PAUSES: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_SIGNALS: Final = tuple(map(int, signal.valid_signals()))


class InternalErrors:
    """Counts our own faults by the place where they were swallowed.

    Attributes:
        overflows: those that met a full stack, where nothing can be called, by place; each place
            is in it beforehand.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._logged: dict[str, float] = {}
        self.overflows: Final[dict[str, int]] = {}
        self.reraise = False
        reset_after_fork(self)

    def record(self, where: str, error: BaseException) -> None:
        """Count one fault; log it unless this place was logged within the last minute."""
        if interrupted():  # what was interrupted may hold the lock
            defer(functools.partial(self.record, where, error))
            return
        with here.critical, self._lock:
            self._counts[where] = self._counts.get(where, 0) + 1
            shown = self._is_due(where)
        if shown:
            log(
                logging.ERROR,
                "tidegauge: internal error in %s; the agent continues",
                where,
                exc_info=_shown(error),
            )

    def of_environment(self, where: str, message: str, *args: object) -> None:
        """Log a fault that is none of ours: a full disk, a server that does not answer.

        It is not counted. Nor is it logged if this place was logged within the last minute.

        Args:
            where: the place.
            message: what happened, and what to do.
            args: what the message is formatted with.
        """
        if interrupted():
            defer(functools.partial(self.of_environment, where, message, *args))
            return
        with here.critical, self._lock:
            shown = self._is_due(where)
        if shown:
            log(logging.WARNING, f"tidegauge: {message}", *args)

    def _is_due(self, where: str) -> bool:
        now, last = time.monotonic(), self._logged.get(where)
        if last is not None and now - last < _QUIET_SECONDS:
            return False
        self._logged[where] = now
        return True

    def counts(self) -> Mapping[str, int]:
        """How many faults were swallowed, by place."""
        if _deferred and not interrupted():
            run_deferred()
        counts, dropped = dict(self._counts), dropped_calls()
        for where, overflows in self.overflows.items():
            if overflows:
                counts[where] = counts.get(where, 0) + overflows
        return {**counts, "deferred": dropped} if dropped else counts

    def clear(self) -> None:
        """Forget all counts (for tests)."""
        self._reset_after_fork()

    def _reset_after_fork(self) -> None:
        self._lock = threading.Lock()
        self._counts = {}
        self._logged = {}
        self.overflows.update(dict.fromkeys(self.overflows, 0))


def log(level: int, message: str, *args: object, exc_info: Any = None) -> None:
    """Log where an agent may be waiting: what a handler or a filter of the user raises is lost.

    As ``logging`` does with the errors of its handlers: there is no one left to report to.
    """
    try:
        _logger.log(level, message, *args, exc_info=exc_info)
    except Exception as error:
        if arrived_from_outside(error):
            raise


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
    """Decorate a hook so that no internal error leaves it.

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

    overflows = internal_errors.overflows
    overflows.setdefault(where, 0)
    checks = interrupting != "run"

    def decorate(function: Callable[P, R]) -> Callable[P, R | D]:
        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | D:
            try:
                if checks:
                    # Read as an attribute of a thread's own object, it takes twice as long.
                    if here.__dict__["critical"]._is_owned():
                        if interrupting == "defer":
                            defer(functools.partial(wrapper, *args, **kwargs))
                        return default
                    if _deferred:
                        run_deferred(AT_ONCE)
                try:
                    if not kwargs:
                        return function(*args)  # type: ignore[call-arg]
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
            except RecursionError:  # the stack is full: nothing can be called here
                if internal_errors.reraise:
                    raise
                overflows[where] += 1
                return default

        return wrapper

    return decorate


def passes(where: str, error: Exception) -> bool:
    """Count what an ``except`` of ours has caught, as :func:`guarded` does, or let it pass.

    For what every step runs inside of a guarded function: a ``try`` costs nothing there. Where it
    is guarded by nothing else, a clause for :class:`RecursionError` comes before: on a full stack,
    nothing can be called.

    Args:
        where: name under which a fault is counted.
        error: what was caught.

    Returns:
        Whether it must be raised again.
    """
    if issubclass(type(error), (RunStopped, CallBlocked)) or arrived_from_outside(error):
        return True
    internal_errors.record(where, error)
    return internal_errors.reraise


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
        if error is None or issubclass(type(error), (RunStopped, CallBlocked)):
            return False
        if arrived_from_outside(error):
            return False
        internal_errors.record(self._where, error)
        return not internal_errors.reraise


def arrived_from_outside(error: BaseException) -> bool:
    """Whether an exception arrived while our code ran, and was not raised by it.

    An exception arrives by one of three ways:

    - A signal handler written in Python is called with the frame that it interrupts, a function
      for ``sys.settrace`` or ``sys.setprofile`` with the one that it watches. Our code gives no
      frame to the user's. So if the traceback leads from a frame of ours into one of the user's
      that was given a frame, or from any frame into one that was given this very frame, or into
      the code of a handler that is registered now, the interpreter called it.
    - What is called where an instruction calls nothing (the start of a function, the end of a
      loop), or raised where it raises nothing, came from the interpreter as well.
    - What another thread has set (``PyThreadState_SetAsyncExc``) surfaces also where C code has
      returned, and an instruction that calls C code may raise. There the class decides: our code,
      and that of the libraries it calls, raises exceptions of Python, of these libraries and its
      own. One of any other class can only come out of the user's code, which then has a
      frame in the traceback, below ours; or it is handed on by a ``raise`` (a future's, a
      mock's). Where the innermost frame is a library's or ours, and no ``raise``, it was set.

    What is no ``Exception`` is never ours. Two cases remain open: an exception of Python's own
    (a ``TimeoutError``) that another thread has set, or a handler that has forgotten its frame and
    is registered no more, is taken for ours where an instruction could have raised it; and one of
    the user's code written in C, which has no frame, is taken for one that has arrived, but for
    classes out of extension modules.
    """
    if not issubclass(type(error), Exception):
        return True
    at = error.__traceback__
    before: FrameType | None = None
    handlers: set[CodeType] | None = None
    name = ""
    while at is not None:
        frame = at.tb_frame
        if before is not None:
            if handlers is None:
                handlers = set(_handlers())
            if frame.f_code in handlers or _was_given(frame, before):
                return True
        code, offset = frame.f_code.co_code, at.tb_lasti
        name = dis.opname[code[offset]] if 0 <= offset < len(code) else ""
        # where a generator waits for another, what is thrown into it passes through
        if name in _RAISE_NOTHING and (at.tb_next is None or not frame.f_code.co_flags & _PAUSES):
            return True
        before, at = frame, at.tb_next
    return (
        before is not None
        and name not in _RAISE
        and _is_librarys(before)
        and _is_foreign(type(error))
    )


def _is_librarys(frame: FrameType) -> bool:
    """Whether a frame is of our code or of what it calls, and not of the user's."""
    name = dict.get(frame.f_globals, "__name__")
    return type(name) is str and (
        name.partition(".")[0] in _LIBRARIES or name.startswith("namedtuple_")
    )


def _is_foreign(kind: type[BaseException]) -> bool:
    """Whether neither our code nor what it calls raises a class, found without its code."""
    name = _module_of(kind)
    if type(name) is not str or name.partition(".")[0] in _LIBRARIES:
        return False
    loader = getattr(sys.modules.get(name), "__loader__", None)
    return not issubclass(type(loader), ExtensionFileLoader)


_module_of: Final = type.__dict__["__module__"].__get__


def _was_given(frame: FrameType, interrupted_frame: FrameType) -> bool:
    """Whether a frame was called with the one before it, as signal handlers are; of ours, any."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    found = frame.f_locals
    given = [found.get(name) for name in code.co_varnames[:count]]
    if code.co_flags & 0x04:  # *args
        rest = found.get(code.co_varnames[count])
        given.extend(rest if type(rest) is tuple else ())
    if any(one is interrupted_frame for one in given):
        return True
    # A frame may be a value of the user's, which our own functions hand on.
    ours = _is_librarys(interrupted_frame)
    return FrameType in map(type, given) and ours and not _is_librarys(frame)


def _handlers() -> Iterator[CodeType]:
    """The code of the signal handlers that are registered."""
    for number in _SIGNALS:
        handler: Any = signal.getsignal(number)
        while type(handler) is functools.partial:
            handler = handler.func
        handler = getattr(handler, "__func__", handler)
        code = getattr(handler, "__code__", None) if callable(handler) else None
        if type(code) is CodeType:
            yield code

"""Critical sections: where locks are held, what may interrupt them, and what a fork leaves of them.

CPython runs other code in the middle of tidegauge: the garbage collector and reference counting run
finalisers, a signal runs its handler, and either may call a tool of the same agent, in the thread
that is just inside a section. Were that call to wait for the lock, it would wait for itself.

Three rules prevent that:

1. Locks are taken only inside a critical section (``with here.critical, lock:``), and inside a
   section there is only arithmetic of tidegauge and calls of OpenTelemetry, whose locks are not
   re-entrant. What users supply (normalisers, keys, extractors, distances) runs before the section.
2. Every hook that user code can reach is :func:`~tidegauge.safety.guard.guarded`, and no guarded
   function is called inside a section. So a guarded function that finds its thread inside one was
   started by the interpreter. It is put off (:func:`defer`) and runs with the next ordinary call
   of any thread (:func:`run_deferred`).
3. A generator that is closed early is reported the same way, because the garbage
   collector may end it while it interrupts other code.

No code of ours is called by the interpreter where it loses exceptions, as those of a signal
handler: in ``__del__``, and in callbacks of weak references, which are written in C here.

A section is marked by an ``RLock`` that each thread has for itself: ``with`` on a lock made in C
acquires and releases it without a moment at which an exception of a signal handler could leave it
locked.

What this does not cover: a signal handler that calls a tool while the *application's own* code is
inside a lock of OpenTelemetry or of another library.

After a fork, the child has one thread, and locks that other threads held stay locked for ever.
Objects that live long register with :func:`reset_after_fork`; the child then gives them new locks
and an empty state: the runs of the parent are the parent's.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Final, Protocol
from weakref import ref

from tidegauge.errors import CallBlocked, RunStopped

MAX_DEFERRED: Final = 10_000
"""Calls that wait to be run; later ones are dropped and counted."""

_MANY: Final = 1_000
AT_ONCE: Final = 64
"""Calls that one ordinary call runs before it."""


_logger = logging.getLogger("tidegauge")


class _Here(threading.local):
    """What belongs to the calling thread.

    Attributes:
        critical: its critical section, to be entered with ``with``; sections nest.
        catching_up: whether it runs calls that were put off.
        apart: whether it runs in a copy of the context of what it interrupts.

    >>> with here.critical:
    ...     interrupted()
    True
    >>> interrupted()
    False
    """

    def __init__(self) -> None:
        self.critical: Any = threading.RLock()
        self.catching_up = False
        self.apart = False


here = _Here()
_deferred: deque[Callable[[], object]] = deque()
_dropped = 0
_catching_up: int | None = None
_catching_up_lock = threading.Lock()


def interrupted() -> bool:
    """Whether this thread is inside a critical section, which the caller then interrupts."""
    owned: bool = here.critical._is_owned()  # as threading.Condition asks it
    return owned


def defer(call: Callable[[], object]) -> None:
    """Put a call off until the next ordinary one; when too many wait it is dropped and counted."""
    global _dropped  # noqa: PLW0603 -- no lock may be taken here
    if len(_deferred) < MAX_DEFERRED:
        _deferred.append(call)
    else:
        _dropped += 1


def dropped_calls() -> int:
    """How many calls were dropped because too many waited."""
    return _dropped


def run_deferred(limit: int = MAX_DEFERRED) -> None:
    """Run the calls that wait, in their order; each handles its own faults.

    Nothing when one of them calls this again, or another thread is about it.

    Args:
        limit: run no more of them now.
    """
    global _catching_up  # noqa: PLW0603 -- which thread does it: one at a time keeps the order
    if here.catching_up or interrupted():
        return
    me = threading.get_ident()
    with here.critical, _catching_up_lock:
        # A thread that died in the middle of it holds the others up for so long only.
        if _catching_up not in (None, me) and len(_deferred) < _MANY:
            return
        _catching_up = me
    try:
        here.catching_up = True
        # As many as wait now: one that is put off again while it runs waits for the next time.
        for _ in range(min(len(_deferred), limit)):
            try:
                call = _deferred.popleft()
            except IndexError:
                return
            # A stop that a late report brings is raised by the next step of its run.
            # In a copy of the context: what a late call makes current must not be current here.
            with contextlib.suppress(RunStopped, CallBlocked):
                copy_context().run(call)
    except BaseException:
        _deferred.append(_call_unused)  # first of all: another exception may arrive
        raise
    finally:
        here.catching_up = False
        _catching_up = None


class _Forkable(Protocol):
    def _reset_after_fork(self) -> None:
        """Create new locks and drop the state of the parent."""


_forkable: set[ref[_Forkable]] = set()


def reset_after_fork(held: _Forkable) -> None:
    """Have ``held._reset_after_fork()`` called in the child of every fork, while it exists."""
    _forkable.add(ref(held, _forkable.discard))


_unused: set[_Unused] = set()


class _Unused(ref[Any]):
    """Refers to an object, and has something called if that is freed.

    Args:
        held: the object.
        call: takes no arguments.
    """

    __slots__ = ("_call",)

    def __new__(cls, held: Any, call: Callable[[], object]) -> _Unused:
        return super().__new__(cls, held, _deferred.append)

    def __init__(self, held: Any, call: Callable[[], object]) -> None:
        self._call = call
        _unused.add(self)

    def __call__(self) -> None:
        self._call()
        _unused.discard(self)  # last: an exception may have arrived before

    def detach(self) -> None:
        """It is in use: nothing is called any more."""
        _unused.discard(self)


def _call_unused() -> None:
    """Call again what an exception has interrupted, or kept from being called."""
    for one in _unused.copy():
        if ref.__call__(one) is None:
            one()


def defer_if_unused(held: object, call: Callable[[], object]) -> Callable[[], object]:
    """Put a call off until an object is freed, unless what this returns is called before.

    Args:
        held: the object.
        call: is run with the next ordinary call, after the object was freed; again, if an
            exception arrives meanwhile.
    """
    return _Unused(held, call).detach


def _start_child() -> None:
    global _catching_up, _catching_up_lock, _dropped
    _catching_up, _catching_up_lock, _dropped = None, threading.Lock(), 0
    _deferred.clear()
    # A signal handler may fork in the middle of a section: what it left is the parent's.
    here.critical = threading.RLock()
    here.catching_up = False
    for held in [one() for one in _forkable.copy()]:
        try:
            if held is not None:
                held._reset_after_fork()
        except Exception:
            with contextlib.suppress(Exception):  # of a handler of the user: the others are next
                _logger.exception(
                    "tidegauge: internal error after a fork in %s", type(held).__name__
                )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_child)

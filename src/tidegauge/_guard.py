"""The one place where tidegauge's own faults are swallowed.

A fault of the tracer must never become a fault of the agent. Whatever is called from user code
is wrapped by :func:`guarded`: an exception inside is logged once per place and minute, counted
under that place's name, and replaced by a default. What is raised on purpose, for a policy
(:class:`~tidegauge.errors.RunStopped`, :class:`~tidegauge.errors.CallBlocked`), passes through,
and so does whatever is no ``Exception`` (a keyboard interrupt).

In tests a swallowed fault would hide a defect: :func:`tidegauge.testing.raise_internal_errors`
makes the guard raise instead. It is a switch, and not the mere presence of pytest, because users
run their agents under pytest too.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import ParamSpec, TypeVar

from tidegauge.errors import CallBlocked, RunStopped

__all__ = ["InternalErrors", "guarded", "internal_errors"]

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")

_logger = logging.getLogger("tidegauge")
_QUIET_SECONDS = 60.0


class InternalErrors:
    """Counts our own faults by the place where they were swallowed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, int] = {}
        self._logged: dict[str, float] = {}
        self.reraise = False

    def record(self, where: str, error: BaseException) -> None:
        """Count one fault; log it unless this place was logged within the last minute."""
        now = time.monotonic()
        with self._lock:
            self._counts[where] = self._counts.get(where, 0) + 1
            last = self._logged.get(where)
            quiet = last is not None and now - last < _QUIET_SECONDS
            if not quiet:
                self._logged[where] = now
        if not quiet:
            _logger.error(
                "tidegauge: internal error in %s; the agent goes on", where, exc_info=error
            )

    def counts(self) -> Mapping[str, int]:
        """How many faults were swallowed, by place."""
        with self._lock:
            return dict(self._counts)

    def clear(self) -> None:
        """Forget all counts (for tests)."""
        with self._lock:
            self._counts.clear()
            self._logged.clear()


internal_errors = InternalErrors()
"""The counts of this process."""


def guarded(
    where: str, *, default: D, on_fault: Callable[P, object] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R | D]]:
    """Decorate a hook so that no fault of ours leaves it.

    Args:
        where: name under which a fault is counted.
        default: what the hook returns when it failed.
        on_fault: called with the hook's arguments when it failed; is itself to raise nothing.

    >>> @guarded("doctest", default=0)
    ... def hook(value: int) -> int:
    ...     return 10 // value
    >>> hook(5)
    2
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R | D]:
        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R | D:
            try:
                return function(*args, **kwargs)
            except (RunStopped, CallBlocked):
                raise
            except Exception as error:
                internal_errors.record(where, error)
                if on_fault is not None:
                    on_fault(*args, **kwargs)
                if internal_errors.reraise:
                    raise
                return default

        return wrapper

    return decorate

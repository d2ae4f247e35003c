"""Which recorder is in use; and runs in other threads."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextvars import copy_context
from typing import ParamSpec, TypeVar

from tidegauge.runs.recorder import Recorder

P = ParamSpec("P")
R = TypeVar("R")

_recorder: Recorder | None = None
_factory: Callable[[], Recorder] | None = None


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
        # One context cannot be entered twice at a time: each call has a separate copy.
        return context.copy().run(function, *args, **kwargs)

    return wrapper


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

"""Which recorder is in use, and which run the caller is in."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, NamedTuple

from tidegauge.instrumentation.recorder import Recorder

if TYPE_CHECKING:
    from tidegauge.instrumentation.context import Run

__all__ = [
    "CurrentRun",
    "current_run",
    "get_recorder",
    "set_recorder",
    "set_recorder_factory",
    "undo",
]


class CurrentRun(NamedTuple):
    """The run that the caller is in, and whether it is inside one of its tools."""

    run: Run
    in_tool: bool


current_run: ContextVar[CurrentRun | None] = ContextVar("tidegauge_current_run", default=None)


def undo(token: Token[Any] | None) -> None:
    """Undo the ``set`` of a context variable, OpenTelemetry's current context among them.

    A block left in another context than it was entered in (a generator closed early) has nothing
    to undo: that context is gone, and with it what was set there.
    """
    if token is not None:
        with contextlib.suppress(ValueError):
            token.var.reset(token)


_lock = threading.Lock()
_recorder: Recorder | None = None
_factory: Callable[[], Recorder] | None = None


def set_recorder(recorder: Recorder | None) -> None:
    """Use this recorder from now on; runs that are open keep theirs."""
    global _recorder  # noqa: PLW0603 -- the one process-wide setting, changed by configure() alone
    with _lock:
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

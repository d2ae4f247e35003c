"""A handler for every invocation in the process, given to none of them.

LangChain asks its configure hooks for handlers whenever a callback manager is made, and does so by
the ``get`` of a context variable. A variable's value would not be known in the threads of an
executor, and its default could not be changed: the object registered here has its ``get`` instead.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar
from typing import Any, cast

from langchain_core.tracers.context import register_configure_hook

from tidegauge.instrumentation.langchain.handler import TidegaugeCallbackHandler
from tidegauge.safety.critical import here


class _Everywhere:
    """One value for all threads and tasks, read like a context variable."""

    def __init__(self) -> None:
        self.handler: TidegaugeCallbackHandler | None = None

    def get(self) -> TidegaugeCallbackHandler | None:
        return self.handler


_everywhere = _Everywhere()
_lock = threading.Lock()
_registered = False


def instrument(**options: Any) -> TidegaugeCallbackHandler:
    """Make every invocation a run, in every thread and task, until :func:`uninstrument`.

    An invocation that is given a handler of ours keeps that one: it is measured once. Instrumented
    again, what begins from then on has the new handler.

    Args:
        **options: as for :class:`TidegaugeCallbackHandler`.

    Returns:
        The handler.

    Raises:
        ConfigurationError: as :class:`TidegaugeCallbackHandler` does.

    >>> from langchain_core.runnables import RunnableLambda
    >>> from tidegauge import testing
    >>> with testing.capture() as seen:
    ...     _ = instrument(task_group="docs")
    ...     _ = RunnableLambda(str, name="echo").invoke("hello")
    ...     uninstrument()
    ...     _ = RunnableLambda(str, name="echo").invoke("hello")
    >>> seen.tree()
    ['invoke_agent echo']
    """
    global _registered  # noqa: PLW0603 -- LangChain keeps its hooks for ever: one is enough
    handler = TidegaugeCallbackHandler(**options)
    with here.critical, _lock:
        _everywhere.handler = handler
        if not _registered:
            _registered = True
            register_configure_hook(
                cast("ContextVar[Any]", _everywhere),
                inheritable=True,
                handle_class=TidegaugeCallbackHandler,
            )
    return handler


def uninstrument() -> None:
    """Undo :func:`instrument`; runs that are open go on to their end."""
    _everywhere.handler = None
